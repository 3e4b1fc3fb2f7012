"""The parts of a task, checked once when an env is built."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

Row = Mapping[str, Any]
Formatter = Callable[[Any], str]


class Dataset(Protocol):
    """What a task reads its rows from: a list of mappings, a `datasets.Dataset`, or the like."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def __getitem__(self, index: int, /) -> Row:
        """Return one row."""


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
        TypeError: where a row is no mapping.
        ValueError: where the dataset is empty, or a row lacks a column.
    """
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
        ValueError: where their number is wrong or two are the same.
    """
    if num_agents < 1:
        raise ValueError(f"Expected num_agents of at least 1, got {num_agents}.")
    names = [f"agent_{i}" for i in range(num_agents)] if agent_names is None else list(agent_names)
    if len(names) != num_agents or len(set(names)) != num_agents:
        raise ValueError(f"Expected {num_agents} different agent_names, got {names}.")
    return names


def one_formatter_each(
    formatters: Formatter | Sequence[Formatter] | None, num_agents: int
) -> list[Formatter]:
    """Return (N,) formatters.

    Raises:
        TypeError: where one cannot be called.
        ValueError: where their number is wrong.
    """
    if formatters is None:
        return [_prompt_column] * num_agents
    if callable(formatters):
        return [formatters] * num_agents
    if len(formatters) != num_agents:
        raise ValueError(
            f"Expected one formatter, or {num_agents}, one per agent; got {len(formatters)}."
        )
    for formatter in formatters:
        if not callable(formatter):
            raise TypeError(f"Expected callables as formatters, got {formatter!r}.")
    return list(formatters)


def _prompt_column(row: Row) -> str:
    prompt: str = row["prompt"]
    return prompt
