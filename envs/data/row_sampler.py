"""Which dataset row comes next."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
from gymnasium.utils import seeding

from motet.envs.data.streamed_rows import StreamedRows
from motet.envs.task.parts import Dataset
from motet.envs.text_state import RowOrder


class RowSampler:
    """Walk through the rows in their own order, or in a new random one on each pass.

    What the next row depends on is a `RowOrder`, small enough for a snapshot: a pass's permutation
    is kept as its seed.

    Args:
        size: number of rows.
        shuffle: whether to draw a random order for each pass.
    """

    def __init__(self, size: int, *, shuffle: bool) -> None:
        self._size = size
        self._shuffle = shuffle
        self._order = RowOrder()
        self._rng: np.random.Generator | None = None
        self._permutation: tuple[int | None, np.ndarray[Any, Any] | None] = (None, None)

    @property
    def rng(self) -> np.random.Generator:
        """The generator that random orders are drawn from."""
        if self._rng is None:
            self._rng = seeding.np_random()[0]
            if self._order.rng is not None:
                self._rng.bit_generator.state = self._order.rng
        return self._rng

    def seed(self, seed: int) -> None:
        """Start again from the first row, or from the first order that a seed gives."""
        self._rng = seeding.np_random(seed)[0]
        self._order = RowOrder()

    def order(self) -> RowOrder:
        """Return where it stands, with the generator's state where that decides rows."""
        if self._rng is None and (self._order.rng is not None or not self._shuffle):
            return self._order
        return RowOrder(self._order.position, self._order.pass_seed, self.rng.bit_generator.state)

    def restore(self, order: RowOrder, *, seed: int | None = None) -> None:
        """Go on from `order`, with a random stream of its own where a seed is given."""
        self._order = order
        self._rng = None if seed is None else seeding.np_random(seed)[0]

    def copy(self, *, seed: int | None = None) -> Self:
        """Return an independent sampler that stands at the same row; see `restore`."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.restore(self.order(), seed=seed)
        return twin

    def next_row(self) -> int:
        """Return the next row's index."""
        position = self._order.position % self._size
        if not self._shuffle:
            self._order = RowOrder(position + 1, self._order.pass_seed, self._order.rng)
            return position
        pass_seed = self._order.pass_seed
        if position == 0 or pass_seed is None:
            pass_seed = int(self.rng.integers(2**63))
        self._order = RowOrder(position + 1, pass_seed, self._order.rng)
        if self._permutation[0] != pass_seed:
            permutation = np.random.default_rng(pass_seed).permutation(self._size)
            self._permutation = pass_seed, permutation
        permutation_now = self._permutation[1]
        assert permutation_now is not None  # set together with its seed
        return int(permutation_now[position])


class StreamSampler(RowSampler):
    """Walk through rows whose number is unknown.

    In order, the first row follows where there is no next one. A random order is one of blocks:
    the rows of a block are permuted, the blocks come in their own order, so that a stream is read
    forwards. Each row comes once per pass, and the position counts the places of the walk, also
    those beyond the end that are passed over: whether the end was seen yet changes nothing.

    Args:
        has_row: whether there is such a row; the first one there is.
        shuffle: whether to draw a random order for each pass.
        block_size: rows that are permuted together.
    """

    def __init__(self, has_row: Callable[[int], bool], *, shuffle: bool, block_size: int) -> None:
        super().__init__(block_size, shuffle=shuffle)
        self._has_row = has_row
        self._block: tuple[tuple[int, int] | None, list[int]] = (None, [])

    def next_row(self) -> int:
        """Return the next row's index."""
        position, pass_seed = self._order.position, self._order.pass_seed
        if not self._shuffle:
            row = position if self._has_row(position) else 0
            self._order = replace(self._order, position=row + 1)
            return row
        while True:
            start = position // self._size * self._size
            if pass_seed is None or not self._has_row(start):
                position, start, pass_seed = 0, 0, int(self.rng.integers(2**63))
                # kept at once: a stream that raises below begins the same pass when asked again
                self._order = RowOrder(0, pass_seed, self._order.rng)
            permutation = self._permuted(pass_seed, start // self._size)
            for place in range(position - start, self._size):
                row = start + permutation[place]
                if self._has_row(row):
                    self._order = RowOrder(start + place + 1, pass_seed, self._order.rng)
                    return row
            position = start + self._size

    def _permuted(self, pass_seed: int, block: int) -> list[int]:
        if self._block[0] != (pass_seed, block):
            rng = np.random.default_rng((pass_seed, block))
            self._block = (pass_seed, block), rng.permutation(self._size).tolist()
        return self._block[1]


def make_sampler(dataset: Dataset, *, shuffle: bool) -> RowSampler:
    """Return what walks through a dataset."""
    if isinstance(dataset, StreamedRows):
        return StreamSampler(dataset.has_row, shuffle=shuffle, block_size=dataset.block_size)
    return RowSampler(len(dataset), shuffle=shuffle)
