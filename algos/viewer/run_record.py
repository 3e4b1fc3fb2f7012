"""A run's folder as the viewer reads it: all there is of it, and what is missing."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from motet.algos.viewer.rollout_files import (
    FOLDERS,
    SavedRollout,
    evenly_chosen,
    numbered_files,
    read_rollout,
    whole_lines,
)
from motet.algos.viewer.settings import Settings, is_number, read_settings


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What is known of a run.

    Attributes:
        name: of the folder or file.
        settings: what reproduces it, as far as that was saved.
        entries: of metrics.jsonl.
        saved: rollouts and evaluations.
        notices: sentences about what is missing.
        written: when the newest file that was read was written; None for none.
    """

    name: str
    settings: Settings = field(default_factory=Settings)
    entries: list[dict[str, Any]] = field(default_factory=list)
    saved: list[SavedRollout] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    written: datetime | None = None


def read_run(source: Path, *, max_rollouts: int | None = None) -> RunRecord:
    """Read a run's folder, or a single file of a rollout.

    Args:
        source: the folder or file.
        max_rollouts: see `write_view`.

    Raises:
        FileNotFoundError: where there is none.
        ValueError: where a single file is no rollout.
    """
    if source.is_file():
        rollout, is_cut = read_rollout(source)
        notices = [_cut_sentence(source)] if is_cut else []
        number = int(source.stem) if source.stem.isdecimal() else 1
        kind = FOLDERS.get(source.parent.name, "training")
        saved = [SavedRollout(kind, number, rollout, is_cut)]
        return RunRecord(source.name, saved=saved, notices=notices, written=_newest([source]))
    if not source.is_dir():
        raise FileNotFoundError(
            f"Expected the folder of a run or a file of a rollout, got {source}, where there is "
            "nothing; a run writes to its output_dir."
        )
    notices = []
    settings = read_settings(source / "run.yaml", notices)
    entries = _read_metrics(source / "metrics.jsonl", notices)
    saved = [
        each for name in FOLDERS for each in _read_rollouts(source / name, max_rollouts, notices)
    ]
    files = [source / "run.yaml", source / "metrics.jsonl"]
    files += [path for name in FOLDERS for _, path in numbered_files(source / name)]
    written = _newest([path for path in files if path.is_file()])
    return RunRecord(source.resolve().name, settings, entries, saved, notices, written)


def _read_metrics(path: Path, notices: list[str]) -> list[dict[str, Any]]:
    if not path.is_file():
        notices.append("There is no metrics.jsonl, so there are no curves.")
        return []
    lines, is_cut = whole_lines(path)
    if is_cut:
        notices.append("The last line of metrics.jsonl is cut, and left out.")
    entries = []
    for number, line in enumerate(lines, start=1):
        entry = _entry(line)
        if entry is None:
            notices.append(f"Line {number} of metrics.jsonl is no entry of a log, and left out.")
        else:
            entries.append(entry)
    if not entries:
        notices.append("Nothing was logged to metrics.jsonl yet, so there are no curves.")
    return entries


def _entry(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and is_number(entry.get("step")) else None


def _read_rollouts(folder: Path, limit: int | None, notices: list[str]) -> list[SavedRollout]:
    files = numbered_files(folder)
    if not files:
        notices.append(f"No {folder.name} were saved yet: there is no file in {folder.name}/.")
    chosen = evenly_chosen(files, limit)
    if len(chosen) < len(files):
        notices.append(f"{len(chosen)} of the {len(files)} files in {folder.name}/ are shown.")
    saved = []
    for number, path in chosen:
        try:
            rollout, is_cut = read_rollout(path)
        except ValueError as error:
            notices.append(f"{folder.name}/{path.name} is left out. {error}")
            continue
        if is_cut:
            notices.append(_cut_sentence(path))
        saved.append(SavedRollout(FOLDERS[folder.name], number, rollout, is_cut))
    return saved


def _cut_sentence(path: Path) -> str:
    return f"{path.parent.name}/{path.name} ends early: nodes and returns are missing."


def _newest(paths: list[Path]) -> datetime | None:
    if not paths:
        return None
    return datetime.fromtimestamp(max(path.stat().st_mtime for path in paths), UTC)
