"""A stream of rows, read by index."""

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, SupportsIndex

from motet.envs.data.row_views import renamed
from motet.envs.task.parts import Row, checked_count

_END = object()


class StreamedRows:
    """Rows of a stream by index, exact and in bounded memory.

    A streaming `datasets.IterableDataset` has neither length nor random access, yet snapshots and
    learners name rows by index. This view reads ahead as far as an index asks for and keeps the
    last `cache_size` rows; for an older one it starts the stream again, with `skip` where the
    stream has it. The length is known once the end was seen.

    Reading forwards is cheap, going back beyond the cache is not. Clones of an env share the view,
    each at its own row; readers that stay further apart than `cache_size` make it start again for
    each other, and had better have a view each.

    Args:
        stream: gives the same rows in the same order in every iteration; no iterator or generator,
            since these can be gone through only once.
        cache_size: rows kept.

    Raises:
        TypeError: where `stream` cannot be iterated over more than once.
        ValueError: where `cache_size` is below 1.
    """

    def __init__(self, stream: Iterable[Row], *, cache_size: int = 10_000) -> None:
        if isinstance(stream, Iterator) or not hasattr(stream, "__iter__"):
            raise TypeError(
                "Expected a stream that can be iterated over again, such as a "
                f"datasets.IterableDataset, got a {type(stream).__name__}; make one of a generator "
                "function with datasets.IterableDataset.from_generator."
            )
        self.cache_size = checked_count("cache_size", cache_size)
        self._stream = stream
        self._size: int | None = None
        self._num_seen = 0  # rows from the start that are known to exist
        self._iterator: Iterator[Row] | None = None
        self._next = 0  # the row that the iterator gives next
        self._cache: dict[int, Row] = {}

    @property
    def block_size(self) -> int:
        """Rows of a block that is shuffled as a whole: two of them fit into the cache."""
        return max(self.cache_size // 2, 1)

    @property
    def num_rows(self) -> int | None:
        """Number of rows, None until the end was seen."""
        return self._size

    def __len__(self) -> int:
        """Return the number of rows.

        Raises:
            TypeError: until the end was seen.
        """
        if self._size is None:
            raise TypeError(
                "Expected a length, got a stream whose end was not seen yet; read its rows by "
                "index, or load the data with streaming=False."
            )
        return self._size

    def __getitem__(self, index: SupportsIndex) -> Row:
        """Return one row, counted from the start.

        Raises:
            IndexError: where there is no such row.
            TypeError: where `index` is no integer.
        """
        try:
            row = operator.index(index)
        except TypeError:
            raise TypeError(f"Expected an integer as the index of a row, got {index!r}.") from None
        if not self.has_row(row):
            last = "" if self._size is None else f" to {self._size - 1}"
            raise IndexError(f"Expected a row from 0{last}, got {row}.")
        if row not in self._cache:
            self._read_to(row)
        return self._cache[row]

    def has_row(self, index: int) -> bool:
        """Return whether there is such a row, counted from the start; reads on to know."""
        if index >= self._num_seen and self._size is None:
            self._read_to(index)
        return 0 <= index < self._num_seen

    def rename_columns(self, column_mapping: Mapping[str, str]) -> Self:
        """Return a view of its own with other column names, as `datasets.Dataset` does.

        Args:
            column_mapping: from old names to new ones.
        """
        renamed_stream = _RenamedStream(self._stream, column_mapping)
        return type(self)(renamed_stream, cache_size=self.cache_size)

    def __getstate__(self) -> dict[str, Any]:
        # an open iterator cannot be pickled; rows are read again where they are needed
        return {**self.__dict__, "_iterator": None, "_next": 0, "_cache": {}}

    def _read_to(self, index: int) -> None:
        """Read rows until `index` is in the cache or the stream is over."""
        if self._iterator is None or index < self._next:
            # From the start of a block: whoever goes back to one row goes on to its neighbours.
            # Never beyond what was seen: a stream that ends inside of skip() has no known length.
            self._next = min(index, self._num_seen) // self.block_size * self.block_size
            self._cache.clear()
            self._iterator = iter(_skipped(self._stream, self._next))
        # A stream that raises cannot go on, and would look as if it had ended: start it again then.
        iterator, self._iterator = self._iterator, None
        while self._next <= index:
            row: Any = next(iterator, _END)
            if row is _END:
                self._end()
                return
            self._cache[self._next] = row
            self._cache.pop(self._next - self.cache_size, None)
            self._next += 1
            self._num_seen = max(self._num_seen, self._next)
        self._iterator = iterator

    def _end(self) -> None:
        if self._next < self._num_seen:
            raise ValueError(
                f"Expected the same rows in every iteration of the stream, got no row {self._next} "
                f"where there were at least {self._num_seen} rows before; give what shuffles or "
                "generates them a fixed seed."
            )
        self._size = self._next


class _RenamedStream:
    """A stream whose rows are renamed as they are read."""

    def __init__(self, stream: Iterable[Row], column_mapping: Mapping[str, str]) -> None:
        self._stream = stream
        self._column_mapping = dict(column_mapping)

    def __iter__(self) -> Iterator[Row]:
        return (renamed(row, self._column_mapping) for row in self._stream)

    def skip(self, num_rows: int) -> Self:
        """Return the stream without its first rows."""
        return type(self)(_skipped(self._stream, num_rows), self._column_mapping)


def _skipped(stream: Any, num_rows: int) -> Iterable[Row]:
    """Return a stream without its first rows."""
    if num_rows == 0:
        return stream  # type: ignore[no-any-return]
    # In a later epoch, `datasets` shuffles anew what is read through skip, and otherwise.
    if not hasattr(stream, "skip") or (hasattr(stream, "epoch") and stream.epoch != 0):
        return itertools.islice(stream, num_rows, None)
    return stream.skip(num_rows)  # type: ignore[no-any-return]
