"""Write finished episodes to a file, one JSON line each."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from motet.envs.text_state import StepResult
from motet.envs.transcript import Message, Transcript
from motet.envs.wrappers.wrapper import Infos, Observations, Wrapper


class RecordTranscripts(Wrapper):
    """Append the transcript of each episode that ends to a file; `load_transcripts` reads it.

    A line is an object with `env` (id or name), `row` (dataset row, null where there is none),
    `turns` (for each turn a list of `agent`, `observation`, `action`, `reward`, `acts`) and
    `endings` (who was "terminated", who "truncated"). Each line is written at once to the end of
    the file, so clones, and envs of several processes on one machine, can share it.

    Each end that is played is written, those of branches in `step_batch` and of replays too; an
    episode that is left before its end is not. What is recorded is what passes here: outside of a
    `PromptTemplate` and a `TransformAction` that is what the agents read and wrote, inside of them
    what the task asked and heard. An outer `TimeLimit` cuts episodes that are then never written.

    Args:
        env: the env to wrap; observations and actions are texts.
        path: file to append to, with its folders made where they are missing.

    Raises:
        TypeError: where `path` is no path.
        OSError: where it cannot be written to, such as a folder.
    """

    def __init__(self, env: Any, path: str | Path) -> None:
        super().__init__(env)
        if not isinstance(path, str | Path):
            raise TypeError(f"Expected a path as path, got {path!r}.")
        self.path = Path(path).absolute()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab"):
                pass
        except OSError as exc:
            raise type(exc)(
                exc.errno,
                f"Expected a file to append transcripts to, got {exc.strerror}",
                str(path),
            ) from exc

    def after_reset(
        self, observations: Observations, infos: Infos, *, seed: int
    ) -> tuple[Transcript, Observations, Infos]:
        """Begin a transcript.

        Raises:
            TypeError: where an observation is no text.
        """
        row = next((info["row"] for info in infos.values() if "row" in info), None)
        asked = _asked(observations, infos, list(observations))
        return Transcript(str(self.unwrapped), row, (asked,)), observations, infos

    def after_step(
        self, memory: Transcript, actions: Mapping[str, Any], result: StepResult
    ) -> tuple[Transcript, StepResult]:
        """Add the turn, and write the episode where it ended.

        Raises:
            TypeError: where an observation or an action is no text.
            OSError: where the line cannot be written.
        """
        *before, asked = memory.turns
        answered = tuple(
            replace(
                message,
                action=_text("action", message.agent, actions[message.agent]),
                reward=float(result.rewards[message.agent]),
            )
            for message in asked
        )
        left = tuple(
            (agent, "terminated" if result.terminations[agent] else "truncated")
            for agent in result.observations
            if agent not in result.live
        )
        turns = (*before, answered)
        if not result.ended:
            turns = (*turns, _asked(result.observations, result.infos, result.live))
        after = replace(memory, turns=turns, endings=(*memory.endings, *left))
        if result.ended:
            _append(self.path, after)
        return after, result


def load_transcripts(path: str | Path) -> list[Transcript]:
    """Read what `RecordTranscripts` wrote.

    Args:
        path: the file.

    Returns:
        The transcripts, in the order in which their episodes ended.

    Raises:
        OSError: where the file cannot be read.
        ValueError: where a line is no transcript, such as one that a full disk cut.
    """
    transcripts = []
    lines = Path(path).read_bytes().split(b"\n")  # texts may hold what splitlines() would split at
    if lines[-1] == b"":
        lines.pop()
    for number, line in enumerate(lines, start=1):
        try:
            fields = json.loads(line)
            turns = tuple(
                tuple(Message(**message) for message in turn) for turn in fields.pop("turns")
            )
            endings = tuple((agent, how) for agent, how in fields.pop("endings"))
            transcripts.append(Transcript(turns=turns, endings=endings, **fields))
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            raise ValueError(
                f"Expected a transcript in line {number} of {path}, got {line[:80]!r}: {exc}."
            ) from exc
    return transcripts


def _asked(observations: Observations, infos: Infos, agents: list[str]) -> tuple[Message, ...]:
    return tuple(
        Message(
            agent,
            _text("observation", agent, observations[agent]),
            acts=bool(infos[agent].get("acts", True)),
        )
        for agent in agents
    )


def _text(what: str, agent: str, text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError(
            f"Expected a text as the {what} of {agent}, got {text!r:.200} of type "
            f"{type(text).__name__}; wrap the env before it is made something else."
        )
    return text


def _append(path: Path, transcript: Transcript) -> None:
    # Lone surrogates, which UTF-8 cannot hold, become the escapes that JSON has for them.
    line = json.dumps(asdict(transcript), ensure_ascii=False, allow_nan=False) + "\n"
    data = line.encode("utf-8", errors="backslashreplace")
    with path.open("ab", buffering=0) as file:
        written = file.write(data)
    if written != len(data):
        raise OSError(f"Expected to write {len(data)} bytes to {path}, got only {written} written.")
