"""Lambda-returns over trees: advantages over what a critic expected, and what it should have.

Pure functions, after "High-Dimensional Continuous Control Using Generalized Advantage Estimation"
(Schulman et al. 2015, arXiv 1506.02438, equation 16). At a node n with the value V(n), joint action
j earns r_j and leads to the child c_j:

    delta_j = r_j + discount * V(c_j) - V(n)
    A_j     = delta_j + discount * gae_lambda * mean_k A_k(c_j)

A completion's advantage is the mean over the joint actions that contain it (`returns.credit`), and
V(n) should have been V(n) + mean_j A_j. With one generation a tree is a chain, and this is the
paper's estimator; gae_lambda = 0 is the one-step temporal difference, gae_lambda = 1 the return
less the value.

How this departs from the paper:

1. Where an agent waits and nobody has judged the node for it, there is nothing to decide: the node
   passes on what it earned and what followed, and gae_lambda counts the agent's own turns.
2. Over tokens, the same runs on inside a completion: each token is a step without a reward but the
   last, which earns r_j and leads to the next turn. Tokens are not discounted, turns are.
3. An episode that a wrapper cut is over: what would have followed is not guessed.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from motet.agents import Completion
from motet.algos.rollouts.returns import credit, credited_rewards, joint_costs
from motet.algos.rollouts.rollout import Node, Rollout


class Place(NamedTuple):
    """An agent at a node.

    Attributes:
        level: of the node.
        node: its index in the level.
        agent: name.
    """

    level: int
    node: int
    agent: str


Values = Mapping[Place, tuple[Tensor, ...]]
"""What a critic says: one tensor (1,), the value of the node; over tokens (G,) tensors (T,), the
value before each token of each completion, the first of which is that of the node."""

# Returns that differ by less than this, relative to the largest of them, differ by rounding only.
_ROUNDING = 1e-9

Costs = Mapping[str, Mapping[Completion, float]]
"""By agent, what each of its completions takes from its return; see `returns.rollout_returns`."""


@dataclass(frozen=True, slots=True)
class Targets:
    """What an agent learns from at a node.

    Attributes:
        advantages: (G,) of its completions, each (1,), or (T,) over tokens; none where it waits.
        values: what the critic should have said, shaped as what it said.
    """

    advantages: tuple[Tensor, ...]
    values: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What an agent may expect at a node: the value, and the mean advantage over it."""

    value: float
    advantage: float


def joint_advantages(
    outcomes: Tensor, advantages_ahead: Tensor, value: float, gae_lambda: float
) -> Tensor:
    """Return A_j = (r_j + discount * V(c_j)) - V(n) + gae_lambda * (discount * mean_k A_k(c_j)).

    Args:
        outcomes: (J,) rewards with the discounted values of the children.
        advantages_ahead: (J,) discounted mean advantages of the children.
        value: V(n).
        gae_lambda: 0 trusts the critic from the next turn on, 1 not at all.

    Returns:
        (J,) advantages.
    """
    if outcomes.ndim != 1 or outcomes.shape != advantages_ahead.shape:
        raise ValueError(
            f"Expected outcomes and advantages ahead of one shape (J,), got "
            f"{tuple(outcomes.shape)} and {tuple(advantages_ahead.shape)}."
        )
    return outcomes - value + gae_lambda * advantages_ahead


def token_advantages(
    values: Tensor, outcome: float, advantage_ahead: float, gae_lambda: float
) -> Tensor:
    """Return A_t = V_{t+1} - V_t + gae_lambda * A_{t+1}, from the last token back.

    For the last token V_{t+1} is the outcome, and A_{t+1} the advantage ahead.

    Args:
        values: (T,) V_t before each token, T at least 1.
        outcome: reward of the completion with the discounted value of the next turn.
        advantage_ahead: discounted mean advantage of the next turn.
        gae_lambda: as in `joint_advantages`, once per token.

    Returns:
        (T,) advantages.
    """
    if values.ndim != 1 or not len(values):
        raise ValueError(
            f"Expected values of shape (T,), of one token or more, got {tuple(values.shape)}."
        )
    ahead = torch.cat([values[1:], values.new_tensor([outcome])])
    advantages = ahead - values
    following = advantage_ahead
    for t in reversed(range(len(values))):
        following = float(advantages[t]) + gae_lambda * following
        advantages[t] = following
    return advantages


def tree_targets(
    rollout: Rollout,
    values: Values,
    *,
    discount: float,
    gae_lambda: float,
    token_level: bool = False,
    costs: Costs | None = None,
) -> dict[Place, Targets]:
    """Return what each agent that was judged at a node learns from there.

    Args:
        rollout: the trees.
        values: what the critic said, in the unit of rewards, of agents that act or wait; those
            that it did not judge are passed over.
        discount: weight of the next turn.
        gae_lambda: from 0, the one-step temporal difference, to 1, the whole return.
        token_level: whether values are of tokens.
        costs: what completions take from their agent's return; None for nothing.

    Returns:
        Float64 targets by place, for those in `values` and in their order.

    Raises:
        ValueError: where values are shaped otherwise than their node.
    """
    targets: dict[Place, Targets] = {}
    below: list[dict[str, _Ahead]] = []
    find = _token_targets if token_level else _turn_targets
    for depth in reversed(range(len(rollout.levels))):
        ahead: list[dict[str, _Ahead]] = []
        for index, node in enumerate(rollout.levels[depth]):
            ahead.append({})
            for agent in node.rewards:
                outcomes, later = _outcomes(node, agent, below, discount, (costs or {}).get(agent))
                place = Place(depth, index, agent)
                if place not in values:
                    # there is no value to compare with, and no step to weigh down
                    ahead[-1][agent] = _Ahead(float(outcomes.mean()), float(later.mean()))
                    continue
                own = tuple(tensor.to(torch.float64) for tensor in values[place])
                targets[place], ahead[-1][agent] = find(
                    node, agent, own, outcomes, later, gae_lambda
                )
        below = ahead
    return {place: targets[place] for place in values}


def standardized(advantages: Sequence[Tensor]) -> list[Tensor]:
    """Return advantages less their mean, over their population standard deviation.

    PPO's implementations do so. Where they do not differ, as one alone, there is no spread to
    divide by, and they are returned as they are.

    Args:
        advantages: tensors of any length, of one agent.
    """
    if not advantages:
        return []
    every = torch.cat(list(advantages))
    std = float(every.std(correction=0))
    if std <= torch.finfo(every.dtype).eps * float(every.abs().max()):
        return list(advantages)
    return [(own - every.mean()) / std for own in advantages]


def without_spread(
    rollout: Rollout, returns: Sequence[Sequence[Mapping[str, Tensor]]]
) -> frozenset[str]:
    """Return the agents of whose completions none earned more than another of its turn.

    What is left of their advantages is how the critic's guesses differ between prompts: dividing
    them by their standard deviation would make that as large as any news. An agent with one
    completion at each turn is not among them, as it has none to compare.

    Args:
        rollout: the trees.
        returns: (J,) by level, node and agent, from `returns.rollout_returns`.
    """
    pools: dict[tuple[str, int], list[float]] = defaultdict(list)
    for level, level_returns in zip(rollout.levels, returns, strict=True):
        for node, own in zip(level, level_returns, strict=True):
            for agent, completions in node.completions.items():
                choices = torch.tensor(node.choices(agent))
                credits = credit(own[agent], choices, len(completions))
                pools[agent, node.turn].extend(credits.tolist())
    found = {agent for (agent, _), pool in pools.items() if len(pool) > 1}
    for (agent, _), pool in pools.items():
        if max(pool) - min(pool) > _ROUNDING * max(map(abs, pool)):
            found.discard(agent)
    return frozenset(found)


def _outcomes(
    node: Node,
    agent: str,
    below: Sequence[Mapping[str, _Ahead]],
    discount: float,
    costs: Mapping[Completion, float] | None,
) -> tuple[Tensor, Tensor]:
    """Return (J,) what each joint action earned and leads to, and (J,) the advantage there."""
    nothing = _Ahead(0.0, 0.0)
    ahead = [
        nothing if child is None else below[child].get(agent, nothing) for child in node.children
    ]
    earned = credited_rewards(
        torch.tensor(node.rewards[agent], dtype=torch.float64),
        torch.tensor(node.turns_credited),
        discount,
    )
    values = torch.tensor([each.value for each in ahead], dtype=torch.float64)
    advantages = torch.tensor([each.advantage for each in ahead], dtype=torch.float64)
    return earned - joint_costs(node, agent, costs) + discount * values, discount * advantages


def _turn_targets(
    node: Node,
    agent: str,
    values: tuple[Tensor, ...],
    outcomes: Tensor,
    later: Tensor,
    gae_lambda: float,
) -> tuple[Targets, _Ahead]:
    if [tuple(tensor.shape) for tensor in values] != [(1,)]:
        raise ValueError(
            f"Expected one value of shape (1,) for {agent} at a node, got "
            f"{[tuple(tensor.shape) for tensor in values]}."
        )
    value = float(values[0])
    advantages = joint_advantages(outcomes, later, value, gae_lambda)
    own: tuple[Tensor, ...] = ()
    if agent in node.completions:
        choices = torch.tensor(node.choices(agent))
        own = torch.split(credit(advantages, choices, len(node.completions[agent])), 1)
    mean = advantages.mean()
    return Targets(own, (values[0] + mean,)), _Ahead(value, float(mean))


def _token_targets(
    node: Node,
    agent: str,
    values: tuple[Tensor, ...],
    outcomes: Tensor,
    later: Tensor,
    gae_lambda: float,
) -> tuple[Targets, _Ahead]:
    lengths = [len(completion.completion_ids) for completion in node.completions.get(agent, ())]
    if [tuple(tensor.shape) for tensor in values] != [(length,) for length in lengths]:
        raise ValueError(
            f"Expected values for the tokens of {agent}'s completions, of lengths {lengths}, got "
            f"{[tuple(tensor.shape) for tensor in values]}."
        )
    choices = torch.tensor(node.choices(agent))
    earned = credit(outcomes, choices, len(lengths)).tolist()
    ahead = credit(later, choices, len(lengths)).tolist()
    advantages = tuple(
        token_advantages(own, outcome, advantage, gae_lambda)
        for own, outcome, advantage in zip(values, earned, ahead, strict=True)
    )
    targets = tuple(own + extra for own, extra in zip(values, advantages, strict=True))
    value = sum(float(own[0]) for own in values) / len(values)
    advantage = sum(float(own[0]) for own in advantages) / len(values)
    return Targets(advantages, targets), _Ahead(value, advantage)
