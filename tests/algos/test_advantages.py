"""Baselines and normalisation: hand-computed numbers and the laws they keep."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motet.algos import (
    LearningBaseline,
    RunningMean,
    greedy_return,
    group_max,
    group_mean,
    leave_one_out,
    no_baseline,
)
from motet.algos.group.advantages import group_advantages, seen_by

RETURNS = torch.tensor([1.0, 2.0, 6.0, 3.0], dtype=torch.float64)


def test_baselines_by_hand() -> None:
    assert group_mean(RETURNS).tolist() == [-2.0, -1.0, 3.0, 0.0]
    # each less the mean of the other three: 11/3, 10/3, 2, 3
    assert leave_one_out(RETURNS).tolist() == pytest.approx([-8 / 3, -4 / 3, 4.0, 0.0])
    assert no_baseline(RETURNS).tolist() == [1.0, 2.0, 6.0, 3.0]
    assert group_max(RETURNS).tolist() == [-5.0, -4.0, 0.0, -3.0]
    greedy = torch.tensor([2.5, 2.5, 2.5, 2.5], dtype=torch.float64)
    assert greedy_return(RETURNS, greedy).tolist() == [-1.5, -0.5, 3.5, 0.5]


def test_a_running_mean_by_hand() -> None:
    baseline = RunningMean(decay=0.5)
    assert baseline(RETURNS, "a").tolist() == RETURNS.tolist()
    # four returns of mean 3: 0.5^4 of 0 is kept, and 1 - 1/16 of 3 added
    baseline.observe("a", RETURNS)
    assert baseline.means == {"a": 2.8125}
    assert baseline(RETURNS, "a").tolist() == [-1.8125, -0.8125, 3.1875, 0.1875]
    # one return of 1: half of 2.8125 and half of 1; nobody else's mean moves
    baseline.observe("a", RETURNS[:1])
    baseline.observe("b", RETURNS[:0])
    assert baseline.means == {"a": 1.90625}
    assert baseline(RETURNS, "b").tolist() == RETURNS.tolist()


def test_equal_returns_move_a_running_mean_as_one_after_the_other() -> None:
    at_once, one_by_one = RunningMean(), RunningMean()
    at_once.observe("a", torch.full((5,), 2.0))
    for _ in range(5):
        one_by_one.observe("a", torch.tensor([2.0]))
    assert at_once.means == pytest.approx(one_by_one.means)


def test_a_running_mean_goes_on_from_its_state_and_refuses_that_of_another_decay() -> None:
    first, second = RunningMean(), RunningMean()
    first.observe("a", RETURNS)
    second.load_state_dict(first.state_dict())
    first.observe("a", RETURNS)  # the state is a copy
    assert first.means != second.means
    second.observe("a", RETURNS)
    assert first.means == second.means
    with pytest.raises(ValueError, match=r"decay 0.5, got those of 0.95"):
        RunningMean(0.5).load_state_dict(first.state_dict())
    for decay in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="decay from 0 to below 1"):
            RunningMean(decay)
    assert isinstance(first, LearningBaseline)
    assert not isinstance(group_mean, LearningBaseline)


def test_a_baseline_is_told_what_it_names() -> None:
    def optional(returns: torch.Tensor, scale: float = 2.0, **options: float) -> torch.Tensor:
        return returns * scale

    assert seen_by(group_mean) == seen_by(optional) == seen_by(torch.relu) == frozenset()
    assert seen_by(lambda *returns: returns[0]) == frozenset()
    assert seen_by(greedy_return) == {"greedy_returns"}
    assert seen_by(RunningMean()) == {"agent"}
    assert seen_by(lambda returns, *, agent=None: returns) == {"agent"}
    with pytest.raises(TypeError, match="agent, got one that needs values"):
        seen_by(lambda returns, values: returns)
    with pytest.raises(TypeError, match="got one without parameters"):
        seen_by(lambda: RETURNS)
    with pytest.raises(TypeError, match="a function from returns to advantages, got 3"):
        seen_by(3)
    with pytest.raises(TypeError, match=r"got <class '.*RunningMean'>"):
        seen_by(RunningMean)


def test_advantages_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(4,\) .* got \(\)"):
        group_advantages(RETURNS, lambda returns: returns.mean(), normalize=False)
    with pytest.raises(ValueError, match=r"a greedy return for each return, got \(2,\) and \(4,\)"):
        greedy_return(RETURNS, RETURNS[:2])


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


@pytest.mark.parametrize("baseline", [group_mean, leave_one_out, group_max])
def test_a_group_of_one_has_nothing_to_be_compared_with(baseline) -> None:
    with pytest.raises(ValueError, match="num_generations of at least 2"):
        baseline(torch.zeros(1))
