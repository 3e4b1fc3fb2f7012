"""The slow truth: one sequence at a time, one token at a time, written from the definitions.

Nothing here is shared with the library's fast paths, and nothing is clever.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from transformers import PreTrainedModel

from motet.agents import Completion, GenerationConfig
from motet.algos import Node, Rollout


def distribution(
    logits: Tensor, generation: GenerationConfig, counted_in: int | None = None
) -> Tensor:
    """Log-probabilities (V,) after temperature, top-k and top-p, renormalised; by full sort.

    A token that was sampled from another policy is counted in.
    """
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
    if counted_in is not None and counted_in not in allowed:
        allowed.append(counted_in)
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


def token_log_probs(
    model: Callable[..., Any], completion: Completion, generation: GenerationConfig
) -> list[Tensor]:
    """Log-probabilities of a completion's tokens: a forward pass per token, no padding."""
    found = []
    seen = list(completion.prompt_ids)
    for token in completion.completion_ids:
        logits = model(input_ids=torch.tensor([seen])).logits[0, -1]
        found.append(distribution(logits, generation, token)[token])
        seen.append(token)
    return found


def completion_log_prob(
    model: PreTrainedModel, completion: Completion, generation: GenerationConfig
) -> Tensor:
    """Sum of a completion's token log-probabilities."""
    return sum(token_log_probs(model, completion, generation), torch.zeros(()))


@dataclass(frozen=True)
class KL:
    """A KL penalty: its weight, its estimator, where it goes, and the references by agent."""

    coef: float
    estimator: str
    place: str
    references: dict[str, PreTrainedModel]

    def of(
        self,
        agent: str,
        completion: Completion,
        own: Sequence[Tensor],
        generation: GenerationConfig,
    ) -> list[Tensor]:
        """Estimates by token, from the tokens' log-probabilities under the policy."""
        with torch.no_grad():
            reference = token_log_probs(self.references[agent], completion, generation)
        ratios = [torch.exp(theirs - mine) for theirs, mine in zip(reference, own, strict=True)]
        return {
            "k1": [-torch.log(ratio) for ratio in ratios],
            "k2": [torch.log(ratio) ** 2 / 2 for ratio in ratios],
            "k3": [(ratio - 1) - torch.log(ratio) for ratio in ratios],
        }[self.estimator]


def node_return(
    rollout: Rollout,
    level: int,
    node: Node,
    agent: str,
    joint: int,
    discount: float,
    cost: Callable[[Completion], float] = lambda completion: 0.0,
) -> float:
    """R_j by recursion over the tree, less what the agent's own completions cost."""
    value = sum(
        node.rewards[agent][joint] * discount**turn for turn in range(node.turns_credited[joint])
    )
    if agent in node.completions:
        position = list(node.completions).index(agent)
        value -= cost(node.completions[agent][node.joint_actions[joint][position]])
    child = node.children[joint]
    if child is not None:
        below = rollout.levels[level + 1][child]
        branches = [
            node_return(rollout, level + 1, below, agent, j, discount, cost)
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


def average(groups: list[list[list[Tensor]]], loss_type: str, max_new_tokens: int) -> Tensor:
    """Mean over an agent's groups of a turn, from the losses by group, completion and token."""
    if loss_type == "token_mean":
        tokens = [loss for group in groups for completion in group for loss in completion]
        return sum(tokens) / len(tokens)
    means = []
    for group in groups:
        divisors = {
            "sequence_sum": [1] * len(group),
            "sequence_mean": [len(completion) for completion in group],
            "constant": [max_new_tokens] * len(group),
        }[loss_type]
        parts = [sum(own) / divisor for own, divisor in zip(group, divisors, strict=True)]
        means.append(sum(parts) / len(parts))
    return sum(means) / len(means)


def magrpo_loss(
    rollout: Rollout,
    models: dict[str, Callable[..., Any]],
    generation: GenerationConfig,
    *,
    discount: float = 1.0,
    normalize: bool = True,
    loss_type: str = "sequence_sum",
    kl: KL | None = None,
) -> Tensor:
    """Sum over agents and turns of the mean over groups of the group's mean loss.

    Groups without spread are left out, unless a KL in the loss trains them.
    """

    @functools.cache
    def cost(agent: str, completion: Completion) -> float:
        if kl is None or kl.place != "return":
            return 0.0
        sampled = [torch.tensor(value) for value in completion.log_probs]
        return kl.coef * sum(kl.of(agent, completion, sampled, generation)).item()

    total = torch.zeros(())
    for agent, (depth, level) in itertools.product(rollout.agents, enumerate(rollout.levels)):
        groups = []
        for node in level:
            own = node.completions[agent]
            returns = [
                node_return(
                    rollout, depth, node, agent, j, discount, lambda c, who=agent: cost(who, c)
                )
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
            if weights is None and (kl is None or kl.place != "loss"):
                continue
            group = []
            for weight, completion in zip(weights or [0.0] * len(own), own, strict=True):
                log_probs = token_log_probs(models[agent], completion, generation)
                losses = [-weight * log_prob for log_prob in log_probs]
                if kl is not None and kl.place == "loss":
                    terms = kl.of(agent, completion, log_probs, generation)
                    losses = [
                        loss + kl.coef * term for loss, term in zip(losses, terms, strict=True)
                    ]
                group.append(losses)
            groups.append(group)
        if groups:
            total = total + average(groups, loss_type, generation.max_new_tokens)
    return total
