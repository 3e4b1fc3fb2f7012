"""Runs that are killed and go on: what they logged and what they became, compared to the bit."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from motet import algos


class Kept:
    """A logger that keeps what it gets, but for time and memory; killed after some entries."""

    def __init__(self, limit: int | None = None) -> None:
        self.entries: list[tuple[int, dict[str, float]]] = []
        self._limit = limit

    def log(self, metrics: dict[str, float], step: int) -> None:
        if len(self.entries) == self._limit:
            raise KeyboardInterrupt
        timeless = {
            key: value for key, value in metrics.items() if not key.startswith(("time/", "memory/"))
        }
        self.entries.append((step, timeless))

    def close(self) -> None: ...


def assert_same(one: Any, other: Any, place: str = "") -> None:
    """Compare two states to the bit."""
    assert type(one) is type(other), place
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype, place
        assert torch.equal(one, other), place
    elif isinstance(one, dict):
        assert list(one) == list(other), place
        for key in one:
            assert_same(one[key], other[key], f"{place}/{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), place
        for index, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            assert_same(mine, theirs, f"{place}/{index}")
    else:
        assert one == other, place


def assert_goes_on_to_the_bit(
    make: Callable[[dict[str, Any], Kept], Any], folder: Path, *, entries: int, done: int
) -> Any:
    """Train at once; train, be killed, and go on in a new trainer; compare.

    Args:
        make: a new trainer with new agents, from settings that write checkpoints, and a logger.
        folder: where to write.
        entries: of the log, after which the run is killed.
        done: of these, in the log by the time of the checkpoint that is gone on from.

    Returns:
        The trainer that went on.
    """

    def run(name: str, kept: Kept, resume_from: Path | None = None) -> Any:
        trainer = make({"output_dir": str(folder / name)}, kept)
        trainer.train(resume_from=resume_from)
        return trainer

    whole, killed, resumed = Kept(), Kept(limit=entries), Kept()
    expected = run("whole", whole)
    with pytest.raises(KeyboardInterrupt):
        run("killed", killed)
    found = run("killed", resumed, folder / "killed")
    assert_same(found.state_dict(), expected.state_dict())
    assert killed.entries == whole.entries[:entries]
    assert resumed.entries == whole.entries[done:]
    logs = [(folder / name / "metrics.jsonl").read_text() for name in ("whole", "killed")]
    assert logs[0].count("\n") == logs[1].count("\n") == len(whole.entries)
    return found


class Interrupting(algos.Callback):
    """Ends a run as a signal does, after some optimizer steps of a rollout's update.

    Args:
        rollout: number of the rollout, from 1.
        steps: of policies.
    """

    def __init__(self, rollout: int, steps: int) -> None:
        self._rollout, self._steps = rollout, steps
        self._seen = self._taken = 0

    def on_rollout(self, trainer: Any, rollout: algos.Rollout) -> None:
        self._seen += 1
        if self._seen == self._rollout:
            for updater in trainer.updaters:
                updater.after_step = functools.partial(self._after, updater.after_step)

    def _after(self, known: Callable[[], None]) -> None:
        known()
        self._taken += 1
        if self._taken == self._steps:
            raise KeyboardInterrupt
