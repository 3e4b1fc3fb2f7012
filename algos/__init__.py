"""How a team learns.

Dimension letters, in all docstrings: N agents, G generations, J joint actions, B sequences,
P prompt tokens, T completion tokens (of a tree: turns), V vocabulary.

The public names are those of `motet.algos.public`. They are loaded with the first that is used,
and torch with them, so that `motet --help` and `motet envs` answer at once.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet.algos.public import *  # noqa: F403
    from motet.algos.public import __all__ as __all__

if not TYPE_CHECKING:  # a checker would take any name for one that there is

    def __getattr__(name: str) -> Any:
        """Load the public names, and return one of them or a module (PEP 562)."""
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        public = importlib.import_module(f"{__name__}.public")
        own = globals()
        own.update({each: vars(public)[each] for each in vars(public).get("__all__", ())})
        if name == "__all__":
            return public.__all__
        if name not in own:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return own[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *importlib.import_module(f"{__name__}.public").__all__})
