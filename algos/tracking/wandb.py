"""Metrics in Weights & Biases."""

import importlib.util
from typing import Any

from motet.algos.tracking.logger import Metrics


def require_wandb() -> None:
    """Raise where wandb is not installed.

    Raises:
        ImportError: with what to type.
    """
    if importlib.util.find_spec("wandb") is None:
        raise ImportError(
            'Expected wandb for Weights & Biases logging; pip install "motet[trackers]".'
        )


class WandbLogger:
    """Send metrics to Weights & Biases. The package is imported here and nowhere else.

    Args:
        **options: passed on to `wandb.init`: project, entity, name, config, dir, ...

    Raises:
        ImportError: where wandb is not installed, with what to type.
    """

    def __init__(self, **options: Any) -> None:
        require_wandb()
        import wandb  # noqa: PLC0415  # only where it was asked for

        self._run = wandb.init(**options)

    def log(self, metrics: Metrics, step: int) -> None:
        """Send one entry."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
