r"""Intervals of means over episodes, with the row as the unit.

Episodes of one row share its prompt, so that they are no independent draws: what is drawn is the
row. As standard errors of evaluations of language models should be (Miller 2024, arXiv 2411.00640,
section 2.2), ours are clustered by row. Of R rows with sums $y_r$ over $m_r$ values,

$$\hat\theta = \frac{\sum_r y_r}{\sum_r m_r}, \qquad
s^2 = \frac{R}{R - 1} \frac{\sum_r (y_r - \hat\theta m_r)^2}{(\sum_r m_r)^2}$$

(the ratio estimator, Cochran 1977, chapter 6), and the interval is $\hat\theta \pm t_{R-1} s$ with
Student's quantile. With equally many values of each row it is the t-interval over the rows' means.

Why this and no bootstrap: evaluations here have few rows. A percentile bootstrap over four of them
is too narrow by half; Student's quantile is 3.2 there, and nothing is drawn, so that there is no
seed. One row has no interval. Rows that all earned the same have one without width: they say
nothing of how rows differ, however few they are.

Shares of episodes, wins for one, have bounds, and rows that all agree are common. Their interval is
Wilson's (1927), of as many draws as the episodes are worth, $p(1-p)/s^2$ (Korn and Graubard 1998),
which keeps its width where all rows agree: they count as a draw each there.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Interval = tuple[float, float]
Values = tuple[Sequence[float], Sequence[int]]  # with the row of each

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean, with its interval where there are rows enough.

    Attributes:
        value: the mean of all values.
        interval: low and high end; None where one row alone has values.
    """

    value: float
    interval: Interval | None


def mean_of_rows(
    values: Sequence[float], rows: Sequence[int], *, confidence: float = CONFIDENCE
) -> Estimate:
    """Return the mean of values with its t-interval over rows.

    Args:
        values: (K,) at least one.
        rows: (K,) the row that each value is of.
        confidence: share of such intervals that hold the true mean.
    """
    mean, error, num_rows = _clustered(values, rows)
    if num_rows == 1:
        return Estimate(mean, None)
    half = t_quantile((1 + confidence) / 2, num_rows - 1) * error
    return Estimate(mean, (mean - half, mean + half))


def share_of_rows(
    values: Sequence[float], rows: Sequence[int], *, confidence: float = CONFIDENCE
) -> Estimate:
    """Return the mean of values from 0 to 1 with its Wilson interval over rows.

    Args:
        values: (K,) at least one.
        rows: (K,) the row that each value is of.
        confidence: share of such intervals that hold the true mean.
    """
    share, error, num_rows = _clustered(values, rows)
    if num_rows == 1:
        return Estimate(share, None)
    spread = share * (1 - share)
    worth = min(spread / error**2, len(values)) if error > 0 else num_rows
    t = t_quantile((1 + confidence) / 2, num_rows - 1)
    scale = 1 + t**2 / worth
    centre = (share + t**2 / (2 * worth)) / scale
    half = t * math.sqrt(spread / worth + (t / (2 * worth)) ** 2) / scale
    return Estimate(share, (max(centre - half, 0.0), min(centre + half, 1.0)))


def difference_of_rows(
    first: Values, second: Values, *, confidence: float = CONFIDENCE
) -> Estimate:
    """Return the mean of the first values less that of the second, with its t-interval over rows.

    What a row adds to both means cancels out: where both have the same rows and equally many
    values of each, it is the paired t-interval over the differences of the rows' means. Where they
    have others, as those that reached a later turn, degrees of freedom are those of the one with
    fewer rows, and there is no interval where that has one alone.

    Args:
        first: (K,) values and the row of each.
        second: (L,) likewise.
        confidence: share of such intervals that hold the true difference.
    """
    one, other = _ratio(*first), _ratio(*second)
    difference = one.mean - other.mean
    fewest = min(len(one.influence), len(other.influence))
    if fewest == 1:
        return Estimate(difference, None)
    own, others = one.unbiased(), other.unbiased()
    apart = [own.get(row, 0.0) - others.get(row, 0.0) for row in sorted({*own, *others})]
    scale = max(map(abs, (*one.influence.values(), *other.influence.values(), difference)))
    half = t_quantile((1 + confidence) / 2, fewest - 1) * _error(apart, scale)
    return Estimate(difference, (difference - half, difference + half))


@dataclass(frozen=True, slots=True)
class _Ratio:
    """A mean, and by row how far its values move it: (y_r - mean m_r) / sum of m."""

    mean: float
    influence: dict[int, float]

    def unbiased(self) -> dict[int, float]:
        """Return the influences of at least two rows, whose squares add up to the variance."""
        factor = math.sqrt(len(self.influence) / (len(self.influence) - 1))
        return {row: factor * moved for row, moved in self.influence.items()}


def _ratio(values: Sequence[float], rows: Sequence[int]) -> _Ratio:
    if not values or len(values) != len(rows):
        raise ValueError(
            f"Expected at least one value, with a row each, got {len(values)} values and "
            f"{len(rows)} rows."
        )
    distinct, index = np.unique(np.asarray(rows), return_inverse=True)
    counts = np.bincount(index).astype(float)
    sums = np.bincount(index, weights=np.asarray(values, dtype=float))
    total = float(counts.sum())
    mean = float(sums.sum()) / total
    moved = ((sums - mean * counts) / total).tolist()
    return _Ratio(mean, dict(zip(distinct.tolist(), moved, strict=True)))


def _error(unbiased: Sequence[float], scale: float) -> float:
    """Return the standard error; 0 where rows differ by no more than sums are rounded."""
    error = math.sqrt(math.fsum(each**2 for each in unbiased))
    return error if error > 1e-12 * abs(scale) else 0.0


def _clustered(values: Sequence[float], rows: Sequence[int]) -> tuple[float, float, int]:
    """Return the mean, its standard error (0 of one row), and the number of rows."""
    ratio = _ratio(values, rows)
    num_rows = len(ratio.influence)
    if num_rows == 1:
        return ratio.mean, 0.0, 1
    return ratio.mean, _error([*ratio.unbiased().values()], ratio.mean), num_rows


@functools.lru_cache(maxsize=256)
def t_quantile(probability: float, degrees: int) -> float:
    """Return the quantile of Student's t-distribution.

    The distribution has a closed form for whole degrees of freedom (Abramowitz and Stegun 1964,
    26.7.3 and 26.7.4), which is inverted by bisection of the angle arctan(t / sqrt(degrees)).

    Args:
        probability: above 0.5, below 1.
        degrees: of freedom, at least 1.

    Raises:
        ValueError: where a number is out of its range.
    """
    if not 0.5 < probability < 1 or degrees < 1:
        raise ValueError(
            f"Expected a probability between 0.5 and 1 and at least 1 degree of freedom, got "
            f"{probability} and {degrees}."
        )
    low, high = 0.0, math.pi / 2
    for _ in range(100):
        middle = (low + high) / 2
        if (1 + _share_within(middle, degrees)) / 2 < probability:
            low = middle
        else:
            high = middle
    return math.tan((low + high) / 2) * math.sqrt(degrees)


def _share_within(angle: float, degrees: int) -> float:
    """Return how likely |t| is below tan(angle) * sqrt(degrees)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    if degrees % 2:
        steps = np.arange(2.0, degrees - 2, 2)  # 2/3, 4/5, ... up to (degrees-3)/(degrees-2)
        terms = cosine * np.cumprod([1.0, *(steps / (steps + 1) * cosine**2)])
        series = float(terms.sum()) if degrees > 1 else 0.0
        return 2 / math.pi * (angle + sine * series)
    steps = np.arange(1.0, degrees - 2, 2)  # 1/2, 3/4, ... up to (degrees-3)/(degrees-2)
    return sine * float(np.cumprod([1.0, *(steps / (steps + 1) * cosine**2)]).sum())
