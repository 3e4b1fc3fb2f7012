"""A tracker whose failure is not the run's: a server that went away, a disk that is full."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from motet.algos.tracking.logger import Cell, Logger, Loggers, Metrics


class UntilFailure:
    """Record with a tracker until it fails; then warn once, and do without it.

    Hours of training are worth more than a curve. Settings come before any training, so that a
    failure there is raised.

    Args:
        logger: of the tracker.
        name: of the tracker.
        errors: what it raises where it cannot record.

    Warns:
        UserWarning: with the error, the first time.
    """

    def __init__(self, logger: Logger, name: str, errors: tuple[type[Exception], ...]) -> None:
        self._logger = Loggers([logger])
        self._name = name
        self._errors = errors
        self._failed = False

    def log(self, metrics: Metrics, step: int) -> None:
        """Record one entry."""
        self._attempt(lambda: self._logger.log(metrics, step))

    def log_table(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int
    ) -> None:
        """Record a table where the tracker takes one."""
        self._attempt(lambda: self._logger.log_table(name, columns, rows, step))

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Record settings where the tracker takes them."""
        self._logger.log_config(config)

    def close(self) -> None:
        """Release what is held; what failed before may fail again, and was told of."""
        if self._failed:
            with suppress(*self._errors):
                self._logger.close()
        else:
            self._attempt(self._logger.close)

    def _attempt(self, record: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            record()
        except self._errors as error:
            self._failed = True
            warnings.warn(
                f"Logging to {self._name} failed, and the run goes on without it; metrics.jsonl, "
                f"where there is an output_dir, has all entries: {error!r}.",
                stacklevel=4,
            )
