"""Whether a path can be written to, asked before anything is computed for it."""

import os
from pathlib import Path

from motet.algos.cli.mistakes import UsageError


def check_file(path: str | Path, option: str) -> None:
    """Raise where a file cannot be written; its folder may be missing, and is made by who writes.

    Args:
        path: of the file.
        option: the flag that names it.

    Raises:
        UsageError: where it is a folder, or nothing can be written there.
    """
    if Path(path).is_dir():
        raise UsageError(f"Expected a file as {option}, got the folder {path}.")
    _check_writable(Path(path), option)


def check_folder(path: str | Path, option: str) -> None:
    """Raise where a folder cannot be made or written to.

    Raises:
        UsageError: where it is a file, or nothing can be written there.
    """
    if Path(path).exists() and not Path(path).is_dir():
        raise UsageError(f"Expected a folder as {option}, got the file {path}.")
    _check_writable(Path(path), option)


def _check_writable(path: Path, option: str) -> None:
    """Raise where the nearest thing on a path that is there is no folder to write to."""
    there = next((each for each in (path, *path.parents) if each.exists()), path)
    if there != path and not there.is_dir():
        raise UsageError(
            f"Expected a place to write to as {option}, got {path}; {there} is a file."
        )
    if not os.access(there, os.W_OK):
        raise UsageError(
            f"Expected a place to write to as {option}, got {path}; {there} is read-only."
        )
