"""The checkpoints of a run: which of them stay, and which one is gone on from."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from motet.algos.checkpoint import FILE_NAME, sync

FOLDER = "checkpoints"
BEST = "best"

_NAME = re.compile(r"(\d+)(?:\.(\d+))?")  # rollouts, and optimizer steps within the next one
_PARTIAL = ".partial-"
_BEFORE = ".before"  # behind the name of one that is being replaced


class CheckpointFolder:
    """Folders of checkpoints, `output_dir`/checkpoints/000012, each there as a whole or not at all.

    Args:
        output_dir: of the run.
        limit: how many stay, the newest ones, `best` aside; None for all.
    """

    def __init__(self, output_dir: str | Path, limit: int | None) -> None:
        self.path = Path(output_dir) / FOLDER
        self._limit = limit

    def write(self, name: str, write: Callable[[Path], object]) -> None:
        """Write a checkpoint, and then remove those that are too many.

        Args:
            name: of `checkpoint_name`, or `BEST`.
            write: writes into the folder that it gets.

        Raises:
            OSError: where it cannot be written; what was there before is there still.
        """
        final = self.path / name
        self.path.mkdir(parents=True, exist_ok=True)
        for leftover in self.path.glob(f"{_PARTIAL}*"):  # of a process that was killed
            shutil.rmtree(leftover)
        if final.exists() and name != BEST:  # a run that went on has come to the same place again
            write(final)  # a single file, which takes the place of the one before at once
        else:
            self._write_whole(final, write)
        if self._limit is not None:
            for old in numbered(self.path)[: -self._limit]:
                # by another name, so that one that is half removed is none
                shutil.rmtree(old.rename(self.path / f"{_PARTIAL}{old.name}"))

    def _write_whole(self, final: Path, write: Callable[[Path], object]) -> None:
        """Write a folder of several files, and put it in the place of the one that there may be."""
        partial, before = self.path / f"{_PARTIAL}{final.name}", _beside(final)
        try:
            write(partial)
            for path in (*partial.rglob("*"), partial):
                sync(path)
            if final.exists():
                shutil.rmtree(before, ignore_errors=True)
                final.rename(before)
            partial.rename(final)
        finally:
            if before.exists() and not final.exists():
                before.rename(final)
            shutil.rmtree(partial, ignore_errors=True)
        sync(self.path)
        shutil.rmtree(before, ignore_errors=True)


def checkpoint_name(num_rollouts: int, num_steps: int | None = None) -> str:
    """Return the name of a checkpoint.

    Args:
        num_rollouts: trained on, or timesteps of learners that count those.
        num_steps: optimizer steps taken of the next rollout; None between two.
    """
    return f"{num_rollouts:06d}" if num_steps is None else f"{num_rollouts:06d}.{num_steps:04d}"


def numbered(folder: Path) -> list[Path]:
    """Return the whole checkpoints of a folder, the newest last; `best` is none of them."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        place = _place(path)
        if place is not None and (path / FILE_NAME).exists():
            found.append((place, path))
    return [path for _, path in sorted(found)]


def newer_ones(folder: Path, checkpoint: Path, number: int) -> list[Path]:
    """Return the checkpoints of a folder that are beyond one, the newest last.

    Args:
        folder: of a run.
        checkpoint: in this folder, or elsewhere.
        number: of rollouts, or of timesteps, that it is past.
    """
    checkpoint = checkpoint.resolve()
    place = _place(checkpoint) if checkpoint.parent == folder.resolve() else None
    here = place or (number, 0)
    return [path for path in numbered(folder) if (_place(path) or here) > here]


def has_reached(folder: Path, name: str) -> bool:
    """Whether a folder has a checkpoint of this name, or one of a later place."""
    newest = numbered(folder)[-1:]
    return bool(newest) and (_place(newest[0]) or ()) >= (_place(folder / name) or ())


def _place(path: Path) -> tuple[int, int] | None:
    """Return the rollouts and steps of a name, None of another one."""
    match = _NAME.fullmatch(path.name)
    return None if match is None else (int(match[1]), int(match[2] or 0))


def _beside(path: Path) -> Path:
    return path.parent / f"{path.name}{_BEFORE}"  # a path such as "." has no name to replace


def find_checkpoint(folder: str | Path) -> Path:
    """Return the checkpoint that a folder is, or the newest one of the run that it is.

    Args:
        folder: that `save_checkpoint` wrote, or the `output_dir` of a run.

    Raises:
        FileNotFoundError: where there is none.
        ValueError: where it is both.
    """
    folder = Path(folder)
    of_a_run = numbered(folder / FOLDER)
    for whole in (folder, _beside(folder)):
        if (whole / FILE_NAME).exists():
            if of_a_run:
                raise ValueError(
                    f"Expected one checkpoint to go on from, got {FILE_NAME} and {FOLDER} of a run "
                    f"in {folder}; give {folder / FOLDER} for the newest one of the run, or move "
                    f"{FILE_NAME} to a folder of its own and give that."
                )
            return whole
    found = of_a_run or numbered(folder)
    best = folder / FOLDER / BEST
    if not found and (best / FILE_NAME).exists():
        raise FileNotFoundError(
            f"Expected numbered checkpoints in {folder / FOLDER}, got {BEST} alone: set "
            f"checkpoint_interval to write them, or give {best} to go on from that one."
        )
    if not found:
        raise FileNotFoundError(
            f"Expected a folder that save_checkpoint wrote, with {FILE_NAME}, or the output_dir of "
            f"a run with {FOLDER}, got {folder}."
        )
    return found[-1]
