"""Rollouts of a run, read from files that may be cut short or still be written to."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from motet.algos.rollouts.rollout import Rollout
from motet.algos.viewer.fates import sizes_below

Kind = Literal["training", "evaluation"]
FOLDERS: dict[str, Kind] = {"rollouts": "training", "evaluations": "evaluation"}


@dataclass(frozen=True, slots=True)
class SavedRollout:
    """A rollout, and where in the run it belongs.

    Attributes:
        kind: "training" or "evaluation".
        number: of the rollout, from 1; of an evaluation, how many rollouts came before it.
        rollout: what the file held, as far as it could be read.
        is_cut: whether the file ended early, so that nodes and returns are missing.
    """

    kind: Kind
    number: int
    rollout: Rollout
    is_cut: bool = False


def whole_lines(path: Path) -> tuple[list[str], bool]:
    """Return the lines of a JSONL file, and whether its last one was cut and is left out.

    A process that is still writing, or was killed, leaves half a line at the end.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    last = lines.pop()  # empty where the file ends with a whole line
    if last.strip() and _is_json(last):
        return [*_filled(lines), last], False
    return _filled(lines), bool(last.strip())


def read_rollout(path: Path) -> tuple[Rollout, bool]:
    """Return the rollout of a file as far as it goes, and whether the file was cut.

    Raises:
        ValueError: where it is no file that `Rollout.save` wrote, with the line that tells.
    """
    lines, is_cut = whole_lines(path)
    if not lines:
        raise ValueError(
            f"Expected a rollout in {path.name}, got a file without a whole line; it is still "
            "being written, or was cut."
        )
    for number, line in enumerate(lines, start=1):
        if not _is_json(line):
            raise ValueError(
                f"Expected a line of JSON, got {line[:40]!r} in line {number} of {path.name}."
            )
    try:
        rollout = Rollout.from_lines(lines)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"Expected a file that Rollout.save of this version wrote, got {path.name}, whose "
            f"nodes are of another form ({error!r})."
        ) from error
    return rollout, is_cut or _lacks_children(rollout)


def numbered_files(folder: Path) -> list[tuple[int, Path]]:
    """Return the files of a folder that are named by a number, in its order."""
    files = [path for path in folder.glob("*.jsonl") if path.stem.isdecimal()]
    return sorted((int(path.stem), path) for path in files)


def evenly_chosen(files: Sequence[tuple[int, Path]], limit: int | None) -> list[tuple[int, Path]]:
    """Return at most `limit` of the files, evenly spaced, the last and, from two on, the first."""
    if limit is None or len(files) <= limit:
        return list(files)
    if limit == 1:
        return [files[-1]]
    return [files[round(k * (len(files) - 1) / (limit - 1))] for k in range(limit)]


def _lacks_children(rollout: Rollout) -> bool:
    return any(
        child is not None and child >= size
        for level, size in zip(rollout.levels, sizes_below(rollout), strict=True)
        for node in level
        for child in node.children
    )


def _filled(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if line.strip()]


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
