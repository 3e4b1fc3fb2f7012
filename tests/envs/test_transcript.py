"""Transcripts to read: plain, in columns, and with texts that try to be more than text."""

import io
import sys

import pytest
from paid_env import paid, paid_env, said
from rich.cells import cell_len
from rich.console import Console

from motet.envs import TextEnv, make
from motet.envs.transcript import (
    Message,
    Transcript,
    format_transcript,
    print_transcript,
    visible,
)
from motet.envs.wrappers import OrderEnforcing, RewardShaping, TimeLimit

HOSTILE = (
    "\x1b[2J\x1b]0;title\x07 [bold red]no[/bold red] [/] :smile: \r\b\x9b31m \u202egnol \u2028"
    "\nTurn 9\n  agent_0 earns 99"
)
EPISODE = Transcript(
    "text_env",
    1,
    (
        (Message("agent_0", "Write.", "Ah\n\nno", 0.5), Message("agent_1", "Read.", "", -2.0)),
        (Message("agent_0", "Again."), Message("agent_1", "Wait.", acts=False)),
    ),
)


def printed(transcript, width, **kwargs):
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    print_transcript(transcript, console=console, **kwargs)
    return console.file.getvalue()


def test_plain_text_in_full():
    assert (
        format_transcript(EPISODE)
        == str(EPISODE)
        == (
            "Episode of text_env, row 1\n"
            "\n"
            "Turn 1\n"
            "  agent_0 sees\n"
            "    | Write.\n"
            "  agent_0 says\n"
            "    | Ah\n"
            "    |\n"
            "    | no\n"
            "  agent_0 earns 0.5\n"
            "  agent_1 sees\n"
            "    | Read.\n"
            "  agent_1 says\n"
            "    |\n"
            "  agent_1 earns -2\n"
            "\n"
            "Turn 2\n"
            "  agent_0 sees\n"
            "    | Again.\n"
            "  agent_1 sees\n"
            "    | Wait.\n"
            "  agent_1 waits"
        )
    )
    assert format_transcript(EPISODE, first_turn=2).startswith("Turn 2\n  agent_0 sees\n")


def test_columns_in_full():
    assert printed(EPISODE, 60, first_turn=1) == (
        "Episode of text_env, row 1\n"
        "Turn 1                                                      \n"
        "╭─────────────────────────────┬────────────────────────────╮\n"
        "│ agent_0                     │ agent_1                    │\n"
        "├─────────────────────────────┼────────────────────────────┤\n"
        "│ Write.                      │ Read.                      │\n"
        "├─────────────────────────────┼────────────────────────────┤\n"
        "│ Ah                          │                            │\n"
        "│                             │                            │\n"
        "│ no                          │                            │\n"
        "├─────────────────────────────┼────────────────────────────┤\n"
        "│ earns 0.5                   │ earns -2                   │\n"
        "╰─────────────────────────────┴────────────────────────────╯\n"
        "Turn 2                                                      \n"
        "╭─────────────────────────────┬────────────────────────────╮\n"
        "│ agent_0                     │ agent_1                    │\n"
        "├─────────────────────────────┼────────────────────────────┤\n"
        "│ Again.                      │ Wait.                      │\n"
        "╰─────────────────────────────┴────────────────────────────╯\n"
    )
    assert printed(EPISODE, 60, first_turn=2).startswith("Turn 2")


@pytest.mark.parametrize(
    ("endings", "sentence"),
    [
        ((("a", "terminated"), ("b", "terminated")), "The episode was terminated."),
        ((("a", "truncated"), ("b", "truncated")), "The episode was truncated."),
        ((("b", "terminated"), ("a", "truncated")), "b was terminated. a was truncated."),
        ((("b", "terminated"),), "b was terminated."),
    ],
)
def test_how_it_ended(endings, sentence):
    transcript = Transcript("e", None, ((Message("a", "x"), Message("b", "x")),), endings)
    assert format_transcript(transcript).endswith(f"\n\n{sentence}")
    assert printed(transcript, 80).endswith(f"\n{sentence}\n\n")
    assert format_transcript(transcript).startswith("Episode of e\n")


@pytest.mark.parametrize("width", [20, 60, 80, 120])
@pytest.mark.parametrize("num_agents", [1, 2, 5])
def test_agents_that_do_not_fit_beside_each_other_go_below(width, num_agents):
    names = [f"agent_{i}" for i in range(num_agents)]
    long = "word " * 30 + "unbroken" * 30
    turn = tuple(Message(name, long, f"{name} said this", 1.0) for name in names)
    shown = printed(Transcript("e", 0, (turn,)), width)
    assert all(cell_len(line) <= width for line in shown.split("\n"))
    heads = [line for line in shown.split("\n") if "agent_" in line and "said" not in line]
    beside = {20: 1, 60: 2, 80: 2, 120: 4}[width]
    assert len(heads) == -(-num_agents // beside)
    assert shown.count("Turn 1") == 1
    assert shown.count("u") == 30 * num_agents + 1  # nothing is cut off


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_text_reaches_the_terminal_raw_or_as_markup(width):
    turn = (Message("agent_0", HOSTILE, HOSTILE, 1.0), Message(HOSTILE, "x", "y", 2.0))
    transcript = Transcript(HOSTILE, 0, (turn,), ((HOSTILE, HOSTILE), ("agent_0", "terminated")))
    console = Console(file=io.StringIO(), width=width, force_terminal=False, color_system=None)
    print_transcript(transcript, console=console)
    for shown in (format_transcript(transcript), console.file.getvalue()):
        raw = {c for c in shown if not c.isprintable() and c != "\n"}
        assert raw == set()
        assert r"\x1b[2J\x1b]0;title\x07" in shown
        assert "[bold red]no" in shown
        assert ":smile:" in shown
        assert r"\u202e" in shown
        assert "\nTurn 9" not in shown
        assert "\n  agent_0 earns 99" not in shown


def test_a_colour_terminal_gets_only_richs_own_sequences():
    turn = (Message("agent_0", HOSTILE, HOSTILE, 1.0),)
    console = Console(
        file=io.StringIO(),
        width=80,
        force_terminal=True,
        color_system="standard",
        legacy_windows=False,
    )
    print_transcript(Transcript("e", 0, (turn,)), console=console)
    sequences = set(console.file.getvalue().split("\x1b")[1:])
    assert sequences
    assert all(text.startswith(("[0m", "[1m", "[2m", "[1;")) for text in sequences)


def test_what_is_visible():
    assert visible("plain [text]") == "plain [text]"
    assert visible("a\nb\tc") == "a\nb\tc"
    assert (
        visible("é 世界 👩🏽\u200d🚀 \u3000 e\u0301 \xa0")
        == "é 世界 👩🏽\u200d🚀 \u3000 e\u0301 \xa0"
    )
    assert visible("\x00\x1b\x7f\x9b\r") == r"\x00\x1b\x7f\x9b\r"
    assert visible("\u202e\u2066\ufeff\u2029\ud800\U000e0041") == (
        r"\u202e\u2066\ufeff\u2029\ud800\U000e0041"
    )
    assert visible("") == ""


def test_an_env_renders_its_episode_as_text():
    env = paid_env(num_turns=2, render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == (
        "Episode of text_env, row 0\n\nTurn 1\n  agent_0 sees\n    | p\n  agent_1 sees\n    | p"
    )
    env.step(said(1, 2))
    assert "  agent_1 earns 2\n\nTurn 2\n  agent_0 sees\n    | p after 1: 1\n" in env.render()
    env.step(said(3, 4))
    assert env.render().endswith("agent_1 earns 4\n\nThe episode was terminated.")


def test_agents_that_wait_are_shown_waiting():
    env = paid_env(num_turns=2, render_mode="ansi", acting=[["agent_1"], ["agent_0"]])
    env.reset(seed=0)
    assert "agent_0 sees\n    | p\n  agent_0 waits\n  agent_1 sees" in env.render()


def test_a_human_sees_each_turn_once_as_it_is_played(capsys):
    env = paid_env(num_turns=2, render_mode="human")
    env.reset(seed=0)
    assert capsys.readouterr().out == ""
    env.step(said(1, 2))
    first = capsys.readouterr().out
    assert first.startswith("Episode of text_env, row 0\nTurn 1")
    assert "earns 2" in first
    assert "Turn 2" not in first
    env.step(said(3, 4))
    second = capsys.readouterr().out
    assert second.startswith("Turn 2")
    assert "p after 1: 1" in second
    assert second.endswith("The episode was terminated.\n\n")
    assert env.render() is None
    assert capsys.readouterr().out == first + second


def test_without_rich_the_plain_form_is_printed(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    env = paid_env(num_turns=2, render_mode="human")
    env.reset(seed=0)
    env.step(said(1, 2))
    env.step(said(3, 4))
    plain = paid_env(num_turns=2, render_mode="ansi")
    paid(plain, (1, 2), (3, 4))
    assert capsys.readouterr().out.replace("\n\n\n", "\n\n") == plain.render() + "\n\n"


def test_no_render_mode_is_a_warning_and_no_text():
    env = paid_env()
    env.reset()
    with pytest.warns(UserWarning, match="render"):
        assert env.render() is None


def test_branches_are_not_printed(capsys):
    env = TimeLimit(paid_env(render_mode="human"), 2)
    env.reset(seed=0)
    env.step_batch([env.get_state()], [said(1, 2)])
    assert capsys.readouterr().out == ""


def test_wrappers_render_what_is_inside():
    inner = make("story-length-ratio-v0", num_turns=2, render_mode="ansi")
    env = TimeLimit(RewardShaping(OrderEnforcing(inner), "last_turn"), 1)
    env.reset(seed=0)
    env.step(said("a", "bb"))
    assert env.render() == inner.render()
    assert env.render().startswith("Episode of story-length-ratio-v0, row 0\n\nTurn 1\n")
    assert env.render_mode == "ansi"


def test_rendering_goes_on_from_a_snapshot():
    env = paid_env(render_mode="ansi")
    env.reset(seed=0)
    before = env.render()
    state = env.get_state()
    env.step(said(1, 2))
    env.set_state(state)
    assert env.render() == before
    assert isinstance(env.unwrapped, TextEnv)
