"""Intervals over rows, against tables and numbers worked out by hand."""

import math

import numpy as np
import pytest

from motet.algos.evaluations.intervals import (
    difference_of_rows,
    mean_of_rows,
    share_of_rows,
    t_quantile,
)

# Student's table, two-sided 95 % and, last, 99 %.
TABLE = [
    (0.975, 1, 12.7062),
    (0.975, 2, 4.30265),
    (0.975, 3, 3.18245),
    (0.975, 4, 2.77645),
    (0.975, 9, 2.26216),
    (0.975, 30, 2.04227),
    (0.975, 120, 1.97993),
    (0.975, 100_000, 1.95999),
    (0.995, 5, 4.03214),
]


@pytest.mark.parametrize(("probability", "degrees", "expected"), TABLE)
def test_quantiles_are_those_of_the_table(
    probability: float, degrees: int, expected: float
) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(expected, rel=5e-6)


def test_the_closed_forms_of_one_and_two_degrees() -> None:
    # one degree is Cauchy: tan(pi (p - 1/2)); two: (2p - 1) sqrt(2 / (1 - (2p - 1)^2))
    for p in (0.6, 0.9, 0.999):
        assert t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-12)
        share = 2 * p - 1
        assert t_quantile(p, 2) == pytest.approx(share * math.sqrt(2 / (1 - share**2)), rel=1e-12)


@pytest.mark.parametrize(("probability", "degrees"), [(0.5, 3), (1.0, 3), (0.9, 0)])
def test_quantiles_out_of_range_are_refused(probability: float, degrees: int) -> None:
    with pytest.raises(ValueError, match="Expected a probability between"):
        t_quantile(probability, degrees)


def test_equally_many_values_of_each_row_are_a_t_interval_over_their_means() -> None:
    # means 1, 2, 6: mean 3, standard deviation sqrt((4 + 1 + 9) / 2), error that over sqrt 3
    estimate = mean_of_rows([0.0, 2.0, 2.0, 2.0, 5.0, 7.0], [4, 4, 9, 9, 7, 7])
    half = 4.30265 * math.sqrt(7) / math.sqrt(3)
    assert estimate.value == 3
    assert estimate.interval == pytest.approx((3 - half, 3 + half), rel=1e-5)


def test_rows_of_unlike_numbers_count_by_their_values() -> None:
    # sums 1 and 8 of 1 and 2 values: mean 3; residuals 1 - 3 and 8 - 6; variance 2 * 8 / 9
    estimate = mean_of_rows([1.0, 4.0, 4.0], [0, 1, 1])
    half = 12.7062 * math.sqrt(16 / 9)
    assert estimate.value == 3
    assert estimate.interval == pytest.approx((3 - half, 3 + half), rel=1e-5)


def test_more_episodes_of_the_same_rows_do_not_narrow_what_rows_differ_by() -> None:
    few = mean_of_rows([0.0, 1.0, 0.5], [0, 1, 2])
    many = mean_of_rows([0.0, 1.0, 0.5] * 100, [0, 1, 2] * 100)
    assert many.interval == pytest.approx(few.interval)


def test_one_row_has_no_interval_and_equal_rows_one_without_width() -> None:
    assert mean_of_rows([1.0, 5.0], [3, 3]).interval is None
    assert share_of_rows([1.0, 0.0], [3, 3]).interval is None
    low, high = mean_of_rows([0.1] * 30, [k // 10 for k in range(30)]).interval or (0, 0)
    assert low == high == pytest.approx(0.1)


def test_differences_are_paired_by_row() -> None:
    # row means 1, 2, 6 and 0, 2, 3: differences 1, 0, 3, mean 4/3, their variance 7/3
    rows = [0, 0, 1, 1, 2, 2]
    first, second = [0.0, 2.0, 2.0, 2.0, 5.0, 7.0], [0.0, 0.0, 1.0, 3.0, 3.0, 3.0]
    estimate = difference_of_rows((first, rows), (second, rows))
    half = 4.30265 * math.sqrt(7 / 9)
    assert estimate.value == pytest.approx(4 / 3)
    assert estimate.interval == pytest.approx((4 / 3 - half, 4 / 3 + half), rel=1e-5)


def test_differences_of_other_rows_are_those_of_two_samples() -> None:
    # each of the four rows moves its mean by 1/4, each sample's factor is 2; t of one degree
    estimate = difference_of_rows(([1.0, 2.0], [0, 1]), ([0.0, 1.0], [2, 3]))
    half = 12.7062 * math.sqrt(2 * 2 * 0.25**2 + 2 * 2 * 0.25**2)
    assert estimate.interval == pytest.approx((1 - half, 1 + half), rel=1e-5)
    assert difference_of_rows(([1.0], [0]), ([0.5], [0])).interval is None


def test_one_row_of_a_later_turn_says_nothing_of_a_difference() -> None:
    many = ([0.1 * row for row in range(16)], range(16))
    assert difference_of_rows(many, ([0.5], [3])).interval is None
    assert difference_of_rows(([0.5], [3]), many).interval is None


@pytest.mark.parametrize("others", [range(8), range(2), range(4), range(6, 10), range(8, 11)])
def test_differences_hold_the_truth_as_often_as_they_say(others: range) -> None:
    generator = np.random.default_rng(0)
    rows, held, num_trials = range(8), 0, 1000
    for _ in range(num_trials):
        of_row = generator.normal(size=11)
        first, second = (
            ((of_row[list(own)] + generator.normal(size=len(own))).tolist(), own)
            for own in (rows, others)
        )
        interval = difference_of_rows(first, second).interval
        assert interval is not None
        held += interval[0] <= 0 <= interval[1]
    assert held / num_trials > 0.935


def test_nothing_has_no_mean() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        mean_of_rows([], [])


def test_shares_are_wilsons() -> None:
    # one value of each of 10 rows, 8 ones: s^2 = 0.16 / 9, so that they are worth 9 draws
    t, n, p = 2.262157, 9, 0.8
    centre = (p + t**2 / (2 * n)) / (1 + t**2 / n)
    half = t * math.sqrt(p * (1 - p) / n + t**2 / (4 * n**2)) / (1 + t**2 / n)
    estimate = share_of_rows([1.0] * 8 + [0.0] * 2, range(10))
    assert estimate.value == 0.8
    assert estimate.interval == pytest.approx((centre - half, centre + half), rel=1e-5)


def test_shares_keep_a_width_where_all_rows_agree() -> None:
    # four rows of wins, however many: 1 / (1 + t^2 / 4)
    low = 1 / (1 + 3.182446**2 / 4)
    for times in (1, 50):
        estimate = share_of_rows([1.0] * 4 * times, list(range(4)) * times)
        assert estimate.interval == pytest.approx((low, 1.0), rel=1e-5)
        none = share_of_rows([0.0] * 4 * times, list(range(4)) * times)
        assert none.interval == pytest.approx((0.0, 1 - low), rel=1e-5)


@pytest.mark.parametrize("num_rows", [3, 5, 20])
def test_intervals_hold_the_truth_as_often_as_they_say(num_rows: int) -> None:
    """Rows of a normal mean each, four noisy episodes of a row; 2,000 evaluations."""
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(num_rows), 4).tolist()
    held = 0
    for _ in range(2000):
        values = np.repeat(rng.normal(0.5, 0.2, num_rows), 4) + rng.normal(0, 0.1, 4 * num_rows)
        low, high = mean_of_rows(values.tolist(), rows).interval or (0, 0)
        held += low <= 0.5 <= high
    assert held / 2000 == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_intervals_of_shares_hold_the_truth_at_least_as_often(share: float) -> None:
    """Eight rows, four episodes each, the row's own chance drawn from a beta distribution."""
    rng = np.random.default_rng(1)
    rows = np.repeat(np.arange(8), 4).tolist()
    held = 0
    for _ in range(2000):
        chances = np.repeat(rng.beta(4 * share, 4 * (1 - share), 8), 4)
        won = (rng.random(32) < chances).astype(float)
        low, high = share_of_rows(won.tolist(), rows).interval or (0, 0)
        held += low <= share <= high
    assert held / 2000 > 0.94
