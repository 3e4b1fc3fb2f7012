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

import torch
from torch import Tensor, nn

from motet.agents.adapters import merged_weight
from motet.agents.generation import GenerationConfig

# A batch must run for this many steps before reordering pays.
_MIN_STEPS = 16


@contextmanager
def packed_linears(
    model: nn.Module, adapter: str | None, generation: GenerationConfig, *, num_rows: int
) -> Iterator[None]:
    """Let the linear layers of a model use reordered copies of their weights, without gradient.

    What an adapter adds to a layer is added to the copy. Nothing changes on other devices than
    CPUs, for few steps, and where oneDNN is missing.

    Args:
        model: its weights must not change meanwhile.
        adapter: name of the active adapter, None for the plain base.
        generation: with its bf16, the copies are in bfloat16, as `torch.autocast` would have them.
        num_rows: sequences side by side.
    """
    pays = generation.max_new_tokens >= _MIN_STEPS and _has_onednn()
    layers: list[nn.Module] = []
    try:
        for layer, weight in _matrices(model, adapter) if pays else ():
            dtype = torch.bfloat16 if generation.bf16 else weight.dtype
            packed = torch.ops.mkldnn._reorder_linear_weight(
                weight.to(dtype), min(num_rows, generation.max_rows)
            )
            bias: Tensor | None = getattr(layer, "bias")  # noqa: B009  # typed for modules
            layers.append(layer)
            layer.forward = functools.partial(
                _product, packed, None if bias is None else bias.detach().to(dtype)
            )
        yield
    finally:
        for layer in layers:
            del layer.forward


def _matrices(module: nn.Module, adapter: str | None) -> Iterator[tuple[nn.Module, Tensor]]:
    """Yield the layers that are one matrix on a CPU, and it, but what somebody has wrapped."""
    weight = None if "forward" in module.__dict__ else merged_weight(module, adapter)
    if weight is None:
        for child in module.children():
            yield from _matrices(child, adapter)
    elif weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.bfloat16):
        yield module, weight


def _has_onednn() -> bool:
    return bool(torch.backends.mkldnn.is_available()) and all(  # type: ignore[no-untyped-call]
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )


def _product(weight: Tensor, bias: Tensor | None, rows: Tensor) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(
        rows.to(weight.dtype), weight, bias, "none", [], ""
    )
    return product
