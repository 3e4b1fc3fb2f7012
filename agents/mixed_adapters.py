"""Several adapters in one forward pass: the base over all rows, and to each row its own adapter.

A layer multiplies all rows with the base's weight W, and with the A of all adapters at once, one
below the other. What a row got from the A of other adapters is set to zero, and the rest goes
through all B side by side: W x + sum_i [row is i's] scaling_i B_i A_i x.

How this departs from peft's own mixed batches (`adapter_names=` of its layers' forward):

1. Two small products for all adapters, instead of two for each and a copy of its rows.
2. Rows may leave while others go on (`RowAdapters.use`).
3. Only the LoRA of linear layers. Of DoRA, embeddings and whole modules `can_mix` says no; agents
   with such adapters are sampled apart.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from motet.agents.adapters import activated, adapter_layers
from motet.agents.watched import is_watched

# Layers of peft that compute W x + scaling B A x. In 8 bits W x depends on all rows of the batch.
_PLAIN = ("Linear", "Linear4bit")
_PEFT = "peft.tuners.lora."

# Rows and tokens of the trial; a layer that sees other numbers does not see the batch's rows.
_TRIAL = (5, 3)

_BY_ROW: WeakKeyDictionary[PreTrainedModel, dict[frozenset[str], bool]] = WeakKeyDictionary()


class _Shares:
    """Which columns of the stacked A count for which rows, for the rows that run now."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._of = torch.empty(0, dtype=torch.long)
        self._known: dict[tuple[int, ...], Tensor] = {}

    def use(self, adapters: Sequence[int]) -> None:
        self._of = torch.tensor(adapters, dtype=torch.long)
        self._known = {}

    def of_columns(self, columns: tuple[int, ...]) -> Tensor:
        """Return (R, 1, C) ones where row and column are of one adapter, zeros elsewhere."""
        share = self._known.get(columns)
        if share is None:
            same = self._of.unsqueeze(-1) == torch.tensor(columns)
            share = self._known[columns] = same.float().unsqueeze(1).to(self._device)
        return share


class RowAdapters:
    """Which adapter each row of a batch is computed with.

    Args:
        of: (B,) place of the row's adapter among those of the batch, -1 for the plain base.
        shares: what the layers read.

    Attributes:
        of: as given.
    """

    def __init__(self, of: Sequence[int], shares: _Shares) -> None:
        self.of = list(of)
        self._shares = shares

    def of_rows(self, rows: Sequence[int]) -> Self:
        """Return the same for some of the rows."""
        return type(self)([self.of[row] for row in rows], self._shares)

    def use(self, adapters: Sequence[int]) -> None:
        """Say which adapters the rows of the next forward passes have.

        Args:
            adapters: as `of`, one for each row of the passes' input.
        """
        self._shares.use(adapters)


def can_mix(model: PreTrainedModel, adapters: Sequence[str | None]) -> bool:
    """Tell whether rows with these adapters can be computed side by side.

    Not so with adapters of other layers than linear ones, DoRA, hooks on an adapter's parts, and
    where a layer does not see the batch row by row, as the experts of a mixture do not. The last is
    found out by a trial.

    Args:
        model: in evaluation mode, with its adapters in it.
        adapters: names, None for the plain base.
    """
    names = sorted({adapter for adapter in adapters if adapter is not None})
    layers = [layer for layer in adapter_layers(model) if _has_any(layer, names)]
    if not all(_is_plain(layer, names) for layer in layers):
        return False
    key = frozenset(names)
    known = _BY_ROW.setdefault(model, {})
    if key not in known:
        known[key] = _see_rows(model, layers)
    return known[key]


@contextmanager
def mixed_adapters(model: PreTrainedModel, adapters: Sequence[str | None]) -> Iterator[RowAdapters]:
    """Compute each row with an adapter of its own, without gradient.

    Args:
        model: for which `can_mix` is true; its weights must not change meanwhile.
        adapters: (B,) name of each row's adapter, None for the plain base.
    """
    names = list(dict.fromkeys(adapter for adapter in adapters if adapter is not None))
    place: dict[str | None, int] = {None: -1, **{name: i for i, name in enumerate(names)}}
    shares = _Shares(model.device)
    layers = [layer for layer in adapter_layers(model) if _has_any(layer, names)]
    changed = []
    with activated(model, None):
        try:
            for layer in layers:
                changed.append(layer)
                layer.forward = _MixedLinear(layer, names, shares)
            yield RowAdapters([place[adapter] for adapter in adapters], shares)
        finally:
            for layer in changed:
                layer.__dict__.pop("forward", None)


class _MixedLinear:
    """What a layer computes for rows of several adapters."""

    def __init__(self, layer: Any, names: Sequence[str], shares: _Shares) -> None:
        own = [(i, name) for i, name in enumerate(names) if name in layer.lora_A]
        downs = [layer.lora_A[name].weight.detach() for _, name in own]
        ups = [layer.lora_B[name].weight.detach() * layer.scaling[name] for _, name in own]
        self._base = layer.base_layer
        self._down = torch.cat(downs)
        self._up = torch.cat(ups, dim=1)
        self._shares = shares
        self._columns = tuple(
            i for (i, _), down in zip(own, downs, strict=True) for _ in range(len(down))
        )

    def __call__(self, rows: Tensor) -> Tensor:
        """Return (R, L, out) of (R, L, in)."""
        result: Tensor = self._base(rows)
        inner = nn.functional.linear(rows.to(self._down.dtype), self._down)
        added = inner * self._shares.of_columns(self._columns)
        if result.dtype == added.dtype:
            both = torch.addmm(result.flatten(0, 1), added.flatten(0, 1), self._up.T)
            return both.view(result.shape)
        return (result + nn.functional.linear(added, self._up)).to(result.dtype)


def _has_any(layer: Any, names: Sequence[str]) -> bool:
    return any(name in getattr(layer, kind) for kind in layer.adapter_layer_names for name in names)


def _is_plain(layer: Any, names: Sequence[str]) -> bool:
    """Tell whether a layer computes W x + scaling B A x with all of some adapters that it has."""
    if type(layer).__name__ not in _PLAIN or not type(layer).__module__.startswith(_PEFT):
        return False
    if "forward" in layer.__dict__:
        return False
    own = [name for name in names if name in layer.lora_A]
    parts = [layer.lora_A[name] for name in own] + [layer.lora_B[name] for name in own]
    variants = [name for name in own if name in layer.lora_variant or layer.lora_bias[name]]
    return not variants and not any(map(is_watched, parts))


@torch.no_grad()
def _see_rows(model: PreTrainedModel, layers: Sequence[nn.Module]) -> bool:
    """Tell whether all layers get (rows, tokens, ...) of what the model is given."""
    shapes: list[torch.Size] = []
    handles = [
        layer.register_forward_pre_hook(lambda _, inputs: shapes.append(inputs[0].shape))
        for layer in layers
    ]
    try:
        with activated(model, None):
            model(input_ids=torch.zeros(_TRIAL, dtype=torch.long, device=model.device))
    finally:
        for handle in handles:
            handle.remove()
    return all(len(shape) == 3 and shape[:2] == _TRIAL for shape in shapes)
