"""Rows seen differently, without a copy: under other column names, or only some of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from motet.envs.task.parts import Dataset, Row


class RenamedRows:
    """Rows whose columns have other names; each is renamed when it is read.

    Args:
        rows: where they come from.
        column_mapping: from old names to new ones; other columns keep theirs.
    """

    def __init__(self, rows: Dataset, column_mapping: Mapping[str, str]) -> None:
        self.rows = rows
        self._column_mapping = dict(column_mapping)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        """Return one row."""
        return renamed(self.rows[index], self._column_mapping)


class SelectedRows:
    """Some rows of an indexable, in the order given.

    Args:
        rows: where they come from.
        indices: which.
    """

    def __init__(self, rows: Dataset, indices: Sequence[int]) -> None:
        self._rows = rows
        self._indices = tuple(indices)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._indices)

    def __getitem__(self, index: int) -> Row:
        """Return one row."""
        return self._rows[self._indices[index]]


def renamed(row: Any, column_mapping: Mapping[str, str]) -> Row:
    """Return a row with other column names; something else than a row comes back as it is.

    A column that the row lacks is left out: whoever reads the row says what is missing.

    Raises:
        ValueError: where two columns would have the same name.
    """
    if not isinstance(row, Mapping):
        return row  # type: ignore[no-any-return]  # refused where rows are read
    after = {column_mapping.get(name, name): value for name, value in row.items()}
    if len(after) != len(row):
        raise ValueError(
            f"Expected different column names after column_mapping={dict(column_mapping)}, got a "
            f"row with the columns {list(row)}."
        )
    return after
