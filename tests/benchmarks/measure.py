"""Time many cases in one run, alternating, so that a busy minute of the machine meets all alike.

What is taken is processor time: the cases run in one thread and wait for nothing, so on a quiet
machine it is the time on the clock, and on a shared one waiting for a core does not count.
"""

import gc
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Unit = Literal["agent-steps/s", "µs"]
Run = Callable[[int], int]


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Attributes:
        section: heading of the table that it belongs to.
        name: what is measured.
        unit: what is counted; more steps per second are better, and fewer microseconds.
        make: builds what is measured, and returns a function that does it n times and returns how
            many agent-steps or calls that were. An ImportError of it is reported in its row.
        target: what the median must reach, or stay under; None where there is no goal.
    """

    section: str
    name: str
    unit: Unit
    make: Callable[[], Run]
    target: float | None = None


@dataclass(frozen=True)
class Measured:
    """What a case took.

    Attributes:
        case: the case.
        values: one value per repetition, in the case's unit; empty where it could not run.
        missing: why it could not run.
    """

    case: Case
    values: tuple[float, ...] = ()
    missing: str | None = None

    @property
    def median(self) -> float:
        """Median over the repetitions."""
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Lower and upper quartile over the repetitions."""
        lower, _, upper = statistics.quantiles(self.values, n=4, method="inclusive")
        return lower, upper

    @property
    def misses_target(self) -> bool:
        """Whether there is a target that the median does not meet, or nothing to compare."""
        if self.case.target is None:
            return False
        if self.missing is not None:
            return True
        if self.case.unit == "µs":
            return self.median >= self.case.target
        return self.median < self.case.target


def measure(cases: Sequence[Case], *, repeats: int, sample_s: float) -> list[Measured]:
    """Return the measurements of all cases, in their order.

    Args:
        cases: what to measure.
        repeats: samples of each case; every repetition visits all cases in a new order.
        sample_s: about how long one sample takes, in seconds.
    """
    runs: dict[int, tuple[Run, int]] = {}
    missing: dict[int, str] = {}
    for i, case in enumerate(cases):
        try:
            run = case.make()
        except ImportError as exc:
            missing[i] = f"{type(exc).__name__}: {exc}"
            continue
        runs[i] = run, _calibrated(run, sample_s)
    # Collection stays on, since real loops pay for it; what stands already is exempt, or the large
    # datasets of some cases would slow down all others.
    gc.collect()
    gc.freeze()
    values: dict[int, list[float]] = {i: [] for i in runs}
    for repetition in range(repeats):
        order = list(runs)
        random.Random(repetition).shuffle(order)
        for i in order:
            values[i].append(_sample(cases[i].unit, *runs[i]))
    gc.unfreeze()
    return [
        Measured(case, tuple(values.get(i, ())), missing.get(i)) for i, case in enumerate(cases)
    ]


def _calibrated(run: Run, sample_s: float) -> int:
    """Return how often to run for one sample; the first run warms up."""
    run(1)
    times = 1
    while True:
        begun = time.process_time()
        run(times)
        took = time.process_time() - begun
        if took >= sample_s / 4:
            return max(1, round(times * sample_s / took))
        times *= 2


def _sample(unit: Unit, run: Run, times: int) -> float:
    begun = time.process_time()
    work = run(times)
    took = time.process_time() - begun
    return work / took if unit == "agent-steps/s" else 1e6 * took / work
