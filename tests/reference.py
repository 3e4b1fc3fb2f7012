"""The slow truth: one sequence at a time, one token at a time, written from the definitions.

Nothing here is shared with the library's fast paths, and nothing is clever.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
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


def token_log_prob(logits: Tensor, token: int, generation: GenerationConfig) -> Tensor:
    """Log-probability of one token (): that of `distribution`, the token being counted in."""
    allowed = distribution(logits.detach(), generation).isfinite()
    allowed[token] = True
    scaled = logits.float() / generation.temperature
    return scaled[token] - torch.logsumexp(scaled[allowed], -1)


def completion_log_probs(
    model: PreTrainedModel, completion: Completion, generation: GenerationConfig
) -> list[Tensor]:
    """A completion's token log-probabilities: a forward pass per token, no padding."""
    log_probs = []
    seen = list(completion.prompt_ids)
    for token in completion.completion_ids:
        logits = model(input_ids=torch.tensor([seen])).logits[0, -1]
        log_probs.append(token_log_prob(logits, token, generation))
        seen.append(token)
    return log_probs


def completion_log_prob(
    model: PreTrainedModel, completion: Completion, generation: GenerationConfig
) -> Tensor:
    """Sum of a completion's token log-probabilities."""
    return sum(completion_log_probs(model, completion, generation), torch.zeros(()))


def node_return(
    rollout: Rollout, level: int, node: Node, agent: str, joint: int, discount: float
) -> float:
    """R_j by recursion over the tree."""
    value = sum(
        node.rewards[agent][joint] * discount**turn for turn in range(node.turns_credited[joint])
    )
    child = node.children[joint]
    below = None if child is None else rollout.levels[level + 1][child]
    if below is not None and agent in below.rewards:
        branches = [
            node_return(rollout, level + 1, below, agent, j, discount)
            for j in range(len(below.joint_actions))
        ]
        value += discount * sum(branches) / len(branches)
    return value


def advantages(
    returns: Sequence[float], *, normalize: bool, baseline: str = "mean"
) -> list[float] | None:
    """Advantages of one group, None where it says nothing; a difference by rounding is none."""
    mean = sum(returns) / len(returns)
    std = math.sqrt(sum((value - mean) ** 2 for value in returns) / len(returns))
    subtracted = {
        "mean": [mean] * len(returns),
        "mean of the others": [
            sum(returns[:k] + returns[k + 1 :]) / max(len(returns) - 1, 1)
            for k in range(len(returns))
        ],
        "nothing": [0.0] * len(returns),
    }[baseline]
    plain = [value - base for value, base in zip(returns, subtracted, strict=True)]
    told = std if normalize else max(map(abs, plain))
    if told == 0 or told < 1e-9 * max(map(abs, returns)):
        return None
    return [value / (std if normalize else 1.0) for value in plain]


def credits(node: Node, agent: str, returns: Sequence[float]) -> list[float]:
    """Each own completion's mean return over the joint actions that contain it."""
    position = list(node.completions).index(agent)
    means = []
    for k in range(len(node.completions[agent])):
        mine = [
            value
            for value, joint in zip(returns, node.joint_actions, strict=True)
            if joint[position] == k
        ]
        means.append(sum(mine) / len(mine))
    return means


def token_loss(
    log_prob: Tensor, old_log_prob: float, advantage: float, clip_range: float | None
) -> Tensor:
    """REINFORCE's -A log pi, or PPO's -min(rho A, clip(rho) A)."""
    if clip_range is None:
        return -advantage * log_prob
    ratio = torch.exp(log_prob - old_log_prob)
    return -torch.minimum(
        ratio * advantage, torch.clamp(ratio, 1 - clip_range, 1 + clip_range) * advantage
    )


def turn_loss(
    groups: Sequence[Sequence[Sequence[Tensor]]], loss_type: str, max_new_tokens: int
) -> Tensor:
    """An agent's loss at a turn, from the losses of tokens by group and completion."""
    if loss_type == "token_mean":
        tokens = [token for group in groups for completion in group for token in completion]
        return sum(tokens, torch.zeros(())) / max(len(tokens), 1)
    means = []
    for group in groups:
        losses = []
        for completion in group:
            total = sum(completion, torch.zeros(()))
            if loss_type == "sequence_mean":
                total = total / max(len(completion), 1)
            if loss_type == "constant":
                total = total / max_new_tokens
            losses.append(total)
        means.append(sum(losses) / len(losses))
    return sum(means) / len(means) if means else torch.zeros(())


def trained_groups(
    rollout: Rollout,
    agent: str,
    level: int,
    *,
    discount: float = 1.0,
    normalize: bool = True,
    baseline: str = "mean",
) -> list[tuple[tuple[Completion, ...], list[float]]]:
    """Completions and advantages of an agent's groups at a turn that say something."""
    groups = []
    for node in rollout.levels[level]:
        if agent not in node.completions:
            continue
        returns = [
            node_return(rollout, level, node, agent, j, discount)
            for j in range(len(node.joint_actions))
        ]
        weights = advantages(credits(node, agent, returns), normalize=normalize, baseline=baseline)
        if weights is not None:
            groups.append((node.completions[agent], weights))
    return groups


def magrpo_loss(
    rollout: Rollout,
    models: Mapping[str, PreTrainedModel],
    generation: GenerationConfig | Mapping[str, GenerationConfig],
    *,
    loss_type: str = "sequence_sum",
    max_new_tokens: int = 1,
    clip_range: float | None = None,
    **grouping: Any,
) -> Tensor:
    """Sum over the agents that have a model, and over turns, of `turn_loss`.

    `max_new_tokens` is the divisor of "constant"; `grouping` is that of `trained_groups`.
    """
    total = torch.zeros(())
    for (agent, model), level in itertools.product(models.items(), range(len(rollout.levels))):
        own = generation if isinstance(generation, GenerationConfig) else generation[agent]
        groups = []
        for completions, weights in trained_groups(rollout, agent, level, **grouping):
            losses = []
            for completion, weight in zip(completions, weights, strict=True):
                log_probs = completion_log_probs(model, completion, own)
                losses.append(
                    [
                        token_loss(log_prob, old, weight, clip_range)
                        for log_prob, old in zip(log_probs, completion.log_probs, strict=True)
                    ]
                )
            groups.append(losses)
        total = total + turn_loss(groups, loss_type, max_new_tokens)
    return total
