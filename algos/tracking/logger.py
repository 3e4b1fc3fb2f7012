"""What a logger is, and several of them as one.

All are off the learners' path: a learner calls `log` and `close` and knows nothing of files. A
logger of your own needs these two methods; `log_table` and `log_config` are called where it has
them.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Protocol, runtime_checkable

Metrics = Mapping[str, float]
Cell = str | float | int
"""What is in a cell of a table."""


@runtime_checkable
class Logger(Protocol):
    """A destination of metrics."""

    def log(self, metrics: Metrics, step: int) -> None:
        """Record metrics at a number of env steps; several entries may have the same."""

    def close(self) -> None:
        """Flush and release what is held."""


@runtime_checkable
class TableLogger(Protocol):
    """A logger that takes tables, too: samples of what a team wrote."""

    def log_table(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int
    ) -> None:
        """Record a table at a number of env steps.

        Args:
            name: such as "eval/samples".
            columns: names.
            rows: each with a cell for every column.
            step: env steps.
        """


@runtime_checkable
class ConfigLogger(Protocol):
    """A logger that takes the settings of a run, too."""

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Record settings by name, plain values all of them, before anything else."""


class Loggers:
    """Several loggers as one.

    Args:
        loggers: all of them.
    """

    def __init__(self, loggers: Sequence[Logger]) -> None:
        self._loggers = list(loggers)

    def log(self, metrics: Metrics, step: int) -> None:
        """Record in all of them."""
        for logger in self._loggers:
            logger.log(metrics, step)

    def log_table(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int
    ) -> None:
        """Record a table in those that take one."""
        for logger in self._loggers:
            if isinstance(logger, TableLogger):
                logger.log_table(name, columns, rows, step)

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Record settings in those that take them."""
        for logger in self._loggers:
            if isinstance(logger, ConfigLogger):
                logger.log_config(config)

    def close(self) -> None:
        """Close all of them, also where one of them fails to."""
        with ExitStack() as stack:
            for logger in reversed(self._loggers):
                stack.callback(logger.close)
