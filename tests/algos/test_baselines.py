"""Group learners: how they differ, what they refuse, and what of them goes into checkpoints."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import caught_gradients, letter_agent, matching_env, tiny_agent

from motet import algos
from motet.agents import Agent, FixedAgent
from motet.algos import GRPOConfig, MAGRPOConfig, MAGRPOTrainer, Rollout, RunningMean
from motet.algos.rollouts.returns import credit, rollout_greedy_returns, rollout_returns
from motet.envs import TextEnv

NAMES = ("agent_0", "agent_1")
LEARNERS = ("magrpo", "grpo", "mareinforce", "marloo", "maremax", "maremax-group", "rae")
QUIET = {"progress_bar": False}


def team() -> dict[str, Agent]:
    return {name: letter_agent(i) for i, name in enumerate(NAMES)}


def any_spread(first: list[str], second: list[str]) -> list[float]:
    """Rewards above 0 that differ between any two joint actions."""
    letters = "\0abcd"
    return [
        1 + letters.index(a or "\0") + 0.1 * letters.index(b or "\0")
        for a, b in zip(first, second, strict=True)
    ]


def spread_env() -> TextEnv:
    return TextEnv([{"prompt": "a"}], any_spread)


def make(name: str, env: Any = None, **settings: Any) -> MAGRPOTrainer:
    config = algos.spec(name).config_class(**{**QUIET, **settings})
    learner = algos.make(name, env or spread_env(), team(), config)
    assert isinstance(learner, MAGRPOTrainer)
    return learner


def gradient(learner: MAGRPOTrainer, rollout: Rollout) -> torch.Tensor:
    caught = caught_gradients(learner)
    learner.update(rollout)
    return caught["agent_0"]["lm_head.weight"].double()


def test_without_normalisation_the_baselines_differ_by_what_they_subtract() -> None:
    """The gradient is linear in what is subtracted from all siblings: g = g_0 - b * s."""
    settings = {"num_generations": 8, "advantage_normalization": False, "max_grad_norm": None}
    rollout = make("maremax", **settings).collect([0])
    (root,) = rollout.nodes()
    own = rollout_returns(rollout, 1.0)[0][0]["agent_0"]
    credits = credit(own, torch.tensor(root.choices("agent_0")), 8)
    subtracted = {
        "magrpo": float(credits.mean()),
        "maremax": rollout_greedy_returns(rollout, 1.0)[0][0]["agent_0"],
        "maremax-group": float(credits.max()),
        "rae": 0.7,
    }
    assert len(set(subtracted.values())) == 4
    learners = {name: make(name, **settings) for name in LEARNERS if name != "grpo"}
    means = learners["rae"]._baseline
    assert isinstance(means, RunningMean)
    means.means["agent_0"] = 0.7
    gradients = {name: gradient(learner, rollout) for name, learner in learners.items()}
    plain = gradients["mareinforce"]
    per_unit = (plain - gradients["magrpo"]) / subtracted["magrpo"]
    assert per_unit.abs().max() > 1e-4
    for name, value in subtracted.items():
        torch.testing.assert_close(plain - gradients[name], value * per_unit, rtol=1e-4, atol=1e-7)
    # leave-one-out is the mean baseline times G / (G - 1)
    torch.testing.assert_close(
        gradients["marloo"], gradients["magrpo"] * 8 / 7, rtol=1e-4, atol=1e-7
    )


def test_whether_to_normalise_is_the_learners_unless_it_is_told() -> None:
    for name in LEARNERS:
        own = make(name).config.advantage_normalization
        assert own == (name in ("magrpo", "grpo", "maremax-group"))
        for told in (True, False):
            config = make(name, advantage_normalization=told).config
            assert config.advantage_normalization is told


def test_grpo_has_the_defaults_of_grpo_and_trains_each_agent() -> None:
    learner = make("grpo")
    assert learner.config.loss_type == "sequence_mean"
    assert (learner.config.num_generations, learner.config.clip_range) == (8, 0.2)
    assert len(learner.updaters) == 2
    with pytest.raises(TypeError, match="a GRPOConfig"):
        algos.make("grpo", spread_env(), team(), MAGRPOConfig())


@pytest.mark.parametrize("name", LEARNERS)
def test_settings_may_be_called_args(name: str) -> None:
    factory, config_class = algos.spec(name).factory, algos.spec(name).config_class
    config = config_class(num_generations=3, **QUIET)
    learner = factory(env=spread_env(), agents=team(), args=config)
    assert isinstance(learner, MAGRPOTrainer)
    assert learner.config.num_generations == 3
    with pytest.raises(ValueError, match="config= or args="):
        factory(env=spread_env(), agents=team(), args=config, config=config)


@pytest.mark.parametrize("name", ["mareinforce", "maremax", "rae"])
def test_one_completion_is_enough_where_siblings_are_not_compared(name: str) -> None:
    learner = make(name, matching_env(), num_generations=1, rollout_batch_size=4)
    learner.update(learner.collect([0, 1, 2, 3]))
    with pytest.raises(ValueError, match="num_generations of at least 2 with advantage_norm"):
        make(name, num_generations=1, advantage_normalization=True)
    pooled = make(
        name,
        num_generations=1,
        advantage_normalization=True,
        group_by="batch",
        rollout_batch_size=4,
    )
    assert pooled.config.num_generations == 1


@pytest.mark.parametrize("name", ["magrpo", "grpo", "marloo", "maremax-group"])
def test_others_need_siblings(name: str) -> None:
    with pytest.raises(ValueError, match="num_generations of at least 2 for"):
        make(name, num_generations=1)


def test_greedy_turns_count_as_env_steps() -> None:
    for name, steps in {"magrpo": 8, "maremax": 9}.items():
        learner = make(name, num_generations=8)
        learner.train()
        assert learner.num_env_steps == steps


def test_a_running_mean_moves_after_the_rollout_that_it_is_subtracted_from() -> None:
    learner = make("rae", num_generations=2)
    rollout = learner.collect([0])
    learner.update(rollout)
    (node,) = rollout.nodes()
    baseline = learner._baseline
    assert isinstance(baseline, RunningMean)
    # two returns: 1 - 0.95^2 of their mean; shared rewards, and a mean for each agent
    mean = sum(node.rewards["agent_0"]) / 2
    assert baseline.means == pytest.approx(dict.fromkeys(NAMES, (1 - 0.95**2) * mean))
    fast = algos.make("rae", spread_env(), team(), MAGRPOConfig(**QUIET), decay=0.0)
    assert isinstance(fast, MAGRPOTrainer)
    fast.update(rollout)
    assert isinstance(fast._baseline, RunningMean)
    assert fast._baseline.means == pytest.approx(dict.fromkeys(NAMES, mean))


def test_an_agent_that_is_not_trained_has_no_running_mean() -> None:
    agents = {"agent_0": letter_agent(), "agent_1": FixedAgent("b")}
    learner = algos.make("rae", spread_env(), agents, MAGRPOConfig(num_generations=2, **QUIET))
    assert isinstance(learner, MAGRPOTrainer)
    learner.update(learner.collect([0]))
    assert isinstance(learner._baseline, RunningMean)
    assert list(learner._baseline.means) == ["agent_0"]


def test_running_means_go_into_checkpoints(tmp_path: Path) -> None:
    def run(output: Path, epochs: int) -> MAGRPOTrainer:
        return make(
            "rae",
            matching_env(),
            num_train_epochs=epochs,
            rollout_batch_size=2,
            agent_learning_rate=0.01,
            checkpoint_interval=1,
            output_dir=str(output),
        )

    def means(learner: MAGRPOTrainer) -> dict[str, float]:
        assert isinstance(learner._baseline, RunningMean)
        return learner._baseline.means

    whole, half, rest = (run(tmp_path / name, n) for name, n in (("a", 4), ("b", 2), ("c", 4)))
    whole.train()
    half.train()
    assert means(half) != means(whole) != {}
    rest.train(resume_from=tmp_path / "b")
    assert means(rest) == means(whole)
    for name in NAMES:
        weights, expected = rest.agents[name].model, whole.agents[name].model
        for one, other in zip(weights.parameters(), expected.parameters(), strict=True):
            assert torch.equal(one, other)
    with pytest.raises(ValueError, match="checkpoint"):
        make("mareinforce").load_state_dict(whole.state_dict())
    with pytest.raises(ValueError, match="checkpoint"):
        make("rae").load_state_dict(make("mareinforce").state_dict())


@pytest.mark.parametrize(("name", "group_by"), [("magrpo", "turn"), ("maremax", "batch")])
def test_pools_learn_too(name: str, group_by: str) -> None:
    learner = make(
        name,
        matching_env(2),
        num_train_epochs=30,
        rollout_batch_size=4,
        num_generations=4,
        agent_learning_rate=0.02,
        group_by=group_by,
    )
    learner.train()
    assert learner.evaluate(num_samples=50).metrics["reward_mean"] > 0.8


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"clip_range": 0.2, "importance_sampling_cap": 2.0}, "would count twice"),
        ({"clip_range_high": 0.3}, "a clip_range with clip_range_high=0.3"),
        ({"clip_range": 0.2, "clip_range_high": 0.0}, "clip_range_high above 0"),
        ({"importance_sampling_cap": -1.0}, "importance_sampling_cap above 0"),
        ({"num_iterations": 2}, "clip_range with num_iterations=2"),
        ({"mask_truncated_completions": 1}, "mask_truncated_completions to be bool"),
        ({"group_by": "row"}, "group_by to be one of node, turn, batch"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        MAGRPOConfig(**settings)


def test_several_passes_with_a_cap_learn_too() -> None:
    learner = make(
        "magrpo",
        matching_env(),
        num_train_epochs=20,
        rollout_batch_size=4,
        agent_learning_rate=0.02,
        num_iterations=3,
        train_batch_size=4,
        importance_sampling_cap=1.5,
    )
    learner.train()
    assert learner.evaluate(num_samples=50).metrics["reward_mean"] > 0.9


def test_cut_completions_teach_nothing_themselves() -> None:
    def length(texts: list[str]) -> list[float]:
        return [float(sum(map(ord, text))) for text in texts]

    env = TextEnv([{"prompt": "a"}], length, num_agents=1)
    for masked, steps in {False: 1, True: 0}.items():
        config = MAGRPOConfig(num_generations=3, mask_truncated_completions=masked, **QUIET)
        learner = MAGRPOTrainer(env, {"agent_0": tiny_agent(max_new_tokens=1)}, config)
        rollout = learner.collect([0])
        (node,) = rollout.nodes()
        assert {each.finish_reason for each in node.completions["agent_0"]} == {"length"}
        metrics = learner.update(rollout)
        assert metrics["train/num_optimizer_steps"] == steps
        assert metrics["train/frac_zero_std_groups"] == 0  # they are compared all the same


def test_a_config_of_grpo_is_one_of_magrpo() -> None:
    learner = MAGRPOTrainer(spread_env(), team(), GRPOConfig(**QUIET))
    assert learner.config.loss_type == "sequence_mean"
