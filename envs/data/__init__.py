"""Where the rows of a task come from: lists, files, datasets and streams, and in which order."""

from motet.envs.data.row_files import load_rows
from motet.envs.data.sources import train_eval_split
from motet.envs.data.streamed_rows import StreamedRows

__all__ = ["StreamedRows", "load_rows", "train_eval_split"]
