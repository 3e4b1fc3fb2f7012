r"""Episodes to read: who saw what, said what, and earned how much.

    env = envs.make("story-length-ratio-v0", num_turns=2, render_mode="human")  # prints its turns

    for transcript in load_transcripts("episodes.jsonl"):  # which RecordTranscripts wrote
        print_transcript(transcript)

Texts are whatever a model wrote, so none is interpreted: neither as rich's markup nor by the
terminal. Control characters, escape sequences and marks that reorder a line are shown as Python
would write them (`\x1b`).
"""

import importlib.util
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from motet.envs.text_state import TextState

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

# Below this many characters a column of prose is hard to read: agents then go below each other.
MIN_COLUMN_WIDTH = 28

_UNSHOWN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_KEPT = "\n\t\u200c\u200d"  # emoji and several scripts join characters with the last two


@dataclass(frozen=True, slots=True)
class Message:
    """What one agent saw and did in one turn.

    Attributes:
        agent: its name.
        observation: what it saw.
        action: what it said; None where it has not answered yet.
        reward: what the turn paid it; None where it has not answered yet.
        acts: whether it was its turn: the env ignores the action otherwise.
    """

    agent: str
    observation: str
    action: str | None = None
    reward: float | None = None
    acts: bool = True


@dataclass(frozen=True, slots=True)
class Transcript:
    """An episode, finished or running.

    Attributes:
        env: id or name of the env.
        row: dataset row; None for envs without a dataset.
        turns: messages by turn; a running episode's last turn has no answers yet.
        endings: (agent, "terminated" or "truncated") of each agent that left.
    """

    env: str
    row: int | None
    turns: tuple[tuple[Message, ...], ...]
    endings: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return format_transcript(self)


def transcript_of(
    state: TextState,
    *,
    env: str,
    agent_names: Sequence[str],
    acting: Callable[[int], Collection[str]],
) -> Transcript:
    """Return the transcript of a `TextEnv`'s episode.

    Args:
        state: where it stands.
        env: id or name of the env.
        agent_names: (N,) names.
        acting: `f(turn)` tells who acts in a turn, 1 for the first.
    """
    turns = []
    for i, observations in enumerate(state.observations):
        acts = acting(i + 1)
        messages = [
            Message(name, seen, acts=name in acts)
            for name, seen in zip(agent_names, observations, strict=True)
        ]
        if i < state.turn:
            answers = zip(messages, state.actions[i], state.rewards[i], strict=True)
            messages = [replace(m, action=text, reward=reward) for m, text, reward in answers]
        turns.append(tuple(messages))
    endings = tuple((name, "terminated") for name in agent_names) if state.ended else ()
    return Transcript(env, state.row, tuple(turns), endings)


def format_transcript(transcript: Transcript, *, first_turn: int = 1) -> str:
    """Return a transcript as plain text.

    Every line of what agents read and wrote starts with a bar, so that no text can pass for a
    heading.

    Args:
        transcript: what to show.
        first_turn: the turn to begin with; after the first, the title is left out too.
    """
    blocks = [] if first_turn > 1 else [_title(transcript)]
    for number, turn in enumerate(transcript.turns, start=1):
        if number >= first_turn:
            blocks.append("\n".join([f"Turn {number}", *map(_message_block, turn)]))
    if transcript.endings:
        blocks.append(_ending(transcript))
    return "\n\n".join(blocks)


def print_transcript(
    transcript: Transcript, *, first_turn: int = 1, console: "Console | None" = None
) -> None:
    """Print a transcript with a column for each agent, or as plain text where rich is missing.

    Args:
        transcript: what to print.
        first_turn: as for `format_transcript`.
        console: rich console to print to; default: standard output.
    """
    if importlib.util.find_spec("rich") is None:
        print(format_transcript(transcript, first_turn=first_turn) + "\n")
        return
    from rich.console import Console  # noqa: PLC0415  # rich is for those who look
    from rich.text import Text  # noqa: PLC0415

    console = console or Console()
    if first_turn == 1:
        console.print(Text(_title(transcript), style="bold"))
    for number, turn in enumerate(transcript.turns, start=1):
        if number >= first_turn:
            console.print(*_tables(number, turn, console.width), sep="")
    if transcript.endings:
        console.print(Text(_ending(transcript) + "\n"))


def visible(text: str) -> str:
    """Return a text whose characters all show, and do nothing else, in a terminal.

    Line breaks, tabs and joiners stay. A backslash that was there is not told from one that an
    escaped character got.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character
        if character in _KEPT or unicodedata.category(character) not in _UNSHOWN
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def _title(transcript: Transcript) -> str:
    row = "" if transcript.row is None else f", row {transcript.row}"
    return _line(f"Episode of {transcript.env}{row}")


def _ending(transcript: Transcript) -> str:
    how = {ending for _, ending in transcript.endings}
    if len(how) == 1 and {agent for agent, _ in transcript.endings} >= _agents(transcript):
        return _line(f"The episode was {how.pop()}.")
    return _line(" ".join(f"{agent} was {ending}." for agent, ending in transcript.endings))


def _agents(transcript: Transcript) -> set[str]:
    return {message.agent for turn in transcript.turns for message in turn}


def _message_block(message: Message) -> str:
    name = _line(message.agent)
    lines = [f"  {name} sees", *_barred(message.observation)]
    if not message.acts:
        lines.append(f"  {name} waits")
    elif message.action is not None:
        lines += [f"  {name} says", *_barred(message.action)]
    if message.reward is not None:
        lines.append(f"  {name} earns {message.reward:g}")
    return "\n".join(lines)


def _barred(text: str) -> Iterator[str]:
    return (f"    | {line}" if line else "    |" for line in visible(text).split("\n"))


def _line(name: str) -> str:
    """Return a name that stays on its line."""
    return visible(name).replace("\n", "\\n").replace("\t", "\\t")


def _tables(number: int, turn: Sequence[Message], width: int) -> Iterator["Table"]:
    """Yield a table for each row of agents that fits the width; the first has the heading."""
    beside = max(1, min(len(turn), (width - 1) // MIN_COLUMN_WIDTH))
    for start in range(0, len(turn), beside):
        yield _table(turn[start : start + beside], f"Turn {number}" if start == 0 else None)


def _table(messages: Sequence[Message], title: str | None) -> "Table":
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(
        title=None if title is None else Text(title, style="bold"),
        title_justify="left",
        box=box.ROUNDED,
        expand=True,
        show_lines=True,
    )
    for message in messages:
        table.add_column(Text(_line(message.agent)), ratio=1, overflow="fold")
    table.add_row(*(Text(visible(message.observation), style="dim") for message in messages))
    if any(message.action is not None for message in messages):
        table.add_row(*(_said(message) for message in messages))
    if any(message.reward is not None for message in messages):
        table.add_row(*("" if m.reward is None else Text(f"earns {m.reward:g}") for m in messages))
    return table


def _said(message: Message) -> "Text":
    from rich.text import Text  # noqa: PLC0415

    if not message.acts:
        return Text("waits", style="dim italic")
    return Text(visible(message.action or ""))
