"""Tables as Markdown, whatever is in their cells."""

import html
import re
from collections.abc import Sequence

from motet.algos.tracking.logger import Cell

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|~])")


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table in which every text shows as it was written.

    Args:
        columns: names.
        rows: each with a cell for every column.
    """
    lines = [columns, ["---"] * len(columns), *rows]
    cells = [
        [each if line is lines[1] else _escaped(each) for each in line]  # the rule stays a rule
        for line in lines
    ]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in cells)


def _escaped(cell: Cell) -> str:
    """Return a cell's text on one line, without HTML or Markdown in it."""
    if not isinstance(cell, str):
        return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
    plain = _SPECIAL.sub(r"\\\1", html.escape(cell, quote=False))
    return "<br>".join(plain.splitlines())
