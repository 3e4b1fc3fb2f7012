"""The parts of a task, checked once when an env is built."""

import math
import numbers
from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import signature
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


def is_integer(value: object) -> bool:
    """Whether a value is a Python or NumPy integer; a bool is none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def checked_count(name: str, value: Any) -> int:
    """Return an integer of at least 1.

    Raises:
        TypeError: where it is no integer.
        ValueError: where it is below 1.
    """
    if not is_integer(value):
        raise TypeError(f"Expected an integer as {name}, got {value!r}.")
    if value < 1:
        raise ValueError(f"Expected {name} of at least 1, got {value}.")
    return int(value)


def checked_number(name: str, value: Any) -> float:
    """Return a real number; it may be infinite.

    Raises:
        TypeError: where it is no number.
        ValueError: where it is NaN, or an integer beyond what a float holds.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"Expected a number as {name}, got {value!r}.")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(
            f"Expected a number of at most 1.8e308 as {name}, got a larger integer."
        ) from None
    if math.isnan(number):
        raise ValueError(f"Expected a number as {name}, got NaN.")
    return number


def checked_agent_names(num_agents: int, agent_names: Sequence[str] | None) -> list[str]:
    """Return the agents' names, `agent_0`, `agent_1`, ... where none are given.

    Raises:
        TypeError: where `num_agents` is no integer or the names are no list of non-empty strings.
        ValueError: where their number is wrong or two are the same.
    """
    num_agents = checked_count("num_agents", num_agents)
    if agent_names is None:
        return [f"agent_{i}" for i in range(num_agents)]
    if isinstance(agent_names, str) or not isinstance(agent_names, Sequence):
        raise TypeError(f"Expected a list of strings as agent_names, got {agent_names!r}.")
    names: list[Any] = list(agent_names)
    if any(not isinstance(name, str) or not name for name in names):
        raise TypeError(f"Expected non-empty strings as agent_names, got {names}.")
    if len(names) != num_agents or len(set(names)) != num_agents:
        raise ValueError(
            f"Expected {num_agents} different agent_names, got {names}; num_agents is how many."
        )
    return names


def checked_seed(name: str, value: Any) -> int:
    """Return an integer of at least 0.

    Raises:
        TypeError: where it is no integer.
        ValueError: where it is negative.
    """
    if not is_integer(value):
        raise TypeError(f"Expected an integer as {name}, got {value!r}.")
    if value < 0:
        raise ValueError(f"Expected {name} of at least 0, got {value}.")
    return int(value)


def check_sequence(name: str, value: Any) -> None:
    """Raise where a value is no list, nor anything else of known length.

    Raises:
        TypeError: with what it is called and what it is.
    """
    if isinstance(value, list | tuple):  # nearly always, and quicker to see
        return
    if isinstance(value, str | Mapping) or not isinstance(value, Collection):
        raise TypeError(f"Expected a list of {name}, got {repr(value)[:200]}.")


def check_rows_and_seeds(rows: Any, seeds: Any) -> None:
    """Raise where rows or seeds are given and no lists, or both, and not as many of each.

    Raises:
        TypeError: where one is no list.
        ValueError: where their numbers differ.
    """
    for name, values in (("rows", rows), ("seeds", seeds)):
        if values is not None:
            check_sequence(name, values)
    if rows is not None and seeds is not None and len(rows) != len(seeds):
        raise ValueError(
            f"Expected as many seeds as rows, got {len(seeds)} seeds for {len(rows)} rows."
        )


def check_takes(func: Callable[..., Any], role: str, *arguments: str) -> None:
    """Raise where a function cannot be called with some positional arguments.

    Args:
        func: the user's function; one whose parameters cannot be read is left to its first call.
        role: what it is to the caller, for messages: "reward_processor".
        *arguments: what it is called with, for messages: "reward".

    Raises:
        TypeError: where it takes fewer, or needs more.
    """
    try:
        parameters = signature(func)
    except ValueError:
        return
    try:
        parameters.bind(*arguments)
    except TypeError:
        raise TypeError(
            f"Expected a function of {_listed(arguments)} as {role}, got one with the parameters "
            f"{parameters}."
        ) from None


def one_formatter_each(
    formatters: Formatter | Sequence[Formatter] | Mapping[str, Formatter] | None,
    agent_names: Sequence[str],
) -> list[Formatter]:
    """Return (N,) formatters.

    Args:
        formatters: one for all agents, one per agent in their order or by name, or None.
        agent_names: (N,) names.

    Raises:
        TypeError: where one cannot be called with a row, or they are no list.
        ValueError: where their number or their names are wrong.
    """
    num_agents = len(agent_names)
    if formatters is None:
        return [_prompt_column] * num_agents
    if callable(formatters):
        check_takes(formatters, "formatters", "row")
        return [formatters] * num_agents
    ordered = _in_order(formatters, agent_names)
    if len(ordered) != num_agents:
        raise ValueError(
            f"Expected one formatter, or {num_agents}, one per agent; got {len(ordered)}."
        )
    for formatter in ordered:
        if not callable(formatter):
            raise TypeError(f"Expected callables as formatters, got {formatter!r}.")
        check_takes(formatter, "formatters", "row")
    return ordered


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


def _listed(arguments: Sequence[str]) -> str:
    return f"one {arguments[0]}" if len(arguments) == 1 else f"({', '.join(arguments)})"
