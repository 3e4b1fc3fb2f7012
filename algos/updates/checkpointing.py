"""Gradient checkpointing: keep each layer's input only, and compute its inside again in backward.

From "Training deep nets with sublinear memory cost" (Chen et al. 2016, arXiv 1604.06174). Gradients
are the same; the memory of a layer's activations is held for one layer at a time, for about a third
more computation.

transformers' own switch acts in training mode only, which turns on dropout: the trained
distribution would not be the sampled one. So that the same layers are checkpointed from outside.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer


def checkpointing_layers(model: PreTrainedModel) -> list[nn.Module]:
    """Return the layers of a model that are made to be checkpointed.

    Raises:
        ValueError: where it has none.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, GradientCheckpointingLayer)]
    if not layers:
        raise ValueError(
            "Expected a model with layers that can be checkpointed for "
            f"gradient_checkpointing=True, got {type(model).__name__} without; set "
            "gradient_checkpointing=False."
        )
    return layers


@contextmanager
def checkpointed(layers: Sequence[nn.Module]) -> Iterator[None]:
    """Checkpoint some layers; enter it around the forward pass and the backward pass.

    The backward pass runs a layer's forward again. Layers within it must then be as they were the
    first time, or what they save does not match.

    Args:
        layers: of `checkpointing_layers`; with none of them nothing is changed.
    """
    before: list[dict[str, Any]] = [dict(vars(layer)) for layer in layers]
    try:
        for layer in layers:
            # nothing is random in evaluation mode, and a generator's state is slow to read
            layer.forward = partial(
                checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False
            )
        yield
    finally:
        for layer, attributes in zip(layers, before, strict=True):
            if "forward" in attributes:  # some libraries' hooks put one there
                layer.forward = attributes["forward"]
            else:
                vars(layer).pop("forward", None)
