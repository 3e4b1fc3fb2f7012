"""Pairs of siblings and losses of margins: numbers by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motet.agents import Completion
from motet.algos import Node, Rollout
from motet.algos.preferences.pairs import (
    joint_completions,
    rollout_preferences,
    select_pairs,
    teams,
    turn_rewards,
)
from motet.algos.preferences.preference_losses import (
    bradley_terry_loss,
    dpo_loss,
    ipo_loss,
    margin_gradients,
)
from motet.algos.rollouts.returns import rollout_returns

VALUES = torch.tensor([3.0, 0.0, 5.0, 1.0, 2.0], dtype=torch.float64)


def test_disjoint_pairs_by_hand() -> None:
    # in order: 5 (2), 3 (0), 2 (4), 1 (3), 0 (1); the one in the middle has no partner
    assert select_pairs(VALUES) == [(2, 1), (0, 3)]
    assert select_pairs(VALUES, pairs_per_group=1) == [(2, 1)]


def test_pairs_by_gap_by_hand() -> None:
    # gaps: 5-0, 5-1, 3-0 and 5-2, ...; of equal gaps the better ones come first
    pairs = select_pairs(VALUES, "reward_gap")
    assert pairs[:4] == [(2, 1), (2, 3), (2, 4), (0, 1)]
    assert len(pairs) == 10
    assert select_pairs(VALUES, "reward_gap", 2) == [(2, 1), (2, 3)]


def test_ties_make_no_pair() -> None:
    # 1, 1 | 1, 0: best with worst is 1 over 0, then 1 with 1
    assert select_pairs(torch.tensor([1.0, 1.0, 0.0, 1.0])) == [(0, 2)]
    assert select_pairs(torch.ones(4), "reward_gap") == []
    last_bit = math.nextafter(0.1, 1)
    assert select_pairs(torch.tensor([0.1, last_bit], dtype=torch.float64)) == []
    assert select_pairs(torch.zeros(0)) == []


@given(st.lists(st.integers(0, 4), max_size=9), st.sampled_from(["disjoint", "random"]))
def test_without_overlap_each_is_in_one_pair_at_most_and_the_better_one_is_first(
    values: list[int], selection: str
) -> None:
    worth = torch.tensor(values, dtype=torch.float64)
    pairs = select_pairs(worth, selection, rng=np.random.default_rng(len(values)))
    members = [index for pair in pairs for index in pair]
    assert len(members) == len(set(members))
    assert all(values[better] > values[worse] for better, worse in pairs)


def test_random_pairs_come_from_the_generator() -> None:
    worth = torch.arange(8.0)
    drawn = [select_pairs(worth, "random", rng=np.random.default_rng(s)) for s in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == 4
    with pytest.raises(ValueError, match="rng= for random pairs"):
        select_pairs(worth, "random")
    with pytest.raises(ValueError, match=r"shape \(J,\)"):
        select_pairs(worth[None])


def says(text: str) -> Completion:
    return Completion(text, (1,), (len(text) + 1,), (-1.0,))


def node(
    turn: int, rewards: dict[str, tuple[float, ...]], children: tuple[int | None, ...]
) -> Node:
    size = len(children)
    return Node(
        row=0,
        turn=turn,
        observations={"a": "p", "b": "q"},
        completions={
            "a": tuple(says(f"a{turn}{k}") for k in range(size)),
            "b": tuple(says(f"b{turn}{k}") for k in range(size)),
        },
        joint_actions=tuple((k, size - 1 - k) for k in range(size)),
        rewards=rewards,
        ended=tuple(child is None for child in children),
        children=children,
        turns_credited=(1,) * size,
    )


def both(*values: float) -> dict[str, tuple[float, ...]]:
    return {"a": values, "b": values}


def tree() -> Rollout:
    root = node(1, both(1.0, 0.0, 0.5), (None, 0, None))
    return Rollout(("a", "b"), ((root,), (node(2, both(3.0, 1.0), (None, None)),)))


def test_returns_and_rewards_of_a_turn_prefer_differently() -> None:
    rollout = tree()
    # 0 + mean(3, 1) = 2 against 0.5
    by_return = rollout_preferences(rollout, rollout_returns(rollout, 1.0), rollout.agents)
    found = [(each.node.turn, each.chosen, each.rejected, each.gap) for each in by_return]
    assert found == [(1, 1, 2, 1.5), (2, 0, 1, 2.0)]
    # 1 against 0
    by_reward = rollout_preferences(rollout, turn_rewards(rollout), rollout.agents)
    found = [(each.node.turn, each.chosen, each.rejected, each.gap) for each in by_reward]
    assert found == [(1, 0, 1, 1.0), (2, 0, 1, 2.0)]
    assert all(each.agents == ("a", "b") for each in by_return)


def test_a_joint_action_is_who_wrote_what() -> None:
    root = tree().levels[0][0]
    texts = {name: each.text for name, each in joint_completions(root, 2).items()}
    assert texts == {"a": "a12", "b": "b10"}


def test_agents_rewarded_differently_have_preferences_of_their_own() -> None:
    root = node(1, {"a": (1.0, 0.0), "b": (0.0, 1.0), "c": (1.0, 0.0)}, (None, None))
    rollout = Rollout(("a", "b", "c"), ((root,),))
    values = turn_rewards(rollout)
    assert teams(values, rollout.agents) == [("a", "c"), ("b",)]
    found = rollout_preferences(rollout, values, rollout.agents)
    assert [(each.agents, each.chosen) for each in found] == [(("a", "c"), 0), (("b",), 1)]


def test_equal_at_one_node_is_no_team_and_who_has_left_prefers_nothing() -> None:
    root = node(1, {"a": (1.0, 0.0), "b": (1.0, 0.0), "c": (1.0, 0.0)}, (0, None))
    leaf = node(2, {"a": (1.0, 0.0), "b": (0.0, 1.0)}, (None, None))
    rollout = Rollout(("a", "b", "c"), ((root,), (leaf,)))
    values = turn_rewards(rollout)
    assert teams(values, rollout.agents) == [("a",), ("b",), ("c",)]
    found = rollout_preferences(rollout, values, rollout.agents)
    assert [(each.node.turn, each.agents) for each in found] == [
        (1, ("a",)), (1, ("b",)), (1, ("c",)), (2, ("a",)), (2, ("b",)),
    ]  # fmt: skip


# --- losses ---------------------------------------------------------------------------------------

MARGINS = torch.tensor([0.0, math.log(3), -math.log(3)], dtype=torch.float64)


def test_losses_by_hand() -> None:
    # sigmoid(log 3) = 3/4, sigmoid(-log 3) = 1/4
    quarters = [math.log(2), math.log(4 / 3), math.log(4)]
    assert bradley_terry_loss(MARGINS).tolist() == pytest.approx(quarters)
    assert dpo_loss(MARGINS / 0.1, 0.1).tolist() == pytest.approx(quarters)
    mixed = [
        math.log(2),
        0.8 * quarters[1] + 0.2 * quarters[2],
        0.8 * quarters[2] + 0.2 * quarters[1],
    ]
    assert dpo_loss(MARGINS / 0.1, 0.1, 0.2).tolist() == pytest.approx(mixed)
    # (m - 1 / (2 * 0.25))^2
    goals = [4.0, (math.log(3) - 2) ** 2, (math.log(3) + 2) ** 2]
    assert ipo_loss(MARGINS, 0.25).tolist() == pytest.approx(goals)
    with pytest.raises(ValueError, match=r"shape \(P,\)"):
        dpo_loss(MARGINS[None], 0.1)


def test_derivatives_by_hand() -> None:
    margins = MARGINS.clone().requires_grad_()
    # -beta sigmoid(-beta m)
    slopes = margin_gradients(dpo_loss(margins, 1.0), margins)
    assert slopes.tolist() == pytest.approx([-0.5, -0.25, -0.75])
    slopes = margin_gradients(ipo_loss(margins, 0.5), margins)
    assert slopes.tolist() == pytest.approx([-2.0, 2 * math.log(3) - 2, -2 * math.log(3) - 2])


def test_a_margin_far_off_keeps_its_gradient() -> None:
    margins = torch.tensor([-1e5, 1e5], dtype=torch.float64, requires_grad=True)
    losses = dpo_loss(margins, 1.0)
    assert losses.tolist() == pytest.approx([1e5, 0.0])
    assert margin_gradients(losses, margins).tolist() == pytest.approx([-1.0, 0.0])
