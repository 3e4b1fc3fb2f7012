"""What a logger is, and several of them as one.

All are off the learners' path: a learner calls `log` and `close` and knows nothing of files.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

Metrics = Mapping[str, float]


@runtime_checkable
class Logger(Protocol):
    """A destination of metrics."""

    def log(self, metrics: Metrics, step: int) -> None:
        """Record metrics at a number of env steps."""

    def close(self) -> None:
        """Flush and release what is held."""


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

    def close(self) -> None:
        """Close all of them."""
        for logger in self._loggers:
            logger.close()
