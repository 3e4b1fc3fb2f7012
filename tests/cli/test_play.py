"""`motet play`: a person at one seat, whose words come through a pipe here."""

import io
from pathlib import Path

import pytest
from cli_runs import TASK, motet, process, train

WORDS = ("--num-turns", "2", "--max-new-tokens", "4", "--num-episodes", "1")


def answer(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_an_episode_shows_rewards_and_what_others_wrote(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, "aa", "bb")
    assert motet("play", TASK, *WORDS, "--model", "text:aaaa") == 0
    printed = capsys.readouterr().out
    assert "You are agent_0 of agent_0, agent_1." in printed
    assert "Describe a city in the clouds:" in printed
    assert printed.count("agent_1 wrote: aaaa") == 2
    assert printed.count("Rewards: agent_0 1.000, agent_1 1.000") == 2
    assert "1 episode played, mean return 2.000." in printed


def test_the_seat_and_the_rows_are_chosen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, "aaaa")
    words = ("--seat", "agent_1", "--rows", "4", "--num-episodes", "1", "--model", "text:aa")
    assert motet("play", TASK, *words) == 0
    printed = capsys.readouterr().out
    assert "Tell a joke about dinosaurs:" in printed
    assert "agent_0 wrote: aa" in printed
    assert "mean return 1.000" in printed


def test_leaving_in_the_middle_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, "aa")  # and then the input ends, in the second turn
    assert motet("play", TASK, "--num-turns", "2", "--model", "text:aaaa") == 0
    assert "No episode was played to its end." in capsys.readouterr().out
    answer(monkeypatch, "aa", "aa", "aa")
    assert motet("play", TASK, "--model", "text:aaaa") == 0
    assert "3 episodes played, mean return 1.000." in capsys.readouterr().out


def test_models_have_the_other_seats(tmp_path: Path) -> None:
    ended = process("play", TASK, "--max-new-tokens", "4", "--num-episodes", "1", cwd=tmp_path,
                    input="a story\n")  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "agent_1 wrote: " in ended.stdout
    assert "1 episode played" in ended.stdout
    assert "Traceback" not in ended.stderr


def test_a_trained_team_has_the_other_seats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train(tmp_path / "run")
    answer(monkeypatch, "a story")
    assert motet("play", TASK, "--team", folder, "--num-episodes", "1") == 0
    assert "agent_1 wrote: " in capsys.readouterr().out


def test_control_characters_of_partners_are_written_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, "a")
    assert motet("play", TASK, "--num-episodes", "1", "--model", "text:a\x1b[2J\u202e[b]c") == 0
    printed = capsys.readouterr().out
    assert "agent_1 wrote: a\\x1b[2J\\u202e[b]c" in printed
    assert "\x1b" not in printed


@pytest.mark.parametrize("words", [("--num-episodes", "0"), ("--rows", "99")])
def test_episodes_that_cannot_be_played_are_refused_before_the_first(
    words: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert motet("play", TASK, *words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("motet: Expected ")


def test_a_seat_that_there_is_not_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert motet("play", TASK, "--seat", "agent_7") == 2
    assert "Expected a seat among agent_0, agent_1, got 'agent_7'" in capsys.readouterr().err
    assert motet("play") == 2
    assert "Expected the id of a task" in capsys.readouterr().err
