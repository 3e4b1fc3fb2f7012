"""Adapters in folders, as peft writes and reads them; and the base of a model that has adapters."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from motet.agents.adapters import (
    adapter_names,
    adapter_parameters,
    add_adapter,
    adding,
)
from motet.agents.lora_config import require_peft
from motet.agents.quantization import check_ordinary

CONFIG = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"
_PICKLED = "adapter_model.bin"  # as peft wrote it in former times
_PREFIX = "base_model.model."  # of names in the file: a `PeftModel` is two modules around the base


def is_adapter_folder(name_or_path: str | Path) -> bool:
    """Tell whether something is a folder with an adapter and without a whole model."""
    folder = Path(name_or_path)
    return (folder / CONFIG).exists() and not (folder / "config.json").exists()


def base_of_adapter(folder: str | Path) -> str:
    """Return the name or folder of the model that an adapter was trained on.

    Raises:
        ImportError: where peft is not installed.
        FileNotFoundError: where the adapter does not say, or names a folder that is not there.
    """
    require_peft()
    from peft import PeftConfig  # noqa: PLC0415  # an extra

    base: str | None = PeftConfig.from_pretrained(str(folder)).base_model_name_or_path
    if not base or (base.startswith(("/", ".", "~")) and not Path(base).exists()):
        raise FileNotFoundError(
            f"Expected the base model of the adapter in {folder}, got the name {base!r}, where "
            "there is none; load the base, and call base.with_adapter(name, folder)."
        )
    return base


def load_adapter(model: PreTrainedModel, adapter: str, folder: str | Path) -> None:
    """Put a saved adapter into a model, under a name of its own.

    Args:
        model: the base it was trained on.
        adapter: its name in the model.
        folder: what `save_adapter`, or peft, wrote.

    Raises:
        ImportError: where peft is not installed.
        FileNotFoundError: where there is no adapter in the folder.
        ValueError: as `add_adapter`, and where weights are missing or do not fit the model, which
            is then as it was.
    """
    require_peft()
    from peft import PeftConfig  # noqa: PLC0415  # an extra
    from peft.utils import load_peft_weights  # noqa: PLC0415

    if not (Path(folder) / CONFIG).exists():
        raise FileNotFoundError(
            f"Expected a folder with an adapter and its {CONFIG}, got {folder}."
        )
    if not any((Path(folder) / name).exists() for name in (_WEIGHTS, _PICKLED)):
        raise FileNotFoundError(f"Expected {_WEIGHTS} or {_PICKLED} beside {CONFIG} in {folder}.")
    saved = load_peft_weights(str(folder), device="cpu")
    weights = {name.removeprefix(_PREFIX): weight for name, weight in saved.items()}
    lora = PeftConfig.from_pretrained(str(folder))
    with adding(model, adapter):
        add_adapter(model, adapter, lora, seed=0)
        _fill(model, adapter, weights, folder)


def _fill(
    model: PreTrainedModel, adapter: str, weights: dict[str, Tensor], folder: str | Path
) -> None:
    """Give all weights of an adapter their values from a folder."""
    from peft.functional import set_peft_model_state_dict  # noqa: PLC0415  # an extra

    own = {id(weight) for weight in adapter_parameters(model, adapter)}
    names = {name for name, weight in model.named_parameters() if id(weight) in own}
    try:
        result = set_peft_model_state_dict(model, weights, adapter)
    except RuntimeError as error:  # torch's, of shapes
        raise ValueError(
            f"Expected an adapter that fits {type(model).__name__}, got the one in {folder}; is "
            "it another model's?"
        ) from error
    missing = sorted(names & set(result.missing_keys))
    if missing or result.unexpected_keys:
        raise ValueError(
            f"Expected all weights of the adapter in {folder} and no others; missing are "
            f"{missing[:3]}, unknown are {result.unexpected_keys[:3]}."
        )


def save_adapter(model: PreTrainedModel, adapter: str, folder: str | Path) -> None:
    """Write one adapter as peft does: its settings, and its weights alone.

    Embeddings that were resized belong to the base, and are not part of it.

    Args:
        model: the base, with its adapters in it.
        adapter: which of them.
        folder: is made where it is not there; `PeftModel.from_pretrained(base, folder)` loads it.
    """
    from peft.functional import get_peft_model_state_dict  # noqa: PLC0415  # an extra

    weights: dict[str, Tensor] = get_peft_model_state_dict(
        model, adapter_name=adapter, save_embedding_layers=False
    )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # a copy of each: the file must not hold two names for one tensor
    tensors = {
        _PREFIX + name: weight.detach().clone(memory_format=torch.contiguous_format)
        for name, weight in weights.items()
    }
    save_file(tensors, folder / _WEIGHTS, metadata={"format": "pt"})
    config = copy.deepcopy(model.peft_config[adapter])
    config.inference_mode = True  # as peft writes it: loading is for use unless told otherwise
    config.save_pretrained(str(folder))


def save_base(model: PreTrainedModel, folder: str | Path) -> None:
    """Write the plain base, without its adapters, as an ordinary model."""
    if not adapter_names(model):
        model.save_pretrained(folder)
        return
    marked = model._hf_peft_config_loaded
    model._hf_peft_config_loaded = False  # else transformers writes an adapter
    try:
        model.save_pretrained(folder, state_dict=_base_state(model))
    finally:
        model._hf_peft_config_loaded = marked


def plain_copy(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a model without its adapters.

    Weights that were frozen for the sake of adapters require a gradient in it; without adapters
    they are as in the model.

    Raises:
        ValueError: where the weights are quantised.
    """
    check_ordinary(model, "for a copy that is trained")
    twin = copy.deepcopy(model)
    if not adapter_names(model):
        return twin
    without_peft(
        twin,
        of_layer=lambda layer: layer.get_base_layer(),
        of_module=lambda whole: whole.original_module,
    )
    return twin


def without_peft(
    model: PreTrainedModel,
    of_layer: Callable[[Any], nn.Module],
    of_module: Callable[[Any], nn.Module],
) -> None:
    """Put ordinary modules in the place of peft's, all of them to be trained; in place.

    Args:
        model: has adapters.
        of_layer: what to put in the place of a layer with adapters.
        of_module: what to put in the place of a module that adapters replace as a whole.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer  # noqa: PLC0415  # an extra
    from peft.utils import ModulesToSaveWrapper  # noqa: PLC0415

    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, BaseTunerLayer):
                setattr(module, name, of_layer(child))
            elif isinstance(child, ModulesToSaveWrapper):
                setattr(module, name, of_module(child))
    del model.peft_config
    model._hf_peft_config_loaded = False
    model.requires_grad_(True)


def _base_state(model: PreTrainedModel) -> dict[str, Any]:
    """Return the state of a model under the names it had before there were adapters."""
    from peft.tuners.tuners_utils import BaseTunerLayer  # noqa: PLC0415  # an extra
    from peft.utils import ModulesToSaveWrapper  # noqa: PLC0415

    state: dict[str, Any] = dict(model.state_dict())
    for kind, inner in ((ModulesToSaveWrapper, "original_module"), (BaseTunerLayer, "base_layer")):
        for name, module in model.named_modules():
            if isinstance(module, kind):
                own = [key for key in state if key.startswith(f"{name}.")]
                for key in own:
                    weight = state.pop(key)
                    rest = key.removeprefix(f"{name}.")
                    if rest.startswith(f"{inner}."):
                        state[f"{name}.{rest.removeprefix(f'{inner}.')}"] = weight
    return state
