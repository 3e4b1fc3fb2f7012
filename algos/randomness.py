"""States of random generators as plain values, and the global ones kept apart for a library.

stable-baselines3 seeds Python's, NumPy's and torch's global generators, and draws from them. In
`OwnRandomness` it does so in a stream of its own: what others draw changes nothing in it, it
changes nothing of theirs, and it can be saved. Learners of Motet draw from generators of their own;
what a task's functions draw from the global ones is saved with a checkpoint.
"""

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def rng_state(rng: np.random.Generator) -> str:
    """Return a generator's state as text, which a checkpoint can hold."""
    return json.dumps(rng.bit_generator.state)


def set_rng_state(rng: np.random.Generator, state: str) -> None:
    """Bring a generator into a state that `rng_state` returned."""
    rng.bit_generator.state = json.loads(state)


def global_states() -> dict[str, Any]:
    """Return the states of the three global generators, and of GPUs in use: plain values."""
    state: Any = np.random.get_state(legacy=True)
    name, keys, *rest = state
    on_gpus = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch's
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(keys.astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if on_gpus else [],
    }


def set_global_states(states: Mapping[str, Any]) -> None:
    """Bring the global generators into states that `global_states` returned."""
    random.setstate(states["python"])
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if states["cuda"] and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])


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
