"""Baselines and normalisation: hand-computed numbers and the laws they keep."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motet.algos import group_mean, leave_one_out, no_baseline
from motet.algos.advantages import group_advantages

RETURNS = torch.tensor([1.0, 2.0, 6.0, 3.0], dtype=torch.float64)


def test_baselines_by_hand() -> None:
    assert group_mean(RETURNS).tolist() == [-2.0, -1.0, 3.0, 0.0]
    # each less the mean of the other three: 11/3, 10/3, 2, 3
    assert leave_one_out(RETURNS).tolist() == pytest.approx([-8 / 3, -4 / 3, 4.0, 0.0])
    assert no_baseline(RETURNS).tolist() == [1.0, 2.0, 6.0, 3.0]


def test_normalised_by_hand() -> None:
    # population variance (4 + 1 + 9 + 0) / 4 = 3.5
    advantages = group_advantages(RETURNS, group_mean, normalize=True)
    assert advantages is not None
    assert advantages.tolist() == pytest.approx([x / 3.5**0.5 for x in (-2, -1, 3, 0)])


returns_lists = st.lists(st.floats(-100, 100), min_size=2, max_size=8)


@given(returns_lists, st.floats(0.01, 1000), st.floats(-100, 100))
def test_scale_and_shift_leave_normalised_advantages_unchanged(
    values: list[float], factor: float, shift: float
) -> None:
    returns = torch.tensor(values, dtype=torch.float64)
    if float(returns.std(correction=0)) < 1e-3:
        return
    plain = group_advantages(returns, group_mean, normalize=True)
    changed = group_advantages(returns * factor + shift, group_mean, normalize=True)
    assert plain is not None and changed is not None
    torch.testing.assert_close(plain, changed, rtol=1e-5, atol=1e-5)


@given(returns_lists)
def test_mean_and_leave_one_out_sum_to_zero(values: list[float]) -> None:
    returns = torch.tensor(values, dtype=torch.float64)
    for baseline in (group_mean, leave_one_out):
        assert float(baseline(returns).sum()) == pytest.approx(0.0, abs=1e-8)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("value", [0.0, 0.1, 100 / 3])
def test_groups_without_spread_say_nothing(normalize: bool, value: float) -> None:
    # means added up in another order differ in the last bit
    last_bit = math.nextafter(value, math.inf) if value else value
    returns = torch.tensor([value, value, last_bit], dtype=torch.float64)
    assert group_advantages(returns, group_mean, normalize=normalize) is None


def test_without_a_baseline_a_group_of_equal_rewards_still_counts() -> None:
    equal = torch.ones(3, dtype=torch.float64)
    assert group_advantages(equal, no_baseline, normalize=False) is not None
    assert group_advantages(equal, no_baseline, normalize=True) is None


@pytest.mark.parametrize("baseline", [group_mean, leave_one_out])
def test_a_group_of_one_has_nothing_to_be_compared_with(baseline) -> None:
    with pytest.raises(ValueError, match="num_generations of at least 2"):
        baseline(torch.zeros(1))
