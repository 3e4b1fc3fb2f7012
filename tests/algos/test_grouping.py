"""Which completions are compared with one another: by hand, and where they do not differ."""

import pytest
import torch

from motet.agents import Completion
from motet.algos import (
    GroupBy,
    Node,
    Rollout,
    greedy_return,
    group_max,
    group_mean,
    leave_one_out,
    no_baseline,
)
from motet.algos.group.grouping import (
    Credited,
    advantage_groups,
    credited_completions,
    returns_by_agent,
)
from motet.algos.rollouts.returns import rollout_greedy_returns, rollout_returns
from motet.algos.updates.batch import Group


def group(agent: str, turn: int, *returns: float, greedy: float | None = None) -> Credited:
    completions = tuple(Completion(str(value)) for value in returns)
    tensor = torch.tensor(returns, dtype=torch.float64)
    return Credited(agent, turn, completions, tensor, greedy)


# agent a: two prompts at turn 1 and one at turn 2; agent b: one prompt at turn 1
CREDITED = [
    group("a", 1, 0.0, 2.0, greedy=1.5),
    group("b", 1, 5.0, 7.0, greedy=4.0),
    group("a", 1, 4.0, 6.0, greedy=4.5),
    group("a", 2, 3.0, 9.0, greedy=0.0),
]


@pytest.mark.parametrize(
    ("group_by", "baseline", "expected"),
    [
        ("node", group_mean, [[-1, 1], [-1, 1], [-1, 1], [-3, 3]]),
        # turn 1 of a: 0, 2, 4, 6 of mean 3; b as above
        ("turn", group_mean, [[-3, -1], [-1, 1], [1, 3], [-3, 3]]),
        # all of a: 0, 2, 4, 6, 3, 9 of mean 4
        ("batch", group_mean, [[-4, -2], [-1, 1], [0, 2], [-1, 5]]),
        # times 4 / 3 and 2: groups of four and of two
        ("turn", leave_one_out, [[-4, -4 / 3], [-2, 2], [4 / 3, 4], [-6, 6]]),
        ("turn", group_max, [[-6, -4], [-2, 0], [-2, 0], [-6, 0]]),
        ("batch", group_max, [[-9, -7], [-2, 0], [-5, -3], [-6, 0]]),
        # what is subtracted is the node's own, however they are pooled
        ("node", greedy_return, [[-1.5, 0.5], [1, 3], [-0.5, 1.5], [3, 9]]),
        ("batch", greedy_return, [[-1.5, 0.5], [1, 3], [-0.5, 1.5], [3, 9]]),
        ("batch", no_baseline, [[0, 2], [5, 7], [4, 6], [3, 9]]),
    ],
)
def test_advantages_by_hand(group_by: GroupBy, baseline, expected: list[list[float]]) -> None:
    groups, without = advantage_groups(
        CREDITED, baseline=baseline, normalize=False, group_by=group_by
    )
    assert not without
    assert [(each.agent, each.turn) for each in groups] == [("a", 1), ("b", 1), ("a", 1), ("a", 2)]
    for each, own, credited in zip(groups, expected, CREDITED, strict=True):
        assert each.advantages == pytest.approx(own)
        assert each.completions == credited.completions


def test_a_pool_has_one_standard_deviation() -> None:
    # of 0, 2, 4, 6: ((9 + 1 + 1 + 9) / 4) ** 0.5; of 0, 2, 4, 6, 3, 9: (50 / 6) ** 0.5
    for group_by, first in {"node": [-1, 1], "turn": [-3 / 5**0.5, -1 / 5**0.5]}.items():
        groups, _ = advantage_groups(
            CREDITED, baseline=group_mean, normalize=True, group_by=group_by
        )
        assert groups[0].advantages == pytest.approx(first)
    groups, _ = advantage_groups(CREDITED, baseline=group_mean, normalize=True, group_by="batch")
    assert groups[3].advantages == pytest.approx([-1 / (50 / 6) ** 0.5, 5 / (50 / 6) ** 0.5])


# siblings of a earn the same, but not all that it says at turn 1, and not what it says at turn 2
EQUAL = [group("a", 1, 1.0, 1.0), group("a", 1, 3.0, 3.0), group("a", 2, 2.0, 2.0)]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(
    ("group_by", "trained"), [("node", []), ("turn", [(-1, -1), (1, 1)]), ("batch", None)]
)
def test_pools_without_spread_say_nothing(
    group_by: GroupBy, trained: list[tuple[float, float]] | None, normalize: bool
) -> None:
    groups, without = advantage_groups(
        EQUAL, baseline=group_mean, normalize=normalize, group_by=group_by
    )
    if trained is None:  # the mean of all is 2: the last group's advantages are 0, and it stays
        assert [each.advantages[0] for each in groups] == pytest.approx(
            [-((3 / 2) ** 0.5), (3 / 2) ** 0.5, 0] if normalize else [-1, 1, 0]
        )
        assert not without
    else:
        assert [each.advantages for each in groups] == trained
        assert [each.advantages for each in without] == [(0.0, 0.0)] * (3 - len(trained))
    for each in (group("b", 1, 1.0, 1.0), group("b", 2, 1.0, 1.0)):
        same, none = advantage_groups(
            [group("b", each.turn, 1.0, 1.0), each],
            baseline=group_mean,
            normalize=normalize,
            group_by=group_by,
        )
        assert (len(same), len(none)) == (0, 2)


def test_groups_of_a_rollout_with_and_without_spread() -> None:
    two = tuple(Completion(str(i), (1,), (i,), (-0.1,)) for i in (2, 3))
    node = Node(
        row=0,
        turn=1,
        observations={"a": "", "b": ""},
        completions={"a": two, "b": two[::-1]},
        joint_actions=((0, 0), (1, 1)),
        rewards={"a": (1.0, 3.0), "b": (2.0, 2.0)},
        ended=(True, True),
        children=(None, None),
        turns_credited=(1, 1),
        greedy_rewards={"a": (1.5,), "b": (2.0,)},
    )
    rollout = Rollout(("a", "b"), ((node,),))
    returns = rollout_returns(rollout, 1.0)
    credited = credited_completions(rollout, returns, ["a", "b"])
    groups, without = advantage_groups(credited, baseline=group_mean, normalize=False)
    assert groups == [Group("a", 1, two, (-1.0, 1.0))]
    assert without == [Group("b", 1, two[::-1], (0.0, 0.0))]
    by_agent = {agent: own.tolist() for agent, own in returns_by_agent(credited).items()}
    assert by_agent == {"a": [1.0, 3.0], "b": [2.0, 2.0]}
    only = credited_completions(rollout, returns, ["a"], rollout_greedy_returns(rollout, 1.0))
    groups, without = advantage_groups(only, baseline=greedy_return, normalize=False)
    assert (groups, without) == ([Group("a", 1, two, (-0.5, 1.5))], [])
    with pytest.raises(ValueError, match="pass those of rollout_greedy_returns"):
        advantage_groups(credited, baseline=greedy_return, normalize=False)


def test_a_baseline_of_ones_own_is_told_whose_completions_they_are() -> None:
    def by_name(returns: torch.Tensor, agent: str) -> torch.Tensor:
        return returns - {"a": 1.0, "b": 2.0}[agent]

    groups, _ = advantage_groups(CREDITED, baseline=by_name, normalize=False, group_by="batch")
    assert [each.advantages for each in groups] == [(-1, 1), (3, 5), (3, 5), (2, 8)]
