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
    """Rows side by side, each a prompt and the completions that share it.

    Prompts are padded on the left, so that the completions of all rows begin in the same column P;
    rows are padded on the right. S is the number of tokens of a row's completions, B the number of
    completions, M that of their tokens.

    Attributes:
        input_ids: (R, P + S).
        segments: (R, P + S) 0 at padding, 1 at the prompt, 2 and more at each completion.
        position_ids: (R, P + S) counted from a prompt's first token, and from the prompt's end in
            each completion.
        rows: (M,) row of each completion token, completion by completion.
        columns: (M,) column of the logits that predict it, 0 for those of a prompt's last token.
        completion_ids: (B, T).
        mask: (B, T) True where there is a completion token.
        old_log_probs: (B, T) kept from sampling.
        advantages: (B,).
        weights: (B,).
    """

    input_ids: Tensor
    segments: Tensor
    position_ids: Tensor
    rows: Tensor
    columns: Tensor
    completion_ids: Tensor
    mask: Tensor
    old_log_probs: Tensor
    advantages: Tensor
    weights: Tensor

    @property
    def num_tokens(self) -> int:
        """Number of tokens that are computed, padding aside."""
        return int((self.segments > 0).sum())

    @property
    def prompt_width(self) -> int:
        """P, the column in which completions begin."""
        return int((self.segments > 1).any(0).int().argmax())

    @property
    def shares_prompts(self) -> bool:
        """Whether some row has more than one completion."""
        return int(self.segments.max()) > 2

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


def micro_batches(
    rows: Sequence[Sequence[Sample]], max_tokens: int
) -> Iterator[list[Sequence[Sample]]]:
    """Split rows into batches of at most `max_tokens`, padding included.

    Rows of like length come together, so that little is padded. A row that is longer than the
    budget makes a batch of its own.

    Args:
        rows: samples that share a prompt, by row; see `motet.algos.packing`.
        max_tokens: most tokens of a batch.
    """
    batch: list[Sequence[Sample]] = []
    widest = (0, 0)
    for prompt, completions, row in sorted(
        (((*_widths(row), row)) for row in rows), key=lambda sized: sized[0] + sized[1]
    ):
        wider = max(widest[0], prompt), max(widest[1], completions)
        if batch and (len(batch) + 1) * sum(wider) > max_tokens:
            yield batch
            batch, wider = [], (prompt, completions)
        batch.append(row)
        widest = wider
    if batch:
        yield batch


def collate(rows: Sequence[Sequence[Sample]]) -> Batch:
    """Pad rows of samples that share a prompt into a batch."""
    samples = [sample for row in rows for sample in row]
    width, length = (max(each) for each in zip(*map(_widths, rows), strict=True))
    longest = max(len(sample.completion.completion_ids) for sample in samples)
    input_ids = torch.zeros((len(rows), width + length), dtype=torch.long)
    segments = torch.zeros_like(input_ids)
    position_ids = torch.zeros_like(input_ids)
    completion_ids = torch.zeros((len(samples), longest), dtype=torch.long)
    old_log_probs = torch.zeros((len(samples), longest))
    mask = torch.zeros((len(samples), longest), dtype=torch.bool)
    places: list[tuple[int, int]] = []
    index = 0
    for i, row in enumerate(rows):
        prompt = row[0].completion.prompt_ids
        start = width - len(prompt)
        input_ids[i, start:width] = torch.tensor(prompt)
        segments[i, start:width] = 1
        position_ids[i, start:width] = torch.arange(len(prompt))
        begin = width
        for segment, sample in enumerate(row, start=2):
            ids = torch.tensor(sample.completion.completion_ids)
            end = begin + len(ids)
            input_ids[i, begin:end] = ids
            segments[i, begin:end] = segment
            position_ids[i, begin:end] = len(prompt) + torch.arange(len(ids))
            # the first token follows the prompt's last, the others their own completion's
            places += [(i, 0), *((i, column - width) for column in range(begin + 1, end))]
            completion_ids[index, : len(ids)] = ids
            mask[index, : len(ids)] = True
            old_log_probs[index, : len(ids)] = torch.tensor(sample.completion.log_probs)
            begin, index = end, index + 1
    placed = torch.tensor(places)
    return Batch(
        input_ids=input_ids,
        segments=segments,
        position_ids=position_ids,
        rows=placed[:, 0],
        columns=placed[:, 1],
        completion_ids=completion_ids,
        mask=mask,
        old_log_probs=old_log_probs,
        advantages=torch.tensor([sample.advantage for sample in samples]),
        weights=torch.tensor([sample.weight for sample in samples]),
    )


def _widths(row: Sequence[Sample]) -> tuple[int, int]:
    """Return the tokens of a row's prompt and of its completions."""
    completions = [len(sample.completion.completion_ids) for sample in row]
    return len(row[0].completion.prompt_ids), sum(completions)
