"""Returns of a tree, and the credit of a completion.

Pure functions of tensors, after MAGRPO (Liu et al. 2025, arXiv 2508.04652, section 4). The peer's
sum over a completion's joint actions is a mean here: its scale would grow with G otherwise.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from motet.agents import Completion
from motet.algos.rollouts.rollout import Node, Rollout


def joint_returns(rewards: Tensor, child_values: Tensor, discount: float) -> Tensor:
    """Return R_j = r_j + discount * V(child of j).

    Args:
        rewards: (J,) rewards of the joint actions.
        child_values: (J,) mean return of each one's child, 0 where the episode ended.
        discount: weight of the next turn.

    Returns:
        (J,) returns.
    """
    _check_shapes(rewards=rewards, child_values=child_values)
    return rewards + discount * child_values


def credited_rewards(rewards: Tensor, turns: Tensor, discount: float) -> Tensor:
    """Return r_j * sum_{k < turns_j} discount^k: a reward that counts for several turns.

    Args:
        rewards: (J,) rewards of the joint actions.
        turns: (J,) how many turns each counts for, 1 for its own only.
        discount: weight of the next turn.

    Returns:
        (J,) rewards.
    """
    _check_shapes(rewards=rewards, turns=turns)
    times = [sum(discount**k for k in range(count)) for count in turns.tolist()]
    return rewards * torch.tensor(times, dtype=rewards.dtype)


def credit(returns: Tensor, choices: Tensor, num_generations: int) -> Tensor:
    """Return each completion's credit: the mean return of the joint actions that contain it.

    Args:
        returns: (J,) returns of the joint actions.
        choices: (J,) which completion of the agent is in each.
        num_generations: G.

    Returns:
        (G,) credits.
    """
    _check_shapes(returns=returns, choices=choices)
    totals = torch.zeros(num_generations, dtype=returns.dtype).index_add(0, choices, returns)
    return totals / torch.bincount(choices, minlength=num_generations)


def rollout_returns(
    rollout: Rollout,
    discount: float,
    costs: Mapping[str, Mapping[Completion, float]] | None = None,
) -> list[list[dict[str, Tensor]]]:
    """Return the returns of every joint action of a rollout.

    With costs, R_j = r_j - c(own completion in j) + discount * V(child of j): an agent pays for its
    own completions alone, each at its own turn, and its earlier turns see it by way of the child.
    A reward that counts for several turns does not multiply the cost.

    Args:
        rollout: the trees.
        discount: weight of the next turn.
        costs: by agent, what each of its completions takes from its return; None for nothing. An
            agent that is not in it pays nothing.

    Returns:
        By level, node and agent: (J,) float64 returns.
    """
    levels: list[list[dict[str, Tensor]]] = []
    below: list[dict[str, Tensor]] = []
    for level in reversed(rollout.levels):
        below = [
            {
                name: joint_returns(
                    credited_rewards(
                        torch.tensor(rewards, dtype=torch.float64),
                        torch.tensor(node.turns_credited),
                        discount,
                    )
                    - joint_costs(node, name, (costs or {}).get(name)),
                    _child_values(node, name, below),
                    discount,
                )
                for name, rewards in node.rewards.items()
            }
            for node in level
        ]
        levels.insert(0, below)
    return levels


def rollout_greedy_returns(rollout: Rollout, discount: float) -> list[list[dict[str, float]]]:
    """Return what the most likely joint completions earned from every node on.

    R = sum_k discount^k r_k over the turns k of the greedy episode from the node; a last reward
    that counts for several turns is added as in `credited_rewards`. A KL in the return is no part
    of it: greedy completions have no sampled token to measure it by.

    Args:
        rollout: the trees, collected with `greedy_baseline=True`.
        discount: weight of the next turn.

    Returns:
        By level, node and agent: the return.

    Raises:
        ValueError: where greedy completions were not collected.
    """
    return [
        [{name: _greedy_return(node, name, discount) for name in node.rewards} for node in level]
        for level in rollout.levels
    ]


def _greedy_return(node: Node, agent: str, discount: float) -> float:
    if agent not in node.greedy_rewards:
        raise ValueError(
            f"Expected a rollout with the rewards of greedy completions, got none for {agent} at "
            f"turn {node.turn} of row {node.row}; collect it with greedy_baseline=True."
        )
    rewards = node.greedy_rewards[agent]
    stayed = len(rewards) == max(map(len, node.greedy_rewards.values()))
    # the last reward once for each turn that it counts for; one who left had no part in it
    credited = (*rewards, *rewards[-1:] * (node.greedy_turns_credited - 1 if stayed else 0))
    return sum(discount**turn * reward for turn, reward in enumerate(credited))


def joint_costs(node: Node, agent: str, costs: Mapping[Completion, float] | None) -> Tensor:
    """Return (J,) what each joint action costs an agent, 0 for one that waits at the node.

    Args:
        node: where.
        agent: who pays, for its own completion alone.
        costs: what each of its completions costs; None for nothing.
    """
    if costs is None or agent not in node.completions:
        return torch.zeros(len(node.joint_actions), dtype=torch.float64)
    own = node.completions[agent]
    paid = [costs[own[choice]] for choice in node.choices(agent)]
    return torch.tensor(paid, dtype=torch.float64)


def _child_values(node: Node, agent: str, below: list[dict[str, Tensor]]) -> Tensor:
    """Return (J,) the mean return of each joint action's child, for one agent."""
    values = [
        0.0 if child is None or agent not in below[child] else float(below[child][agent].mean())
        for child in node.children
    ]
    return torch.tensor(values, dtype=torch.float64)


def _check_shapes(**tensors: Tensor) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(f"Expected {' and '.join(shapes)} of one shape, got {shapes}.")
