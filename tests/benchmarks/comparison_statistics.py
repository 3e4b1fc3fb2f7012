"""Interquartile means and their intervals, as rliable computes them.

From "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (Agarwal et al. 2021,
arXiv 2108.13264, section 4.3 and appendix A). A few runs have a mean that one of them can move and
a median that ignores most of them; the mean of the middle half is between the two. The runs of a
task are drawn again with replacement, task by task, and the quantiles of the statistic over such
draws are its interval. rliable itself needs arch, which does not import beside pandas 3; its
numbers are in `tests/test_comparison.py`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Statistic = Callable[[Values], Values]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic and its interval."""

    value: float
    low: float
    high: float


def interquartile_mean(scores: Values) -> Values:
    """Return the mean of the middle half.

    A quarter of the values, rounded down, is left out at each end, as `scipy.stats.trim_mean` does.

    Args:
        scores: (..., R) values of R runs, of all tasks together.

    Returns:
        (...) means.
    """
    cut = scores.shape[-1] // 4
    middle = np.sort(scores, axis=-1)[..., cut : scores.shape[-1] - cut]
    return np.asarray(middle.mean(axis=-1))


def bootstrap(
    scores: Sequence[Sequence[float]],
    statistic: Statistic = interquartile_mean,
    *,
    num_samples: int = 5000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Estimate a statistic with its stratified bootstrap interval.

    Args:
        scores: by task, the values of its runs; tasks may have different numbers of them.
        statistic: from (..., R) values of all tasks together to (...).
        num_samples: draws.
        confidence: share of the draws that the interval holds.
        seed: of the draws.

    Raises:
        ValueError: where a task has no runs, or a value is not finite.
    """
    if not scores or not all(len(runs) for runs in scores):
        raise ValueError(f"Expected at least one run of each task, got {scores}.")
    if not all(math.isfinite(value) for runs in scores for value in runs):
        raise ValueError(f"Expected finite values, got {scores}.")
    rng = np.random.default_rng(seed)
    drawn = [
        np.asarray(runs, dtype=np.float64)[rng.integers(len(runs), size=(num_samples, len(runs)))]
        for runs in scores
    ]
    tail = (1 - confidence) / 2
    low, high = np.quantile(statistic(np.concatenate(drawn, axis=1)), [tail, 1 - tail])
    value = statistic(np.concatenate([np.asarray(runs, dtype=np.float64) for runs in scores]))
    return Estimate(float(value), float(low), float(high))


def first_reached(xs: Sequence[float], rewards: Sequence[float], goal: float) -> float | None:
    """Return where a curve first reaches a goal, on the straight line to that point.

    Args:
        xs: (P,) where the curve was measured, in ascending order.
        rewards: (P,) what was measured.
        goal: what to reach.

    Returns:
        The x, or None where no point reaches the goal.
    """
    for k, reward in enumerate(rewards):
        if reward >= goal:
            if k == 0:
                return xs[0]
            share = (goal - rewards[k - 1]) / (reward - rewards[k - 1])
            return xs[k - 1] + share * (xs[k] - xs[k - 1])
    return None
