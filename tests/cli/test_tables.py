"""`motet envs` and `motet algos`: tables for readers, JSON for programs."""

import json
from typing import Any

import pettingzoo
import pytest
from cli_runs import TASK, motet

from motet import algos, envs


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert motet(*words) == 0
    return capsys.readouterr().out


def test_every_task_is_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "envs").splitlines()
    assert lines[0].split() == ["id", "agents", "turns", "rewards", "what", "it", "is"]
    assert [line.split()[0] for line in lines[1:]] == sorted(envs.registry)
    row = next(line for line in lines if line.startswith(TASK))
    assert row.split("  ")[0] == TASK
    assert "[0, 1]" in row
    assert "two to three times as long" in row


def test_tasks_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = {each["id"]: each for each in json.loads(printed(capsys, "envs", "--json"))}
    assert set(found) == set(envs.registry)
    assert found["story-budget-v0"]["num_turns"] == 2
    assert found[TASK] == {
        "id": TASK, "num_agents": 2, "num_turns": 1, "reward_range": [0.0, 1.0],
        "summary": found[TASK]["summary"],
    }  # fmt: skip


def test_a_task_has_a_page_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    page = printed(capsys, "envs", TASK)
    assert "| reward      | shared, in [0, 1]: `length_ratio_reward`" in page
    assert "--ratio-max" in page
    assert "upper bound of the length ratio that earns 1." in page
    settings = json.loads(printed(capsys, "envs", TASK, "--json"))["settings"]
    assert {"name": "ratio_max", "flag": "--ratio-max", "default": 3.0,
            "help": "upper bound of the length ratio that earns 1."} in settings  # fmt: skip


def test_every_learner_is_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "algos").splitlines()
    assert [line.split()[0] for line in lines[1:]] == sorted(algos.registry)
    found = json.loads(printed(capsys, "algos", "--json"))
    assert {each["name"]: each["config"] for each in found} == {
        name: spec.config_class.__name__ for name, spec in algos.registry.items()
    }


@pytest.mark.parametrize("name", sorted(algos.registry))
def test_a_learner_has_settings_with_defaults(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config: Any = algos.spec(name).config_class()
    entry = json.loads(printed(capsys, "algos", name, "--json"))
    assert entry["config"] == type(config).__name__
    for each in entry["settings"]:
        default = getattr(config, each["name"])
        assert each["default"] == (list(default) if isinstance(default, tuple) else default)
        assert each["help"]
    shown = printed(capsys, "algos", name)
    assert all(each["flag"] in shown for each in entry["settings"])


@pytest.mark.parametrize("command", ["envs", "algos"])
def test_names_that_there_are_not_are_told_so(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong, right = {"envs": ("story-budgt-v0", "story-budget"), "algos": ("ipo", "ippo")}[command]
    assert motet(command, wrong) == 2
    told = capsys.readouterr().err
    assert "Did you mean" in told
    assert right in told
    assert motet(command, "a", "b") == 2


def test_a_task_of_ones_own_is_listed_and_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("motet.envs.registration.by_id.registry", dict(envs.registry))
    monkeypatch.setattr("pettingzoo.parallel_registry", dict(pettingzoo.parallel_registry))
    monkeypatch.setattr(envs, "registry", envs.registration.by_id.registry)

    def own(*, sides: int = 6, **kwargs: object) -> envs.TextEnv:
        """Throw a die of words.

        Args:
            sides: how many.
        """
        return envs.TextEnv([{"prompt": "throw"}], lambda a, b: [0.0] * len(a), **kwargs)

    envs.register("my/own-v3", own, num_turns=4)
    found = {each["id"]: each for each in json.loads(printed(capsys, "envs", "--json"))}
    assert found["my/own-v3"]["num_turns"] == 4
    assert found["my/own-v3"]["summary"] == "Throw a die of words."
    page = printed(capsys, "envs", "my/own-v3")
    assert "--sides" in page
    assert "--num-turns" in page
