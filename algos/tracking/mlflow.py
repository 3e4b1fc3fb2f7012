"""Metrics in MLflow."""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from motet.algos.tracking.logger import Cell, Metrics
from motet.algos.tracking.require import require

_MOST_PARAMS, _MOST_METRICS = 100, 1000  # that MLflow takes in one call
_NOT_TAKEN = re.compile(r"[^\w\-. :]")  # in the parts of a metric's name
_LONGEST_NAME = 250


def require_mlflow() -> None:
    """Raise where MLflow is not installed.

    Raises:
        ImportError: with what to type.
    """
    require("mlflow", "MLflow logging", "mlflow")


def mlflow_errors() -> tuple[type[Exception], ...]:
    """Return what MLflow raises where it cannot record: a server that is away, a full disk."""
    from mlflow.exceptions import MlflowException  # noqa: PLC0415  # only where it was asked for

    return (OSError, MlflowException)


class MLflowLogger:
    """Record metrics as a run of an experiment of MLflow, by env steps.

    It leaves alone a run that `mlflow.start_run` began. Tables become JSON artifacts, one for each
    step, which `mlflow.load_table` reads; settings become parameters, which MLflow never changes: a
    run that goes on keeps those that it began with. Characters of a metric's name that MLflow
    refuses, as "@" in an agent's, become "_".

    Args:
        experiment: its name; it is made where it is missing.
        run_name: None has MLflow make one up.
        run_id: of a run to go on with.
        tracking_uri: where the runs are; None is what `MLFLOW_TRACKING_URI` says.

    Attributes:
        run_id: what a run that goes on is found by.

    Raises:
        ImportError: where MLflow is not installed, with what to type.
    """

    def __init__(
        self,
        experiment: str = "motet",
        run_name: str | None = None,
        *,
        run_id: str | None = None,
        tracking_uri: str | None = None,
    ) -> None:
        require_mlflow()
        from mlflow import MlflowClient  # noqa: PLC0415  # only where it was asked for

        self._client = MlflowClient(tracking_uri)
        if run_id is None:
            found = self._client.get_experiment_by_name(experiment)
            if found is None:
                key = self._client.create_experiment(experiment)
            else:
                key = found.experiment_id
            run_id = self._client.create_run(key, run_name=run_name).info.run_id
        else:
            self._client.update_run(run_id, status="RUNNING")
        self.run_id: str = run_id

    def log(self, metrics: Metrics, step: int) -> None:
        """Record one entry."""
        from mlflow.entities import Metric  # noqa: PLC0415  # only where it was asked for

        now = time.time_ns() // 1_000_000
        points = [Metric(_taken(name), float(value), now, step) for name, value in metrics.items()]
        for start in range(0, len(points), _MOST_METRICS):
            self._client.log_batch(self.run_id, metrics=points[start : start + _MOST_METRICS])

    def log_table(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int
    ) -> None:
        """Record a table, as the artifact `name/step.json`."""
        by_column = {column: [row[i] for row in rows] for i, column in enumerate(columns)}
        self._client.log_table(self.run_id, by_column, f"{name}/{step:09}.json")

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Record those settings that the run does not have yet."""
        from mlflow.entities import Param  # noqa: PLC0415  # only where it was asked for

        known = self._client.get_run(self.run_id).data.params
        new = [Param(name, str(value)) for name, value in config.items() if name not in known]
        for start in range(0, len(new), _MOST_PARAMS):
            self._client.log_batch(self.run_id, params=new[start : start + _MOST_PARAMS])

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self.run_id)


def _taken(name: str) -> str:
    """Return a metric's name with what MLflow refuses, as agents' names may have it, as "_"."""
    parts = (_NOT_TAKEN.sub("_", part) for part in name.split("/"))
    return "/".join(part if part.strip(".") else "_" for part in parts)[:_LONGEST_NAME]
