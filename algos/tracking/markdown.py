"""Tables as Markdown, whatever is in their cells."""

import re
from collections.abc import Sequence

from motet.algos.tracking.logger import Cell

_SPECIAL = re.compile(r"[&<>\\`*_{}\[\]()#+!|~:]")


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
    """Return a cell's text on one line, with all that Markdown or HTML would read as entities."""
    if not isinstance(cell, str):
        return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
    # not with backslashes: which of them count differs from one Markdown to the next
    plain = _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", cell)
    return "<br>".join(plain.splitlines())
