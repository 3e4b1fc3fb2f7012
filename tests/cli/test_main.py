"""What the process as a whole does: exit status, streams, and what it loads."""

import contextlib
import os
import pty
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from cli_runs import TASK, motet, process

from motet.algos.cli.main import COMMANDS

NO_TORCH = """
import sys
from motet.algos.cli import main
status = main(sys.argv[1:])
assert "torch" not in sys.modules and "transformers" not in sys.modules
sys.exit(status)
"""


@pytest.mark.parametrize("words", [["--help"], ["envs"], ["envs", TASK], ["--version"], []])
def test_what_needs_no_torch_loads_none(words: list[str], tmp_path: Path) -> None:
    ended = process(*words, cwd=tmp_path, code=("-c", NO_TORCH))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert motet("--help") == 0
    printed = capsys.readouterr().out
    for command, (_, _, about) in COMMANDS.items():
        assert f"  {command} " in printed
        assert about in printed


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help_and_refuses_a_flag_that_there_is_not(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert motet(command, "--help") == 0
    assert f"usage: motet {command}" in capsys.readouterr().out
    words = [TASK] if command == "train" else []
    assert motet(command, *words, "--no-such-flag") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("motet: Expected a flag of `motet")


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert motet("--version") == 0
    assert capsys.readouterr().out == f"motet {metadata.version('motet')}\n"


def test_a_misspelt_command_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert motet("trian") == 2
    assert "got 'trian'. Did you mean train?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", TASK, "--num-generatons", "4"], "Did you mean --num-generations?"),
        (["train", "story-lenth-ratio-v0"], "Did you mean: story-length-ratio?"),
        (["train", TASK, "--algo", "margpo"], "Did you mean 'magrpo'?"),
        (["train", TASK, "--kl-in", "return"], "Expected kl_coef above 0"),
        (["train", "--resume", "nowhere"], "nowhere, which is not there"),
        (["eval", "pocket"], "Expected --env with pocket"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert motet(*words) == 2
    said = capsys.readouterr()
    check_mistake(said.out, said.err, told)
    assert list(tmp_path.iterdir()) == []


def check_mistake(out: str, err: str, told: str) -> None:
    assert out == ""
    assert err.startswith("motet: ")
    assert told in err
    assert err.count("\n") == 1


def test_a_mistake_ends_the_process_with_status_2(tmp_path: Path) -> None:
    ended = process("train", TASK, "--num-generatons", "4", cwd=tmp_path)
    assert ended.returncode == 2
    check_mistake(ended.stdout, ended.stderr, "Did you mean --num-generations?")


TASK_WITH_A_BUG = """
from motet import envs

def reward(first, second):
    return [1 / 0 for _ in first]

envs.register("with-a-bug-v0", dataset=[{"prompt": "a"}], reward_func=reward)
"""


def test_a_bug_keeps_its_traceback_and_has_status_1(tmp_path: Path) -> None:
    (tmp_path / "with_a_bug.py").write_text(TASK_WITH_A_BUG)
    path = {"PYTHONPATH": f"{tmp_path}:" + ":".join(filter(None, sys.path))}
    words = ("train", "with_a_bug:with-a-bug-v0", "--max-new-tokens", "2", "--output-dir", "run")
    ended = process(*words, cwd=tmp_path, env=path)
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr
    assert "ZeroDivisionError" in ended.stderr
    assert "with_a_bug:with-a-bug-v0" in (tmp_path / "run" / "run.yaml").read_text()


def test_nothing_is_coloured_in_a_pipe(tmp_path: Path) -> None:
    for words in (["envs"], ["play", "--help"]):
        ended = process(*words, cwd=tmp_path)
        assert ended.returncode == 0
        assert "\x1b" not in ended.stdout + ended.stderr


def on_a_terminal(words: list[str], env: dict[str, str]) -> str:
    """What a command prints on a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "motet.algos", *words]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", **env}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as run:
        os.close(theirs)
        printed = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while part := os.read(ours, 4096):
                printed += part
    os.close(ours)
    assert run.returncode == 0, printed
    return printed.decode()


def test_names_that_are_typed_are_whole_on_a_narrow_terminal() -> None:
    assert f"│ {TASK} " in on_a_terminal(["envs"], {"COLUMNS": "60", "NO_COLOR": "1"})
    shown = on_a_terminal(["algos", "magrpo"], {"COLUMNS": "60", "NO_COLOR": "1"})
    assert "│ --mask-truncated-completions " in shown


@pytest.mark.parametrize("words", [["envs", "--help"], ["envs"]])
def test_colours_are_for_terminals_that_want_them(words: list[str]) -> None:
    assert "\x1b[" in on_a_terminal(words, {"NO_COLOR": ""})
    assert not re.search(r"\x1b\[[0-9;]*[34][0-7]m", on_a_terminal(words, {"NO_COLOR": "1"}))


def test_a_pipe_that_is_closed_ends_it_quietly(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-m', 'motet.algos', "
        "'envs'], stdout=subprocess.PIPE, stderr=subprocess.PIPE); p.stdout.close(); "
        "e = p.stderr.read(); print(p.wait(), e)"
    )
    ended = process(cwd=tmp_path, code=("-c", code))
    assert ended.stdout == "0 b''\n"


def test_shells_get_completion(capsys: pytest.CaptureFixture[str]) -> None:
    assert motet("--tyro-print-completion", "bash") == 0
    script = capsys.readouterr().out
    for command in COMMANDS:
        assert command in script
    assert "--num-generations" in script
