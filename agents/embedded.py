"""The language model that ships inside the package, so that everything runs offline on a CPU.

The pocket model is a Llama of about one million parameters that writes short tales and stops by
itself. `examples/pretrain_pocket.py` makes it from nothing but a grammar; its model card is the
README.md of its folder.

Run it with:
    python -c "from motet.agents.embedded import pocket_path; print(pocket_path())"
"""

from pathlib import Path
from typing import Any

from motet.agents.generation import GenerationConfig
from motet.agents.lm_agent import LMAgent


def pocket_path() -> Path:
    """Locate the folder of the pocket model, for `from_pretrained` of transformers."""
    return Path(__file__).parent / "assets" / "pocket"


def pocket(*, generation: GenerationConfig | None = None, **kwargs: Any) -> LMAgent:
    """Return a new agent with the pocket model, in float32 on the CPU.

    Args:
        generation: sampling settings; default: at most 200 tokens.
        **kwargs: passed on to `LMAgent`.
    """
    return LMAgent.from_pretrained(
        pocket_path(),
        device="cpu",
        generation=generation or GenerationConfig(max_new_tokens=200),
        **kwargs,
    )
