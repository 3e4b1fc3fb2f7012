"""In which precision a model computes: its own, or bfloat16 with weights kept as they are."""

from contextlib import AbstractContextManager

import torch

from motet.agents.generation import GenerationConfig


def precision(
    device: torch.device, generation: GenerationConfig
) -> AbstractContextManager[object, None]:
    """Return a context in which a model computes as `generation.bf16` says.

    Matrix products and attention are done in bfloat16, sums and norms in the weights' precision
    (`torch.autocast`). Sampling and training both enter it, so that what is trained is the
    distribution that was sampled from, up to rounding.

    Args:
        device: where the model is.
        generation: its bf16 is used.

    Raises:
        ValueError: where the hardware has no bfloat16.
    """
    if generation.bf16 and not has_bf16(device):
        raise ValueError(
            f"Expected hardware with bfloat16 for bf16=True, got {device} without; leave "
            "bf16=False."
        )
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=generation.bf16)


def computed_in(device: torch.device, dtype: torch.dtype) -> torch.dtype:
    """Return what products and attention are done in: autocast's precision, or the weights'.

    Args:
        device: where they are done.
        dtype: of the weights.
    """
    if torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    return dtype


def has_bf16(device: torch.device) -> bool:
    """Tell whether the hardware multiplies in bfloat16."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        return bool(onednn and torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return True  # torch.autocast says so where a device has none
