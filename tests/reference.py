"""The slow truth: one sequence at a time, one token at a time, written from the definitions.

Nothing here is shared with the library's fast paths, and nothing is clever.
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


def token_distributions(
    model: Callable[..., Any], completion: Completion, generation: GenerationConfig
) -> list[Tensor]:
    """Log-probabilities (V,) at each of a completion's tokens: a forward pass per token."""
    found = []
    seen = list(completion.prompt_ids)
    for token in completion.completion_ids:
        logits = model(input_ids=torch.tensor([seen])).logits[0, -1]
        found.append(distribution(logits, generation, token))
        seen.append(token)
    return found


def token_log_probs(
    model: Callable[..., Any], completion: Completion, generation: GenerationConfig
) -> list[Tensor]:
    """Log-probabilities of a completion's tokens."""
    found = token_distributions(model, completion, generation)
    return [each[token] for each, token in zip(found, completion.completion_ids, strict=True)]


def entropy(log_probs: Tensor) -> Tensor:
    """-sum p log p over the tokens that have a probability."""
    possible = log_probs[log_probs > -math.inf]
    return -(possible.exp() * possible).sum()


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
    below = None if child is None else rollout.levels[level + 1][child]
    if below is not None and agent in below.rewards:  # else it has left
        branches = [
            node_return(rollout, level + 1, below, agent, j, discount, cost)
            for j in range(len(below.joint_actions))
        ]
        value += discount * sum(branches) / len(branches)
    return value


def greedy_return(node: Node, agent: str, discount: float) -> float:
    """What an agent gets in the greedy episode from a node."""
    rewards = node.greedy_rewards[agent]
    total = sum(reward * discount**turn for turn, reward in enumerate(rewards))
    if len(rewards) == max(len(own) for own in node.greedy_rewards.values()):  # it did not leave
        for more in range(1, node.greedy_turns_credited):
            total += rewards[-1] * discount ** (len(rewards) - 1 + more)
    return total


def advantages(
    returns: Sequence[float],
    *,
    normalize: bool,
    baseline: str = "mean",
    greedy: Sequence[float] = (),
    running: float = 0.0,
) -> list[float] | None:
    """Advantages of one pool, None where it says nothing; a difference by rounding is none."""
    mean = sum(returns) / len(returns)
    std = math.sqrt(sum((value - mean) ** 2 for value in returns) / len(returns))
    subtracted = {
        "mean": [mean] * len(returns),
        "mean of the others": [
            sum(returns[:k] + returns[k + 1 :]) / max(len(returns) - 1, 1)
            for k in range(len(returns))
        ],
        "nothing": [0.0] * len(returns),
        "maximum": [max(returns)] * len(returns),
        "greedy": list(greedy),
        "running mean": [running] * len(returns),
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


@dataclass(frozen=True)
class Ratios:
    """What is done with the ratio rho of a token's probability to the one it was sampled with.

    Nothing, PPO's clipping to 1 - clip_range and 1 + clip_range_high (the same where it is None),
    or a weight of at most `cap`.
    """

    clip_range: float | None = None
    clip_range_high: float | None = None
    cap: float | None = None

    def loss(self, log_prob: Tensor, old_log_prob: float, advantage: float) -> Tensor:
        """REINFORCE's -A log pi, weighed by min(rho, cap), or PPO's -min(rho A, clip(rho) A)."""
        ratio = torch.exp(log_prob - old_log_prob)
        if self.cap is not None:
            return -min(ratio.item(), self.cap) * advantage * log_prob
        if self.clip_range is None:
            return -advantage * log_prob
        high = self.clip_range if self.clip_range_high is None else self.clip_range_high
        clipped = torch.clamp(ratio, 1 - self.clip_range, 1 + high)
        return -torch.minimum(ratio * advantage, clipped * advantage)


def completion_shares(
    groups: Sequence[Sequence[Completion]],
    loss_type: str,
    max_new_tokens: int,
    *,
    mask_truncated: bool = False,
) -> list[list[float]]:
    """What each token of each completion counts in an agent's loss at a turn.

    Those that were cut count nothing with `mask_truncated`, and are no tokens to be averaged over;
    they still are completions to be averaged over.
    """

    def counts(one: Completion) -> bool:
        return not (mask_truncated and one.finish_reason == "length")

    tokens = sum(len(one.completion_ids) for group in groups for one in group if counts(one))
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
            * counts(one)
            for one in group
        ]
        for group in groups
    ]


Groups = list[tuple[tuple[Completion, ...], list[float]]]


def trained_groups(
    rollout: Rollout,
    agent: str,
    *,
    discount: float = 1.0,
    normalize: bool = True,
    group_by: str = "node",
    baseline: str = "mean",
    running: Mapping[str, float] | None = None,
    cost: Callable[[Completion], float] = lambda completion: 0.0,
    all_groups: bool = False,
) -> list[Groups]:
    """By level: completions and advantages of an agent's groups.

    Those of pools that say nothing are left out, or have advantages of 0 with `all_groups`.
    """
    own = []
    for level, nodes in enumerate(rollout.levels):
        for node in nodes:
            if agent in node.completions:
                returns = [
                    node_return(rollout, level, node, agent, j, discount, cost)
                    for j in range(len(node.joint_actions))
                ]
                own += [
                    (level, node, k, value) for k, value in enumerate(credits(node, agent, returns))
                ]
    levels: list[Groups] = [[] for _ in rollout.levels]
    for level, node, first, _ in own:
        if first:
            continue  # once for each node
        pool = [
            each
            for each in own
            if group_by == "batch" or (group_by == "turn" and each[0] == level) or each[1] is node
        ]
        weights = advantages(
            [value for _, _, _, value in pool],
            normalize=normalize,
            baseline=baseline,
            greedy=[
                greedy_return(each, agent, discount) if baseline == "greedy" else 0.0
                for _, each, _, _ in pool
            ],
            running=(running or {}).get(agent, 0.0),
        )
        completions = node.completions[agent]
        if weights is not None:
            by_place = zip(pool, weights, strict=True)
            mine = [weight for (_, each, _, _), weight in by_place if each is node]
            levels[level].append((completions, mine))
        elif all_groups:
            levels[level].append((completions, [0.0] * len(completions)))
    return levels


def magrpo_groups(
    rollout: Rollout,
    agents: Iterable[str],
    generation: GenerationConfig | Mapping[str, GenerationConfig],
    *,
    kl: KL | None = None,
    ent_coef: float = 0.0,
    **grouping: Any,
) -> Iterator[tuple[str, Groups]]:
    """By agent and turn: the groups that are trained, and their advantages.

    Groups without spread are left out, unless a KL in the loss or an entropy bonus trains them. A
    KL in the return is what completions cost; the rest of `grouping` is that of `trained_groups`.
    """

    @functools.cache
    def cost(agent: str, completion: Completion) -> float:
        if kl is None or kl.place != "return" or not completion.completion_ids:
            return 0.0
        sampled = [torch.tensor(value) for value in completion.log_probs]
        return kl.coef * sum(kl.of(agent, completion, sampled, _own(generation, agent))).item()

    all_groups = ent_coef > 0 or (kl is not None and kl.place == "loss")
    for agent in agents:
        paid = functools.partial(cost, agent)
        for groups in trained_groups(rollout, agent, cost=paid, all_groups=all_groups, **grouping):
            yield agent, groups


def magrpo_terms(
    rollout: Rollout,
    models: Mapping[str, Callable[..., Any]],
    generation: GenerationConfig | Mapping[str, GenerationConfig],
    *,
    loss_type: str = "sequence_sum",
    max_new_tokens: int | None = None,
    clip_range: float | None = None,
    clip_range_high: float | None = None,
    cap: float | None = None,
    mask_truncated: bool = False,
    kl: KL | None = None,
    ent_coef: float = 0.0,
    **grouping: Any,
) -> Iterator[Tensor]:
    """What each completion adds to the loss, of the agents that have a model.

    `max_new_tokens` is the divisor of "constant", by default the generation's.
    """
    ratios = Ratios(clip_range, clip_range_high, cap)
    grouped = magrpo_groups(rollout, models, generation, kl=kl, ent_coef=ent_coef, **grouping)
    for agent, groups in grouped:
        own = _own(generation, agent)
        shares = completion_shares(
            [group for group, _ in groups],
            loss_type,
            max_new_tokens or own.max_new_tokens,
            mask_truncated=mask_truncated,
        )
        for (completions, weights), group_shares in zip(groups, shares, strict=True):
            for completion, weight, share in zip(completions, weights, group_shares, strict=True):
                if not share:
                    continue  # it was cut, and is left out
                found = token_distributions(models[agent], completion, own)
                ids = completion.completion_ids
                log_probs = [each[token] for each, token in zip(found, ids, strict=True)]
                losses = [
                    ratios.loss(log_prob, old, weight)
                    for log_prob, old in zip(log_probs, completion.log_probs, strict=True)
                ]
                if kl is not None and kl.place == "loss":
                    losses += [kl.coef * term for term in kl.of(agent, completion, log_probs, own)]
                if ent_coef:
                    losses += [-ent_coef * entropy(each) for each in found]
                if losses:
                    yield share * sum(losses, torch.zeros(()))


def magrpo_loss(*args: Any, **kwargs: Any) -> Tensor:
    """The sum of `magrpo_terms`: over agents, turns, groups and completions."""
    return sum(magrpo_terms(*args, **kwargs), torch.zeros(()))


def _own(
    generation: GenerationConfig | Mapping[str, GenerationConfig], agent: str
) -> GenerationConfig:
    return generation if isinstance(generation, GenerationConfig) else generation[agent]
