"""Attention over rows that branch, without what a mask would hide.

In a row of several sequences (`motet.algos.updates.packing`) most pairs of tokens are on different
branches. A mask hides them, but on a CPU the kernel computes them all the same. Here the tokens of
each branch are compared with their own sequence only: keys and values of what came before are
gathered, and branches of like lengths are computed side by side.

It acts through transformers' `AttentionInterface`, on models whose attention is
`scaled_dot_product_attention`; the mask that they pass on from layer to layer carries the branches.
A model that changes the mask on its way computes with the mask as it is.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "motet_branches"
_CARRIED = "_motet_branches"

# Branches are computed side by side with those that are longer by up to this factor, or tokens.
_LIKE_FACTOR = 1.5
_LIKE_TOKENS = 8


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Branches that are computed at once, padded on the right.

    N is their number, Q the most tokens of one, K the most tokens that one sees. A place is the
    number of a token in its batch, row after row; padding has the place 0.

    Attributes:
        asking: (N, Q) places of the branches' own tokens.
        seen: (N, K) places of the sequences that end with them.
        attention: (N, Q, K) True where a token sees another; None where branches are whole
            sequences, of which each token sees what comes before it, and itself.
    """

    asking: Tensor
    seen: Tensor
    attention: Tensor | None


@dataclass(frozen=True, slots=True)
class Branches:
    """All branches of a batch.

    Attributes:
        parts: that are computed one after the other.
        found_at: (R * L) where each token is in what the parts give, one after the other; 0 for
            padding, which nobody reads.
    """

    parts: tuple[SideBySide, ...]
    found_at: Tensor


def branches_of(paths: Sequence[tuple[Tensor, int]], num_places: int) -> Branches:
    """Sort the branches of a batch into parts.

    Args:
        paths: by branch, the (T,) places of the sequence that it ends, and how many of them, at the
            end, are its own: at least one.
        num_places: tokens of the batch, padding included.
    """
    whole = sorted((path for path in paths if path[1] == len(path[0])), key=lambda path: path[1])
    others = sorted((path for path in paths if path[1] < len(path[0])), key=lambda path: path[1])
    parts, found_at, end = [], torch.zeros(num_places, dtype=torch.long), 0
    for alike in itertools.chain(_of_like_length(whole), _of_like_length(others)):
        part = _side_by_side(alike)
        parts.append(part)
        for i, (path, own) in enumerate(alike):
            start = end + i * part.asking.shape[1]
            found_at[path[len(path) - own :]] = torch.arange(start, start + own)
        end += part.asking.numel()
    return Branches(tuple(parts), found_at)


def _of_like_length(paths: Sequence[tuple[Tensor, int]]) -> Iterator[list[tuple[Tensor, int]]]:
    """Cut branches, the shortest first, where they have become much longer."""
    alike: list[tuple[Tensor, int]] = []
    for path in paths:
        shortest = alike[0][1] if alike else path[1]
        if path[1] > max(_LIKE_FACTOR * shortest, shortest + _LIKE_TOKENS):
            yield alike
            alike = []
        alike.append(path)
    if alike:
        yield alike


def _side_by_side(paths: Sequence[tuple[Tensor, int]]) -> SideBySide:
    most_own, most_seen = max(own for _, own in paths), max(len(path) for path, _ in paths)
    asking = torch.zeros((len(paths), most_own), dtype=torch.long)
    seen = torch.zeros((len(paths), most_seen), dtype=torch.long)
    for i, (path, own) in enumerate(paths):
        asking[i, :own] = path[len(path) - own :]
        seen[i, : len(path)] = path
    if all(own == len(path) for path, own in paths):
        return SideBySide(asking, seen, None)
    before = torch.tensor([len(path) - own for path, own in paths])
    # padding asks too, and sees what is there: nobody reads what comes of it
    last_seen = before[:, None] + torch.arange(most_own)
    return SideBySide(asking, seen, torch.arange(most_seen) <= last_seen[:, :, None])


def computes_branches(model: PreTrainedModel) -> bool:
    """Whether a model's attention can leave out what a mask hides, and gains by it.

    Args:
        model: any.
    """
    implementation = model.config.get_text_config()._attn_implementation
    return model.device.type == "cpu" and implementation in ("sdpa", NAME)


@contextmanager
def branching(model: PreTrainedModel) -> Iterator[None]:
    """Let a model heed the branches that masks carry, where it can.

    With gradient checkpointing the backward pass must be within, too.

    Args:
        model: whose attention is as before afterwards.
    """
    if not computes_branches(model):
        yield
        return
    config = model.config.get_text_config()
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before


def attention_mask(attention: Tensor, dtype: torch.dtype) -> Tensor:
    """Return who sees whom as a mask to add to attention scores.

    Args:
        attention: (N, Q, K) True where a token (second axis) sees another.
        dtype: of the mask, the model's.

    Returns:
        (N, 1, Q, K) 0 where a token sees another, the lowest number elsewhere.
    """
    mask = torch.zeros(attention.shape, dtype=dtype, device=attention.device)
    return mask.masked_fill_(~attention, torch.finfo(dtype).min).unsqueeze(1)


class _Carried:
    """Branches with the masks that attention adds."""

    def __init__(self, branches: Branches, dtype: torch.dtype) -> None:
        self.branches = branches
        self._dtype = dtype
        self._masks: dict[tuple[int, int], Tensor | None] = {}

    def mask(self, number: int, groups: int) -> Tensor | None:
        """Return the mask of a part, (N, 1, groups * Q, K); None where it is causal.

        Args:
            number: of the part.
            groups: query heads that share a head of keys and values.
        """
        if (number, groups) not in self._masks:
            attention = self.branches.parts[number].attention
            self._masks[number, groups] = (
                None
                if attention is None
                else attention_mask(attention.repeat(1, groups, 1), self._dtype)
            )
        return self._masks[number, groups]


def carry(mask: Tensor, branches: Branches) -> Tensor:
    """Let a mask carry the branches that it stands for.

    Args:
        mask: (R, 1, L, L) as from `attention_mask`.
        branches: of the same batch.

    Returns:
        The mask.
    """
    setattr(mask, _CARRIED, _Carried(branches, mask.dtype))
    return mask


def _branch_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend as `sdpa_attention_forward` does, by branches where the mask carries them.

    Args:
        module: the layer.
        query: (R, H, L, D).
        key: (R, H / groups, L, D).
        value: like `key`, or of another D.
        attention_mask: as it reaches the layer.
        kwargs: for `sdpa_attention_forward`; `scaling` is heeded by both.

    Returns:
        (R, L, H, D), and nothing.
    """
    carried: _Carried | None = getattr(attention_mask, _CARRIED, None)
    if carried is None or kwargs.get("position_bias") is not None:
        plain: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **kwargs
        )
        return plain
    groups = query.shape[1] // key.shape[1]
    scale = kwargs.get("scaling")
    by_token = [each.transpose(1, 2).flatten(0, 1) for each in (query, key, value)]
    found = []
    for number, part in enumerate(carried.branches.parts):
        asking, keys, values = map(_gathered, by_token, (part.asking, part.seen, part.seen))
        mask = carried.mask(number, groups)
        if mask is None:
            output = scaled_dot_product_attention(
                asking, keys, values, is_causal=True, scale=scale, enable_gqa=groups > 1
            )
        else:
            # heads that share keys and values ask one after the other: nothing is repeated
            folded = asking.reshape(asking.shape[0], keys.shape[1], -1, asking.shape[3])
            output = scaled_dot_product_attention(
                folded, keys, values, attn_mask=mask, scale=scale
            ).reshape(*asking.shape[:3], -1)
        found.append(output.transpose(1, 2).flatten(0, 1))
    joined = torch.cat(found).index_select(0, carried.branches.found_at)
    return joined.view(query.shape[0], query.shape[2], *joined.shape[1:]), None


def _gathered(by_token: Tensor, places: Tensor) -> Tensor:
    """Return (N, H, T, D) of (R * L, H, D), at (N, T) places."""
    chosen = by_token.index_select(0, places.flatten())
    return chosen.view(*places.shape, *by_token.shape[1:]).transpose(1, 2)


AttentionInterface.register(NAME, _branch_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
