"""What can be learned from an entry point without calling it: where it is, and what it takes."""

import difflib
import functools
import importlib
import inspect
import operator
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gymnasium import error

EnvCreator = Callable[..., Any]


def load_creator(entry_point: EnvCreator | str, id: str) -> EnvCreator:
    """Return the callable that an entry point is or names.

    Args:
        entry_point: a callable, or `"module:attribute"`; the attribute may have dots.
        id: whose entry point it is, for messages.

    Raises:
        ImportError: the module cannot be imported.
        gymnasium.error.Error: the module has no such callable.
    """
    if not isinstance(entry_point, str):
        return entry_point
    module_name, _, attribute = entry_point.partition(":")
    try:
        creator: Any = importlib.import_module(module_name)
    except ImportError as exc:
        exc.add_note(f"[raised when importing the entry point of {id}]")
        raise
    for name in attribute.split("."):
        creator = getattr(creator, name, None)
    if not callable(creator):
        raise error.Error(
            f"Expected a callable as the entry point {entry_point!r} of {id}, got {creator!r}."
        )
    found: EnvCreator = creator
    return found


def origin(entry_point: EnvCreator | str) -> str:
    """Return where a callable was defined, as `module:qualified name`.

    That of a `functools.partial` is its function's, and that of another object its class's. All
    lambdas of a module have the same.
    """
    if isinstance(entry_point, str):
        return entry_point
    if isinstance(entry_point, functools.partial):
        return origin(entry_point.func)
    named = entry_point if hasattr(entry_point, "__qualname__") else type(entry_point)
    return f"{named.__module__}:{named.__qualname__}"


def importable_path(entry_point: EnvCreator | str) -> str | None:
    """Return `module:attribute` if importing that gives this very object anywhere, else None.

    A script's or notebook's own objects have no such path: `__main__` is another module in another
    process.
    """
    path = origin(entry_point)
    module_name, _, attribute = path.partition(":")
    if module_name == "__main__":
        return None
    if isinstance(entry_point, str) or _look_up(module_name, attribute) is entry_point:
        return path
    return None


def parameters(creator: EnvCreator) -> list[inspect.Parameter] | None:
    """Return the parameters of a callable, or None for a builtin that does not tell them."""
    try:
        return list(inspect.signature(creator).parameters.values())
    except ValueError:
        return None


def passed_on(creator: EnvCreator) -> list[inspect.Parameter]:
    """Return the further parameters of the class that a factory with `**kwargs` says it returns."""
    own = parameters(creator) or []
    if all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in own):
        return []
    made = inspect.signature(creator).return_annotation
    if isinstance(made, str):  # as all annotations are after `from __future__ import annotations`
        made = _look_up(origin(creator).partition(":")[0], made)
    if made is inspect.Signature.empty or not inspect.isclass(made):
        return []
    taken = {p.name for p in own}
    return [p for p in parameters(made) or [] if p.name not in taken]


def check_spelling(id: str, defaults: Mapping[str, Any]) -> None:
    """Raise where a task's dataset or reward function is there, and the other one is misspelt.

    Without both, `register` would return a decorator, and register nothing.

    Raises:
        TypeError: with what was probably meant.
    """
    parts = ("dataset", "reward_func")
    for missing, given in (parts, parts[::-1]):
        others = [name for name in defaults if name != given]
        meant = difflib.get_close_matches(missing, others, n=1)
        if given in defaults and missing not in defaults and meant:
            raise TypeError(
                f"Expected {missing} beside {given} to register {id}, got {meant[0]}; call it "
                f"{missing}."
            )


def listed(shown: Iterable[inspect.Parameter]) -> str:
    """Return parameters with their defaults, as they stand in a signature."""
    return ", ".join(str(p.replace(annotation=p.empty)) for p in shown)


def short(value: Any) -> str:
    """Return an argument in one short line: a function by its place, a dataset by its beginning."""
    return origin(value) if callable(value) else " ".join(reprlib.repr(value).split())


def _look_up(module_name: str, attribute: str) -> Any:
    """Return what an imported module holds under a name, which may have dots, or None."""
    try:
        return operator.attrgetter(attribute)(sys.modules.get(module_name))
    except AttributeError:
        return None
