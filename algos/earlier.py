"""What an earlier run left is never written over, and never gone for a moment."""

import itertools
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path


def set_aside(path: Path) -> None:
    """Move a file or a folder, where there is one, to the next free `name-1`, `name-2`, ..."""
    if path.exists():
        path.rename(_free_name(path))


def set_aside_some(paths: Sequence[Path]) -> None:
    """Move some of what is in one folder into the next free `folder-1`, `folder-2`, ..."""
    if paths:
        folder = _free_name(paths[0].parent)
        folder.mkdir()
        for path in paths:
            path.rename(folder / path.name)


def put_in_place(path: Path, lines: Iterable[str], *, keep: bool = False) -> None:
    """Write a file beside the one that there is, and then put it in its place.

    Args:
        path: of both.
        lines: of the new one, with their ends.
        keep: leave the old one beside it, as `set_aside` would.
    """
    beside = path.with_name(f"{path.name}.part")
    with beside.open("w", encoding="utf-8", newline="") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    if keep:
        shutil.copy2(path, _free_name(path))
    beside.replace(path)


def _free_name(path: Path) -> Path:
    names = (path.with_stem(f"{path.stem}-{n}") for n in itertools.count(1))
    return next(name for name in names if not name.exists())
