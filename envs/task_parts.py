"""The parts of a task, checked once when an env is built."""

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

Row = Mapping[str, Any]
Formatter = Callable[[Any], str]


class Dataset(Protocol):
    """What a task reads its rows from: a list of mappings, a `datasets.Dataset`, or the like."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def __getitem__(self, index: int, /) -> Row:
        """Return one row."""


def checked_count(name: str, value: Any) -> int:
    """Return an integer of at least 1.

    Raises:
        TypeError: where it is no integer.
        ValueError: where it is below 1.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"Expected an integer as {name}, got {value!r}.")
    if value < 1:
        raise ValueError(f"Expected {name} of at least 1, got {value}.")
    return int(value)


def checked_number(name: str, value: Any) -> float:
    """Return a real number; it may be infinite.

    Raises:
        TypeError: where it is no number.
        ValueError: where it is NaN.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"Expected a number as {name}, got {value!r}.")
    if math.isnan(value):
        raise ValueError(f"Expected a number as {name}, got NaN.")
    return float(value)


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
    if isinstance(index, bool) or not isinstance(index, int | np.integer):
        raise TypeError(f"Expected an integer as {name}, got {index!r}.")
    if not 0 <= index < len(dataset):
        raise IndexError(f"Expected {name} from 0 to {len(dataset) - 1}, got {index}.")
    return int(index)


def checked_row(dataset: Dataset, index: int) -> Row:
    """Return a row of a dataset.

    Raises:
        TypeError: where it is no mapping.
        ValueError: where it has no column `prompt`.
    """
    row = dataset[index]
    if not isinstance(row, Mapping):
        raise TypeError(
            f"Expected mappings as dataset rows, such as {{'prompt': 'Rain'}}, got {row!r} as row "
            f"{index}."
        )
    if "prompt" not in row:
        raise ValueError(
            f"Expected a column 'prompt' in row {index} of the dataset, got {list(row)}."
        )
    return row


def dataset_columns(dataset: Dataset) -> tuple[str, ...]:
    """Return the names of the columns, those of the first row.

    All rows of a list are looked at; of other datasets only the first, since reading may be slow.

    Raises:
        TypeError: where the dataset cannot be indexed or a row is no mapping.
        ValueError: where the dataset is empty, or a row lacks a column.
    """
    _check_indexable(dataset)
    if len(dataset) == 0:
        raise ValueError("Expected at least one row in the dataset, got an empty one.")
    columns = tuple(checked_row(dataset, 0))
    if isinstance(dataset, list | tuple):
        for index in range(1, len(dataset)):
            row = checked_row(dataset, index)
            missing = [name for name in columns if name not in row]
            if missing:
                raise ValueError(
                    f"Expected the columns {list(columns)} in every row of the dataset, got row "
                    f"{index} without {missing}."
                )
    return columns


def checked_agent_names(num_agents: int, agent_names: Sequence[str] | None) -> list[str]:
    """Return the agents' names, `agent_0`, `agent_1`, ... where none are given.

    Raises:
        TypeError: where `num_agents` is no integer or the names are no list of strings.
        ValueError: where their number is wrong or two are the same.
    """
    num_agents = checked_count("num_agents", num_agents)
    if agent_names is None:
        return [f"agent_{i}" for i in range(num_agents)]
    if isinstance(agent_names, str) or not isinstance(agent_names, Sequence):
        raise TypeError(f"Expected a list of strings as agent_names, got {agent_names!r}.")
    names = list(agent_names)
    if any(not isinstance(name, str) for name in names):
        raise TypeError(f"Expected strings as agent_names, got {names}.")
    if len(names) != num_agents or len(set(names)) != num_agents:
        raise ValueError(f"Expected {num_agents} different agent_names, got {names}.")
    return names


def one_formatter_each(
    formatters: Formatter | Sequence[Formatter] | Mapping[str, Formatter] | None,
    agent_names: Sequence[str],
) -> list[Formatter]:
    """Return (N,) formatters.

    Args:
        formatters: one for all agents, one per agent in their order or by name, or None.
        agent_names: (N,) names.

    Raises:
        TypeError: where one cannot be called, or they are no list.
        ValueError: where their number or their names are wrong.
    """
    num_agents = len(agent_names)
    if formatters is None:
        return [_prompt_column] * num_agents
    if callable(formatters):
        return [formatters] * num_agents
    ordered = _in_order(formatters, agent_names)
    if len(ordered) != num_agents:
        raise ValueError(
            f"Expected one formatter, or {num_agents}, one per agent; got {len(ordered)}."
        )
    for formatter in ordered:
        if not callable(formatter):
            raise TypeError(f"Expected callables as formatters, got {formatter!r}.")
    return ordered


def _check_indexable(dataset: Any) -> None:
    expected = "Expected an indexable dataset of mappings (a list of dicts, a datasets.Dataset)"
    if isinstance(dataset, Mapping):
        raise TypeError(
            f"{expected}, got a {type(dataset).__name__} with the keys {list(dataset)}; turn a "
            "dict of columns into one with datasets.Dataset.from_dict, or choose one split."
        )
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        advice = "; list(...) it" if hasattr(dataset, "__iter__") else ""
        got = "None" if dataset is None else f"a {type(dataset).__name__}"
        raise TypeError(f"{expected}, got {got}{advice}.")


def _in_order(formatters: Any, agent_names: Sequence[str]) -> list[Formatter]:
    if isinstance(formatters, Mapping):
        if set(formatters) != set(agent_names):
            raise ValueError(
                f"Expected formatters for {list(agent_names)}, got formatters for "
                f"{list(formatters)}."
            )
        return [formatters[name] for name in agent_names]
    if isinstance(formatters, str) or not isinstance(formatters, Sequence):
        raise TypeError(
            f"Expected one formatter, or a list of {len(agent_names)}, one per agent; got "
            f"{formatters!r}."
        )
    return list(formatters)


def _prompt_column(row: Row) -> str:
    prompt: str = row["prompt"]
    return prompt
