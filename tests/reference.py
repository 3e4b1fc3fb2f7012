"""The slow truth: one sequence at a time, one token at a time, written from the definitions.

Nothing here is shared with the library's fast paths, and nothing is clever.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
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


def completion_shares(
    groups: Sequence[Sequence[Completion]], loss_type: str, max_new_tokens: int
) -> list[list[float]]:
    """What each token of each completion counts in an agent's loss at a turn."""
    tokens = sum(len(one.completion_ids) for group in groups for one in group)
    return [
        [
            {
                # mean over groups of the mean over completions of the sum over tokens ...
                "sequence_sum": 1 / len(groups) / len(group),
                # ... of the mean over tokens
                "sequence_mean": 1 / len(groups) / len(group) / max(len(one.completion_ids), 1),
                # ... of the sum over tokens, divided by the most there can be
                "constant": 1 / len(groups) / len(group) / max_new_tokens,
                # mean over all tokens
                "token_mean": 1 / max(tokens, 1),
            }[loss_type]
            for one in group
        ]
        for group in groups
    ]


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


def magrpo_terms(
    rollout: Rollout,
    models: Mapping[str, PreTrainedModel],
    generation: GenerationConfig | Mapping[str, GenerationConfig],
    *,
    loss_type: str = "sequence_sum",
    max_new_tokens: int = 1,
    clip_range: float | None = None,
    **grouping: Any,
) -> Iterator[Tensor]:
    """What each completion adds to the loss, of the agents that have a model.

    `max_new_tokens` is the divisor of "constant"; `grouping` is that of `trained_groups`.
    """
    for (agent, model), level in itertools.product(models.items(), range(len(rollout.levels))):
        own = generation if isinstance(generation, GenerationConfig) else generation[agent]
        groups = trained_groups(rollout, agent, level, **grouping)
        shares = completion_shares([group for group, _ in groups], loss_type, max_new_tokens)
        for (completions, weights), group_shares in zip(groups, shares, strict=True):
            for completion, weight, share in zip(completions, weights, group_shares, strict=True):
                log_probs = completion_log_probs(model, completion, own)
                losses = [
                    token_loss(log_prob, old, weight, clip_range)
                    for log_prob, old in zip(log_probs, completion.log_probs, strict=True)
                ]
                if losses:
                    yield share * sum(losses, torch.zeros(()))


def magrpo_loss(*args: Any, **kwargs: Any) -> Tensor:
    """The sum of `magrpo_terms`: over agents, turns, groups and completions."""
    return sum(magrpo_terms(*args, **kwargs), torch.zeros(()))
