"""Metrics as a JSON object per line."""

import json
from pathlib import Path

from motet.algos.earlier import put_in_place, set_aside
from motet.algos.tracking.logger import Metrics


class JSONLLogger:
    """Write one JSON object per entry to a file, with the key `step`.

    A file of an earlier run keeps its lines: it is moved to the next free `name-1.jsonl`,
    `name-2.jsonl`, ...

    Args:
        path: the file; its folder is made where it is missing.
        after: goes on from an earlier run at this number of env steps, in its file. Entries beyond
            are taken out, and a copy of the file as it was is left beside it.
    """

    def __init__(self, path: str | Path, *, after: int | None = None) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if after is None or not path.exists():
            set_aside(path)
        else:
            whole = path.read_text(encoding="utf-8").splitlines(True)
            earlier = [line for line in whole if _is_until(line, after)]
            if earlier != whole:
                put_in_place(path, earlier, keep=True)
        self._file = path.open("a", encoding="utf-8")

    def log(self, metrics: Metrics, step: int) -> None:
        """Write one line, at once."""
        self._file.write(json.dumps({"step": step, **metrics}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _is_until(line: str, step: int) -> bool:
    """Tell whether a line is an entry up to a step; a last one that was cut short is none."""
    return line.endswith("\n") and json.loads(line)["step"] <= step
