"""The checkpoints of a run: which of them stay, and which one is gone on from."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from motet.algos.checkpoint import FILE_NAME, sync_folder

FOLDER = "checkpoints"
BEST = "best"

_NAME = re.compile(r"(\d+)(?:\.(\d+))?")  # rollouts, and optimizer steps within the next one
_PARTIAL = ".partial-"


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
        if final.exists():  # a run that went on has come to the same place again
            write(final)
        else:
            self._write_new(final, write)
        if self._limit is not None:
            for old in numbered(self.path)[: -self._limit]:
                shutil.rmtree(old)

    def _write_new(self, final: Path, write: Callable[[Path], object]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        for leftover in self.path.glob(f"{_PARTIAL}*"):  # of a process that was killed
            shutil.rmtree(leftover)
        partial = self.path / f"{_PARTIAL}{final.name}"
        try:
            write(partial)
            sync_folder(partial)
            partial.rename(final)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        sync_folder(self.path)


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
        match = _NAME.fullmatch(path.name)
        if match is not None and (path / FILE_NAME).exists():
            found.append((int(match[1]), int(match[2] or 0), path))
    return [path for _, _, path in sorted(found)]


def find_checkpoint(folder: str | Path) -> Path:
    """Return the checkpoint that a folder is, or the newest one of the run that it is.

    Args:
        folder: that `save_checkpoint` wrote, or the `output_dir` of a run.

    Raises:
        FileNotFoundError: where there is none.
    """
    folder = Path(folder)
    if (folder / FILE_NAME).exists():
        return folder
    found = numbered(folder / FOLDER) or numbered(folder)
    if not found:
        raise FileNotFoundError(
            f"Expected a folder that save_checkpoint wrote, with {FILE_NAME}, or the output_dir of "
            f"a run with {FOLDER}, got {folder}."
        )
    return found[-1]
