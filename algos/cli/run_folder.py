"""The folder of a run: its name, what is in it, and where it can be gone on from."""

import re
import shlex
import time
from pathlib import Path

from motet.algos.checkpoint import FILE_NAME as STATE
from motet.algos.checkpoint_folder import find_checkpoint
from motet.algos.cli.mistakes import UsageError
from motet.algos.cli.paths import check_folder
from motet.algos.cli.settings_file import FILE_NAME

ROOT = Path("runs")


def new_folder(env: str, algo: str) -> Path:
    """Return a name that no run has: `runs/<env>-<algo>-<time>`."""
    stem = f"{re.sub(r'[^A-Za-z0-9.-]+', '-', env)}-{algo}-{time.strftime('%Y%m%d-%H%M%S')}"
    number, folder = 1, ROOT / stem
    while folder.exists():
        number += 1
        folder = ROOT / f"{stem}-{number}"
    return folder


def check_new(folder: Path) -> None:
    """Raise where a folder has a run already.

    Raises:
        UsageError: with what to type instead.
    """
    check_folder(folder, "--output-dir")
    if (folder / FILE_NAME).exists():
        raise UsageError(
            f"Expected a new folder as --output-dir, got {folder}, which has a run; "
            f"{way_on(folder)}, or name another."
        )


def way_on(run: Path) -> str:
    """Return what can be done with a run that has begun, in words.

    Args:
        run: its folder.
    """
    quoted = shlex.quote(str(run))
    if newest_checkpoint(run) is not None:
        return f"go on with `motet train --resume {quoted}`"
    return (
        "it has no checkpoint to go on from; begin it again with `motet train --config "
        f"{quoted} --checkpoint-interval 1 --output-dir ...`"
    )


def run_of(path: str) -> tuple[Path, Path]:
    """Return the folder of a run and the checkpoint to go on from.

    Args:
        path: the folder of a run, whose newest checkpoint it is, or of one checkpoint in it.

    Raises:
        UsageError: where there is no run, or it has no checkpoint.
    """
    given = Path(path)
    if (given / STATE).exists():
        run = next((up for up in given.resolve().parents[:2] if (up / FILE_NAME).exists()), None)
        if run is None:
            raise UsageError(
                f"Expected a checkpoint in the folder of a run, with {FILE_NAME} above it, got "
                f"{path}; in Python, trainer.train(resume_from=...) reads any."
            )
        return run, given
    if not (given / FILE_NAME).exists():
        there = "" if given.exists() else ", which is not there"
        raise UsageError(f"Expected the folder of a run, with {FILE_NAME}, got {path}{there}.")
    newest = newest_checkpoint(given)
    if newest is None:
        raise UsageError(
            f"Expected a run with a checkpoint, got {path}, which has none; train with "
            "--checkpoint-interval 1 to have one after every rollout."
        )
    return given, newest


def newest_checkpoint(run: Path) -> Path | None:
    """Return the checkpoint of a run that is furthest on, None where it has none."""
    try:
        return find_checkpoint(run)
    except FileNotFoundError:
        return None
