"""Trackers by name: what `report_to` in a config chooses from."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from motet.algos.tracking.csv import CSVLogger
from motet.algos.tracking.logger import Logger
from motet.algos.tracking.mlflow import MLflowLogger, mlflow_errors, require_mlflow
from motet.algos.tracking.tensorboard import TensorBoardLogger, require_tensorboard
from motet.algos.tracking.trackio import TrackioLogger, require_trackio, trackio_errors
from motet.algos.tracking.wandb import WandbLogger, require_wandb, wandb_errors


class TrackingSettings(Protocol):
    """What is read of a config: each learner's has it."""

    @property
    def output_dir(self) -> str | None:
        """Folder of the run; None writes no files."""

    @property
    def report_to(self) -> tuple[str, ...]:
        """Names of trackers."""

    @property
    def project(self) -> str:
        """What the run belongs to."""

    @property
    def run_name(self) -> str | None:
        """What the run is called; None has each tracker make a name up."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """What a tracker is opened with.

    Attributes:
        config: of the run.
        after: env steps that a run goes on from; None for a new one.
        run_id: that an earlier logger of this tracker had, where the run goes on.
        options: the tracker's own.
    """

    config: TrackingSettings
    after: int | None = None
    run_id: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def file(self, name: str) -> Path:
        """Return a path in the run's folder."""
        if self.config.output_dir is None:
            raise ValueError(f"Expected an output_dir for {name}, got None.")
        return Path(self.config.output_dir) / name


@dataclass(frozen=True, slots=True)
class Tracker:
    """One of the trackers that can be chosen.

    Attributes:
        open: makes the logger.
        check: raises where its library is missing, without importing it.
        in_folder: whether it writes into the run's folder, and has to have one.
        errors: returns what its logger raises where it cannot record; called with its library
            installed.
    """

    open: Callable[[TrackedRun], Logger]
    check: Callable[[], None] = lambda: None
    in_folder: bool = False
    errors: Callable[[], tuple[type[Exception], ...]] = lambda: (OSError,)


def _open_wandb(run: TrackedRun) -> Logger:
    named = {"project": run.config.project, "name": run.config.run_name}
    going_on = {} if run.run_id is None else {"id": run.run_id, "resume": "allow"}
    return WandbLogger(**{**named, **going_on, **run.options})


def _open_trackio(run: TrackedRun) -> Logger:
    if run.run_id is None:
        return TrackioLogger(run.config.project, name=run.config.run_name)
    return TrackioLogger(run.config.project, name=run.run_id, resume="allow")


def _open_mlflow(run: TrackedRun) -> Logger:
    return MLflowLogger(run.config.project, run.config.run_name, run_id=run.run_id)


TRACKERS: dict[str, Tracker] = {
    "csv": Tracker(lambda run: CSVLogger(run.file("metrics.csv"), after=run.after), in_folder=True),
    "tensorboard": Tracker(
        lambda run: TensorBoardLogger(run.file("tensorboard"), after=run.after),
        require_tensorboard,
        in_folder=True,
    ),
    "wandb": Tracker(_open_wandb, require_wandb, errors=wandb_errors),
    "trackio": Tracker(_open_trackio, require_trackio, errors=trackio_errors),
    "mlflow": Tracker(_open_mlflow, require_mlflow, errors=mlflow_errors),
}
"""What `report_to` may name; a logger of your own goes into a trainer's `loggers`."""


def checked_report_to(report_to: object, output_dir: str | None) -> tuple[str, ...]:
    """Return the names of trackers as a tuple.

    Args:
        report_to: names in a list or tuple, or a single one; "none" by itself is none of them.
        output_dir: of the same config.

    Raises:
        TypeError: where it is no name and no list of names.
        ValueError: where a name is unknown or there twice, or a tracker lacks the folder that it
            writes to.
    """
    names = [report_to] if isinstance(report_to, str) else report_to
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"Expected a list of names as report_to, got {report_to!r}.")
    if list(names) == ["none"]:
        return ()
    for name in names:
        if name not in TRACKERS:
            close = difflib.get_close_matches(name.lower(), TRACKERS, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            raise ValueError(
                f"Expected report_to to name some of {', '.join(TRACKERS)}, got {name!r}{hint}"
            )
        if TRACKERS[name].in_folder and output_dir is None:
            raise ValueError(
                f"Expected an output_dir with report_to={name!r}, got None: it writes to a folder."
            )
    if len(set(names)) < len(names):
        raise ValueError(f"Expected each name once in report_to, got {list(names)}.")
    return tuple(names)
