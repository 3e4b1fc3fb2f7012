"""Metrics in Weights & Biases."""

from collections.abc import Mapping, Sequence
from typing import Any

from motet.algos.tracking.logger import Cell, Metrics
from motet.algos.tracking.require import require


def require_wandb() -> None:
    """Raise where wandb is not installed.

    Raises:
        ImportError: with what to type.
    """
    require("wandb", "Weights & Biases logging", "trackers")


def wandb_errors() -> tuple[type[Exception], ...]:
    """Return what W&B raises where it cannot record: its process ended, a full disk."""
    import wandb  # noqa: PLC0415  # only where it was asked for

    return (OSError, wandb.Error)


class WandbLogger:
    """Send metrics to Weights & Biases. The package is imported here and nowhere else.

    Env steps are the metric `step`, which all others are drawn over: W&B's own counter would refuse
    a second entry at the same step, and a run that goes on from before its last entry.

    Where `wandb.init` was called before, as by a sweep, metrics go to that run, whose end is left
    to who began it.

    Args:
        **options: passed on to `wandb.init`: project, entity, name, config, dir, ...

    Attributes:
        run_id: what a run that goes on is found by.

    Raises:
        ImportError: where wandb is not installed, with what to type.
        ValueError: where nobody is logged in, or wandb refuses an option.
    """

    def __init__(self, **options: Any) -> None:
        require_wandb()
        import wandb  # noqa: PLC0415  # only where it was asked for

        begun = wandb.run
        try:
            self._run = wandb.init(**options)
        except wandb.errors.UsageError as exc:  # the word of wandb for who is not logged in
            raise ValueError(
                f"Expected a login at Weights & Biases, got: {exc} Set WANDB_API_KEY, or "
                "WANDB_MODE=offline to keep all in the run's folder."
            ) from exc
        self._is_own = self._run is not begun
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")
        self.run_id: str = self._run.id

    def log(self, metrics: Metrics, step: int) -> None:
        """Send one entry."""
        self._run.log({**metrics, "step": step})

    def log_table(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int
    ) -> None:
        """Send a table."""
        import wandb  # noqa: PLC0415  # only where it was asked for

        table = wandb.Table(columns=list(columns), data=[list(row) for row in rows])
        self._run.log({name: table, "step": step})

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Send settings, beside those that were given to `wandb.init`."""
        self._run.config.update(dict(config), allow_val_change=True)

    def close(self) -> None:
        """Finish the run, unless it was begun before."""
        if self._is_own:
            self._run.finish()
