"""Metrics as a table with a row per entry."""

import csv
import io
from pathlib import Path
from typing import TextIO

from motet.algos.earlier import put_in_place, set_aside
from motet.algos.tracking.logger import Metrics


class CSVLogger:
    """Write one row per entry to a CSV file: the column `step`, then a column per metric.

    Columns appear as metrics do. An entry with new ones has the whole file written again beside
    itself and put in its place, so that it is valid CSV at every moment; what an entry lacks is an
    empty cell.

    A file of an earlier run keeps its rows: it is moved to the next free `name-1.csv`,
    `name-2.csv`, ...

    Args:
        path: the file; its folder is made where it is missing.
        after: goes on from an earlier run at this number of env steps, in its file. Entries beyond
            are taken out, and a copy of the file as it was is left beside it.
    """

    def __init__(self, path: str | Path, *, after: int | None = None) -> None:
        self._path = Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._columns, earlier, keep = ["step"], list[dict[str, str]](), False
        if after is not None and self._path.exists():
            self._columns, rows = _read(self._path)
            earlier = [row for row in rows if int(row["step"]) <= after]
            keep = len(earlier) < len(rows)
        else:
            set_aside(self._path)
        self._rewrite(earlier, keep=keep)

    def log(self, metrics: Metrics, step: int) -> None:
        """Write one row, at once."""
        new = [name for name in metrics if name not in self._columns]
        if new:
            self._file.close()
            _, rows = _read(self._path)
            self._columns += new
            self._rewrite(rows)
        self._writer.writerow({"step": step, **metrics})
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _rewrite(self, rows: list[dict[str, str]], *, keep: bool = False) -> None:
        """Put a file with these rows in the place of the one that there is, and go on in it."""
        text = io.StringIO()
        writer = self._writer_to(text)
        writer.writeheader()
        writer.writerows(rows)
        put_in_place(self._path, [text.getvalue()], keep=keep)
        self._file = self._path.open("a", encoding="utf-8", newline="")
        self._writer = self._writer_to(self._file)

    def _writer_to(self, file: TextIO) -> "csv.DictWriter[str]":
        return csv.DictWriter(file, self._columns, restval="", lineterminator="\n")


def _read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Return columns and rows; a last row that was cut short is none."""
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    columns, *rows = [*csv.reader(io.StringIO(whole, newline=""))] or [["step"]]
    return columns, [dict(zip(columns, row, strict=True)) for row in rows]
