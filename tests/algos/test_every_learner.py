"""What every learner can do: being registered enrols it here.

A learner whose config is of a class of its own may add a row to `SETTINGS`; what it refuses, with
the words that it does so in, it adds to `REFUSES`. There is nothing else to do.
"""

import functools
import math
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from resuming import Kept, assert_goes_on_to_the_bit
from tiny import letter_agent, matching_env

from motet import algos
from motet.agents import Agent, FixedAgent, LMAgent
from motet.envs import TextEnv

LEARNERS = sorted(algos.registry)
NAMES = ("agent_0", "agent_1", "agent_2")

# By class of the config, subclasses after what they inherit: with these a learner learns the
# matching task in a second.
SETTINGS: dict[str, dict[str, Any]] = {
    "TrainerConfig": {
        "num_train_epochs": 40,
        "rollout_batch_size": 4,
        "num_generations": 8,
        "agent_learning_rate": 0.02,
        "progress_bar": False,
    },
}

# By name and trait of a case: words of the sentence in which the learner refuses it.
REFUSES: dict[str, dict[str, str]] = {}

# Kind of team, number of agents, joint mode, number of turns.
CASES = [
    ("separate", 1, "aligned", 2),
    ("shared", 2, "aligned", 1),
    ("one frozen", 2, "cross", 2),
    ("adapters", 2, "cross", 1),
    ("one scripted", 3, "aligned", 2),
    ("separate", 3, "cross", 1),
    ("shared", 3, "cross", 2),
    ("adapters", 3, "aligned", 2),
]


def settings_of(name: str, **changes: object) -> Any:
    """A learner's config, as the table has it but for some changes."""
    config_class = algos.spec(name).config_class
    known: dict[str, Any] = {}
    for base in reversed(config_class.__mro__):
        known |= SETTINGS.get(base.__name__, {})
    return config_class(**{**known, **changes})


def team_of(kind: str = "separate", size: int = 2) -> dict[str, Agent]:
    names = NAMES[:size]
    if kind == "shared":
        return dict.fromkeys(names, letter_agent())
    if kind == "adapters":
        base = letter_agent()
        return {name: base.with_adapter(name, lora()) for name in names}
    team: dict[str, Agent] = {name: letter_agent(i) for i, name in enumerate(names)}
    if kind == "one frozen":
        team[names[-1]] = letter_agent(9, frozen=True)
    if kind == "one scripted":
        team[names[-1]] = FixedAgent("a")
    return team


def lora() -> Any:
    from peft import LoraConfig  # slow to import

    return LoraConfig(r=2, target_modules=["q_proj", "v_proj"])


def any_spread(*texts: Sequence[str]) -> list[float]:
    """Rewards that differ between any two joint actions."""
    letters = "\0abcd"
    return [
        sum(letters.index(text[:1] or "\0") * 5.0**k for k, text in enumerate(said)) / 125
        for said in zip(*texts, strict=True)
    ]


def spread_env(num_turns: int = 1, num_agents: int = 2) -> TextEnv:
    return TextEnv(
        [{"prompt": letter} for letter in "abcd"],
        any_spread,
        transition=lambda prompt: [prompt] * num_agents,
        num_turns=num_turns,
        num_agents=num_agents,
    )


def refusal(name: str, *traits: str) -> str | None:
    """Words in which a learner refuses a case with these traits, None where it takes it."""
    return next((words for trait, words in REFUSES.get(name, {}).items() if trait in traits), None)


def weights_of(agent: LMAgent) -> dict[str, torch.Tensor]:
    return {key: weight.detach().clone() for key, weight in agent.model.named_parameters()}


@functools.cache
def learnt(name: str) -> algos.Algorithm:
    """A learner that has had its time with the matching task."""
    learner = algos.make(name, matching_env(), team_of(), settings_of(name))
    learner.train()
    return learner


# --- learning, saving, playing ------------------------------------------------------------------


@pytest.mark.parametrize("name", LEARNERS)
def test_it_learns_to_say_the_same(name: str) -> None:
    learner = learnt(name)
    played = algos.evaluate(matching_env(), learner.agents, num_samples=50)
    assert played.metrics["reward_mean"] > 0.8
    assert learner.evaluate(num_samples=50).metrics["reward_mean"] > 0.8


@pytest.mark.parametrize("name", LEARNERS)
def test_what_it_saves_plays_as_it_does(name: str, tmp_path: Path) -> None:
    agents = learnt(name).agents
    learnt(name).save_model(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(agents)
    loaded = {
        key: LMAgent.from_pretrained(tmp_path / key, generation=agent.generation)
        for key, agent in agents.items()
        if isinstance(agent, LMAgent)
    }
    for do_sample in (False, True):
        played, again = (
            algos.evaluate(matching_env(), each, num_samples=5, do_sample=do_sample).rollout
            for each in (agents, loaded)
        )
        for one, other in zip(played.nodes(), again.nodes(), strict=True):
            for key in agents:
                texts = [own.text for own in one.completions[key]]
                assert texts == [own.text for own in other.completions[key]]


@pytest.mark.parametrize("name", LEARNERS)
def test_it_has_a_line_of_its_own_in_tables(name: str) -> None:
    summary = algos.spec(name).summary
    assert len(summary) > 10
    assert summary.endswith(".")


# --- teams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: ", ".join(map(str, case)))
@pytest.mark.parametrize("name", LEARNERS)
def test_it_trains_what_may_be_trained_in_any_team(
    name: str, case: tuple[str, int, str, int]
) -> None:
    kind, size, joint_mode, num_turns = case
    team = team_of(kind, size)
    before = {key: weights_of(each) for key, each in team.items() if isinstance(each, LMAgent)}
    env = spread_env(num_turns, size)
    branches = 3 if (size, num_turns) != (3, 2) else 2
    config = settings_of(name, num_train_epochs=2, num_generations=branches, joint_mode=joint_mode)
    kept = Kept()
    words = refusal(name, kind, f"{size} agents", joint_mode, f"{num_turns} turns")
    if words is not None:
        with pytest.raises((ValueError, TypeError), match=words):
            algos.make(name, env, team, config)
        return
    learner = algos.make(name, env, team, config, loggers=[kept])
    learner.train()
    assert dict(learner.agents) == team
    for key, weights in before.items():
        agent = team[key]
        assert isinstance(agent, LMAgent)
        moved = {k for k, value in weights_of(agent).items() if not torch.equal(value, weights[k])}
        if agent.frozen:
            assert not moved
        elif kind == "adapters":
            assert any(f".{key}." in each for each in moved)
            assert all(".lora_" in each for each in moved)
        else:
            assert moved
    (_, entry), *rest = kept.entries
    assert len(rest) == 1
    assert all(math.isfinite(value) for _, own in kept.entries for value in own.values())
    assert {f"turn_{turn}/reward_mean" for turn in range(1, num_turns + 1)} <= entry.keys()
    assert {"train/loss", "train/num_optimizer_steps"} <= entry.keys()


# --- checkpoints ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEARNERS)
def test_a_run_that_is_killed_goes_on_to_the_bit(name: str, tmp_path: Path) -> None:
    def make(output: dict[str, Any], kept: Kept) -> Any:
        config = settings_of(
            name,
            num_train_epochs=3,  # six rollouts
            rollout_batch_size=2,
            num_generations=3,
            max_new_tokens=2,
            lr_scheduler_type="linear",
            logging_steps=2,  # the checkpoint is in the middle of two
            eval_interval=3,
            checkpoint_interval=3,
            **output,
        )
        env, eval_env = spread_env(2), spread_env(2)
        return algos.make(name, env, team_of(), config, eval_env=eval_env, loggers=[kept])

    # an evaluation; rollouts 1 and 2; the evaluation at 3, and the checkpoint; killed at 4
    assert_goes_on_to_the_bit(make, tmp_path, entries=3, done=3)


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEARNERS)
def test_each_wrong_setting_is_refused_by_its_name(name: str) -> None:
    config_class = algos.spec(name).config_class
    for field in fields(config_class):
        wrong = [object()]
        if field.type in ("float", "float | None", float):
            wrong += [math.nan, math.inf]
        if field.type in ("int", "int | None", int):
            wrong += [-1, 1.5, True]
        for value in wrong:
            with pytest.raises((TypeError, ValueError), match=field.name):
                settings_of(name, **{field.name: value})


class Unrelated:
    """The config of no learner."""


@pytest.mark.parametrize("name", LEARNERS)
def test_what_it_cannot_be_made_of_is_refused(name: str) -> None:
    env, config = matching_env(), settings_of(name)
    with pytest.raises(TypeError, match="as config"):
        algos.make(name, env, team_of(), Unrelated())
    with pytest.raises(TypeError, match="as config"):
        algos.make(name, env, team_of(), {"seed": 3})
    with pytest.raises(ValueError, match="an agent for each of"):
        algos.make(name, env, team_of(size=1), config)
    with pytest.raises(ValueError, match="an agent for each of"):
        algos.make(name, env, team_of(size=3), config)
    with pytest.raises(TypeError, match="an agent for agent_1"):
        algos.make(name, env, {**team_of(), "agent_1": "pocket"}, config)
    with pytest.raises((TypeError, ValueError), match="eval_envs"):
        algos.make(name, env, team_of(), config, eval_envs=env)
    with pytest.raises(FileNotFoundError, match="a folder that save_checkpoint wrote"):
        algos.make(name, env, team_of(), config).train(resume_from="no_such_folder")


@pytest.mark.parametrize("name", LEARNERS)
def test_a_team_with_nothing_to_train_is_refused(name: str) -> None:
    team = {"agent_0": FixedAgent("a"), "agent_1": letter_agent(frozen=True)}
    with pytest.raises(ValueError, match="nothing to train"):
        algos.make(name, matching_env(), team, settings_of(name))


# What is read under a condition, which these settings meet.
CONDITIONS: dict[str, dict[str, Any]] = {
    "TrainerConfig": {"kl_coef": 0.1, "clip_range": 0.2, "eval_num_samples": 2},
}


@pytest.mark.parametrize("name", LEARNERS)
def test_every_setting_is_read(name: str, tmp_path: Path) -> None:
    """What is read for checks of the config alone, or to copy it, does not count."""
    config_class = algos.spec(name).config_class
    read: set[str] = set()

    def watch(self: Any, field: str) -> Any:
        frame = sys._getframe(1)
        file, function = Path(frame.f_code.co_filename).name, frame.f_code.co_name
        copied = file in ("dataclasses.py", "checks.py", "checkpoint.py")
        if not copied and function not in ("__post_init__", "_check_ranges"):
            read.add(field)
        return object.__getattribute__(self, field)

    watched = type(config_class.__name__, (config_class,), {"__getattribute__": watch})
    changes: dict[str, Any] = {"output_dir": str(tmp_path), "checkpoint_interval": 1}
    for base in reversed(config_class.__mro__):
        changes |= CONDITIONS.get(base.__name__, {})
    plain = settings_of(name, num_train_epochs=1, **changes)
    config = watched(**{each.name: getattr(plain, each.name) for each in fields(config_class)})
    env = matching_env()
    algos.make(name, env, team_of(), config, eval_env=env).train()
    assert {each.name for each in fields(config_class)} - read == set()
