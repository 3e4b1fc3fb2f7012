"""A model of its own from a base and one of its adapters: for deployment, or to train all of it."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from motet.agents.adapter_files import without_peft
from motet.agents.adapters import activated, merged_weight
from motet.agents.quantization import check_ordinary


@torch.no_grad()
def merged_model(model: PreTrainedModel, adapter: str) -> PreTrainedModel:
    """Return a copy of the base with what an adapter adds in its weights, and no adapters.

    Weights that layers share, as head and embeddings often do, are apart in it where the adapter
    adds to one of them. In 16 bits the sums are rounded.

    Args:
        model: the base, with its adapters in it; is left alone.
        adapter: which of them.

    Returns:
        A model that plain transformers saves and loads.

    Raises:
        ValueError: where there is no such adapter, the base is quantised, or the adapter has a bias
            and its layer none.
    """
    check_ordinary(model, f"to merge the adapter {adapter!r} with")
    with activated(model, adapter):
        twin = copy.deepcopy(model)  # there is one, and none is merged
    without_peft(
        twin,
        of_layer=lambda layer: _merged_layer(layer, adapter),
        of_module=lambda whole: _own_module(whole, adapter),
    )
    head, embeddings = twin.get_output_embeddings(), twin.get_input_embeddings()
    if head.weight is not embeddings.weight:
        for config in (twin.config, twin.config.get_text_config()):
            config.tie_word_embeddings = False
        twin.all_tied_weights_keys = {}
    return twin


def _own_module(whole: Any, adapter: str) -> nn.Module:
    """Return what an adapter has in the place of a module, the base's where it has nothing."""
    module: nn.Module = whole.original_module
    if adapter in whole.modules_to_save:
        module = whole.modules_to_save[adapter]
    return module


def _merged_layer(layer: Any, adapter: str) -> nn.Module:
    """Return the base of one of peft's layers with an adapter in its weight, which is its own."""
    base: nn.Module = layer.get_base_layer()
    if not any(adapter in getattr(layer, kind) for kind in layer.adapter_layer_names):
        return base
    if layer.lora_bias[adapter] and base.bias is None:
        raise ValueError(
            f"Expected layers with a bias to merge the adapter {adapter!r} with, which has "
            "lora_bias=True, got one without; save the adapter itself."
        )
    merged = merged_weight(layer, adapter)
    own: Tensor = base.get_parameter("weight") if merged is None else merged
    base.weight = nn.Parameter(own.clone())
    if merged is None:
        layer.merge(adapter_names=[adapter])
    return base
