"""Models and tokenizers from folders and from the hub."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from motet.agents.adapter_files import base_of_adapter, is_adapter_folder
from motet.agents.quantization import is_quantized, loading_options

if TYPE_CHECKING:
    from transformers import BitsAndBytesConfig


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model comes from; see `LMAgent.from_pretrained`.

    Attributes:
        name_or_path: hub id or folder, of a model; or folder of a saved adapter.
        revision: branch, tag or commit on the hub.
        gguf_file: name of a GGUF file in it.
        quantization_config: how to quantise its weights.
    """

    name_or_path: str | Path
    revision: str = "main"
    gguf_file: str | None = None
    quantization_config: "BitsAndBytesConfig | None" = None

    @property
    def adapter(self) -> str | Path | None:
        """The folder, where it has an adapter and no model."""
        is_adapter = self.gguf_file is None and is_adapter_folder(self.name_or_path)
        return self.name_or_path if is_adapter else None


def load(
    source: Source, dtype: torch.dtype, device: str | torch.device
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model, of an adapter its base, and the tokenizer.

    Args:
        source: where they come from.
        dtype: of the weights that are not quantised.
        device: where the model goes.

    Raises:
        FileNotFoundError: where the name is a folder without a model, or no folder at all, or
            where the base of an adapter is not there.
        ImportError: where a library is needed and not installed.
        TypeError: where `quantization_config` is of another class.
        ValueError: where there is a `quantization_config` for a GGUF file or a device that it
            cannot be on.
    """
    if source.gguf_file is not None and source.quantization_config is not None:
        raise ValueError(
            "Expected gguf_file or quantization_config, got both: a GGUF file's weights are made "
            "ordinary ones; save the agent, and load that with quantization_config."
        )
    saved = source.adapter
    base = source.name_or_path if saved is None else base_of_adapter(saved)
    options: dict[str, Any] = {"gguf_file": source.gguf_file}
    quantized: dict[str, Any] = {}
    if source.gguf_file is None:
        _check_folder(base)
        options = {"revision": source.revision}
        quantized = loading_options(
            str(base), source.revision, source.quantization_config, torch.device(device)
        )
    own = saved is not None and (Path(saved) / "tokenizer_config.json").exists()
    tokenizer = AutoTokenizer.from_pretrained(saved if own else base, **options)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, **options, **quantized)
    if source.gguf_file is not None:
        model = _ordinary(model)
    if not is_quantized(model):  # those are there already
        model = model.to(device)
    return model, tokenizer


def _check_folder(name_or_path: str | Path) -> None:
    path = Path(name_or_path)
    looks_local = isinstance(name_or_path, Path) or str(name_or_path).startswith(("/", ".", "~"))
    if path.is_dir() and not (path / "config.json").exists():
        files = [*path.glob("*/config.json"), *path.glob("*/adapter_config.json")]
        inside = sorted({child.parent.name for child in files})
        hint = f"; the folders {inside} in it have one" if inside else ""
        raise FileNotFoundError(
            f"Expected a folder with a model and its config.json, got {path}{hint}."
        )
    if looks_local and not path.exists():
        raise FileNotFoundError(f"Expected a folder with a model, got {path}, which is not there.")


def default_device() -> str:
    """Return where models go unless told otherwise: a GPU if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def _ordinary(model: PreTrainedModel) -> PreTrainedModel:
    """Copy dequantised weights into a model that transformers does not count as quantised.

    transformers marks models loaded from GGUF and refuses to save them, although their weights
    are ordinary tensors.
    """
    config = copy.deepcopy(model.config)
    config.quantization_config = None
    plain = AutoModelForCausalLM.from_config(config, dtype=model.dtype)
    plain.load_state_dict(model.state_dict())
    plain.tie_weights()
    plain.generation_config = model.generation_config
    return plain.eval()
