"""From a rollout to tensors: the only padding and the only masks of a learner.

Masks come from lengths, never from token ids: the stop token is trained and padding is not, also
where a tokenizer uses one id for both.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from motet.agents import Completion
from motet.algos.actor_critics.value_samples import ValueBatch, ValueTarget, collate_values
from motet.algos.rollouts.rollout import Advantage
from motet.algos.updates.branch_attention import Branches, branches_of

LossType = Literal["sequence_sum", "sequence_mean", "token_mean", "constant"]


@dataclass(frozen=True, slots=True)
class Group:
    """The G completions of one agent at one node, with their advantages.

    Attributes:
        agent: whose they are.
        turn: turn of the node.
        completions: (G,).
        advantages: (G,) numbers, or for each completion (T,) numbers, one per token.
        values: (G,) what a value head on the policy's trunk should say of them; empty without one.
    """

    agent: str
    turn: int
    completions: tuple[Completion, ...]
    advantages: tuple[Advantage, ...]
    values: tuple[ValueTarget, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of an agent with its advantage and its share in the loss."""

    agent: str
    completion: Completion
    advantage: Advantage
    weight: float
    value: ValueTarget | None = None

    @property
    def read(self) -> tuple[int, ...]:
        """Tokens that a model reads to predict all of the completion: all but the last."""
        return (self.completion.prompt_ids + self.completion.completion_ids)[:-1]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows side by side, each one sequence or a tree of sequences that share their beginnings.

    Rows are padded on the right. L is the length of the longest, B the number of completions, M
    that of their tokens.

    Attributes:
        input_ids: (R, L).
        position_ids: (R, L) of a token in its own sequence.
        lengths: (R,) tokens of each row.
        attention: (R, L, L) True where a token (second axis) sees another: what comes before it in
            its own sequence, and itself. None where every row is one sequence, for which that is
            all that comes before it, whatever number of samples read it.
        branches: what `attention` says, branch by branch; None where that is None, and for models
            that compute with masks, as all do on other devices than CPUs.
        rows: (M,) row of each completion token, completion by completion.
        columns: (M,) column of the token before it, whose logits predict it.
        completion_ids: (B, T).
        mask: (B, T) True where there is a completion token.
        old_log_probs: (B, T) kept from sampling.
        advantages: (B, T) of the tokens.
        weights: (B,) of the sequences.
        values: what a value head on the policy's trunk should say; None without one.
    """

    input_ids: Tensor
    position_ids: Tensor
    lengths: Tensor
    attention: Tensor | None
    branches: Branches | None
    rows: Tensor
    columns: Tensor
    completion_ids: Tensor
    mask: Tensor
    old_log_probs: Tensor
    advantages: Tensor
    weights: Tensor
    values: ValueBatch | None = None

    @property
    def num_tokens(self) -> int:
        """Number of tokens that are computed, padding aside."""
        return int(self.lengths.sum())

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on another device, itself where it is there."""
        if self.input_ids.device == device:
            return self
        moved = {name: getattr(self, name) for name in self.__slots__ if name != "branches"}
        return replace(
            self,
            branches=None,  # which only CPUs heed
            **{name: each.to(device) for name, each in moved.items() if each is not None},
        )


def weighted_samples(
    groups: Sequence[Group],
    loss_type: LossType,
    max_new_tokens: int,
    *,
    mask_truncated: bool = False,
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
        mask_truncated: leave out completions that were cut (DAPO, Yu et al. 2025, arXiv
            2503.14476, section 3.4): their tokens are not averaged over, but in a mean over
            completions they are still counted, as in TRL.

    Returns:
        Samples by group; completions without tokens are left out, as nothing of them is trained.
    """

    def num_trained(completion: Completion) -> int:
        cut = mask_truncated and completion.finish_reason == "length"
        return 0 if cut else len(completion.completion_ids)

    count: dict[tuple[str, int], int] = defaultdict(int)
    tokens: dict[tuple[str, int], int] = defaultdict(int)
    for group in groups:
        count[group.agent, group.turn] += 1
        tokens[group.agent, group.turn] += sum(map(num_trained, group.completions))
    weighted = []
    for group in groups:
        key = group.agent, group.turn
        share = 1 / (len(group.completions) * count[key])
        samples = []
        values = group.values or (None,) * len(group.completions)
        for completion, advantage, value in zip(
            group.completions, group.advantages, values, strict=True
        ):
            length = num_trained(completion)
            if not length:
                continue
            weight = {
                "sequence_sum": share,
                "sequence_mean": share / length,
                "token_mean": 1 / tokens[key],
                "constant": share / max_new_tokens,
            }[loss_type]
            samples.append(Sample(group.agent, completion, advantage, weight, value))
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
            value = None if sample.value is None else sample.value.scaled(scale)
            scaled = replace(sample, weight=sample.weight * scale, value=value)
            samples[sample.agent].append(scaled)
    return dict(samples)


def micro_batches(
    rows: Sequence[Sequence[Sample]], max_tokens: int
) -> Iterator[list[Sequence[Sample]]]:
    """Split rows into batches of at most `max_tokens`, padding included.

    Rows of like length come together, so that little is padded. A row that is longer than the
    budget makes a batch of its own.

    Args:
        rows: samples that share their beginnings, by row; see `motet.algos.updates.packing`.
        max_tokens: most tokens of a batch.
    """
    batch: list[Sequence[Sample]] = []
    for length, row in sorted(
        ((row_length(row), row) for row in rows), key=lambda measured: measured[0]
    ):
        if batch and (len(batch) + 1) * length > max_tokens:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def row_length(row: Sequence[Sample]) -> int:
    """Return how many tokens are computed for samples in one row."""
    length, before = 0, None
    for sample in row:
        length += len(sample.read) - (num_shared(before.read, sample.read) if before else 0)
        before = sample
    return length


def num_shared(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many tokens two sequences begin with alike."""
    shortest = min(len(first), len(second))
    if first[:shortest] == second[:shortest]:
        return shortest
    return next(i for i in range(shortest) if first[i] != second[i])


def collate(rows: Sequence[Sequence[Sample]], *, by_branches: bool = True) -> Batch:
    """Make a batch of rows of samples.

    A sample shares with the one before it in its row the tokens that both begin with. Where the
    samples of a row come in the order of their ids, each distinct beginning is in the row once.

    Args:
        rows: samples that share their beginnings, by row.
        by_branches: whether to lay out branches, for a model that heeds them.
    """
    samples = [sample for row in rows for sample in row]
    lengths = [row_length(row) for row in rows]
    longest = max(len(sample.completion.completion_ids) for sample in samples)
    width = max(lengths)
    input_ids = torch.zeros((len(rows), width), dtype=torch.long)
    shares = any(sample.read != row[0].read for row in rows for sample in row)
    # a row of several sequences may be longer than the positions that a model knows
    position_ids = (torch.zeros(width) if shares else torch.arange(width)).long()
    position_ids = position_ids.repeat(len(rows), 1)
    attention = torch.ones((len(rows), width, width), dtype=torch.bool).tril() if shares else None
    columns: list[Tensor] = []
    branches: list[tuple[Tensor, int]] = []
    for i, row in enumerate(rows):
        seen = None if attention is None else attention[i]
        own_columns, own_branches = _lay_out(row, input_ids[i], position_ids[i], seen)
        columns += own_columns
        branches += [(i * width + path, own) for path, own in own_branches]
    completion_ids = torch.zeros((len(samples), longest), dtype=torch.long)
    old_log_probs = torch.zeros((len(samples), longest))
    advantages = torch.zeros((len(samples), longest))
    mask = torch.zeros((len(samples), longest), dtype=torch.bool)
    for i, sample in enumerate(samples):
        length = len(sample.completion.completion_ids)
        completion_ids[i, :length] = torch.tensor(sample.completion.completion_ids)
        old_log_probs[i, :length] = torch.tensor(sample.completion.log_probs)
        advantages[i, :length] = torch.tensor(sample.advantage)
        mask[i, :length] = True
    return Batch(
        input_ids=input_ids,
        position_ids=position_ids,
        lengths=torch.tensor(lengths),
        attention=attention,
        branches=branches_of(branches, input_ids.numel()) if shares and by_branches else None,
        rows=torch.repeat_interleave(
            torch.tensor([i for i, row in enumerate(rows) for _ in row]),
            torch.tensor([len(each) for each in columns]),
        ),
        columns=torch.cat(columns),
        completion_ids=completion_ids,
        mask=mask,
        old_log_probs=old_log_probs,
        advantages=advantages,
        weights=torch.tensor([sample.weight for sample in samples]),
        values=_value_batch(samples),
    )


def _value_batch(samples: Sequence[Sample]) -> ValueBatch | None:
    """Return what a value head should say of the samples, None where they have none."""
    targets, first = [], 0
    for sample in samples:
        if sample.value is not None:
            targets.append((first, sample.value))
        first += len(sample.completion.completion_ids)
    return collate_values(targets) if targets else None


def _lay_out(
    row: Sequence[Sample], input_ids: Tensor, position_ids: Tensor, attention: Tensor | None
) -> tuple[list[Tensor], list[tuple[Tensor, int]]]:
    """Write a row's tokens, positions and attention.

    Args:
        row: samples.
        input_ids: (L,) to write into.
        position_ids: (L,) to write into.
        attention: (L, L) causal, to write into; None for a row of one sample.

    Returns:
        By sample, the (T,) columns before its completion's tokens; and for each that adds tokens to
        the row, the columns of its sequence and how many are its own.
    """
    columns, branches, end = [], [], 0
    before: tuple[int, ...] = ()
    path = torch.empty(0, dtype=torch.long)  # column of each token of a sequence
    for sample in row:
        shared = num_shared(before, sample.read)
        start, end = end, end + len(sample.read) - shared
        path = torch.cat([path[:shared], torch.arange(start, end)])
        input_ids[start:end] = torch.tensor(sample.read[shared:])
        position_ids[start:end] = torch.arange(shared, len(sample.read))
        if attention is not None:
            attention[start:end, :start] = False
            attention[start:end, path[:shared]] = True
        columns.append(path[len(sample.completion.prompt_ids) - 1 :])
        if end > start:
            branches.append((path, end - start))
        before = sample.read
    return columns, branches
