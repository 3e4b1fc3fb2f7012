"""Go on with the best joint action of each node only: a greedy tree.

AT-GRPO samples trees of this kind (Zhao et al. 2025, arXiv 2510.11062), and a team that plays
best-of-n is one seen from its best branches. Of equally good ones it is the first. Best is what the
turn alone pays the team, the mean over its agents; what a branch would be worth later is not known
when it is chosen.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from motet.algos.rollouts.rollout import Node, Rollout

Live = TypeVar("Live")


def best_joint_action(node: Node) -> int:
    """Return which of a node's joint actions the turn pays most for, the first of equal ones."""
    team = np.mean([node.rewards[name] for name in node.rewards], axis=0)
    return int(np.argmax(team))


def only_best(
    nodes: Sequence[Node], following: Sequence[Live]
) -> tuple[tuple[Node, ...], list[Live]]:
    """Drop what follows on any but the best joint action.

    Args:
        nodes: of one turn.
        following: what their `children` are indices into.

    Returns:
        Both, with the children of the others None, also where their episodes have not ended.
    """
    kept: list[Live] = []
    pruned = []
    for node in nodes:
        best = best_joint_action(node)
        child = node.children[best]
        children: list[int | None] = [None] * len(node.children)
        if child is not None:
            children[best] = len(kept)
            kept.append(following[child])
        pruned.append(replace(node, children=tuple(children)))
    return tuple(pruned), kept


def best_chains(rollout: Rollout) -> Rollout:
    """Return the episodes that a greedy tree has played: chains of its best joint actions.

    Completions that were tried and not played are `drafts` of their nodes then.

    Args:
        rollout: whose nodes have no child but that of the best joint action.
    """
    levels = tuple(tuple(_played(node) for node in level) for level in rollout.levels)
    return Rollout(rollout.agents, levels)


def _played(node: Node) -> Node:
    if len(node.joint_actions) == 1:
        return node
    best = best_joint_action(node)
    picks = dict(zip(node.completions, node.joint_actions[best], strict=True))
    rejected = {
        name: tuple(completion for k, completion in enumerate(group) if k != picks[name])
        for name, group in node.completions.items()
    }
    return replace(
        node,
        completions={name: (node.completions[name][k],) for name, k in picks.items()},
        joint_actions=((0,) * len(picks),),
        rewards={name: (own[best],) for name, own in node.rewards.items()},
        ended=(node.ended[best],),
        children=(node.children[best],),
        turns_credited=(node.turns_credited[best],),
        drafts={name: (*node.drafts.get(name, ()), *group) for name, group in rejected.items()},
    )
