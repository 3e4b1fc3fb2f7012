"""Matrix products for decoding on a CPU: weights in the order that oneDNN reads them in.

A decode step multiplies a few rows with every weight of the model, which a general product does at
a fraction of the machine's rate: 62 ms for 8 rows of a head of 49,152 tokens, 14 with its weight in
oneDNN's order, and 10 in bfloat16. Reordering takes as long as a step or two, so that it is done
anew for each batch of completions and nothing can be out of date; meanwhile there is a second copy
of the weights.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from motet.agents.adapters import merged_weight
from motet.agents.generation import GenerationConfig
from motet.agents.precision import has_bf16
from motet.agents.watched import is_watched

# A batch must run for this many steps before reordering pays.
_MIN_STEPS = 16

# What peft's layers have of each adapter.
_BY_ADAPTER = ("lora_A", "lora_B", "modules_to_save")


@contextmanager
def packed_linears(
    model: nn.Module, adapter: str | None, generation: GenerationConfig, *, num_rows: int
) -> Iterator[None]:
    """Let the linear layers of a model use reordered copies of their weights, without gradient.

    What an adapter adds to a layer is added to the copy in float32. In 16 bits, which would round
    it away, it is computed beside the base, as LoRA's layers do. Layers with hooks that come before
    them are left alone. Nothing changes on other devices than CPUs, for few steps, and where oneDNN
    is missing.

    Args:
        model: its weights must not change meanwhile.
        adapter: name of the active adapter, None for the plain base.
        generation: with its bf16, the copies are in bfloat16, as `torch.autocast` would have them.
        num_rows: sequences side by side.
    """
    pays = generation.max_new_tokens >= _MIN_STEPS and _has_onednn()
    layers = []
    try:
        for layer, weight in _matrices(model, adapter, bf16=generation.bf16) if pays else ():
            dtype = torch.bfloat16 if generation.bf16 else weight.dtype
            packed = torch.ops.mkldnn._reorder_linear_weight(
                weight.to(dtype), min(num_rows, generation.max_rows)
            )
            bias = layer.bias  # LoRA's layers pass on their base's
            layers.append(layer)
            layer.forward = functools.partial(
                _product, packed, None if bias is None else bias.detach().to(dtype)
            )
        yield
    finally:
        for layer in layers:
            del layer.forward


def _matrices(
    module: nn.Module, adapter: str | None, *, bf16: bool
) -> Iterator[tuple[Any, Tensor]]:
    """Yield the layers that are one matrix on a CPU, and it, but what somebody has wrapped."""
    weight = merged_weight(module, adapter) if _can_pack(module, bf16=bf16) else None
    if weight is not None:
        yield module, weight
        return
    for name, child in module.named_children():
        parts = child
        if name in _BY_ADAPTER and isinstance(child, nn.ModuleDict):
            if adapter is None or adapter not in child:
                continue  # other adapters are not computed with
            parts = child[adapter]
        yield from _matrices(parts, adapter, bf16=bf16)


def _can_pack(layer: nn.Module, *, bf16: bool) -> bool:
    """Tell whether a copy may stand for a layer; asked before its weights are merged."""
    linear = getattr(layer, "base_layer", layer)  # of LoRA
    if type(linear) is not nn.Linear or linear.weight.device.type != "cpu":
        return False
    if "forward" in layer.__dict__ or layer._forward_pre_hooks:
        return False
    dtype = linear.weight.dtype
    if linear is not layer:
        # 16 bits would round away what an adapter adds: its parts are packed one by one then
        return dtype == torch.float32 and not bf16 and not any(map(is_watched, _parts(layer)))
    if bf16 or dtype == torch.bfloat16:
        return dtype in (torch.float32, torch.bfloat16) and has_bf16(linear.weight.device)
    return dtype == torch.float32


def _parts(layer: nn.Module) -> Iterator[nn.Module]:
    return (part for part in layer.modules() if part is not layer)


def _has_onednn() -> bool:
    return bool(torch.backends.mkldnn.is_available()) and all(  # type: ignore[no-untyped-call]
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )


def _product(weight: Tensor, bias: Tensor | None, rows: Tensor) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(
        rows.to(weight.dtype), weight, bias, "none", [], ""
    )
    return product
