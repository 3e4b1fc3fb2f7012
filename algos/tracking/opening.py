"""Which loggers a run opens by itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from motet.algos.tracking.jsonl import JSONLLogger
from motet.algos.tracking.logger import Logger, Loggers
from motet.algos.tracking.wandb import WandbLogger


class LogSettings(Protocol):
    """What is read of a config: each learner's has it."""

    @property
    def output_dir(self) -> str | None:
        """Folder for `metrics.jsonl`; None writes no log."""


def open_loggers(
    config: LogSettings,
    wandb_config: Mapping[str, Any] | None,
    *,
    after: int | None = None,
) -> Loggers:
    """Open what a run logs to by itself; the caller closes it.

    Args:
        config: of the run; its `output_dir` gets `metrics.jsonl`.
        wandb_config: options of `wandb.init`; None for no Weights & Biases.
        after: see `JSONLLogger`.
    """
    opened: list[Logger] = []
    if config.output_dir is not None:
        opened.append(JSONLLogger(Path(config.output_dir) / "metrics.jsonl", after=after))
    if wandb_config is not None:
        opened.append(WandbLogger(**wandb_config))
    return Loggers(opened)
