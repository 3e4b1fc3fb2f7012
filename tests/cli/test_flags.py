"""Every setting of every learner is a flag, of the right type, with its own documentation."""

import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from motet import algos, envs
from motet.algos.cli.docs import described, described_fields
from motet.algos.cli.flags import MAPPING, YAML_VALUE, Flag, field_flags, flag_hint, parsed
from motet.algos.cli.mistakes import UsageError
from motet.algos.cli.plan import RUN_FLAGS, flag_groups
from motet.algos.cli.run_settings import OF_ENV, config_of
from motet.algos.cli.settings_file import SettingsFile
from motet.algos.cli.tasks import env_flags

LEARNERS = sorted(algos.registry)

# Settings whose type says too little of what they can be.
WORDS: dict[str, tuple[list[str], Any]] = {
    "report_to": (["csv"], ("csv",)),
    "template": (["{prompt} {others}"], "{prompt} {others}"),
    "algo": (["marloo"], "marloo"),
    "algo_config": (["num_generations=3"], algos.MAGRPOConfig(num_generations=3)),
    "order": (["b", "a"], ("b", "a")),
    "texts": (["one", "two"], ("one", "two")),
    "candidates": (["one", "two"], ("one", "two")),
    "strategies": (["{prompt} now"], ("{prompt} now",)),
    "policy_kwargs": (["net_arch=[8]"], {"net_arch": [8]}),
    "algo_kwargs": (["device=cpu"], {"device": "cpu"}),
}
# Settings that are refused without others.
WITH: dict[str, dict[str, Any]] = {
    "num_iterations": {"clip_range": 0.2},
    "clip_range_high": {"clip_range": 0.2},
    "kl_estimator": {"kl_coef": 0.1},
    "kl_in": {"kl_coef": 0.1},
    "target_kl": {"num_iterations": 2, "clip_range": 0.2},
}


def said(hint: Any, default: Any) -> tuple[list[str], Any]:
    """Words for a value that is not the default, and the value."""
    union = get_origin(hint) in (Union, types.UnionType)
    options = [each for each in (get_args(hint) if union else (hint,)) if each is not type(None)]
    for option in options:
        if get_origin(option) is Literal:
            other = next(value for value in get_args(option) if value != default)
            return [other], other
    if bool in options:
        return [str(not default)], not default
    if int in options:
        value = (default or 0) + 1
        return [str(value)], value
    if float in options:
        value = 0.25 if default != 0.25 else 0.5
        return [str(value)], value
    assert str in options, hint
    return ["text"], "text"


@pytest.mark.parametrize("name", LEARNERS)
def test_every_setting_of_every_learner_is_a_flag_that_sets_it(name: str) -> None:
    spec = algos.spec(name)
    groups = flag_groups(None, spec)
    flags = {flag.name: flag for flag in groups["learner"]}
    hints = get_type_hints(spec.config_class)
    names = [each.name for each in fields(spec.config_class) if each.name not in OF_ENV]
    assert set(flags) == set(names)
    wanted = {n: WORDS.get(n) or said(hints[n], flags[n].default) for n in names}
    words = [word for n in names for word in (flags[n].option, *wanted[n][0])]
    typed = parsed("motet train", groups, words)["learner"]
    for each in names:
        if each != "algo_config":  # a mapping so far
            assert typed[each] == wanted[each][1]
        more = {key: value for key, value in WITH.get(each, {}).items() if key in names}
        values = {"output_dir": "out", **more, each: typed[each]}
        try:
            config = config_of(spec, SettingsFile(), values)
        except UsageError as refused:  # the setting was read, and this learner cannot use it
            assert {each, *more} & set(re.findall(r"\w+", str(refused))), each
        else:
            assert vars_of(config)[each] == wanted[each][1], each


def vars_of(config: Any) -> dict[str, Any]:
    return {each.name: getattr(config, each.name) for each in fields(config)}


@pytest.mark.parametrize("name", LEARNERS)
def test_help_is_the_documentation_of_the_field(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    groups = flag_groups(None, algos.spec(name))
    with pytest.raises(SystemExit) as ended:
        parsed("motet train", groups, ["--help"])
    assert ended.value.code == 0
    printed = words_of(capsys.readouterr().out)
    for flag in groups["learner"]:
        assert flag.help, flag.name
        assert words_of(flag.help) in printed, flag.name


def words_of(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("id", sorted(envs.registry))
def test_parameters_of_tasks_are_flags(id: str) -> None:
    flags = {flag.name: flag for flag in env_flags(envs.spec(id))}
    assert {"num_turns", "split", "dataset", "early_termination_threshold"} <= set(flags)
    assert not {"reward_func", "transition", "formatters", "render_mode"} & set(flags)
    assert all(flag.help for flag in flags.values())
    words = ["--num-turns", "3", "--shuffle", "--reward-workers", "2", "--dataset", "rows.jsonl"]
    typed = parsed("motet train", {"task": list(flags.values())}, words)["task"]
    assert typed == {
        "num_turns": 3, "shuffle": True, "reward_workers": 2, "dataset": "rows.jsonl"
    }  # fmt: skip


def test_a_setting_that_env_and_learner_know_is_the_envs() -> None:
    groups = flag_groups(envs.spec("story-budget-v0"), algos.spec("magrpo"))
    typed = parsed("motet train", groups, ["--num-turns", "3"])
    assert typed["task"] == {"num_turns": 3}
    assert typed["learner"] == {}


def test_a_setting_with_the_name_of_another_flag_says_whose_it_is() -> None:
    groups = flag_groups(None, algos.spec("marlhf"))
    typed = parsed("motet train", groups, ["--algo", "marlhf", "--config.algo", "marloo"])
    assert typed["run"] == {"algo": "marlhf"}
    assert typed["learner"] == {"algo": "marloo"}


@pytest.mark.parametrize("name", LEARNERS)
def test_no_two_flags_are_spelled_the_same(name: str) -> None:
    for id in sorted(envs.registry):
        groups = flag_groups(envs.spec(id), algos.spec(name))
        spelled = [option for group in groups.values() for f in group for option in f.options]
        assert len(spelled) == len(set(spelled))


FLAGS = {
    "rate": Flag("rate", flag_hint(float | Mapping[str, float])),
    "texts": Flag("texts", flag_hint(Sequence[str] | Mapping[str, Sequence[str]] | None)),
    "template": Flag("template", flag_hint(str | Callable[..., str])),
    "options": Flag("options", flag_hint(Mapping[str, Any])),
    "nested": Flag("nested", flag_hint(Sequence[Sequence[str]])),
    "on": Flag("on", bool),
    "maybe": Flag("maybe", flag_hint(bool | None)),
}


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("--rate 1e-3", 1e-3),
        ("--rate=1e-3", 1e-3),
        ("--rate agent_0=1e-3,agent_1=2", {"agent_0": 1e-3, "agent_1": 2}),
        ("--rate {agent_0:\x001e-3}", {"agent_0": 1e-3}),
        ("--texts a b", ("a", "b")),
        ("--texts {agent_0:\x00[a,\x00b]}", {"agent_0": ["a", "b"]}),
        ("--texts None", None),
        ("--template a:\x00b", "a: b"),
        ("--options net_arch=[64],on=true", {"net_arch": [64], "on": True}),
        ("--nested [[a],[b,\x00c]]", [["a"], ["b", "c"]]),
        ("--on", True),
        ("--no-on", False),
        ("--on False", False),
        ("--on=true", True),
        ("--maybe", True),
        ("--no-maybe", False),
        ("--maybe None", None),
        ("--maybe false", False),
    ],
)
def test_words_become_values(words: str, value: Any) -> None:
    split = [word.replace("\x00", " ") for word in words.split(" ")]
    name = split[0].partition("=")[0].lstrip("-").removeprefix("no-")
    typed = parsed("motet train", {"all": list(FLAGS.values())}, split)["all"]
    assert typed == {name: value}


@pytest.mark.parametrize("words", ["--rate fast", "--nested [[", "--rate"])
def test_what_cannot_be_read_ends_with_status_2(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed("motet train", {"all": list(FLAGS.values())}, words.split(" "))
    assert ended.value.code == 2
    assert "--" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--rat 1", "Did you mean --rate?"),
        ("--on perhaps", "'perhaps', which belongs to none"),
        ("--on=perhaps", "Expected True or False for --on, got 'perhaps'"),
        ("--xyzzy", "`motet train --help` lists them"),
    ],
)
def test_what_is_no_flag_is_told_so(words: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        parsed("motet train", {"all": list(FLAGS.values())}, words.split(" "))
    assert told in str(refused.value)


def test_what_no_word_can_say_is_no_flag() -> None:
    assert flag_hint(Callable[[str], str]) is None
    assert flag_hint(Callable[[str], str] | None) is None
    assert flag_hint(Mapping[str, Callable[[str], str]]) is None
    assert flag_hint(Sequence[Callable[[str], str]]) is None
    assert flag_hint(Mapping[str, int]) == MAPPING
    assert flag_hint(Sequence[Sequence[int]]) == YAML_VALUE


class _Parent:
    """A parent.

    Attributes:
        first: of the parent,
            over two lines: with a colon.
        second: of the parent.
    """


class _Child(_Parent):
    """A child.

    Besides those of its parent:

    Attributes:
        second: of the child.

    Raises:
        third: is no attribute.
    """


def test_docstrings_are_read_through_all_parents() -> None:
    assert described_fields(_Child) == {
        "first": "of the parent, over two lines: with a colon.",
        "second": "of the child.",
    }
    assert described(None) == {}


def test_flags_of_the_run_have_help() -> None:
    assert all(flag.help for flag in RUN_FLAGS)
    assert [flag.name for flag in field_flags(algos.RandomConfig, without=["seed"])]
