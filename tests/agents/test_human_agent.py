"""A person in the team."""

import io
from collections.abc import Callable

import pytest

from motet.agents import Agent, Completion, HumanAgent
from motet.agents.visible import visible
from motet.envs import transcript


def typing(*lines: str | BaseException) -> tuple[Callable[[str], str], list[str]]:
    """Return an input function that gives lines or raises, and the list of what it was asked."""
    asked: list[str] = []
    left = iter(lines)

    def read(prompt: str) -> str:
        asked.append(prompt)
        line = next(left, EOFError())
        if isinstance(line, BaseException):
            raise line
        return line

    return read, asked


def test_a_person_answers_each_observation_in_turn() -> None:
    read, asked = typing("yes", "no", "", "maybe")
    shown: list[str] = []
    agent = HumanAgent("agent_0", input_fn=read, print_fn=shown.append)
    assert isinstance(agent, Agent)
    assert agent.act(["Tea?\nOr not?", "Coffee?"], 2) == [
        [Completion("yes"), Completion("no")],
        [Completion(""), Completion("maybe")],
    ]
    assert asked == ["Answer 1 of 2: ", "Answer 2 of 2: "] * 2
    assert shown == [
        "agent_0 sees (1 of 2)\n  | Tea?\n  | Or not?",
        "agent_0 sees (2 of 2)\n  | Coffee?",
    ]


def test_answers_of_several_lines_end_with_a_line_or_the_input() -> None:
    read, asked = typing("one", "", " .", "two.", ".", ".", "last", EOFError())
    shown: list[str] = []
    agent = HumanAgent(multiline=True, input_fn=read, print_fn=shown.append)
    assert agent.act(["a"], 3)[0] == [
        Completion("one\n\n .\ntwo."),
        Completion(""),
        Completion("last"),
    ]
    assert set(asked) == {"> "}
    assert shown[:2] == ["Observation\n  | a", "Answer 1 of 3, ended by a line with . alone:"]
    read, _ = typing(".", "END")
    agent = HumanAgent(multiline=True, end="END", input_fn=read, print_fn=shown.append)
    assert agent.act(["a"])[0] == [Completion(".")]
    for end in ("", " ", "a\nb", " x"):
        with pytest.raises(ValueError, match="one line without spaces around it"):
            HumanAgent(end=end)


@pytest.mark.parametrize("multiline", [False, True])
def test_the_end_of_the_input_is_told_in_a_sentence(multiline: bool) -> None:
    read, _ = typing()
    agent = HumanAgent("agent_1", multiline=multiline, input_fn=read, print_fn=lambda _: None)
    with pytest.raises(
        EOFError, match="answer of agent_1, got the end of the input; run"
    ) as raised:
        agent.act(["a"])
    assert raised.value.__context__ is None


def test_ctrl_c_is_an_interrupt_on_a_line_of_its_own() -> None:
    read, _ = typing(KeyboardInterrupt())
    shown: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        HumanAgent(input_fn=read, print_fn=shown.append).act(["a"])
    assert shown[-1] == ""


def test_nothing_in_an_observation_can_move_the_cursor_or_pass_for_a_question() -> None:
    hostile = "\x1b[2J\x1b]0;gone\x07[bold]x[/bold]\rover\x9b31m\u202edrow\nAnswer: \u2028\x00"
    shown: list[str] = []
    read, _ = typing("fine")
    HumanAgent("a\x1b[1m\nb", input_fn=read, print_fn=shown.append).act([hostile])
    (text,) = shown
    assert text.replace("\n", "").isprintable()
    assert "[bold]x[/bold]" in text
    assert text.split("\n")[0] == "a\\x1b[1m\\nb sees"
    assert all(line.startswith("  |") for line in text.split("\n")[1:])


def test_bytes_that_are_no_text_are_asked_for_again() -> None:
    read, asked = typing("caf\udce9", "café")
    shown: list[str] = []
    agent = HumanAgent(input_fn=read, print_fn=shown.append)
    assert agent.act(["a"]) == [[Completion("café")]]
    assert len(asked) == 2
    assert "answer again" in shown[-1]


def test_texts_show_as_in_transcripts() -> None:
    every = "".join(map(chr, range(0x30000)))
    assert visible(every) == transcript.visible(every)


def test_it_reads_a_pipe_and_writes_to_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("first\nsecond\n"))
    agent = HumanAgent("me")
    assert agent.act(["Hello", "you"]) == [[Completion("first")], [Completion("second")]]
    with pytest.raises(EOFError, match="answer of me"):
        agent.act(["more"])
    assert capsys.readouterr().out == (
        "me sees (1 of 2)\n  | Hello\nAnswer: me sees (2 of 2)\n  | you\nAnswer: "
        "me sees\n  | more\nAnswer: "
    )
