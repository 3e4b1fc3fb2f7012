"""Metrics in event files of TensorBoard."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from motet.algos.earlier import set_aside
from motet.algos.tracking.logger import Cell, Metrics
from motet.algos.tracking.markdown import markdown_table
from motet.algos.tracking.require import require


def require_tensorboard() -> None:
    """Raise where TensorBoard is not installed.

    Raises:
        ImportError: with what to type.
    """
    require("tensorboard", "TensorBoard's event files", "tensorboard")


class TensorBoardLogger:
    """Write scalars by env steps, tables as text and settings as hyperparameters.

    A folder of an earlier run is moved to the next free `name-1`, `name-2`, ...; a run that goes on
    writes into the same folder, and TensorBoard drops what was logged beyond where it goes on.

    Args:
        folder: what `tensorboard --logdir` is to read.
        after: goes on from an earlier run at this number of env steps.

    Raises:
        ImportError: where TensorBoard is not installed, with what to type.
    """

    def __init__(self, folder: str | Path, *, after: int | None = None) -> None:
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  # only where asked for

        if after is None:
            set_aside(Path(folder))
        first = None if after is None else after + 1
        self._writer = SummaryWriter(str(folder), purge_step=first)

    def log(self, metrics: Metrics, step: int) -> None:
        """Write one point per metric, at once."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def log_table(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int
    ) -> None:
        """Write a table as Markdown."""
        self._writer.add_text(name, markdown_table(columns, rows), step)
        self._writer.flush()

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Write settings as hyperparameters of this run."""
        from torch.utils.tensorboard.summary import hparams  # noqa: PLC0415  # only where asked for

        for summary in hparams({key: _plain(value) for key, value in config.items()}, {}):
            self._writer.file_writer.add_summary(summary)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


def _plain(value: Any) -> int | float | str:
    """Return a setting as a number or as words, which True and False are, too."""
    return str(value) if isinstance(value, bool) or not isinstance(value, int | float) else value
