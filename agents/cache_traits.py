"""What a model's key-value cache costs, and whether it can be kept and extended exactly."""

import inspect
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from motet.agents.precision import computed_in

# Results of trials by model, and by what may be changed of one: they hold whatever its weights are.
_Key = tuple[torch.dtype, str]
_Memo = WeakKeyDictionary[PreTrainedModel, dict[_Key, int]]
_BYTES: _Memo = WeakKeyDictionary()
_EXTENDS: _Memo = WeakKeyDictionary()

# Rows of the trial run: tokens kept and tokens new, both ragged. Any numbers of tokens do.
_TRIAL = ((5, 2), (3, 4))

# How much more a gap may change than rounding does without one.
_NOISE = 8


def new_cache(model: PreTrainedModel) -> DynamicCache:
    """Return an empty cache for a model.

    Raises:
        TypeError: where its layers have no keys and values.
    """
    cache = _Cache(config=model.config)
    if not all(isinstance(layer, DynamicLayer) for layer in cache.layers):
        raise TypeError(
            "Expected a model whose cache is keys and values of attention layers, got "
            f"{type(model).__name__} with {type(cache.layers[0]).__name__}; state-space "
            "and linear-attention models are not supported."
        )
    return cache


class _Cache(DynamicCache):  # type: ignore[misc]  # untyped
    """A cache in the precision that attention reads it in.

    Under `torch.autocast` attention would else cast all of it again at every step.
    """

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values of a layer; see transformers' `Cache`."""
        dtype = computed_in(key_states.device, key_states.dtype)
        updated: tuple[Tensor, Tensor] = super().update(
            key_states.to(dtype), value_states.to(dtype), layer_idx, *args, **kwargs
        )
        return updated


def cache_argument(model: PreTrainedModel) -> str:
    """Return the name of the cache among the arguments of `forward`."""
    # transformers renamed `past_key_values` to `cache`, one model after the other
    renamed = "cache" in inspect.signature(model.forward).parameters
    return "cache" if renamed else "past_key_values"


def bytes_per_token(model: PreTrainedModel) -> int:
    """Return the bytes of one token's keys and values in all layers, weighed by a trial.

    Layers that attend to a window hold less of long sequences.
    """
    return _remembered(_BYTES, model, _weighed)


def extends_exactly(model: PreTrainedModel) -> bool:
    """Tell whether kept keys and values, extended, give what computing all of them gives.

    Not so where a layer forgets (sliding windows), where positions depend on the longest sequence
    of a batch, or where a model does not take its positions from `position_ids`: the gap between a
    short row's kept and new tokens would count then. The last is found out by a trial.

    Args:
        model: in evaluation mode.
    """
    return bool(_remembered(_EXTENDS, model, _tried))


def _remembered(memo: _Memo, model: PreTrainedModel, find: Callable[[PreTrainedModel], int]) -> int:
    known = memo.setdefault(model, {})
    key = (computed_in(model.device, model.dtype), str(model.config._attn_implementation))
    if key not in known:
        known[key] = find(model)
    return known[key]


@torch.no_grad()
def _weighed(model: PreTrainedModel) -> int:
    cache = new_cache(model)
    one = torch.zeros((1, 1), dtype=torch.long, device=model.device)
    _last_logits(model, one, torch.ones_like(one), torch.zeros_like(one), cache)
    held = [part for layer in cache.layers for part in (layer.keys, layer.values)]
    return sum(part.numel() * part.element_size() for part in held if part is not None)


@torch.no_grad()
def _tried(model: PreTrainedModel) -> bool:
    if not all(type(layer) is DynamicLayer for layer in new_cache(model).layers):
        return False
    if _rope_depends_on_length(model):
        return False
    vocabulary = model.get_input_embeddings().weight.shape[0]
    kept_width, new_width = (max(widths) for widths in zip(*_TRIAL, strict=True))
    total = kept_width + new_width
    ids = torch.zeros((len(_TRIAL), total), dtype=torch.long)
    mask = torch.zeros_like(ids)
    rows = []
    for i, (kept, new) in enumerate(_TRIAL):
        row = torch.arange(1 + i, 1 + i + kept + new) * 7919 % vocabulary
        ids[i, kept_width - kept : kept_width], ids[i, total - new :] = row.split([kept, new])
        mask[i, kept_width - kept : kept_width] = mask[i, total - new :] = 1
        rows.append(row.unsqueeze(0).to(model.device))
    ids, mask = ids.to(model.device), mask.to(model.device)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    cache = new_cache(model)
    start = slice(0, kept_width)
    _last_logits(model, ids[:, start], mask[:, start], positions[:, start], cache)
    if not all(layer.is_initialized for layer in cache.layers):
        return False  # layers that borrow another's keys and values
    extended = _last_logits(model, ids[:, kept_width:], mask, positions[:, kept_width:], cache)
    alone = torch.stack([_read(model, row, row.shape[1]) for row in rows])
    split = [_read(model, row, kept) for row, (kept, _) in zip(rows, _TRIAL, strict=True)]
    # what rounding does to the same rows without a gap: 16 bits have no fixed share of it
    noise = float((alone - torch.stack(split)).abs().max())
    limit = _NOISE * noise + 100 * torch.finfo(torch.float32).eps * float(alone.abs().max())
    return float((alone - extended).abs().max()) <= limit


def _read(model: PreTrainedModel, row: Tensor, kept: int) -> Tensor:
    """Return the last logits of one row, read alone: some tokens first, and then the others."""
    mask, cache = torch.ones_like(row), new_cache(model)
    positions = mask.cumsum(-1) - 1
    first = slice(0, kept)
    logits = _last_logits(model, row[:, first], mask[:, first], positions[:, first], cache)
    if kept < row.shape[1]:
        logits = _last_logits(model, row[:, kept:], mask, positions[:, kept:], cache)
    return logits[0]


def _rope_depends_on_length(model: PreTrainedModel) -> bool:
    """Tell whether rotary frequencies change where a batch gets longer than in training."""
    rope = getattr(model.config.get_text_config(), "rope_parameters", None)  # not all have it
    return any(kind in str(rope) for kind in ("'dynamic'", "'longrope'"))


def _last_logits(
    model: PreTrainedModel, ids: Tensor, mask: Tensor, positions: Tensor, cache: DynamicCache
) -> Tensor:
    output = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        use_cache=True,
        logits_to_keep=1,
        **{cache_argument(model): cache},
    )
    logits: Tensor = output.logits[:, -1].float()
    return logits
