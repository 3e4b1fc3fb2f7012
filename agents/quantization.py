"""Models with weights in 4 or 8 bits, through bitsandbytes: read, not trained.

An adapter over such a base is trained as over any other (QLoRA, Dettmers et al., arXiv 2305.14314).

Pitfalls:

1. In evaluation mode bitsandbytes reorders 4-bit weights on CPUs with bfloat16 for a product of
   its own that has no gradient: adapters before it would be trained on wrong ones. Learners leave
   models in evaluation mode, so that `made_trainable` switches it off.
2. In 8 bits activations are rounded as well, and columns of a batch in which any number is above
   `llm_int8_threshold` are multiplied in 16 bits instead, so that what a row gets depends on its
   neighbours. The log-probabilities of SmolLM2-135M's tokens as they were sampled and as they are
   trained differ by 0.23 in the mean and by 7 at most, with `llm_int8_threshold=0.0` by 0.07 and
   0.4; in 4 bits by as little as with ordinary weights, 0.00003.
"""

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, PreTrainedModel

if TYPE_CHECKING:
    from transformers import BitsAndBytesConfig

_WORDY = "MatMul8bitLt: inputs will be cast"  # said by every layer at every token


def is_quantized(model: PreTrainedModel) -> bool:
    """Tell whether a model's weights are quantised, so that they cannot be trained."""
    return getattr(model, "hf_quantizer", None) is not None  # transformers' own attribute


def loading_options(
    name_or_path: str,
    revision: str,
    quantization_config: "BitsAndBytesConfig | None",
    device: torch.device,
) -> dict[str, Any]:
    """Return what `AutoModelForCausalLM.from_pretrained` is told to load quantised weights.

    Args:
        name_or_path: of a model, which may have been saved quantised.
        revision: on the hub.
        quantization_config: how to quantise it.
        device: where it goes.

    Returns:
        Nothing for a model with ordinary weights.

    Raises:
        ImportError: where bitsandbytes or accelerate is needed and not installed.
        TypeError: where the settings are of another class.
        ValueError: where bitsandbytes does not compute on the device.
    """
    options: dict[str, Any] = {}
    if quantization_config is not None:
        _check_settings(quantization_config)
        options["quantization_config"] = quantization_config
    else:
        config = AutoConfig.from_pretrained(name_or_path, revision=revision)
        saved = getattr(config, "quantization_config", None)  # not all have it
        if saved is None:
            return {}
        method = saved["quant_method"] if isinstance(saved, dict) else saved.quant_method
        if "bitsandbytes" not in str(getattr(method, "value", method)):
            return {"device_map": {"": str(device)}}  # transformers says what another one needs
    _require_bitsandbytes(device)
    logger = logging.getLogger("bitsandbytes.autograd._functions")
    if _is_news not in logger.filters:
        logger.addFilter(_is_news)
    return {**options, "device_map": {"": str(device)}}


def made_trainable(model: PreTrainedModel) -> None:
    """Let gradients pass through 4-bit weights in evaluation mode, too; see the module."""
    if not is_quantized(model) or find_spec("bitsandbytes") is None:
        return
    from bitsandbytes import nn  # noqa: PLC0415  # an extra

    for layer in model.modules():
        if isinstance(layer, nn.Linear4bit):
            layer.support_avx512bf16_for_cpu = False
            layer.state_dict()  # brings weights that were reordered back into their own order


def check_ordinary(model: PreTrainedModel, purpose: str) -> None:
    """Raise where weights are quantised.

    Args:
        model: which weights.
        purpose: what ordinary ones are needed for.

    Raises:
        ValueError: with what to do.
    """
    if is_quantized(model):
        raise ValueError(
            f"Expected ordinary weights {purpose}, got quantised ones, which can be read only; "
            "load the model without quantization_config."
        )


def _check_settings(quantization_config: object) -> None:
    from transformers import BitsAndBytesConfig  # noqa: PLC0415  # loads its own dependencies

    if not isinstance(quantization_config, BitsAndBytesConfig):
        raise TypeError(
            "Expected a transformers.BitsAndBytesConfig as quantization_config, got "
            f"{type(quantization_config).__name__}; write "
            "BitsAndBytesConfig(load_in_4bit=True), say."
        )
    if not (quantization_config.load_in_4bit or quantization_config.load_in_8bit):
        raise ValueError(
            "Expected load_in_4bit=True or load_in_8bit=True in the quantization_config, got "
            "neither; leave it out to load ordinary weights."
        )


def _require_bitsandbytes(device: torch.device) -> None:
    if find_spec("bitsandbytes") is None or find_spec("accelerate") is None:
        raise ImportError(
            'Expected bitsandbytes for weights in 4 or 8 bits; pip install "motet[quantization]".'
        )
    from bitsandbytes import supported_torch_devices  # noqa: PLC0415  # an extra

    if device.type not in supported_torch_devices:
        raise ValueError(
            f"Expected a device that bitsandbytes computes on, {sorted(supported_torch_devices)}, "
            f"got {device}; load the model there without quantization_config."
        )


def _is_news(record: logging.LogRecord) -> bool:
    return _WORDY not in record.getMessage()
