"""From a rollout to tensors: the only padding and the only masks of a learner.

Masks come from lengths, never from token ids: the stop token is trained and padding is not, also
where a tokenizer uses one id for both.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from motet.agents import Completion
from motet.algos.advantages import Baseline, group_advantages
from motet.algos.returns import credit
from motet.algos.rollout import Rollout

LossType = Literal["sequence_sum", "sequence_mean", "token_mean", "constant"]


@dataclass(frozen=True, slots=True)
class Group:
    """The G completions of one agent at one node, with their advantages.

    Attributes:
        agent: whose they are.
        turn: turn of the node.
        completions: (G,).
        advantages: (G,).
    """

    agent: str
    turn: int
    completions: tuple[Completion, ...]
    advantages: tuple[float, ...]

    @property
    def num_tokens(self) -> int:
        """Number of completion tokens."""
        return sum(len(completion.completion_ids) for completion in self.completions)


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of an agent with its advantage and its share in the loss."""

    agent: str
    completion: Completion
    advantage: float
    weight: float

    @property
    def length(self) -> int:
        """Tokens of prompt and completion."""
        return len(self.completion.prompt_ids) + len(self.completion.completion_ids)


@dataclass(frozen=True, slots=True)
class Batch:
    """Sequences side by side: prompts padded on the left, completions on the right.

    Attributes:
        input_ids: (B, P + T).
        attention_mask: (B, P + T) 1 where there is a token.
        position_ids: (B, P + T) counted from each sequence's first token.
        completion_ids: (B, T).
        mask: (B, T) True where there is a completion token.
        old_log_probs: (B, T) kept from sampling.
        advantages: (B,).
        weights: (B,).
    """

    input_ids: Tensor
    attention_mask: Tensor
    position_ids: Tensor
    completion_ids: Tensor
    mask: Tensor
    old_log_probs: Tensor
    advantages: Tensor
    weights: Tensor

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on another device."""
        return replace(self, **{name: getattr(self, name).to(device) for name in self.__slots__})


def rollout_groups(
    rollout: Rollout,
    returns: Sequence[Sequence[Mapping[str, Tensor]]],
    agents: Sequence[str],
    *,
    baseline: Baseline,
    normalize: bool,
) -> tuple[list[Group], int]:
    """Return the groups that carry a gradient, and how many do not.

    Args:
        rollout: the trees.
        returns: (J,) returns by level, node and agent, from `rollout_returns`.
        agents: whose groups to return.
        baseline: what is subtracted from the returns of a group.
        normalize: whether to divide by the group's standard deviation.

    Returns:
        Groups with an advantage that is not zero, and the number of those without.
    """
    groups, without = [], 0
    for level, level_returns in zip(rollout.levels, returns, strict=True):
        for node, node_returns in zip(level, level_returns, strict=True):
            for agent in node.completions:
                if agent not in agents:
                    continue
                completions = node.completions[agent]
                credits = credit(
                    node_returns[agent], torch.tensor(node.choices(agent)), len(completions)
                )
                advantages = group_advantages(credits, baseline, normalize=normalize)
                if advantages is None:
                    without += 1
                else:
                    groups.append(Group(agent, node.turn, completions, tuple(advantages.tolist())))
    return groups, without


def weighted_samples(
    groups: Sequence[Group], loss_type: LossType, max_new_tokens: int
) -> list[list[Sample]]:
    """Give each completion its share in the loss.

    The loss is a mean over the groups of an agent at a turn, summed over turns and agents: the
    return that is maximised is a sum over turns, each estimated by the mean over its nodes.

    Args:
        groups: all groups of a rollout that carry a gradient.
        loss_type: what a group's completions are averaged over. "sequence_sum" adds up a
            completion's tokens, "sequence_mean" averages them, "token_mean" averages over all
            tokens of the agent's turn, "constant" divides by `max_new_tokens`.
        max_new_tokens: the divisor of "constant".

    Returns:
        Samples by group; completions without tokens are left out, as nothing of them is trained.
    """
    count: dict[tuple[str, int], int] = defaultdict(int)
    tokens: dict[tuple[str, int], int] = defaultdict(int)
    for group in groups:
        count[group.agent, group.turn] += 1
        tokens[group.agent, group.turn] += group.num_tokens
    weighted = []
    for group in groups:
        key = group.agent, group.turn
        share = 1 / (len(group.completions) * count[key])
        samples = []
        for completion, advantage in zip(group.completions, group.advantages, strict=True):
            length = len(completion.completion_ids)
            if not length:
                continue
            weight = {
                "sequence_sum": share,
                "sequence_mean": share / length,
                "token_mean": 1 / tokens[key],
                "constant": share / max_new_tokens,
            }[loss_type]
            samples.append(Sample(group.agent, completion, advantage, weight))
        weighted.append(samples)
    return weighted


def samples_by_agent(groups: Sequence[Sequence[Sample]], scale: float) -> dict[str, list[Sample]]:
    """Sort the samples of some groups by agent, with their weights scaled.

    Args:
        groups: samples by group, of one optimizer step.
        scale: groups of the rollout for each group of the step, so that the steps of a rollout
            have the same objective in the mean as one step over all of it.
    """
    samples: dict[str, list[Sample]] = defaultdict(list)
    for group in groups:
        for sample in group:
            samples[sample.agent].append(replace(sample, weight=sample.weight * scale))
    return dict(samples)


def micro_batches(samples: Sequence[Sample], max_tokens: int) -> Iterator[list[Sample]]:
    """Split samples into batches of at most `max_tokens`, padding included.

    Samples of like length come together, so that little is padded. A sample that is longer than
    the budget makes a batch of its own.
    """
    batch: list[Sample] = []
    prompt = completion = 0
    for sample in sorted(samples, key=lambda sample: sample.length):
        wider = (
            max(prompt, len(sample.completion.prompt_ids)),
            max(completion, len(sample.completion.completion_ids)),
        )
        if batch and (len(batch) + 1) * sum(wider) > max_tokens:
            yield batch
            batch = []
            wider = len(sample.completion.prompt_ids), len(sample.completion.completion_ids)
        batch.append(sample)
        prompt, completion = wider
    if batch:
        yield batch


def collate(samples: Sequence[Sample]) -> Batch:
    """Pad samples into a batch."""
    completions = [sample.completion for sample in samples]
    width = max(len(completion.prompt_ids) for completion in completions)
    length = max(len(completion.completion_ids) for completion in completions)
    size = len(completions)
    input_ids = torch.zeros((size, width + length), dtype=torch.long)
    attention_mask = torch.zeros((size, width + length), dtype=torch.long)
    old_log_probs = torch.zeros((size, length))
    mask = torch.zeros((size, length), dtype=torch.bool)
    for i, completion in enumerate(completions):
        start = width - len(completion.prompt_ids)
        end = width + len(completion.completion_ids)
        input_ids[i, start:end] = torch.tensor(completion.prompt_ids + completion.completion_ids)
        attention_mask[i, start:end] = 1
        mask[i, : end - width] = True
        old_log_probs[i, : end - width] = torch.tensor(completion.log_probs)
    return Batch(
        input_ids=input_ids,
        attention_mask=attention_mask,
        position_ids=(attention_mask.cumsum(-1) - 1).clamp(min=0),
        completion_ids=input_ids[:, width:],
        mask=mask,
        old_log_probs=old_log_probs,
        advantages=torch.tensor([sample.advantage for sample in samples]),
        weights=torch.tensor([sample.weight for sample in samples]),
    )
