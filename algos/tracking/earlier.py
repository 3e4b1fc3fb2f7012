"""What an earlier run left is never written over."""

import itertools
from pathlib import Path


def set_aside(path: Path) -> None:
    """Move a file or a folder, where there is one, to the next free `name-1`, `name-2`, ..."""
    if path.exists():
        names = (path.with_stem(f"{path.stem}-{n}") for n in itertools.count(1))
        path.rename(next(name for name in names if not name.exists()))
