"""Several policies over one base model: each a LoRA adapter of its own, in the same module.

LoRA (Hu et al., arXiv 2106.09685) leaves a layer's weight W as it is and trains W + scaling * B A,
with B and A of low rank. N agents over one base cost N times A and B, and W once.

How this departs from peft's own switches:

1. Which adapter is active is set for the time of a `with` block, on the layers alone.
   `set_adapter` and `disable_adapter` of peft also turn `requires_grad` of every adapter on or off,
   so that only one of them could be trained at a time.
2. `add_adapter` of transformers is not used: its releases ask for releases of peft that are not
   out yet. `peft.functional` is what peft offers to libraries.
"""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from motet.agents.lora_config import check_lora, require_peft

if TYPE_CHECKING:
    from peft import LoraConfig


@contextmanager
def activated(model: PreTrainedModel, adapter: str | None) -> Iterator[None]:
    """Compute with one adapter; afterwards the model's are as before.

    It writes two attributes of each layer with adapters that is set otherwise, and touches no
    parameter. A model without adapters is left alone.

    Args:
        model: the base, with its adapters in it.
        adapter: name of the adapter, None for the plain base.

    Raises:
        ValueError: where there is no such adapter, or one is merged into the weights: the base is
            not there any more.
    """
    if adapter is not None and adapter not in adapter_names(model):
        raise ValueError(
            f"Expected an adapter among those of the model, {adapter_names(model)}, got "
            f"{adapter!r}; has it been deleted?"
        )
    changed = []
    for layer in adapter_layers(model):
        if layer.merged_adapters:
            raise ValueError(
                f"Expected adapters beside the weights of the base, got {layer.merged_adapters} "
                "merged into them; call unmerge_adapter() of peft."
            )
        state = layer._active_adapter, layer._disable_adapters
        wanted = _state(layer, adapter)
        if state != wanted:
            changed.append((layer, state, wanted))
    try:
        for layer, _, wanted in changed:
            layer._active_adapter, layer._disable_adapters = wanted
        yield
    finally:
        for layer, state, _ in changed:
            layer._active_adapter, layer._disable_adapters = state


@contextmanager
def without_adapters(model: PreTrainedModel) -> Iterator[None]:
    """Compute with the plain base, as a reference policy does; afterwards it is as before."""
    with activated(model, None):
        yield


def adapter_names(model: PreTrainedModel) -> list[str]:
    """Return the names of a model's adapters."""
    return list(getattr(model, "peft_config", {}))  # peft's own attribute: there are none without


def adapter_parameters(model: PreTrainedModel, adapter: str) -> list[nn.Parameter]:
    """Return the weights of one adapter, each once."""
    weights: list[nn.Parameter] = []
    for layer in adapter_layers(model):
        for kind in layer.adapter_layer_names:
            own = getattr(layer, kind)
            if adapter in own:
                part = own[adapter]
                weights += [part] if isinstance(part, nn.Parameter) else part.parameters()
    return list({id(weight): weight for weight in weights}.values())


def add_adapter(model: PreTrainedModel, adapter: str, lora: "LoraConfig", seed: int) -> None:
    """Put a new adapter into a model, and freeze the base.

    The adapter is active in the model only where it is the first.

    Args:
        model: gets the adapter's layers.
        adapter: its name.
        lora: settings, of which a copy is kept.
        seed: of its first weights; torch's global random state is left alone.

    Raises:
        ImportError: where peft is not installed.
        TypeError: where the settings are no `LoraConfig`.
        ValueError: where the name is taken or cannot be one, or the settings would change what
            other agents share.
    """
    require_peft()
    check_lora(lora)
    with adding(model, adapter):
        _inject(model, adapter, lora, seed)


@contextmanager
def adding(model: PreTrainedModel, adapter: str) -> Iterator[None]:
    """Leave a model as it was where adding an adapter in this context fails.

    Args:
        model: is to get the adapter.
        adapter: its name.

    Raises:
        ValueError: where the name is taken or cannot be one.
    """
    _check_name(model, adapter)
    marked, had_any = model._hf_peft_config_loaded, bool(adapter_names(model))
    modules = [(module, dict(module._modules)) for module in model.modules()]
    required = [(weight, weight.requires_grad) for weight in model.parameters()]
    states = [
        (layer, layer._active_adapter, layer._disable_adapters) for layer in adapter_layers(model)
    ]
    try:
        yield
    except BaseException:  # whatever it is, it is raised again
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Adapter .* was active which is now deleted")
            for layer, active, disabled in states:
                whole = not hasattr(layer, "base_layer")  # a module that adapters replace
                layer.delete_adapter(adapter, *([None] if whole else []))
                layer._active_adapter, layer._disable_adapters = active, disabled
        for module, children in modules:
            module._modules.clear()
            module._modules.update(children)
        for weight, flag in required:
            weight.requires_grad_(flag)
        if had_any:
            model.peft_config.pop(adapter, None)
        elif "peft_config" in vars(model):
            del model.peft_config
        model._hf_peft_config_loaded = marked
        raise


def _inject(model: PreTrainedModel, adapter: str, lora: "LoraConfig", seed: int) -> None:
    from peft.functional import (  # noqa: PLC0415  # an extra
        cast_adapter_dtype,
        inject_adapter_in_model,
    )

    lora = copy.deepcopy(lora)
    lora.inference_mode = False
    lora.base_model_name_or_path = model.name_or_path or None
    lora.task_type = lora.task_type or "CAUSAL_LM"
    others = adapter_names(model)
    kept = [(w, w.requires_grad) for name in others for w in adapter_parameters(model, name)]
    before = {
        id(layer): (layer._active_adapter, layer._disable_adapters)
        for layer in adapter_layers(model)
    }
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        torch.default_generator.manual_seed(seed)
        warnings.filterwarnings("ignore", "Already found a `peft_config` attribute")
        inject_adapter_in_model(lora, model, adapter)
    for layer in adapter_layers(model) if others else []:
        layer._active_adapter, layer._disable_adapters = before.get(id(layer), ([], False))
    for weight, required in kept:
        weight.requires_grad_(required)
    cast_adapter_dtype(model, adapter)  # to float32: small updates vanish in 16 bits
    train_adapter(model, adapter)
    model.train(model.training)  # the new layers as well
    # as transformers' own `add_adapter` leaves it: `model.save_pretrained` would else write the
    # layers of all adapters as if they were a model
    model._hf_peft_config_loaded = True


def train_adapter(model: PreTrainedModel, adapter: str) -> None:
    """Let an adapter be trained, and freeze the base; other adapters are left as they are."""
    all_adapters = {id(w) for name in adapter_names(model) for w in adapter_parameters(model, name)}
    for weight in model.parameters():
        if id(weight) not in all_adapters:
            weight.requires_grad_(False)
    for weight in adapter_parameters(model, adapter):
        weight.requires_grad_(True)


def opened(model: object, adapter: str | None) -> tuple[Any, str | None]:
    """Return the base model without peft's wrapper around it, and which of its adapters is meant.

    Args:
        model: a transformers model or a `PeftModel`; anything else is returned as it is.
        adapter: name, or None for the active one.

    Raises:
        TypeError: where a `PeftModel` has something else than LoRA.
        ValueError: where there is no such adapter, or several are active.
    """
    if isinstance(model, nn.Module) and not isinstance(model, PreTrainedModel):
        model = _unwrapped(model)
    if not isinstance(model, PreTrainedModel):
        return model, adapter
    if adapter is None:
        adapter = _active(model)
    elif adapter not in adapter_names(model):
        raise ValueError(
            f"Expected an adapter among those of the model, {adapter_names(model)}, got "
            f"{adapter!r}; agent.with_adapter({adapter!r}) adds one."
        )
    if adapter is not None:
        check_lora(model.peft_config[adapter])
    return model, adapter


def merged_weight(layer: nn.Module, adapter: str | None) -> Tensor | None:
    """Return W + scaling * B A, the one matrix that a linear layer multiplies with.

    Args:
        layer: `nn.Linear`, or the layer that LoRA made of one.
        adapter: name of the adapter, None for the plain base.

    Returns:
        (out features, in features) in the dtype of W, without gradient; W itself where the
        adapter leaves the layer alone. None where it is not one matrix: other layers than linear
        ones, DoRA, which normalises the sum, and LoRA with a bias of its own.
    """
    if type(layer) is nn.Linear:
        return layer.weight.detach()
    if find_spec("peft") is None:
        return None
    from peft.tuners.lora import Linear  # noqa: PLC0415  # an extra

    if type(layer) is not Linear or type(layer.base_layer) is not nn.Linear:
        return None
    lora: Any = layer  # peft's
    weight: Tensor = lora.base_layer.weight.detach()
    if adapter is None or adapter not in lora.lora_A:
        return weight
    if adapter in lora.lora_variant or lora.lora_bias[adapter]:
        return None
    a, b = lora.lora_A[adapter].weight.detach(), lora.lora_B[adapter].weight.detach()
    merged: Tensor = weight + lora.scaling[adapter] * (b @ a)
    return merged.to(weight.dtype)


def adapter_layers(model: PreTrainedModel) -> list[Any]:
    """Return the layers that hold adapters, of peft's kinds."""
    if not adapter_names(model):
        return []
    from peft.tuners.tuners_utils import BaseTunerLayer  # noqa: PLC0415  # an extra
    from peft.utils import ModulesToSaveWrapper  # noqa: PLC0415

    kinds = BaseTunerLayer, ModulesToSaveWrapper
    return [module for module in model.modules() if isinstance(module, kinds)]


def _state(layer: Any, adapter: str | None) -> tuple[list[str] | str, bool]:
    """Return what a layer's `_active_adapter` and `_disable_adapters` are to be."""
    if adapter is None:
        return layer._active_adapter, True
    # whole modules that an adapter replaces accept the names of their own adapters only
    own = any(adapter in getattr(layer, kind) for kind in layer.adapter_layer_names)
    return ([adapter] if own else []), False


def _active(model: PreTrainedModel) -> str | None:
    """Return the active adapter of a model, None where there is none."""
    names: dict[str, None] = {}
    for layer in adapter_layers(model):
        if not layer.disable_adapters:
            names.update(dict.fromkeys(layer.active_adapters))
    if len(names) > 1:
        raise ValueError(
            f"Expected one active adapter, got {list(names)}; name one of them, "
            f"LMAgent(model, tokenizer, adapter={next(iter(names))!r})."
        )
    return next(iter(names), None)


def _unwrapped(model: nn.Module) -> object:
    if find_spec("peft") is None:
        return model
    from peft import PeftModel  # noqa: PLC0415  # an extra

    if not isinstance(model, PeftModel):
        return model
    for config in model.peft_config.values():
        check_lora(config)
    return model.get_base_model()


def _check_name(model: PreTrainedModel, adapter: object) -> None:
    if not isinstance(adapter, str) or not adapter or "." in adapter:
        raise ValueError(f"Expected a name without dots for an adapter, got {adapter!r}.")
    if hasattr(nn.ModuleDict(), adapter):
        raise ValueError(f"Expected another name for an adapter, got {adapter!r}, which torch has.")
    if adapter in adapter_names(model):
        raise ValueError(
            f"Expected a new name, got {adapter!r}, which the model has; for another agent with "
            "that adapter call with_generation() of the agent that has it: they share the policy "
            "and its version."
        )
