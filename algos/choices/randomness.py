"""The global random generators, kept apart for a library that draws from them.

stable-baselines3 seeds Python's, NumPy's and torch's global generators, and draws from them. In
`OwnRandomness` it does so in a stream of its own: what others draw changes nothing in it, it
changes nothing of theirs, and it can be saved. Generators of a GPU are left alone.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def global_states() -> dict[str, Any]:
    """Return the states of the three global generators; they pickle."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=True),
        "torch": torch.get_rng_state(),
    }


def set_global_states(states: dict[str, Any]) -> None:
    """Bring the global generators into states that `global_states` returned."""
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])


@contextmanager
def kept_randomness() -> Iterator[None]:
    """Bring the global generators back to where they were before."""
    before = global_states()
    try:
        yield
    finally:
        set_global_states(before)


class OwnRandomness:
    """A stream of its own of the global generators, which go on in it within `entered` alone."""

    def __init__(self) -> None:
        self._states: dict[str, Any] | None = global_states()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Let the global generators go on from where they were when this was left."""
        if self._states is None:
            raise RuntimeError("Expected to enter once at a time, got a second time within it.")
        with kept_randomness():
            set_global_states(self._states)
            self._states = None
            try:
                yield
            finally:
                self._states = global_states()

    def get_state(self) -> dict[str, Any]:
        """Return where the stream stands, within `entered` too; it pickles."""
        return global_states() if self._states is None else self._states

    def set_state(self, state: dict[str, Any]) -> None:
        """Go to where a stream stood."""
        if self._states is None:
            set_global_states(state)
        else:
            self._states = state
