"""Which settings of LoRA an agent's adapter can have.

An adapter stands beside others over one base, so that it must neither train nor change what they
share.
"""

import warnings
from dataclasses import fields
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peft import LoraConfig

# Initialisations that leave the base as it is; others write into it, and it is shared.
_OWN_INITIALISATIONS = (True, False, "gaussian", "orthogonal")

# Fields of `LoraConfig` that need more than the layers' own forward pass, or weights that belong
# to all adapters.
_UNSUPPORTED = (
    "alora_invocation_tokens", "arrow_config", "layer_replication", "trainable_token_indices",
)  # fmt: skip


def require_peft() -> None:
    """Raise where peft is not installed.

    Raises:
        ImportError: with what to type.
    """
    if find_spec("peft") is None:
        raise ImportError('Expected peft for LoRA adapters; pip install "motet[lora]".')


def default_lora() -> "LoraConfig":
    """Return peft's own settings.

    Raises:
        ImportError: where peft is not installed.
    """
    require_peft()
    from peft import LoraConfig  # noqa: PLC0415  # an extra

    return LoraConfig()


def check_lora(lora: object) -> None:
    """Raise where an adapter cannot stand beside others over one base.

    Raises:
        TypeError: where it is no `LoraConfig`.
        ValueError: where it would train or change what others share.
    """
    from peft import LoraConfig, PeftType  # noqa: PLC0415  # an extra

    if not isinstance(lora, LoraConfig) or lora.peft_type != PeftType.LORA:
        raise TypeError(f"Expected a peft.LoraConfig for an adapter, got {type(lora).__name__}.")
    if lora.bias != "none":
        raise ValueError(
            f"Expected bias='none' in the LoraConfig, got {lora.bias!r}: the biases belong to the "
            "base, which other agents share."
        )
    if lora.init_lora_weights not in _OWN_INITIALISATIONS:
        raise ValueError(
            "Expected init_lora_weights among True, False, 'gaussian', 'orthogonal' in the "
            f"LoraConfig, got {lora.init_lora_weights!r}: it changes the base, which other agents "
            "share, or needs data."
        )
    variants = [f.name for f in fields(lora) if f.metadata.get("is_lora_variant")]
    for name in {*_UNSUPPORTED, *variants} - {"use_dora"}:
        if getattr(lora, name, None):
            raise ValueError(
                f"Expected a LoraConfig without {name}, got {getattr(lora, name)!r}: agents train "
                "plain LoRA and DoRA."
            )


def warn_of_dropout(lora: "LoraConfig") -> None:
    """Say that dropout has no effect: learners leave models in evaluation mode."""
    if lora.lora_dropout:
        warnings.warn(
            f"lora_dropout={lora.lora_dropout} has no effect: learners train without dropout, so "
            "that the distribution that is trained is the one that was sampled from.",
            stacklevel=3,
        )
