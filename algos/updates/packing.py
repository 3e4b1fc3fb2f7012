"""Sequences share their beginnings: what several samples read alike is computed once.

A row is a tree of token ids, written branch after branch. A token attends to what comes before it
in its own sequence, and its position is the one it has there, so that log-probabilities and
gradients are those of separate rows. The G completions of a prompt share the prompt (as in Prefix
Grouper, arXiv 2506.05433); where an agent's context is its running conversation, the completions of
a turn are the beginnings of the next turn's, and a whole tree of turns is one row. It saves the
matrix products of the shared tokens. Where attention between branches is computed and masked away
(`motet.algos.updates.branch_attention` says where it is not), it costs that: rows are as long as
they pay.
"""

import inspect
import itertools
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from motet.algos.updates.batch import Sample, num_shared
from motet.algos.updates.branch_attention import (
    NAME,
    attention_mask,
    branches_of,
    branching,
    carry,
    computes_branches,
)

Row = tuple[Sample, ...]

# Tokens that the trial run of `shares_prompts_exactly` reads; any do.
_TRIAL_PROMPT = 6
_TRIAL_LENGTH = 3


def pack(
    samples: Sequence[Sample], hidden_size: int, max_tokens: int, *, by_branches: bool = False
) -> list[Row]:
    """Put samples that begin alike into rows, as far as it saves time.

    A token costs 24 * hidden_size^2 floating-point operations of a layer's matrix products, and
    4 * hidden_size for each token it is compared with (Kaplan et al., arXiv 2001.08361, sec. 2.1,
    with a feed-forward layer of four times the hidden size). In a row of one sequence it is
    compared with what comes before only, in one of several with all of the row, or with all of its
    own sequence where attention goes by branches.

    Args:
        samples: of one policy.
        hidden_size: of the model.
        max_tokens: most tokens of a row with more than one sequence.
        by_branches: whether attention goes by branches.

    Returns:
        Rows of samples, each sample once, in the order of their token ids: neighbours share most.
        They are the cheapest cut of that order into rows.
    """
    by_read = sorted(samples, key=lambda sample: sample.read)
    # samples that read the same are one for the cut: all but the first of them cost nothing
    groups = [list(group) for _, group in itertools.groupby(by_read, lambda sample: sample.read)]
    reads = [group[0].read for group in groups]
    shared = [0, *itertools.starmap(num_shared, itertools.pairwise(reads))]
    # cheapest[j] is the least cost of the first j of them, whose last row begins at starts[j]
    cheapest, starts = [0.0], [0]
    for end in range(1, len(reads) + 1):
        best, begin, length = float("inf"), end, 0
        compared_later = 0  # by the tokens of all but the first sequence, within their own
        for start in reversed(range(end)):
            # a row that begins one earlier: what the two share is no longer computed twice
            length += len(reads[start]) - (shared[start + 1] if start + 1 < end else 0)
            if start + 1 < end and (length > max_tokens or not shared[start + 1]):
                break
            if start + 1 < end:
                later = len(reads[start + 1])
                compared_later += (later - shared[start + 1]) * later
            first = len(reads[start]) ** 2 / 2
            compared = first + compared_later if by_branches or start + 1 == end else length**2
            cost = cheapest[start] + 6 * hidden_size * length + compared
            if cost < best:
                best, begin = cost, start
        cheapest.append(best)
        starts.append(begin)
    rows, end = [], len(groups)
    while end:
        rows.append(tuple(itertools.chain.from_iterable(groups[starts[end] : end])))
        end = starts[end]
    return rows[::-1]


def attention_window(model: PreTrainedModel) -> int | None:
    """Return how far back a model's attention sees, None where it sees everything."""
    config = model.config.get_text_config()
    # not all configs have any of them
    windows = (getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size"))
    return min((window for window in windows if window is not None), default=None)


@torch.no_grad()
def shares_prompts_exactly(model: PreTrainedModel) -> bool:
    """Tell by a trial whether a model computes sequences in one row as it does apart.

    Not all do: some take no positions, compute their own from the row, or drop a mask of four axes.

    Args:
        model: in evaluation mode.
    """
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return False
    if model.config._attn_implementation not in ("sdpa", "eager", NAME):
        return False  # flash attention takes no mask of this form
    if getattr(model.config.get_text_config(), "window_size", None) is not None:
        return False  # GPT-Neo counts its window in columns, of whatever sequence
    vocabulary = model.get_input_embeddings().weight.shape[0]
    count = _TRIAL_PROMPT + 2 * _TRIAL_LENGTH
    ids = (torch.arange(1, count + 1) * 7919 % vocabulary).unsqueeze(0)
    prompt, first, second = ids.split([_TRIAL_PROMPT, _TRIAL_LENGTH, _TRIAL_LENGTH], dim=1)
    own = torch.arange(_TRIAL_PROMPT + _TRIAL_LENGTH)
    positions = torch.cat([own, own[_TRIAL_PROMPT:]]).unsqueeze(0)
    seen = torch.ones((1, count, count), dtype=torch.bool).tril()
    seen[0, -_TRIAL_LENGTH:, _TRIAL_PROMPT:-_TRIAL_LENGTH] = False
    mask = attention_mask(seen, model.dtype)
    if computes_branches(model):
        places = torch.arange(count)
        second_path = torch.cat([places[:_TRIAL_PROMPT], places[-_TRIAL_LENGTH:]])
        paths = [(places[:-_TRIAL_LENGTH], count - _TRIAL_LENGTH), (second_path, _TRIAL_LENGTH)]
        carry(mask, branches_of(paths, count))
    together = _logits(model, ids, mask, positions)
    # another first completion, in the same row: nothing of it may reach the second, to the bit
    other = torch.cat([prompt, first.flip(1), second], dim=1)
    last = slice(-_TRIAL_LENGTH, None)
    if not torch.equal(together[last], _logits(model, other, mask, positions)[last]):
        return bool(together.isnan().any())  # whoever trains a broken model finds the NaN
    for i, completion in enumerate((first, second)):
        alone = torch.cat([prompt, completion], dim=1)
        apart = _logits(model, alone, torch.ones_like(alone), own.unsqueeze(0))
        start = _TRIAL_PROMPT + i * _TRIAL_LENGTH
        packed = together[start : start + _TRIAL_LENGTH]
        limit = 100 * torch.finfo(model.dtype).eps * float(apart.abs().max())
        if float((packed - apart[_TRIAL_PROMPT:]).abs().max()) > limit:
            return False
    return True


def _logits(model: PreTrainedModel, ids: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
    device = model.device
    with branching(model):
        output = model(
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            position_ids=positions.to(device),
            use_cache=False,
        )
    logits: Tensor = output.logits[0].float()
    return logits
