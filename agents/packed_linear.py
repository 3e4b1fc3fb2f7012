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

from motet.agents.generation import GenerationConfig

# A batch must run for this many steps before reordering pays.
_MIN_STEPS = 16


@contextmanager
def packed_linears(
    model: nn.Module, generation: GenerationConfig, *, num_rows: int
) -> Iterator[None]:
    """Let the linear layers of a model use reordered copies of their weights, without gradient.

    Nothing changes on other devices than CPUs, for few steps, and where oneDNN is missing.

    Args:
        model: its weights must not change meanwhile.
        generation: with its bf16, the copies are in bfloat16, as `torch.autocast` would have them.
        num_rows: sequences side by side.
    """
    pays = generation.max_new_tokens >= _MIN_STEPS and _has_onednn()
    layers = list(_layers(model)) if pays else []
    num_rows = min(num_rows, generation.max_rows)
    try:
        for layer in layers:
            weight: Tensor = layer.weight.detach()
            packed = torch.ops.mkldnn._reorder_linear_weight(
                weight.bfloat16() if generation.bf16 else weight, num_rows
            )
            layer.forward = functools.partial(  # type: ignore[method-assign]  # of this one
                _product, packed, _biases(layer, packed.dtype)
            )
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("forward", None)


def _layers(model: nn.Module) -> Iterator[nn.Linear]:
    """Yield the layers that are plain products, on a CPU, and not already wrapped by somebody."""
    for module in model.modules():
        if not isinstance(module, nn.Linear) or "forward" in module.__dict__:
            continue
        weight = module.weight
        plain = type(module) is nn.Linear and weight.device.type == "cpu"
        if plain and weight.dtype in (torch.float32, torch.bfloat16):
            yield module


def _biases(layer: nn.Linear, dtype: torch.dtype) -> Tensor | None:
    bias: Tensor | None = layer.bias
    return None if bias is None else bias.detach().to(dtype)


def _has_onednn() -> bool:
    return bool(torch.backends.mkldnn.is_available()) and all(  # type: ignore[no-untyped-call]
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )


def _product(weight: Tensor, bias: Tensor | None, rows: Tensor) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(
        rows.to(weight.dtype), weight, bias, "none", [], ""
    )
    return product
