"""Files of settings: what is wrong in one is told with its line, and what is written is read."""

from pathlib import Path
from typing import Any

import pytest
from cli_runs import motet

from motet import algos, envs
from motet.algos.cli.mistakes import UsageError
from motet.algos.cli.run_settings import config_of, env_kwargs_of
from motet.algos.cli.settings_file import read_settings, write_settings

TASK = envs.spec("story-length-ratio-v0")


def settings(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("alog: magrpo\n", "got 'alog' in {file}, line 1. Did you mean algo?"),
        ("a: {\n", "Expected YAML in {file}"),
        ("- a\n", "Expected a mapping in {file}"),
        ("algo: a\n\nalgo: b\n", "Expected algo once, got it in line 1 and in line 3 of {file}"),
        ("config: {seed: 1, seed: 2}\n", "Expected seed once"),
    ],
)
def test_a_file_that_is_none_is_refused(text: str, told: str, tmp_path: Path) -> None:
    path = settings(tmp_path, text)
    with pytest.raises(UsageError) as refused:
        read_settings(path)
    assert told.format(file=path) in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for missing in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(UsageError, match="Expected a file of settings or the folder of a run"):
            read_settings(missing)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "config:\n  num_generatons: 4\n",
            "'num_generatons' in {file}, line 2. Did you mean num_g",
        ),
        ("config:\n  seed: 1\n  num_generations: 0\n", "(num_generations is in {file}, line 3)"),
        ("config: {num_generations: four}\n", "(num_generations is in {file}, line 1)"),
        ("config: [1]\n", "Expected a mapping as config"),
    ],
)
def test_a_wrong_setting_is_told_with_its_line(text: str, told: str, tmp_path: Path) -> None:
    path = settings(tmp_path, text)
    with pytest.raises(UsageError) as refused:
        config_of(algos.spec("magrpo"), read_settings(path), {})
    assert told.format(file=path) in str(refused.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "env: {id: story-length-ratio-v0, kwargs: 5}\n",
            "Expected a mapping as kwargs, got 5 in ",
        ),
        (
            "env: story-length-ratio-v0\nnum_threads: many\n",
            "num_threads of at least 1, got 'many'",
        ),
        ("env: story-length-ratio-v0\nwandb: 3\n", "or true or false, got 3 in {file}, line 2"),
    ],
)
def test_what_is_no_setting_of_a_run_is_told(
    text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = settings(tmp_path, text)
    assert motet("train", "--config", path, "--output-dir", tmp_path / "run") == 2
    assert told.format(file=path) in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_flag_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    file = read_settings(settings(tmp_path, "config: {num_generations: 2}\n"))
    with pytest.raises(UsageError) as refused:
        config_of(algos.spec("magrpo"), file, {"num_generations": 0})
    assert "line" not in str(refused.value)


def test_wrong_arguments_of_a_task_are_told_with_their_line(tmp_path: Path) -> None:
    path = settings(tmp_path, "env:\n  id: x\n  kwargs:\n    num_turn: 2\n")
    with pytest.raises(UsageError, match=r"line 4\. Did you mean num_turns\?"):
        env_kwargs_of(TASK, read_settings(path), {})
    path = settings(tmp_path, "env: {id: x, kwarg: {}}\n")
    with pytest.raises(UsageError, match="Did you mean kwargs"):
        env_kwargs_of(TASK, read_settings(path), {})


def test_what_config_and_task_both_know_goes_to_the_task(tmp_path: Path) -> None:
    file = read_settings(settings(tmp_path, "config: {num_turns: 2, seed: 5}\n"))
    assert env_kwargs_of(TASK, file, {}) == {"num_turns": 2}
    assert env_kwargs_of(TASK, file, {"num_turns": 3}) == {"num_turns": 3}
    config = config_of(algos.spec("magrpo"), file, {})
    assert (config.num_turns, config.seed) == (None, 5)


@pytest.mark.parametrize("number", ["1e-3", "1E-3", "0.001", "+1e-3", "1.0e-3", ".001"])
def test_numbers_are_read_as_python_writes_them(number: str, tmp_path: Path) -> None:
    file = read_settings(settings(tmp_path, f"config: {{agent_learning_rate: {number}}}\n"))
    assert config_of(algos.spec("magrpo"), file, {}).agent_learning_rate == 1e-3


VALUES: dict[str, Any] = {
    "env": {"id": "x", "kwargs": {"dataset": "ärger.jsonl", "ratio_min": 1e-9}},
    "eval_split": None,
    "algo": "magrpo",
    "share": True,
    "agents": {"agent_0": {"system_prompt": "yes: no\n'on' \U0001f600", "model": "1e-3x"}},
    "config": {"agent_learning_rate": 5e-6, "discount": 1.0, "seed": 12, "report_to": ["csv"]},
}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_settings(tmp_path / "run" / "run.yaml", VALUES)
    assert read_settings(tmp_path / "run").values == VALUES
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.yaml"]


@pytest.mark.parametrize(
    "number", [0.1, 1 / 3, 1e300, 5e-324, 1e22, 123456789.123456789, -0.0, 1e-5]
)
def test_numbers_are_written_to_the_bit(number: float, tmp_path: Path) -> None:
    write_settings(tmp_path / "run.yaml", {"config": {"discount": number}})
    read = read_settings(tmp_path).section("config")["discount"]
    assert type(read) is float
    assert read.hex() == number.hex()


def test_what_no_file_can_hold_is_refused_and_leaves_the_file(tmp_path: Path) -> None:
    write_settings(tmp_path / "run.yaml", VALUES)
    with pytest.raises(UsageError, match=r"Expected settings that run\.yaml can hold"):
        write_settings(tmp_path / "run.yaml", {"config": {"candidates": object()}})
    assert read_settings(tmp_path).values == VALUES
