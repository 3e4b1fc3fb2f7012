"""From the returns of a rollout to groups of completions with advantages.

`group_by` says which completions of an agent are compared with one another: whose returns a
baseline sees side by side, and whose standard deviation normalised advantages are divided by.

| `group_by` | compared are the agent's completions | |
|---|---|---|
| "node" | to one prompt: siblings | the fewest, and no prompt is easier than another |
| "turn" | at the same turn, over all rows and branches | a prompt that all answer well is good |
| "batch" | of the whole rollout | turns too; returns of later turns have fewer rewards in them |

A pool whose returns do not differ says nothing, and none of its groups is trained. TRL's
`scale_rewards="batch"` is neither: it subtracts the mean of siblings and divides by the standard
deviation of all.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from motet.agents import Completion
from motet.algos.group.advantages import Baseline, group_advantages, seen_by
from motet.algos.rollouts.returns import credit
from motet.algos.rollouts.rollout import Rollout
from motet.algos.updates.batch import Group

GroupBy = Literal["node", "turn", "batch"]


@dataclass(frozen=True, slots=True)
class Credited:
    """The G completions of one agent at one node, by what they are credited.

    Attributes:
        agent: whose they are.
        turn: turn of the node.
        completions: (G,).
        returns: (G,) float64.
        greedy_return: of the most likely joint completion at the node; None where not asked for.
    """

    agent: str
    turn: int
    completions: tuple[Completion, ...]
    returns: Tensor
    greedy_return: float | None = None


def credited_completions(
    rollout: Rollout,
    returns: Sequence[Sequence[Mapping[str, Tensor]]],
    agents: Sequence[str],
    greedy_returns: Sequence[Sequence[Mapping[str, float]]] | None = None,
) -> list[Credited]:
    """Return what completions are credited, level by level and node by node.

    Args:
        rollout: the trees.
        returns: (J,) returns by level, node and agent, from `rollout_returns`.
        agents: whose completions to return.
        greedy_returns: by level, node and agent, from `rollout_greedy_returns`.
    """
    found = []
    for depth, level in enumerate(rollout.levels):
        for index, node in enumerate(level):
            for agent, completions in node.completions.items():
                if agent in agents:
                    own = returns[depth][index][agent]
                    choices = torch.tensor(node.choices(agent))
                    found.append(
                        Credited(
                            agent,
                            node.turn,
                            completions,
                            credit(own, choices, len(completions)),
                            None if greedy_returns is None else greedy_returns[depth][index][agent],
                        )
                    )
    return found


def advantage_groups(
    credited: Sequence[Credited],
    *,
    baseline: Baseline,
    normalize: bool,
    group_by: GroupBy = "node",
) -> tuple[list[Group], list[Group]]:
    """Return the groups that have an advantage, and those that do not.

    Args:
        credited: completions by agent and node.
        baseline: what is subtracted from the returns of a pool.
        normalize: whether to divide by the pool's standard deviation.
        group_by: which completions make a pool; see the module.

    Returns:
        Groups with advantages, in the order of `credited`, and the groups of pools without spread,
        whose advantages are 0.

    Raises:
        ValueError: where the baseline asks for greedy returns and there are none.
    """
    seen = seen_by(baseline)
    pools: dict[tuple[str | int, ...], list[int]] = {}
    for index, each in enumerate(credited):
        key = {"node": (index,), "turn": (each.agent, each.turn), "batch": (each.agent,)}[group_by]
        pools.setdefault(key, []).append(index)
    found: dict[int, list[float]] = {}
    for indices in pools.values():
        pool = [credited[index] for index in indices]
        returns = torch.cat([each.returns for each in pool])
        told = _told(baseline, seen, pool)
        advantages = group_advantages(returns, told, normalize=normalize)
        if advantages is not None:
            left = iter(advantages.tolist())
            for index, each in zip(indices, pool, strict=True):
                found[index] = list(itertools.islice(left, len(each.completions)))
    groups: list[Group] = []
    without: list[Group] = []
    for index, each in enumerate(credited):
        known = found.get(index, [0.0] * len(each.completions))
        group = Group(each.agent, each.turn, each.completions, tuple(known))
        (groups if index in found else without).append(group)
    return groups, without


def returns_by_agent(credited: Sequence[Credited]) -> dict[str, Tensor]:
    """Return the (K,) returns of all of an agent's completions, by agent."""
    by_agent: dict[str, list[Tensor]] = {}
    for each in credited:
        by_agent.setdefault(each.agent, []).append(each.returns)
    return {agent: torch.cat(own) for agent, own in by_agent.items()}


def _told(baseline: Baseline, seen: frozenset[str], pool: Sequence[Credited]) -> Baseline:
    """Return the baseline as a function of returns alone."""
    known: dict[str, object] = {"agent": pool[0].agent}
    if "greedy_returns" in seen:
        known["greedy_returns"] = torch.cat([_greedy_returns(each) for each in pool])
    return functools.partial(baseline, **{name: known[name] for name in seen})


def _greedy_returns(credited: Credited) -> Tensor:
    """Return (G,) the same greedy return for all completions of a node."""
    if credited.greedy_return is None:
        raise ValueError(
            "Expected greedy returns for a baseline that asks for them, got none; pass those of "
            "rollout_greedy_returns."
        )
    return torch.full_like(credited.returns, credited.greedy_return)
