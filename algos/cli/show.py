"""How commands print: tables on a terminal, plain columns in a pipe, JSON for machines."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def console() -> Console:
    """Return where commands print to; without colours in a pipe, or where NO_COLOR is set."""
    return Console(highlight=False, soft_wrap=True)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print rows: a table on a terminal; elsewhere one line each, columns apart by two spaces.

    Args:
        head: names of the columns.
        rows: as many texts each.
        title: above the table.
    """
    out = Console(highlight=False)
    if not out.is_terminal:
        if title:
            print(title)
        lines = [head, *rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        for line in lines:
            cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            print("  ".join(cells).rstrip())
        return
    table = Table(title=title or None, header_style="bold", title_justify="left")
    for place, name in enumerate(head):
        # what is typed, such as an id or a flag, is never cut
        table.add_column(name, no_wrap=not place, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    out.print(table)


def print_json(value: Any) -> None:
    """Print a value as JSON; what JSON does not have is printed as text."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


@contextmanager
def without_bars(*, always: bool = False) -> Iterator[None]:
    """Hide the bars of transformers for reading and writing weights, where nobody watches.

    Args:
        always: on a terminal too, for a model that is there at once.
    """
    from transformers.utils import logging  # noqa: PLC0415  # slow; `motet envs` does without

    shown = logging.is_progress_bar_enabled()
    if always or not sys.stderr.isatty():
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
