"""Where a task's rows come from: lists, files, `datasets`, streams, and how they are read.

Rows are checked where they are read, so that a column that is missing from row 7 is an error that
names row 7, whether all rows are at hand when the env is built or are read one by one.
"""

import math
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from motet.envs.data.row_files import FileRows, load_rows
from motet.envs.data.row_views import RenamedRows, SelectedRows
from motet.envs.data.streamed_rows import StreamedRows
from motet.envs.task.parts import Dataset, Row, checked_seed, is_integer

DataSource: TypeAlias = Dataset | Iterable[Row] | str | os.PathLike[str]


def open_dataset(source: DataSource, column_mapping: Mapping[str, str] | None = None) -> Dataset:
    """Return rows by index.

    Args:
        source: rows by index, a path as for `load_rows`, or a `datasets.IterableDataset`.
        column_mapping: from old column names to new ones.

    Raises:
        TypeError: where `source` is something else, or the mapping is none of strings.
        ValueError: where there are no rows, or the mapping does not fit their columns; and as
            `load_rows`.
        FileNotFoundError: where there is no such file.
    """
    dataset: Any = source
    if isinstance(source, str | os.PathLike):
        dataset = load_rows(source)
    elif _is_from_datasets(source, "IterableDataset"):
        dataset = StreamedRows(dataset)
    check_indexable(dataset)
    _check_not_empty(dataset)
    if column_mapping is None:
        return dataset  # type: ignore[no-any-return]
    _check_mapping(column_mapping, list(_mapping_at(dataset, 0)))
    if isinstance(dataset, StreamedRows) or _is_from_datasets(dataset, "Dataset"):
        return dataset.rename_columns(dict(column_mapping))  # type: ignore[no-any-return]
    return RenamedRows(dataset, column_mapping)


def known_num_rows(dataset: Dataset) -> int | None:
    """Return the number of rows, None for a stream whose end was not seen yet."""
    return dataset.num_rows if isinstance(dataset, StreamedRows) else len(dataset)


def dataset_columns(dataset: Dataset) -> tuple[str, ...]:
    """Return the names of the columns, those of the first row.

    All rows in memory are looked at; of other datasets only the first, since reading may be slow:
    `checked_row` looks at the others.

    Raises:
        TypeError: where a row is no mapping.
        ValueError: where a row lacks a column.
    """
    columns = tuple(checked_row(dataset, 0))
    if isinstance(_behind(dataset), list | tuple):
        for index in range(1, len(dataset)):
            checked_row(dataset, index, columns)
    return columns


def check_prompts(dataset: Dataset) -> None:
    """Raise where a row's `prompt` is no text: the first row's, and any of rows in memory.

    Raises:
        TypeError: with what to do about it.
    """
    for index in range(len(dataset) if isinstance(_behind(dataset), list | tuple) else 1):
        prompt = dataset[index]["prompt"]
        if not isinstance(prompt, str):
            raise TypeError(
                f"Expected a string as the prompt of {_place(dataset, index)}, got {prompt!r} of "
                f"type {type(prompt).__name__}; pass formatters= to write prompts of other values."
            )


def checked_index(dataset: Dataset, index: Any, name: str) -> int:
    """Return the index of a row, counted from the start.

    Args:
        dataset: where the row should be.
        index: a Python or NumPy integer.
        name: what the caller knows it as, for messages.

    Raises:
        TypeError: where it is no integer.
        IndexError: where there is no such row.
    """
    if not is_integer(index):
        raise TypeError(f"Expected an integer as {name}, got {index!r}.")
    if isinstance(dataset, StreamedRows):
        if not dataset.has_row(int(index)):
            last = "" if dataset.num_rows is None else f" to {dataset.num_rows - 1}"
            raise IndexError(f"Expected {name} from 0{last}, got {index}.")
    elif not 0 <= index < len(dataset):
        raise IndexError(f"Expected {name} from 0 to {len(dataset) - 1}, got {index}.")
    return int(index)


def checked_row(dataset: Dataset, index: int, columns: Collection[str] = ()) -> Row:
    """Return a row of a dataset.

    Args:
        dataset: where it is.
        index: which.
        columns: what it must have beside `prompt`.

    Raises:
        TypeError: where it is no mapping.
        ValueError: where it lacks a column.
    """
    row = _mapping_at(dataset, index)
    if "prompt" not in row:
        raise ValueError(
            f"Expected a column 'prompt' in {_place(dataset, index)} of the dataset, got "
            f"{list(row)}; rename one, as in column_mapping={{'question': 'prompt'}}."
        )
    missing = [name for name in columns if name not in row]
    if missing:
        raise ValueError(
            f"Expected the columns {list(columns)} in every row of the dataset, got "
            f"{_place(dataset, index)} without {missing}."
        )
    return row


def check_indexable(dataset: Any) -> None:
    """Raise where rows cannot be read by index.

    Raises:
        TypeError: with what to do about it.
    """
    expected = "Expected an indexable dataset of mappings (a list of dicts, a datasets.Dataset)"
    if isinstance(dataset, Mapping):
        raise TypeError(
            f"{expected}, got a {type(dataset).__name__} with the keys {list(dataset)}; turn a "
            "dict of columns into one with datasets.Dataset.from_dict, or choose one split."
        )
    library = type(dataset).__module__.partition(".")[0]  # without importing it to find out
    if library in _ROWS_OF_A_FRAME and type(dataset).__name__ == "DataFrame":
        raise TypeError(
            f"{expected}, got a {library} DataFrame; pass its rows, df{_ROWS_OF_A_FRAME[library]}."
        )
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        advice = "; list(...) it" if hasattr(dataset, "__iter__") else ""
        if advice and not hasattr(dataset, "__next__"):
            advice += ", or read it as a stream with StreamedRows(...)"
        got = "None" if dataset is None else f"a {type(dataset).__name__}"
        raise TypeError(f"{expected}, got {got}{advice}.")


def train_eval_split(
    dataset: DataSource, eval_size: float = 0.1, *, seed: int = 0
) -> tuple[Dataset, Dataset]:
    """Divide rows at random into those to train on and those held out.

    Args:
        dataset: rows by index, or a path as for `load_rows`.
        eval_size: how many to hold out: an integer, or a fraction of all, rounded up.
        seed: decides which; the same seed gives the same parts.

    Returns:
        Two datasets without a row in common, each in the order of the original: lists of a list or
        a file, `datasets.Dataset` of one, views of any other.

    Raises:
        TypeError: where the rows cannot be divided, `eval_size` is no number, or `seed` no integer.
        ValueError: where a part would be empty, or `seed` is negative.
    """
    if isinstance(dataset, StreamedRows) or _is_from_datasets(dataset, "IterableDataset"):
        raise TypeError(
            "Expected a dataset of known length, got a stream; hold out its first rows with "
            "stream.take(n), and train on stream.skip(n)."
        )
    rows = open_dataset(dataset)
    num_eval = _num_held_out(eval_size, len(rows))
    chosen = np.random.default_rng(checked_seed("seed", seed)).permutation(len(rows))[:num_eval]
    held_out = np.zeros(len(rows), dtype=bool)
    held_out[chosen] = True
    return (
        _selected(rows, np.flatnonzero(~held_out).tolist()),
        _selected(rows, np.flatnonzero(held_out).tolist()),
    )


_ROWS_OF_A_FRAME = {"pandas": '.to_dict("records")', "polars": ".to_dicts()"}


def _is_from_datasets(value: object, name: str) -> bool:
    """Whether a value is of a class of `datasets`, which has been imported where one exists."""
    library = sys.modules.get("datasets")
    return library is not None and isinstance(value, vars(library)[name])


def _behind(dataset: Dataset) -> Dataset:
    return dataset.rows if isinstance(dataset, RenamedRows) else dataset


def _place(dataset: Dataset, index: int) -> str:
    rows = _behind(dataset)
    return rows.place(index) if isinstance(rows, FileRows) else f"row {index}"


def _mapping_at(dataset: Dataset, index: int) -> Row:
    row = dataset[index]
    if not isinstance(row, Mapping):
        raise TypeError(
            f"Expected mappings as dataset rows, such as {{'prompt': 'Rain'}}, got {row!r} as "
            f"{_place(dataset, index)}."
        )
    return row


def _check_not_empty(dataset: Dataset) -> None:
    empty = not dataset.has_row(0) if isinstance(dataset, StreamedRows) else len(dataset) == 0
    if empty:
        raise ValueError("Expected at least one row in the dataset, got an empty one.")


def _check_mapping(column_mapping: Any, columns: list[str]) -> None:
    example = "column_mapping={'question': 'prompt'}, from old names to new ones"
    if not isinstance(column_mapping, Mapping):
        raise TypeError(f"Expected {example}, got {column_mapping!r}.")
    if any(not isinstance(name, str) for pair in column_mapping.items() for name in pair):
        raise TypeError(f"Expected {example}, all of them strings, got {dict(column_mapping)}.")
    unknown = [name for name in column_mapping if name not in columns]
    if unknown:
        raise ValueError(
            f"Expected the names of columns in column_mapping, got {unknown}; the dataset has "
            f"{columns}."
        )
    after = [column_mapping.get(name, name) for name in columns]
    twice = sorted({name for name in after if after.count(name) > 1})
    if twice:
        raise ValueError(
            f"Expected different column names after column_mapping={dict(column_mapping)}, got "
            f"{twice} more than once; the dataset has {columns}."
        )


def _num_held_out(eval_size: Any, num_rows: int) -> int:
    if isinstance(eval_size, bool) or not isinstance(
        eval_size, int | float | np.integer | np.floating
    ):
        raise TypeError(f"Expected a fraction or a number of rows as eval_size, got {eval_size!r}.")
    if isinstance(eval_size, int | np.integer):
        num_eval = int(eval_size)
    elif 0 < eval_size < 1:
        num_eval = math.ceil(num_rows * eval_size)
    else:
        raise ValueError(
            f"Expected a fraction between 0 and 1 as eval_size, or an integer, got {eval_size!r}."
        )
    if not 0 < num_eval < num_rows:
        raise ValueError(
            f"Expected at least one row on both sides, got eval_size={eval_size!r} of {num_rows} "
            "rows."
        )
    return num_eval


def _selected(rows: Any, indices: list[int]) -> Dataset:
    if isinstance(rows, FileRows) or _is_from_datasets(rows, "Dataset"):
        return rows.select(indices)  # type: ignore[no-any-return]
    if isinstance(rows, list | tuple):
        return [rows[i] for i in indices]
    return SelectedRows(rows, indices)
