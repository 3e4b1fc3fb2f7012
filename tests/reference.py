"""The slow truth: one sequence at a time, one token at a time, written from the definitions.

Nothing here is shared with the library's fast paths, and nothing is clever.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from transformers import PreTrainedModel

from motet.agents import Completion, GenerationConfig
from motet.algos import Node, Rollout


def distribution(logits: Tensor, generation: GenerationConfig) -> Tensor:
    """Log-probabilities (V,) after temperature, top-k and top-p, renormalised; by full sort."""
    scaled = logits.float() / generation.temperature
    order = torch.argsort(scaled, descending=True)
    allowed = order.tolist()
    if generation.top_k is not None:
        allowed = allowed[: generation.top_k]
    if generation.top_p is not None:
        probs = torch.softmax(scaled[allowed], -1).tolist()
        mass, kept = 0.0, []
        for token, prob in zip(allowed, probs, strict=True):
            if mass >= generation.top_p:
                break
            kept.append(token)
            mass += prob
        allowed = kept
    result = torch.full_like(scaled, -math.inf)
    result[allowed] = torch.log_softmax(scaled[allowed], -1)
    return result


def with_lora(
    model: PreTrainedModel, factors: dict[str, tuple[Tensor, Tensor]], scaling: float
) -> Callable[..., Any]:
    """A plain model that computes with W + scaling * B A, for (A, B) by the name of a layer."""

    def forward(**inputs: Tensor) -> Any:
        weights = {
            f"{name}.weight": model.get_submodule(name).weight.detach() + scaling * (b @ a)
            for name, (a, b) in factors.items()
        }
        return functional_call(model, weights, kwargs=inputs, tie_weights=False)

    return forward


def completion_log_prob(
    model: Callable[..., Any], completion: Completion, generation: GenerationConfig
) -> Tensor:
    """Sum of a completion's token log-probabilities: a forward pass per token, no padding."""
    total = torch.zeros(())
    seen = list(completion.prompt_ids)
    for token in completion.completion_ids:
        logits = model(input_ids=torch.tensor([seen])).logits[0, -1]
        total = total + distribution(logits, generation)[token]
        seen.append(token)
    return total


def node_return(
    rollout: Rollout, level: int, node: Node, agent: str, joint: int, discount: float
) -> float:
    """R_j by recursion over the tree."""
    value = sum(
        node.rewards[agent][joint] * discount**turn for turn in range(node.turns_credited[joint])
    )
    child = node.children[joint]
    if child is not None:
        below = rollout.levels[level + 1][child]
        branches = [
            node_return(rollout, level + 1, below, agent, j, discount)
            for j in range(len(below.joint_actions))
        ]
        value += discount * sum(branches) / len(branches)
    return value


def advantages(returns: Sequence[float], *, normalize: bool) -> list[float] | None:
    """MAGRPO's advantages of one group, None where the group has no spread."""
    mean = sum(returns) / len(returns)
    std = math.sqrt(sum((value - mean) ** 2 for value in returns) / len(returns))
    if std < 1e-9 * max(abs(value) for value in returns) or std == 0:
        return None
    return [(value - mean) / (std if normalize else 1.0) for value in returns]


def magrpo_loss(
    rollout: Rollout,
    models: dict[str, Callable[..., Any]],
    generation: GenerationConfig,
    *,
    discount: float = 1.0,
    normalize: bool = True,
) -> Tensor:
    """Sum over agents and turns of the mean over groups with spread of the group's mean loss."""
    total = torch.zeros(())
    for agent, (depth, level) in itertools.product(rollout.agents, enumerate(rollout.levels)):
        losses = []
        for node in level:
            own = node.completions[agent]
            returns = [
                node_return(rollout, depth, node, agent, j, discount)
                for j in range(len(node.joint_actions))
            ]
            position = list(node.completions).index(agent)
            credits = []
            for k in range(len(own)):
                mine = [
                    value
                    for value, joint in zip(returns, node.joint_actions, strict=True)
                    if joint[position] == k
                ]
                credits.append(sum(mine) / len(mine))
            weights = advantages(credits, normalize=normalize)
            if weights is None:
                continue
            terms = [
                -weight * completion_log_prob(models[agent], completion, generation)
                for weight, completion in zip(weights, own, strict=True)
            ]
            losses.append(sum(terms) / len(own))
        if losses:
            total = total + sum(losses) / len(losses)
    return total
