"""Metrics in Trackio."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from motet.algos.tracking.logger import Cell, Metrics
from motet.algos.tracking.require import require


def require_trackio() -> None:
    """Raise where trackio is not installed.

    Raises:
        ImportError: with what to type.
    """
    require("trackio", "Trackio logging", "trackers")


def trackio_errors() -> tuple[type[Exception], ...]:
    """Return what Trackio raises where it cannot record: a Space that is away, a full disk."""
    return (OSError, sqlite3.Error)


class TrackioLogger:
    """Record metrics with Trackio, on this computer unless it is told of a Space or a server.

    Args:
        project: its name.
        **options: passed on to `trackio.init`: name, resume, space_id, ...

    Attributes:
        run_id: the run's name, which a run that goes on is found by.

    Raises:
        ImportError: where trackio is not installed, with what to type.
    """

    def __init__(self, project: str = "motet", **options: Any) -> None:
        require_trackio()
        import trackio  # noqa: PLC0415  # only where it was asked for

        self._run = trackio.init(project, **options)
        self.run_id: str = self._run.name

    def log(self, metrics: Metrics, step: int) -> None:
        """Record one entry."""
        self._run.log(dict(metrics), step=step)

    def log_table(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int
    ) -> None:
        """Record a table."""
        import trackio  # noqa: PLC0415  # only where it was asked for

        table = trackio.Table(columns=list(columns), data=[list(row) for row in rows])
        self._run.log({name: table}, step=step)

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Record settings, together with the first entry."""
        self._run.config.update(config)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
