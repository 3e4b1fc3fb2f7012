"""MARLHF: a reward model learns from pairs, and any learner of rollouts from it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import (
    byte_tokenizer,
    caught_gradients,
    letter_agent,
    matching_env,
    tiny_agent,
    tiny_llama,
)

from motet import algos
from motet.agents import Agent, FixedAgent, LMAgent
from motet.algos import MADPOConfig, MAGRPOConfig, MARLHFConfig, MARLHFTrainer, RewardModel
from motet.algos.preferences.marlhf import RewardLearner
from motet.envs import TextEnv

NAMES = ("agent_0", "agent_1", "agent_2")
QUIET = {"progress_bar": False}
LEARNING = {
    "num_train_epochs": 30,
    "rollout_batch_size": 4,
    "num_generations": 8,
    "agent_learning_rate": 0.02,
    **QUIET,
}
TAUGHT = {"reward_learning_rate": 0.01, "reward_num_epochs": 2}


def separate(count: int = 2) -> dict[str, Agent]:
    return {name: letter_agent(i) for i, name in enumerate(NAMES[:count])}


def same(*texts: list[str]) -> list[float]:
    return [float(len(set(said)) == 1 and said[0] != "") for said in zip(*texts, strict=True)]


SAME = {1: lambda a: [float(x == "b") for x in a], 3: same}


@pytest.mark.parametrize(
    ("team", "options"),
    [
        (
            "separate",
            {"algo": "marloo", "num_turns": 2, "num_generations": 4, "reward_batch_size": 32},
        ),
        ("separate", {"algo": "madpo", "joint_mode": "cross", "num_generations": 4}),
        ("one frozen", {"reward_normalization": False}),
    ],
)
def test_it_learns_to_say_the_same(team: str, options: dict[str, Any]) -> None:
    agents = separate()
    if team == "one frozen":
        agents["agent_0"] = FixedAgent("c")
    options = dict(options)
    env = matching_env(options.pop("num_turns", 1))
    trainer = algos.make("marlhf", env, agents, MARLHFConfig(**{**LEARNING, **TAUGHT, **options}))
    before = trainer.evaluate(num_samples=50).metrics["reward_mean"]
    trainer.train()
    assert before < 0.5
    assert trainer.evaluate(num_samples=50).metrics["reward_mean"] > 0.9


@pytest.mark.parametrize("count", [1, 3])
def test_one_agent_and_three_learn_too(count: int) -> None:
    env = TextEnv([{"prompt": x} for x in "abcd"], SAME[count], num_agents=count)
    trainer = MARLHFTrainer(env, separate(count), MARLHFConfig(**{**LEARNING, **TAUGHT}))
    before = trainer.evaluate(num_samples=50).metrics["reward_mean"]
    trainer.train()
    after = trainer.evaluate(num_samples=50).metrics["reward_mean"]
    assert before < 0.3
    assert after > 0.7


def any_spread(first: list[str], second: list[str]) -> list[float]:
    return [sum(map(ord, a)) % 101 + 0.1 * len(b) for a, b in zip(first, second, strict=True)]


def task(num_turns: int = 1, **changes: Any) -> TextEnv:
    return TextEnv(
        [{"prompt": "Tell me."}, {"prompt": "And now?"}],
        any_spread,
        transition=lambda prompt: [prompt, prompt + "?"],
        num_turns=num_turns,
        **changes,
    )


@pytest.mark.parametrize("algo", ["magrpo", "madpo"])
def test_its_step_is_the_learners_on_the_rated_rollout(algo: str) -> None:
    """Two trainers with equal models: one through the reward model, one given what it said."""
    kind = algos.spec(algo).config_class
    settings = {"num_generations": 3, "max_grad_norm": None, **QUIET}
    team, twins = (
        {name: tiny_agent(i, max_new_tokens=4) for i, name in enumerate(NAMES[:2])} for _ in "ab"
    )
    trainer = MARLHFTrainer(task(2), team, MARLHFConfig(algo=algo, **settings))
    plain = algos.make(algo, task(2), twins, kind(**settings))
    rollout = trainer.collect([0, 1])
    caught = caught_gradients(trainer)
    metrics = trainer.update(rollout)
    # with the weights that the update left the reward model with
    rated = RewardLearner(trainer.reward_model, trainer.config).rated(rollout)
    expected = caught_gradients(plain)
    alone = plain.update(rated)
    for name in NAMES[:2]:
        for key, gradient in expected[name].items():
            torch.testing.assert_close(caught[name][key], gradient, rtol=1e-5, atol=1e-8)
    assert metrics["train/loss"] == pytest.approx(alone["train/loss"])
    # what is reported of turns is the task's own
    assert metrics["turn_1/reward_mean"] > 5
    assert abs(alone["turn_1/reward_mean"]) < 5
    assert 0 <= metrics["train/reward_model_accuracy"] <= 1
    assert metrics["train/num_reward_pairs"] == 2 * 1 + 6 * 1


def test_a_learner_may_see_the_env_in_a_view_of_its_own() -> None:
    team = dict.fromkeys(NAMES[:2], tiny_agent(max_new_tokens=4))
    config = MARLHFConfig(algo="centralised-magrpo", num_generations=3, **QUIET)
    trainer = MARLHFTrainer(task(2), team, config, eval_env=task(2))
    trainer.train()
    assert trainer.num_env_steps == 2 * (3 + 3 * 3)
    assert list(trainer.agents) == list(trainer.reward_model.agents) == ["team"]
    assert trainer.evaluate().rollout.agents == ("team",)


def test_where_all_earn_the_same_the_reward_model_is_left_alone() -> None:
    env = TextEnv([{"prompt": "p"}], lambda a, b: [1.0] * len(a))
    trainer = MARLHFTrainer(env, separate(), MARLHFConfig(**QUIET))
    before = trainer.reward_model.heads.clone()
    metrics = trainer.update(trainer.collect([0]))
    assert metrics["train/num_reward_pairs"] == 0
    assert "train/reward_model_accuracy" not in metrics
    assert torch.equal(before, trainer.reward_model.heads)


def test_it_saves_the_reward_model_beside_the_agents(tmp_path: Path) -> None:
    trainer = MARLHFTrainer(matching_env(), separate(), MARLHFConfig(**QUIET))
    trainer.train()
    trainer.save_model(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "agent_0",
        "agent_1",
        "reward_model",
    ]
    loaded = RewardModel.from_pretrained(tmp_path / "reward_model")
    again = MARLHFTrainer(matching_env(), separate(), reward_model=loaded)
    text = loaded.encode({"agent_0": "a"}, {"agent_0": "b"}, "raise")
    assert torch.equal(trainer.reward_model([text]), again.reward_model([text]))


def test_a_run_that_stopped_ends_like_one_that_did_not(tmp_path: Path) -> None:
    def made(epochs: int, **options: Any) -> MARLHFTrainer:
        shared = {**LEARNING, "num_train_epochs": epochs, "train_batch_size": 3}
        own = MADPOConfig(**shared, dpo_beta=0.2)
        config = MARLHFConfig(algo="madpo", algo_config=own, **TAUGHT, **QUIET)
        return MARLHFTrainer(matching_env(), separate(), config, **options)

    whole, first, second = made(4), made(2), made(4)
    whole.train()
    first.train()
    first.save_checkpoint(tmp_path)
    second.train(resume_from=tmp_path)
    for parts in (
        [w for trainer in (whole, second) for w in trainer.reward_model.parameters()],
        [w for trainer in (whole, second) for u in trainer.updaters for w in u.policy.parameters()],
    ):
        half = len(parts) // 2
        assert all(torch.equal(a, b) for a, b in zip(parts[:half], parts[half:], strict=True))
    assert second.num_env_steps == whole.num_env_steps
    with pytest.raises(ValueError, match=r"algo_config\.dpo_beta=0\.2 there and 0\.1 here"):
        config = MARLHFConfig(algo="madpo", **TAUGHT, **LEARNING)
        MARLHFTrainer(matching_env(), separate(), config).train(resume_from=tmp_path)
    other = made(4, reward_model=RewardModel(tiny_llama(), byte_tokenizer(), NAMES[:2]))
    with pytest.raises(ValueError, match="a checkpoint of the same reward model, got heads of sh"):
        other.train(resume_from=tmp_path)


# --- settings -------------------------------------------------------------------------------------


def test_settings_here_go_to_the_learner_and_its_defaults_come_back() -> None:
    config = MARLHFConfig(num_generations=3, discount=0.5).resolved()
    assert config.algo_config == MAGRPOConfig(num_generations=3, discount=0.5)
    own = MADPOConfig(dpo_beta=0.5, num_iterations=2, num_generations=6)
    config = MARLHFConfig(algo="madpo", algo_config=own).resolved()
    assert config.algo_config is own
    assert (config.num_iterations, config.num_generations) == (2, 6)
    assert config.resolved() == config


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"algo": "margpo"}, KeyError, "Did you mean 'magrpo'"),
        ({"algo": "maremax"}, ValueError, "sampled completions alone, got 'maremax'"),
        ({"algo": "frozen"}, TypeError, "on rollouts, got 'frozen', whose settings are FrozenC"),
        ({"algo": "marlhf"}, TypeError, "a learner that trains on rollouts, got 'marlhf'"),
        ({"algo_config": MADPOConfig()}, TypeError, "a MAGRPOConfig as algo_config"),
        ({"algo": "madpo", "clip_range": 0.2}, ValueError, "clip_range=None with MADPO"),
    ],
)
def test_what_no_learner_can_do_is_refused(
    settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        MARLHFTrainer(matching_env(), separate(), MARLHFConfig(**settings))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"reward_learning_rate": 0.0}, "reward_learning_rate above 0"),
        ({"reward_num_epochs": 0}, "reward_num_epochs of at least 1"),
        ({"reward_batch_size": -2}, "reward_batch_size of at least 1"),
        ({"reward_overflow": "truncate_left"}, "one of raise, truncate"),
        ({"reward_normalization": 1}, "reward_normalization to be bool"),
        ({"num_generations": 1}, "num_generations of at least 2"),
        ({"pairs_per_group": 0}, "pairs_per_group of at least 1"),
        ({"algo": MAGRPOConfig}, "algo to be str"),
        ({"algo_config": {"seed": 1}}, "algo_config to be TrainerConfig"),
        ({"algo_config": MAGRPOConfig(), "seed": 1}, "seed in algo_config, got 1 beside it and 42"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        MARLHFConfig(**settings)


def test_a_reward_model_has_weights_of_its_own() -> None:
    team = separate()
    agent = team["agent_0"]
    assert isinstance(agent, LMAgent)
    env = matching_env()
    with pytest.raises(ValueError, match="a reward model with weights of its own"):
        MARLHFTrainer(env, team, reward_model=RewardModel(agent.model, agent.tokenizer, NAMES[:2]))
    with pytest.raises(ValueError, match=r"a reward model of \['agent_0', 'agent_1'\]"):
        other = RewardModel(tiny_llama(), byte_tokenizer(), NAMES)
        MARLHFTrainer(env, team, reward_model=other)
    with pytest.raises(TypeError, match="Expected a RewardModel, got LlamaFor"):
        MARLHFTrainer(env, team, reward_model=tiny_llama())
    named = TextEnv([{"prompt": "a"}], same, num_agents=1, agent_names=["reward_model"])
    with pytest.raises(ValueError, match="another name for an agent than 'reward_model'"):
        MARLHFTrainer(named, {"reward_model": letter_agent()})


def test_parts_build_the_env_as_for_other_trainers() -> None:
    trainer = MARLHFTrainer(
        agents=[tiny_llama(0), tiny_llama(1)],
        tokenizer=byte_tokenizer(),
        reward_func=any_spread,
        train_dataset=[{"prompt": "p"}],
        args=MARLHFConfig(max_new_tokens=4, **QUIET),
    )
    trainer.train()
    assert trainer.num_env_steps == 4
