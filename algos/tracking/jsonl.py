"""Metrics as a JSON object per line."""

import json
from pathlib import Path

from motet.algos.tracking.earlier import set_aside
from motet.algos.tracking.logger import Metrics


class JSONLLogger:
    """Write one JSON object per entry to a file, with the key `step`.

    A file of an earlier run keeps its lines: it is moved to the next free `name-1.jsonl`,
    `name-2.jsonl`, ...

    Args:
        path: the file; its folder is made where it is missing.
        after: goes on from an earlier run at this number of env steps: its entries up to there
            come first.
    """

    def __init__(self, path: str | Path, *, after: int | None = None) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        earlier = _lines_until(path, after) if after is not None and path.exists() else []
        set_aside(path)
        self._file = path.open("w", encoding="utf-8")
        self._file.writelines(earlier)

    def log(self, metrics: Metrics, step: int) -> None:
        """Write one line, at once."""
        self._file.write(json.dumps({"step": step, **metrics}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _lines_until(path: Path, step: int) -> list[str]:
    """Return the entries of a log up to a step; a last line that was cut short is none."""
    lines = [
        line for line in path.read_text(encoding="utf-8").splitlines(True) if line.endswith("\n")
    ]
    return [line for line in lines if json.loads(line)["step"] <= step]
