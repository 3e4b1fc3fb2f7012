"""What every learner can do: being registered enrols it here.

What is different about a learner, such as the settings with which it learns in a second or the
teams that it refuses, is in `ENTRIES`, and nowhere else.
"""

import functools
import math
import re
import runpy
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
import torch
from resuming import Interrupting, Kept, assert_goes_on_to_the_bit, assert_same
from tiny import letter_agent, matching_env

from motet import algos
from motet.agents import Agent, FixedAgent, LMAgent
from motet.envs import TextEnv

LEARNERS = sorted(algos.registry)
NAMES = ("agent_0", "agent_1", "agent_2")


def is_trainer(name: str) -> bool:
    return issubclass(algos.spec(name).config_class, algos.TrainerConfig)


TRAINERS = [name for name in LEARNERS if is_trainer(name)]

# Learners that are no `Trainer`, by class of their config: where they are enrolled, and in what.
OTHERS = {
    "FixedConfig": ("test_fixed_baselines", "FIXED"),
    "SB3Config": ("test_sb3", "LEARNERS"),
}


@dataclass(frozen=True)
class Entry:
    """What is different about a learner, or about all with a class of config.

    Attributes:
        settings: with which it learns the matching task in a second.
        options: further arguments of `make`.
        team: the kind that it is given where any will do.
        conditions: settings by turns, under which all others are read.
        refuses: what it cannot do, and the words in which it says so; "" where it can what others
            refuse.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    team: str = "separate"
    conditions: tuple[dict[str, Any], ...] = ()
    refuses: dict[str, str] = field(default_factory=dict)


# By class of the config, or by name; what comes later adds to what is before.
ENTRIES: dict[str, Entry] = {
    "TrainerConfig": Entry(
        settings={
            "num_train_epochs": 30,
            "rollout_batch_size": 4,
            "num_generations": 8,
            "agent_learning_rate": 0.02,
            "progress_bar": False,
        },
        conditions=(
            {"eval_num_samples": 2, "clip_range": 0.2, "kl_coef": 0.1},
            {"clip_range": None, "importance_sampling_cap": 2.0},
        ),
        refuses={
            "a missing agent": "an agent for each of",
            "a spare agent": "an agent for each of",
            "no agent": "an agent for agent_1",
            "nothing to train": "nothing to train",
        },
    ),
    "ActorCriticConfig": Entry(settings={"num_train_epochs": 25}),
    # it has a clip range, which excludes a cap
    "PPOConfig": Entry(conditions=({"eval_num_samples": 2, "clip_range": 0.2, "kl_coef": 0.1},)),
    "MADPOConfig": Entry(conditions=({"eval_num_samples": 2},)),
    "MARLHFConfig": Entry(settings={"reward_learning_rate": 0.01, "reward_num_epochs": 2}),
    "centralised-magrpo": Entry(
        settings={"max_new_tokens": 2},
        # a vocabulary of letters has no tags, and no words to ask for them
        options={
            "view": {
                "parser": lambda text, agents: dict(zip(agents, text, strict=False)),
                "prompt_fn": lambda seen: next(iter(seen.values())),
            }
        },
        team="shared",
        refuses={
            "a missing agent": "",  # it is one agent, under any names
            **dict.fromkeys(
                (
                    "one frozen",
                    "one scripted",
                    "adapters",
                    "separate, 3 agents",
                    "a spare agent",
                    "no agent",
                    "nothing to train",
                ),
                "one agent that writes for all",
            ),
        },
    ),
}

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


def classes_of(name: str) -> list[str]:
    """Names of the classes of a learner's config, subclasses last."""
    return [each.__name__ for each in reversed(algos.spec(name).config_class.__mro__)]


def entry_of(name: str) -> Entry:
    """All that the table has about a learner, joined."""
    found = Entry()
    for key in (*classes_of(name), name):
        own = ENTRIES.get(key, Entry())
        found = Entry(
            found.settings | own.settings,
            found.options | own.options,
            own.team if key in ENTRIES else found.team,
            own.conditions or found.conditions,
            found.refuses | own.refuses,
        )
    return found


def settings_of(name: str, **changes: object) -> Any:
    """A learner's config, as the table has it but for some changes."""
    return algos.spec(name).config_class(**{**entry_of(name).settings, **changes})


def make(name: str, env: TextEnv, team: Any = None, config: Any = None, **options: Any) -> Any:
    """Build a learner as its entry says, of two agents where no team is given."""
    entry = entry_of(name)
    team = team_of(entry.team) if team is None else team
    config = settings_of(name) if config is None else config
    return algos.make(name, env, team, config, **{**entry.options, **options})


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


def refusal(name: str, *traits: str) -> str:
    """Words in which a learner refuses a case with one of these traits, "" where it takes it."""
    refuses = entry_of(name).refuses
    return next((refuses[trait] for trait in traits if refuses.get(trait)), "")


def weights_of(agent: LMAgent) -> dict[str, torch.Tensor]:
    return {key: weight.detach().clone() for key, weight in agent.model.named_parameters()}


@functools.cache
def learnt(name: str) -> Any:
    """A learner that has had its time with the matching task."""
    learner = make(name, matching_env())
    learner.train()
    return learner


# --- learning, saving, playing ------------------------------------------------------------------


@pytest.mark.parametrize("name", TRAINERS)
def test_it_learns_to_say_the_same(name: str) -> None:
    learner = learnt(name)
    # of 5 tokens, 1 of which is none, two are the same letter in 4 of 25 cases
    assert learner.evaluate(num_samples=50).metrics["reward_mean"] > 0.8
    played = algos.evaluate(learner.env, learner.samplers, num_samples=50)
    assert played.metrics["reward_mean"] > 0.8


@pytest.mark.parametrize("name", TRAINERS)
def test_what_it_saves_plays_as_it_does(name: str, tmp_path: Path) -> None:
    learner = learnt(name)
    learner.save_model(tmp_path)
    loaded = {
        key: LMAgent.from_pretrained(tmp_path / key, generation=agent.generation)
        for key, agent in learner.agents.items()
    }
    for do_sample in (False, True):
        played, again = (
            algos.evaluate(learner.env, each, num_samples=5, do_sample=do_sample).rollout
            for each in (learner.agents, loaded)
        )
        for one, other in zip(played.nodes(), again.nodes(), strict=True):
            for key in learner.agents:
                texts = [own.text for own in one.completions[key]]
                assert texts == [own.text for own in other.completions[key]]


@pytest.mark.parametrize("name", LEARNERS)
def test_it_has_a_line_of_its_own_in_tables(name: str) -> None:
    summary = algos.spec(name).summary
    assert len(summary) > 10
    assert summary.endswith(".")


def test_learners_of_other_kinds_are_enrolled_elsewhere() -> None:
    enrolled = list(TRAINERS)
    for kind, (module, names) in OTHERS.items():
        own = [name for name in LEARNERS if kind in classes_of(name)]
        if own:
            file = Path(__file__).with_name(f"{module}.py")
            assert sorted(own) == sorted(runpy.run_path(str(file))[names])
        enrolled += own
    assert sorted(enrolled) == LEARNERS


# --- teams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: ", ".join(map(str, case)))
@pytest.mark.parametrize("name", TRAINERS)
def test_it_trains_what_may_be_trained_in_any_team(
    name: str, case: tuple[str, int, str, int]
) -> None:
    kind, size, joint_mode, num_turns = case
    team = team_of(kind, size)
    before = {key: weights_of(each) for key, each in team.items() if isinstance(each, LMAgent)}
    env = spread_env(num_turns, size)
    branches = 3 if (size, num_turns) != (3, 2) else 2
    config = settings_of(name, num_train_epochs=1, num_generations=branches, joint_mode=joint_mode)
    kept = Kept()
    words = refusal(name, kind, f"{kind}, {size} agents", joint_mode, f"{num_turns} turns")
    if words:
        with pytest.raises((ValueError, TypeError), match=words):
            make(name, env, team, config)
        return
    learner = make(name, env, team, config, loggers=[kept])
    learner.train()
    assert set(map(id, learner.agents.values())) == set(map(id, team.values()))
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
    ((_, entry),) = kept.entries
    assert all(math.isfinite(value) for value in entry.values())
    assert {f"turn_{turn}/reward_mean" for turn in range(1, num_turns + 1)} <= entry.keys()
    assert {"train/loss", "train/num_optimizer_steps"} <= entry.keys()


# --- checkpoints ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRAINERS)
def test_a_run_that_is_killed_goes_on_to_the_bit(name: str, tmp_path: Path) -> None:
    def make_again(output: dict[str, Any], kept: Kept) -> Any:
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
        return make(name, spread_env(2), None, config, eval_env=spread_env(2), loggers=[kept])

    # an evaluation; rollouts 1 and 2; the evaluation at 3, and the checkpoint; killed at 4
    assert_goes_on_to_the_bit(make_again, tmp_path, entries=3, done=3)


@pytest.mark.parametrize("name", TRAINERS)
def test_a_run_that_is_killed_in_an_update_goes_on_to_the_bit(name: str, tmp_path: Path) -> None:
    def make_again(**changes: Any) -> Any:
        callbacks = changes.pop("callbacks", [])
        several = {"train_batch_size": 1, "num_iterations": 2}
        if not settings_of(name).clip_range:
            several = {"train_batch_size": 1}
        config = settings_of(
            name,
            **several,
            num_train_epochs=3,  # six rollouts
            rollout_batch_size=2,
            num_generations=3,
            max_new_tokens=2,
            **changes,
        )
        return make(name, spread_env(2), None, config, callbacks=callbacks)

    whole = make_again()
    whole.train()
    settings = {"output_dir": str(tmp_path), "checkpoint_steps": 1}
    with pytest.raises(KeyboardInterrupt):
        make_again(**settings, callbacks=[Interrupting(rollout=3, steps=2)]).train()
    found = make_again(**settings)
    found.train(resume_from=tmp_path)
    assert_same(found.state_dict(), whole.state_dict())


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEARNERS)
def test_each_wrong_setting_is_refused_by_its_name(name: str) -> None:
    hints = get_type_hints(algos.spec(name).config_class)
    for field_name, hint in hints.items():
        options = get_args(hint) if get_origin(hint) is types.UnionType else (hint,)
        wrong: list[object] = [object()]
        if float in options:
            wrong += [math.nan, math.inf]
        if int in options:
            wrong += [-1, 1.5, True]
        if not {int, float, bool, str} & set(options):
            continue  # what only its learner can tell
        for value in wrong:
            with pytest.raises((TypeError, ValueError), match=field_name):
                settings_of(name, **{field_name: value})


class Unrelated:
    """The config of no learner."""


@pytest.mark.parametrize("name", LEARNERS)
def test_a_config_of_no_learner_is_refused(name: str) -> None:
    for wrong in (Unrelated(), {"seed": 3}, algos.spec(name).config_class):
        with pytest.raises(TypeError, match="as config"):
            make(name, matching_env(), config=wrong)


@pytest.mark.parametrize("name", TRAINERS)
@pytest.mark.parametrize(
    ("trait", "team"),
    {
        "a missing agent": lambda: team_of(size=1),
        "a spare agent": lambda: team_of(size=3),
        "no agent": lambda: {**team_of(), "agent_1": "pocket"},
        "nothing to train": lambda: {
            "agent_0": FixedAgent("a"),
            "agent_1": letter_agent(frozen=True),
        },
    }.items(),
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_a_wrong_team_is_refused(name: str, trait: str, team: Callable[[], Any]) -> None:
    words = refusal(name, trait)
    if words:
        with pytest.raises((ValueError, TypeError), match=words):
            make(name, matching_env(), team())


@pytest.mark.parametrize("name", TRAINERS)
def test_what_it_does_not_know_is_refused(name: str) -> None:
    with pytest.raises((TypeError, ValueError), match="eval_envs"):
        make(name, matching_env(), eval_envs=matching_env())
    with pytest.raises(FileNotFoundError, match="a folder that save_checkpoint wrote"):
        make(name, matching_env()).train(resume_from="no_such_folder")


@pytest.mark.parametrize("name", TRAINERS)
def test_every_setting_is_read(name: str, tmp_path: Path) -> None:
    """What is read for checks of the config alone, or to copy it, does not count."""
    config_class = algos.spec(name).config_class
    read: set[str] = set()

    def watch(self: Any, field: str) -> Any:
        frame = sys._getframe(1)
        file, function = Path(frame.f_code.co_filename).name, frame.f_code.co_name
        copied = file in ("dataclasses.py", "checks.py", "checkpoint.py")
        checked = file.endswith("config.py") and function.startswith(("__post_init__", "_check"))
        if not copied and not checked:
            read.add(field)
        return object.__getattribute__(self, field)

    watched = type(config_class.__name__, (config_class,), {"__getattribute__": watch})
    changes = {"output_dir": str(tmp_path), "checkpoint_interval": 1, "num_train_epochs": 1}
    for condition in entry_of(name).conditions:
        plain = settings_of(name, **{**condition, **changes})
        config = watched(**{each.name: getattr(plain, each.name) for each in fields(config_class)})
        make(name, matching_env(), None, config, eval_env=matching_env()).train()
    unread = {each.name for each in fields(config_class)} - read
    assert {each for each in unread if not refuses_to_set(name, each)} == set()


@pytest.mark.parametrize("kl_in", ["loss", "return"])
@pytest.mark.parametrize("name", TRAINERS)
def test_a_kl_is_measured_in_either_place(name: str, kl_in: str) -> None:
    """Each place is read by a property, so that nobody misses the one that nobody asks for."""
    kept = Kept()
    try:
        config = settings_of(name, num_train_epochs=1, kl_coef=0.1, kl_in=kl_in)
    except ValueError as error:
        assert "kl_" in str(error)
        return
    make(name, matching_env(), None, config, loggers=[kept]).train()
    assert "train/kl" in kept.entries[-1][1]


# Something else than the default, of settings that a learner may refuse to set.
ELSE = {
    "advantage_normalization": True,
    "clip_range": 0.3,
    "clip_range_high": 0.3,
    "ent_coef": 0.1,
    "importance_sampling_cap": 2.0,
    "kl_coef": 0.1,
    "kl_estimator": "k1",
    "kl_in": "return",
    "loss_type": "constant",
    "mask_truncated_completions": True,
}


def refuses_to_set(name: str, setting: str) -> bool:
    try:
        settings_of(name, **{setting: ELSE[setting]})
    except ValueError as error:
        return setting in str(error)
    except KeyError:
        return False
    return False


# --- metrics -------------------------------------------------------------------------------------

README = Path(__file__).resolve().parents[2] / "README.md"
GPU_ONLY = ("memory/allocated_gib", "memory/reserved_gib")

# what makes a learner log more than it does by itself
MORE: dict[str, Any] = {"kl_coef": 0.1, "ent_coef": 0.01, "clip_range": 0.2}


class Names:
    """A logger that keeps names."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def log(self, metrics: dict[str, float], step: int) -> None:
        self.found |= metrics.keys()

    def close(self) -> None: ...


def glossary() -> Iterator[str]:
    """Yield a pattern for each name in the first column of the tables, with and without agents."""
    text = README.read_text(encoding="utf-8").partition("\n## Metrics\n")[2]
    for line in text.partition("\n## ")[0].splitlines():
        if not line.startswith("| `"):
            continue
        names, _, by, _ = (cell.strip() for cell in line.strip("|").split("|"))
        for name in re.findall("`(.+?)`", names):
            pattern = re.escape(name).replace("turn_k", r"turn_\d+")
            yield pattern
            if by:
                assert by in ("agent", "policy"), line
                yield f"{pattern}/agent_[01]"


def unequal_env() -> TextEnv:
    """Two turns, in which agent_1 earns half of what agent_0 does."""

    def reward(*texts: list[str]) -> dict[str, list[float]]:
        firsts = [[ord(text[:1] or "\0") for text in own] for own in texts]
        paid = [a / 125 + b / 625 for a, b in zip(*firsts, strict=True)]
        return {"agent_0": paid, "agent_1": [value / 2 for value in paid]}

    return TextEnv(
        [{"prompt": letter} for letter in "abcd"],
        reward,
        transition=lambda prompt: [prompt] * 2,
        num_turns=2,
    )


def trained(name: str) -> set[str]:
    """Names that a learner logs in two rollouts."""
    kept = Names()
    options: dict[str, Any] = {"eval_env": unequal_env(), "loggers": [kept]}
    if name in TRAINERS:
        more = {key: value for key, value in MORE.items() if not refuses_to_set(name, key)}
        config = settings_of(name, num_train_epochs=1, rollout_batch_size=2, **more)
        make(name, unequal_env(), None, config, **options).train()
    elif "SB3Config" in classes_of(name):
        settings: dict[str, Any] = {
            "sb3-ppo": {"algo_kwargs": {"clip_range_vf": 0.2}},
            "sb3-dqn": {"learning_starts": 16},
        }
        config = algos.SB3Config(
            candidates=list("abcd"),
            total_timesteps=256,
            logging_steps=128,
            progress_bar=False,
            **settings.get(name, {}),
        )
        algos.make(name, unequal_env(), None, config, **options).train()
    else:
        algos.make(name, unequal_env(), team_of(), **options).train()
    return kept.found


def test_the_glossary_is_of_what_learners_log() -> None:
    patterns = list(glossary())
    assert len(patterns) == len(set(patterns)) > 60
    used: set[str] = set()
    for name in LEARNERS:
        for metric in trained(name):
            own = [pattern for pattern in patterns if re.fullmatch(pattern, metric)]
            assert len(own) == 1, (name, metric)
            used |= {*own}
    if not torch.cuda.is_available():
        used |= {re.escape(name) for name in GPU_ONLY}
    assert [pattern for pattern in patterns if pattern not in used] == []
