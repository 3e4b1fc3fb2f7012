"""A tree in a few numbers, by which a list of trees is sorted."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from motet.algos.metrics import team_rewards
from motet.algos.rollouts.rollout import Node, Rollout
from motet.algos.viewer.fates import sizes_below


def tree_summaries(
    rollout: Rollout, returns: Sequence[Sequence[Mapping[str, Any]]] | None
) -> list[dict[str, Any]]:
    """Return for each tree: `root` (its node's place in the rollout), and what it came to.

    `reward`: mean over all joint actions and agents. `low`, `high`: of its joint actions. `spread`:
    standard deviation of the returns of the first turn's joint actions, or of their rewards where
    returns are unknown. `length`: mean tokens of a completion, or characters where no agent wrote
    tokens; `actions`: joint actions in all; `turns`: of its longest branch.
    """
    if not rollout.levels:
        return []
    rewards = team_rewards(rollout)
    return [
        _summary(rollout, root, rewards, _first_values(rewards[0][root], returns, root))
        for root in range(len(rollout.levels[0]))
    ]


def _first_values(
    rewards: Sequence[float],
    returns: Sequence[Sequence[Mapping[str, Any]]] | None,
    root: int,
) -> Sequence[float]:
    if returns is None:
        return rewards
    own = [np.asarray(values) for values in returns[0][root].values()]
    return np.mean(own, axis=0).tolist() if own else rewards


def _summary(
    rollout: Rollout,
    root: int,
    rewards: Sequence[Sequence[Sequence[float]]],
    first: Sequence[float],
) -> dict[str, Any]:
    places = _places(rollout, root)
    paid = [reward for depth, index in places for reward in rewards[depth][index]]
    nodes = [rollout.levels[depth][index] for depth, index in places]
    return {
        "root": root,
        "reward": _rounded(np.mean(paid)) if paid else None,
        "low": _rounded(min(paid)) if paid else None,
        "high": _rounded(max(paid)) if paid else None,
        "spread": _rounded(np.std(first)) if len(first) else None,
        "length": _rounded(_mean_length(nodes)),
        "actions": sum(len(node.joint_actions) for node in nodes),
        "turns": 1 + max(depth for depth, _ in places),
    }


def _places(rollout: Rollout, root: int) -> list[tuple[int, int]]:
    """Return level and index of the nodes of one tree."""
    places, level = [], [root]
    for depth, (nodes, room) in enumerate(zip(rollout.levels, sizes_below(rollout), strict=True)):
        places += [(depth, index) for index in level]
        level = [
            child
            for index in level
            for child in nodes[index].children
            if child is not None and child < room
        ]
    return places


def _mean_length(nodes: Sequence[Node]) -> float:
    said = [each for node in nodes for group in node.completions.values() for each in group]
    tokens = [len(each.completion_ids) for each in said]
    lengths = tokens if any(tokens) else [len(each.text) for each in said]
    return float(np.mean(lengths)) if lengths else 0.0


def _rounded(value: Any) -> float:
    return float(f"{float(value):.6g}")
