"""Rows of a stream: their number is unknown, so they are counted on and never listed."""

import itertools
from collections.abc import Iterable

from motet.envs import StreamedRows
from motet.envs.simulator import text_env_of


def stream_of(env: object) -> StreamedRows | None:
    """Return the stream that an env reads its rows from, None where it has another dataset."""
    inner = text_env_of(env)
    dataset = None if inner is None else inner.dataset
    return dataset if isinstance(dataset, StreamedRows) else None


def wrapped_rows(stream: StreamedRows, rows: Iterable[int]) -> list[int]:
    """Return rows that are counted on beyond the end as what they are in a later pass.

    Args:
        stream: where they are.
        rows: indices; in a stream of 10 rows, 12 is row 2 of the second pass.
    """
    return [row if stream.has_row(row) else row % len(stream) for row in rows]


def first_rows(stream: StreamedRows, limit: int | None) -> list[int]:
    """Return the indices of the first rows, fewer than `limit` where the stream ends before.

    Raises:
        ValueError: as `checked_limit`.
    """
    return list(itertools.takewhile(stream.has_row, range(checked_limit(limit))))


def checked_limit(eval_num_samples: int | None) -> int:
    """Return how many rows of a stream to evaluate on.

    Raises:
        ValueError: where there is no limit: a stream may never end.
    """
    if eval_num_samples is None:
        raise ValueError(
            "Expected eval_num_samples, how many rows to evaluate on, for an env with a stream, "
            "whose length is unknown; got None."
        )
    return eval_num_samples
