"""Preferences among siblings: which of two joint actions from one state was worth more.

All joint actions at a node of a rollout answer the same prompts, so that any two of them can be
compared. Pure functions; whoever learns from preferences (`motet.algos.preferences.madpo`,
`motet.algos.preferences.marlhf`) gets them here, from rollouts of the policy as it is.

By default a joint action is in one pair at most: the best with the worst, the second best with the
second worst, and so on. Pairs that are cut from all ordered pairs by their gap would show the same
few joint actions again and again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from motet.agents import Completion
from motet.algos.rollouts.rollout import Node, Rollout

PairSelection = Literal["disjoint", "random", "reward_gap"]

Values = Sequence[Sequence[Mapping[str, Tensor]]]
"""By level, node and agent: (J,) what the joint actions are compared by."""

# Values that differ by less than this, relative to the largest of them, differ by rounding only.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Preference:
    """Two joint actions of one node, one of which was worth more to some agents.

    Attributes:
        node: whose joint actions they are.
        agents: to whom it was: all agents that were worth the same throughout the rollout.
        chosen: index of the better joint action.
        rejected: index of the worse one.
        gap: by how much it was better, above 0.
    """

    node: Node
    agents: tuple[str, ...]
    chosen: int
    rejected: int
    gap: float


def joint_completions(node: Node, joint: int) -> dict[str, Completion]:
    """Return who wrote what in a joint action of a node."""
    choices = zip(node.completions.items(), node.joint_actions[joint], strict=True)
    return {name: group[choice] for (name, group), choice in choices}


def select_pairs(
    values: Tensor,
    selection: PairSelection = "disjoint",
    pairs_per_group: int | None = None,
    rng: np.random.Generator | None = None,
) -> list[tuple[int, int]]:
    """Return pairs of a group, the better one first. Ties, up to rounding, make no pair.

    Args:
        values: (J,) what each joint action is worth.
        selection: "disjoint" pairs the best with the worst, the second best with the second worst,
            and so on. "random" pairs at random, each in one pair at most. "reward_gap" takes all
            pairs there are, those of the widest gap first; a joint action may be in many.
        pairs_per_group: at most so many, the first ones; None for all.
        rng: for "random", which needs one.

    Returns:
        Indices (better, worse). Of values that are equal the first counts as the better one, so
        that the result is the same each time.
    """
    if values.ndim != 1:
        raise ValueError(f"Expected values of shape (J,), got {tuple(values.shape)}.")
    worth: list[float] = values.tolist()
    count = len(worth)
    if selection == "random":
        if rng is None:
            raise ValueError("Expected rng= for random pairs, got None.")
        order = rng.permutation(count).tolist()
        pairs = list(zip(order[: count // 2], order[count // 2 :], strict=False))
    else:
        order = sorted(range(count), key=lambda index: -worth[index])
        if selection == "disjoint":
            pairs = [(order[i], order[count - 1 - i]) for i in range(count // 2)]
        else:
            pairs = [(w, r) for i, w in enumerate(order) for r in order[i + 1 :]]
            pairs.sort(key=lambda pair: worth[pair[1]] - worth[pair[0]])
    pairs = [(a, b) if worth[a] >= worth[b] else (b, a) for a, b in pairs]
    rounding = _ROUNDING * max(map(abs, worth), default=0.0)
    return [(a, b) for a, b in pairs if worth[a] - worth[b] > rounding][:pairs_per_group]


def teams(values: Values, agents: Sequence[str]) -> list[tuple[str, ...]]:
    """Return who wants the same: agents whose values are equal at all nodes.

    Args:
        values: of a rollout.
        agents: whom to divide.

    Returns:
        Each agent in one team, in their order. Where rewards are shared there is one, but for
        agents that leave earlier than others.
    """
    nodes = [node for level in values for node in level]
    members: dict[tuple[tuple[float, ...] | None, ...], list[str]] = {}
    for name in agents:
        worth = tuple(tuple(own[name].tolist()) if name in own else None for own in nodes)
        members.setdefault(worth, []).append(name)
    return [tuple(names) for names in members.values()]


def rollout_preferences(
    rollout: Rollout,
    values: Values,
    agents: Sequence[str],
    *,
    selection: PairSelection = "disjoint",
    pairs_per_group: int | None = None,
    rng: np.random.Generator | None = None,
) -> list[Preference]:
    """Return the preferences of all teams at all nodes of a rollout.

    Args:
        rollout: the trees.
        values: what the joint actions are compared by: returns, from `rollout_returns`, or rewards,
            from `turn_rewards`.
        agents: whose preferences.
        selection: see `select_pairs`.
        pairs_per_group: see `select_pairs`; of each team at each node.
        rng: see `select_pairs`.

    Returns:
        Preferences, level by level.
    """
    sides = teams(values, agents)
    found = []
    for level, level_values in zip(rollout.levels, values, strict=True):
        for node, own in zip(level, level_values, strict=True):
            for side in sides:
                if side[0] not in own:
                    continue  # they have left
                worth = own[side[0]]
                for chosen, rejected in select_pairs(worth, selection, pairs_per_group, rng):
                    gap = float(worth[chosen] - worth[rejected])
                    found.append(Preference(node, side, chosen, rejected, gap))
    return found


def turn_rewards(rollout: Rollout) -> list[list[dict[str, Tensor]]]:
    """Return the rewards of each turn alone, by level, node and agent: (J,) float64."""
    return [
        [
            {name: torch.tensor(own, dtype=torch.float64) for name, own in node.rewards.items()}
            for node in level
        ]
        for level in rollout.levels
    ]
