"""MAGRPO as a whole: exact, learning, loud."""

import math
from pathlib import Path

import pytest
import torch
from reference import magrpo_loss
from tiny import (
    byte_tokenizer,
    caught_gradients,
    letter_agent,
    matching_env,
    tiny_agent,
    tiny_llama,
    updated_as_expected,
)
from transformers import AutoModelForCausalLM

from motet import algos
from motet.agents import Agent, FixedAgent, GenerationConfig, LMAgent, RandomAgent
from motet.algos import MAGRPOConfig, MAGRPOTrainer, Rollout, evaluate
from motet.algos.updates.batch import Sample, collate
from motet.algos.updates.log_probs import completion_log_probs
from motet.envs import PickOfK, RewardProcessors, TextEnv, make
from motet.envs.wrappers import PromptTemplate

NAMES = ("agent_0", "agent_1")
QUIET = {"progress_bar": False}


def separate(**generation: float | bool | None) -> dict[str, Agent]:
    return {name: tiny_agent(i, **generation) for i, name in enumerate(NAMES)}


def shared(**generation: float | bool | None) -> dict[str, Agent]:
    return dict.fromkeys(NAMES, tiny_agent(**generation))


def any_spread(first: list[str], second: list[str]) -> list[float]:
    """Rewards that differ between almost any two joint actions."""
    return [
        (3 * sum(map(ord, a)) + 5 * sum(map(ord, b))) % 101 / 100
        for a, b in zip(first, second, strict=True)
    ]


CASES = {
    "one turn": {},
    "two turns": {"num_turns": 2},
    "three turns": {"num_turns": 3, "num_generations": 2, "max_new_tokens": 8},
    "crossed": {"joint_mode": "cross", "num_generations": 2, "num_turns": 2, "max_new_tokens": 8},
    "crossed, one turn": {"joint_mode": "cross", "num_generations": 3},
    "eight generations": {"num_generations": 8},
    "discounted": {"num_turns": 2, "discount": 0.5},
    "not normalised": {"num_turns": 2, "advantage_normalization": False},
    "one shared policy": {"num_turns": 2, "team": shared},
    "truncated sampling": {"temperature": 0.7, "top_k": 60, "top_p": 0.9},
    "one token": {"max_new_tokens": 1, "num_generations": 6},
    "small micro-batches": {"num_turns": 2, "max_tokens_per_batch": 200},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_loss_and_gradients_equal_the_slow_reference(case: dict) -> None:
    options = {"num_turns": 1, "num_generations": 3, "team": separate, "max_new_tokens": 12, **case}
    env = make("story-length-ratio-v0", num_turns=options.pop("num_turns"), reward_func=any_spread)
    team = options.pop("team")()
    config = MAGRPOConfig(max_grad_norm=None, agent_learning_rate=1e-12, **QUIET, **options)
    trainer = MAGRPOTrainer(env, team, config)
    rollout = trainer.collect([0, 4])

    models = {name: agent.model for name, agent in team.items()}
    generation = GenerationConfig(**config.generation)
    expected = magrpo_loss(
        rollout,
        models,
        generation,
        discount=config.discount,
        normalize=bool(trainer.config.advantage_normalization),
    )
    updated_as_expected(trainer, rollout, models, expected)


def test_kept_log_probs_equal_those_of_the_update() -> None:
    agent = tiny_agent(temperature=0.7, top_k=60, top_p=0.9)
    completions = [c for group in agent.act(["a", "a longer prompt"], 4, seed=0) for c in group]
    batch = collate([(Sample("a", c, 1.0, 1.0),) for c in completions])
    log_probs = completion_log_probs(agent.model, batch, agent.generation)
    torch.testing.assert_close(log_probs.detach(), batch.old_log_probs, rtol=1e-4, atol=1e-5)


def test_the_end_token_is_trained_and_padding_is_not() -> None:
    """Raise the end token after 'a' only: what a pad that is an end token would blur."""
    agent = letter_agent()
    env = TextEnv([{"prompt": "a"}], lambda c: [float(text == "") for text in c], num_agents=1)
    config = MAGRPOConfig(
        num_train_epochs=30, num_generations=8, agent_learning_rate=0.02, max_new_tokens=2, **QUIET
    )
    trainer = MAGRPOTrainer(env, {"agent_0": agent}, config)
    before = evaluate(env, trainer.agents, num_samples=200).metrics["reward_mean"]
    trainer.train()
    after = trainer.evaluate(num_samples=200).metrics["reward_mean"]
    assert before < 0.5
    assert after > 0.95


@pytest.mark.parametrize("num_turns", [1, 2])
@pytest.mark.parametrize("team", ["separate", "shared", "one frozen"])
def test_it_learns_to_say_the_same(num_turns: int, team: str) -> None:
    agents = {name: letter_agent(i) for i, name in enumerate(NAMES)}
    if team == "shared":
        agents = dict.fromkeys(NAMES, letter_agent())
    if team == "one frozen":
        agents["agent_0"] = FixedAgent("c")
    env = matching_env(num_turns)
    config = MAGRPOConfig(
        num_train_epochs=40,
        rollout_batch_size=4,
        num_generations=8,
        agent_learning_rate=0.02,
        **QUIET,
    )
    trainer = MAGRPOTrainer(env, agents, config)
    before = trainer.evaluate(num_samples=50).metrics["reward_mean"]
    trainer.train()
    after = trainer.evaluate(num_samples=50).metrics["reward_mean"]
    assert before < 0.5
    assert after > 0.9


def test_several_passes_with_a_clip_range_learn_too() -> None:
    agents = {name: letter_agent(i) for i, name in enumerate(NAMES)}
    config = MAGRPOConfig(
        num_train_epochs=20,
        rollout_batch_size=4,
        num_generations=4,
        agent_learning_rate=0.02,
        num_iterations=3,
        train_batch_size=4,
        clip_range=0.2,
        **QUIET,
    )
    trainer = MAGRPOTrainer(matching_env(), agents, config)
    trainer.train()
    assert trainer.evaluate(num_samples=50).metrics["reward_mean"] > 0.9


def test_the_same_seed_gives_the_same_weights() -> None:
    weights = []
    for seed in (1, 1, 2):
        team = separate(max_new_tokens=8)
        config = MAGRPOConfig(seed=seed, rollout_batch_size=5, agent_learning_rate=1e-3, **QUIET)
        MAGRPOTrainer(make("story-length-ratio-v0"), team, config).train()
        weights.append(torch.cat([w.flatten() for w in team["agent_1"].model.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_only_what_may_be_trained_changes() -> None:
    team = separate(max_new_tokens=8)
    frozen = tiny_agent(1, max_new_tokens=8)
    frozen.frozen = True
    team["agent_1"] = frozen
    before = {name: agent.model.lm_head.weight.clone() for name, agent in team.items()}
    config = MAGRPOConfig(rollout_batch_size=10, agent_learning_rate=1e-3, **QUIET)
    MAGRPOTrainer(make("story-length-ratio-v0"), team, config).train()
    assert not torch.equal(before["agent_0"], team["agent_0"].model.lm_head.weight)
    assert torch.equal(before["agent_1"], team["agent_1"].model.lm_head.weight)
    assert (team["agent_0"].policy_version, frozen.policy_version) == (1, 0)
    with pytest.raises(ValueError, match=r"nothing to train"):
        MAGRPOTrainer(make("story-length-ratio-v0"), dict.fromkeys(NAMES, FixedAgent("")))


def test_scaled_rewards_give_the_same_update() -> None:
    gradients = []
    for processor in (None, RewardProcessors.scale(factor=100.0)):
        env = make("story-length-ratio-v0", num_turns=2, reward_processor=processor)
        team = separate(max_new_tokens=8)
        trainer = MAGRPOTrainer(env, team, MAGRPOConfig(max_grad_norm=None, **QUIET))
        caught = caught_gradients(trainer)
        trainer.update(trainer.collect([0]))
        gradients.append(torch.cat([g.flatten() for g in caught["agent_0"].values()]))
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-6)


def test_groups_without_spread_are_skipped_and_counted() -> None:
    team = separate(max_new_tokens=4)
    env = TextEnv([{"prompt": "p"}], lambda a, b: [1.0] * len(a))
    trainer = MAGRPOTrainer(env, team, MAGRPOConfig(**QUIET))
    before = team["agent_0"].model.lm_head.weight.clone()
    metrics = trainer.update(trainer.collect([0]))
    assert metrics["train/frac_zero_std_groups"] == 1.0
    assert metrics["train/num_optimizer_steps"] == 0
    assert torch.equal(before, team["agent_0"].model.lm_head.weight)


def test_a_broken_model_stops_the_run_and_leaves_the_batch(tmp_path: Path) -> None:
    team = separate(max_new_tokens=4)
    config = MAGRPOConfig(output_dir=str(tmp_path), **QUIET)
    trainer = MAGRPOTrainer(make("story-length-ratio-v0"), team, config)
    rollout = trainer.collect([0])
    with torch.no_grad():
        team["agent_0"].model.lm_head.weight[3, 3] = math.nan
    with pytest.raises(FloatingPointError, match=r"finite loss, got nan for the policy of agent_0"):
        trainer.update(rollout)
    batch = torch.load(tmp_path / "nonfinite_batch.pt")
    assert batch["input_ids"].shape == batch["position_ids"].shape


def test_a_run_that_never_reaches_turn_two_says_so_once() -> None:
    team = dict.fromkeys(NAMES, tiny_agent(max_new_tokens=4))
    env = make("story-length-ratio-v0", num_turns=2, early_termination_threshold=-0.2)
    config = MAGRPOConfig(num_train_epochs=2, rollout_batch_size=10, **QUIET)
    with pytest.warns(
        UserWarning, match=r"Every group ended at turn 1 although num_turns=2"
    ) as seen:
        MAGRPOTrainer(env, team, config).train()
    assert len([w for w in seen if "Every group" in str(w.message)]) == 1


def test_models_and_parts_build_the_env(tmp_path: Path) -> None:
    model = tiny_llama()
    trainer = MAGRPOTrainer(
        agents=[model, model],
        tokenizer=byte_tokenizer(),
        reward_func=lambda first, second: [float(len(a)) for a in first],
        train_dataset=[{"prompt": "p"}],
        eval_dataset=[{"prompt": "q"}],
        args=MAGRPOConfig(max_new_tokens=4, output_dir=str(tmp_path / "run"), **QUIET),
    )
    assert trainer.agents["agent_0"] is trainer.agents["agent_1"]
    trainer.train()
    trainer.save_model(tmp_path / "models")
    for name in NAMES:
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "models" / name)
        assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 3  # before, one rollout, after
    assert '"turn_1/expected_return"' in lines[1]
    assert '"eval/turn_1/reward_mean"' in lines[2]


def bad(**changes: object) -> None:
    parts: dict = {
        "agents": [tiny_llama(0), tiny_llama(1)],
        "tokenizer": byte_tokenizer(),
        "reward_func": lambda first, second: [0.0] * len(first),
        "train_dataset": [{"prompt": "p"}],
        "args": MAGRPOConfig(max_new_tokens=4, **QUIET),
    }
    MAGRPOTrainer(**{**parts, **changes}).train()


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"train_dataset": []}, ValueError, "at least one row"),
        ({"train_dataset": [{"text": "p"}]}, ValueError, "column 'prompt' in row 0"),
        ({"train_dataset": None}, ValueError, "train_dataset"),
        ({"tokenizer": None}, ValueError, "tokenizer="),
        ({"tokenizer": [byte_tokenizer()] * 3}, ValueError, "one tokenizer, or 2"),
        ({"formatters": [str, str, str]}, ValueError, "one formatter, or 2"),
        ({"reward_func": lambda first: []}, TypeError, "2 positional arguments"),
        ({"reward_func": lambda a, b, tests: []}, TypeError, "'tests'"),
        ({"reward_func": lambda a, b: [1.0]}, ValueError, "Expected 4 rewards"),
        ({"reward_func": lambda a, b: [math.nan] * len(a)}, ValueError, "finite reward, got nan"),
        ({"args": MAGRPOConfig(num_turns=2)}, ValueError, "Expected a transition"),
        ({"args": MAGRPOConfig(num_generations=1)}, ValueError, "num_generations of at least 2"),
        ({"train_dataset": [{"prompt": "x" * 600}]}, ValueError, "a prompt of at most 508 tokens"),
        ({"config": MAGRPOConfig()}, ValueError, "config= or args="),
        ({"args": {"num_generations": 4}}, TypeError, "MAGRPOConfig as config"),
        ({"eval_datset": []}, TypeError, "Did you mean eval_dataset=?"),
        ({"agents": "pocket"}, TypeError, "a list of models"),
        ({"agents": tiny_llama()}, TypeError, "a list of models"),
        ({"agents": [tiny_llama(), None]}, TypeError, "an agent for agent_1"),
        ({"env": "story-length-ratio-v0"}, TypeError, "use envs.make"),
        ({"loggers": ["wandb"]}, TypeError, "loggers with log and close"),
        ({"wandb_config": True}, TypeError, "dict of options of wandb.init"),
        ({"baseline": "rloo"}, TypeError, "a function from returns to advantages"),
        ({"args": MAGRPOConfig(num_rollouts=3)}, ValueError, "num_train_epochs for an env with"),
        ({"env": make("story-length-ratio-v0")}, ValueError, "env= or the parts"),
    ],
)
def test_bad_input_gets_one_sentence(changes: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        bad(**changes)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_generations": 0}, "num_generations"),
        ({"num_iterations": 2}, "clip_range"),
        ({"joint_mode": "crossed"}, "aligned, cross"),
        ({"loss_type": "mean"}, "loss_type"),
        ({"discount": 1.5}, "discount"),
        ({"agent_learning_rate": 0.0}, "agent_learning_rate"),
        ({"eval_interval": -1}, "eval_interval"),
        ({"kl_coef": -0.1}, "kl_coef of at least 0"),
        ({"kl_coef": math.nan}, "finite kl_coef"),
        ({"kl_estimator": "k4"}, "kl_estimator to be one of k1, k2, k3"),
        ({"kl_in": "reward"}, "kl_in to be one of loss, return"),
        ({"gradient_checkpointing": 1}, "gradient_checkpointing to be bool"),
        ({"offload_optimizer": "gpu"}, "offload_optimizer to be one of cpu, disk"),
        ({"seed": -1}, "seed"),
        ({"seed": None}, "seed to be int"),
        ({"num_generations": 2.5}, "num_generations to be int, got 2.5"),
        ({"num_generations": True}, "num_generations to be int, got True"),
        ({"early_termination_threshold": math.nan}, "finite early_termination_threshold"),
        ({"agent_learning_rate": math.inf}, "finite agent_learning_rate"),
        ({"advantage_normalization": "no"}, "advantage_normalization to be bool"),
        ({"lr_scheduler_type": "cosine"}, "constant, linear"),
        ({"temperature": -1.0}, "temperature above 0"),
        ({"max_new_tokens": "12"}, "max_new_tokens to be int"),
    ],
)
def test_wrong_settings_are_refused(settings: dict, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        MAGRPOConfig(**settings)


def test_settings_of_the_env_belong_to_the_env() -> None:
    env = make("story-length-ratio-v0", num_turns=2)
    team = dict.fromkeys(NAMES, tiny_agent())
    for settings in ({"num_turns": 1}, {"early_termination_threshold": 0.5}):
        with pytest.raises(ValueError, match="set where the env is made"):
            MAGRPOTrainer(env, team, MAGRPOConfig(**settings))
    MAGRPOTrainer(env, team, MAGRPOConfig(num_turns=2))
    with pytest.raises(TypeError, match="as a dict by name"):
        MAGRPOTrainer(env, [tiny_llama()])
    with pytest.raises(ValueError, match="an agent for each of"):
        MAGRPOTrainer(env, {"agent_0": tiny_agent()})


def test_empty_completions_of_scripted_partners_are_fine() -> None:
    team = {"agent_0": tiny_agent(max_new_tokens=4), "agent_1": RandomAgent(["", "\n", "🐉" * 50])}
    config = MAGRPOConfig(rollout_batch_size=10, **QUIET)
    trainer = MAGRPOTrainer(make("story-length-ratio-v0", num_turns=2), team, config)
    trainer.train()
    assert isinstance(trainer.agents["agent_0"], LMAgent)
    assert trainer.num_env_steps == 10 * (4 + 16)


class AnyParallelEnv:
    """A PettingZoo-like env over strings with no dataset: its seed picks the letter to say."""

    def __init__(self) -> None:
        self.possible_agents = list(NAMES)
        self.agents: list[str] = []
        self._letter = ""

    def reset(self, seed: int | None = None, options: object = None) -> tuple[dict, dict]:
        self.agents = self.possible_agents[:]
        self._letter = "abcd"[(seed or 0) % 4]
        return dict.fromkeys(self.agents, self._letter), {name: {} for name in self.agents}

    def step(self, actions: dict[str, str]) -> tuple[dict, dict, dict, dict, dict]:
        names, self.agents = self.agents, []
        rewards = {name: float(actions[name] == self._letter) for name in names}
        ends = dict.fromkeys(names, True)
        return dict.fromkeys(names, ""), rewards, ends, dict.fromkeys(names, False), {}

    def clone(self, *, seed: int | None = None) -> "AnyParallelEnv":
        twin = AnyParallelEnv()
        twin.agents, twin._letter = self.agents[:], self._letter
        return twin


def test_any_env_over_strings_is_trained_over_seeded_resets_with_rewards_of_each_agents_own() -> (
    None
):
    config = MAGRPOConfig(
        num_rollouts=60, rollout_batch_size=4, num_generations=8, agent_learning_rate=0.02, **QUIET
    )
    agents = {name: letter_agent(i) for i, name in enumerate(NAMES)}
    trainer = MAGRPOTrainer(AnyParallelEnv(), agents, config, eval_env=AnyParallelEnv())
    trainer.train()
    assert trainer.num_env_steps == 60 * 4 * 8
    assert trainer.evaluate(num_samples=10).metrics["reward_mean"] > 0.9


def test_an_env_of_numbers_is_refused_before_it_is_played() -> None:
    texts, picks = matching_env(), PickOfK(matching_env(), ["a", "b"])
    team = dict.fromkeys(texts.possible_agents, tiny_agent())
    for name in ("magrpo", "frozen"):
        with pytest.raises(TypeError, match=r"an env of texts as env, got .* numbers"):
            algos.make(name, picks, team)
        with pytest.raises(TypeError, match=r"an env of texts as eval_env, got .* numbers"):
            algos.make(name, texts, team, eval_env=picks)


def test_an_evaluation_env_has_the_same_agents() -> None:
    env = make("story-length-ratio-v0")
    other = make("story-length-ratio-v0", agent_names=["x", "y"])
    with pytest.raises(ValueError, match="eval_env with the agents"):
        MAGRPOTrainer(env, dict.fromkeys(NAMES, tiny_agent()), eval_env=other)


def test_agents_that_share_weights_are_all_frozen_or_none_and_sample() -> None:
    env, agent = make("story-length-ratio-v0"), tiny_agent()
    frozen = LMAgent(agent.model, agent.tokenizer, frozen=True)
    with pytest.raises(ValueError, match="all agents with one model to be frozen or none"):
        MAGRPOTrainer(env, {"agent_0": agent, "agent_1": frozen})
    greedy = tiny_agent(do_sample=False)
    with pytest.raises(ValueError, match="do_sample=True for agent_0"):
        MAGRPOTrainer(env, dict.fromkeys(NAMES, greedy))


def test_a_linear_schedule_ends_near_zero_and_few_rows_are_evaluated() -> None:
    class Kept:
        def __init__(self) -> None:
            self.entries: list[dict[str, float]] = []
            self.closed = False

        def log(self, metrics: dict[str, float], step: int) -> None:
            self.entries.append(dict(metrics))

        def close(self) -> None:
            self.closed = True

    kept = Kept()
    config = MAGRPOConfig(
        num_train_epochs=2,
        rollout_batch_size=4,
        agent_learning_rate=0.4,
        lr_scheduler_type="linear",
        logging_steps=3,
        eval_interval=2,
        eval_num_samples=2,
        **QUIET,
    )
    agents = {name: letter_agent(i) for i, name in enumerate(NAMES)}
    trainer = MAGRPOTrainer(matching_env(), agents, config, eval_env=matching_env(), loggers=[kept])
    trainer.train()
    rates = [e["train/learning_rate"] for e in kept.entries if "train/learning_rate" in e]
    assert rates == pytest.approx([0.2])  # of the last of two rollouts in one entry: 0.4 and 0.2
    assert len([e for e in kept.entries if "eval/reward_mean" in e]) == 2
    assert len(trainer.evaluate().rollout.levels[0]) == 2
    assert not kept.closed


def test_a_clip_range_takes_the_gradient_from_ratios_beyond_it() -> None:
    env = make("story-length-ratio-v0", reward_func=any_spread)
    norms = {}
    for clip_range in (1e-4, 1e6):
        team = separate(max_new_tokens=6)
        config = MAGRPOConfig(
            clip_range=clip_range, max_grad_norm=None, agent_learning_rate=1e-3, **QUIET
        )
        trainer = MAGRPOTrainer(env, team, config)
        rollout = trainer.collect([0])
        # the same data twice: at first all ratios are 1, then they have moved the good way
        norms[clip_range] = [trainer.update(rollout)["train/grad_norm"] for _ in range(2)]
    assert norms[1e-4][0] == pytest.approx(norms[1e6][0], rel=1e-3)
    assert norms[1e-4][1] < 0.6 * norms[1e6][1]


def test_a_run_without_a_single_step_says_so() -> None:
    env = TextEnv([{"prompt": "p"}], lambda a, b: [1.0] * len(a))
    with pytest.warns(UserWarning, match="No optimizer step was taken") as told:
        MAGRPOTrainer(env, separate(max_new_tokens=4), MAGRPOConfig(**QUIET)).train()
    assert told[0].filename == __file__  # of the line that called train


def test_a_run_whose_completions_were_all_cut_says_so() -> None:
    env = make("story-length-ratio-v0", reward_func=any_spread)
    config = MAGRPOConfig(mask_truncated_completions=True, rollout_batch_size=10, **QUIET)
    with pytest.warns(UserWarning, match="or all were cut, with mask_truncated_completions"):
        MAGRPOTrainer(env, separate(max_new_tokens=1), config).train()


def test_an_update_without_the_metrics_of_its_steps_is_refused() -> None:
    class Idle(MAGRPOTrainer):
        def update(self, rollout: Rollout) -> dict[str, float]:
            return {"train/loss": 0.0}

    idle = Idle(matching_env(), {n: letter_agent() for n in NAMES}, MAGRPOConfig(**QUIET))
    with pytest.raises(ValueError, match=r"update of Idle to return .*train/num_optimizer_steps"):
        idle.train()


def test_one_completion_without_a_baseline_needs_no_spread() -> None:
    config = MAGRPOConfig(num_generations=1, advantage_normalization=True, **QUIET)
    with pytest.raises(ValueError, match="no spread to divide by"):
        MAGRPOTrainer(matching_env(), {n: letter_agent() for n in NAMES}, config, baseline=abs)


def letters(**kwargs: object) -> TextEnv:
    rows = [{"prompt": letter} for letter in "abcdefgh"]
    return TextEnv(rows, lambda first, second: [0.0] * len(first), **kwargs)


class Foreign(PromptTemplate):
    """Overrides `step`, and is cloned for every branch."""

    def step(self, actions: dict[str, str]) -> tuple:
        return super().step(actions)


@pytest.mark.parametrize("wrapper", [PromptTemplate, Foreign])
def test_prompts_are_checked_as_wrappers_write_them(wrapper: type[PromptTemplate]) -> None:
    agents = {name: tiny_agent(i, context=64) for i, name in enumerate(NAMES)}
    env = wrapper(letters(), lambda seen, agent, turn: "x" * 60 if seen == "f" else seen)
    config = MAGRPOConfig(num_generations=2, rollout_batch_size=1, **QUIET)
    trainer = MAGRPOTrainer(env, agents, config)
    with pytest.raises(ValueError, match="a prompt of at most"):
        trainer.train()
    assert trainer.num_env_steps == 0


def test_prompts_of_those_who_wait_are_not_checked() -> None:
    agents = {name: tiny_agent(i, context=64) for i, name in enumerate(NAMES)}
    env = letters(
        acting=[["agent_0"]], formatters=[lambda row: row["prompt"], lambda row: "x" * 99]
    )
    config = MAGRPOConfig(num_generations=2, max_new_tokens=4, **QUIET)
    trainer = MAGRPOTrainer(env, agents, config)
    with pytest.warns(UserWarning, match="No optimizer step"):
        trainer.train()
    assert trainer.num_env_steps > 0
