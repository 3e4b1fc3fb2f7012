"""The registry: tasks by id, as Gymnasium has it, for parallel environments.

Gymnasium's own registry refuses multi-agent environments, and PettingZoo's has neither suggestions
nor plug-ins. This one has Gymnasium's id grammar, errors and behaviour, and mirrors each entry into
PettingZoo's: what `make("haiku-v0")` makes, `pettingzoo.make("parallel", "motet/haiku-v0")` makes
too; an id with a namespace of its own keeps it there. It departs from Gymnasium in this:

1. `register` is also a decorator, and its further keywords are defaults of the entry point.
2. A taken id is an error, unless the same function or class comes again, as when a notebook's cell
   runs twice.
3. Defaults are not deep-copied: they may hold a dataset.
4. `spec` resolves an id without a version, as `make` does.
5. Installed packages may add tasks through the entry-point group `motet.envs`. An entry point names
   a module that registers when it is imported, or a function without parameters that registers.
   They are loaded when an id is not found, or for the list of all ids.

Registration is per process: hand worker processes an `EnvSpec`, not an id.
"""

import difflib
import functools
import importlib
import importlib.metadata
import reprlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

import pettingzoo
from gymnasium import error
from gymnasium.envs.registration import get_env_id, parse_env_id

from motet.envs.env_spec import EnvCreator, EnvSpec

__all__ = ["EnvSpec", "load_plugins", "make", "pprint_registry", "register", "registry", "spec"]

ENTRY_POINT_GROUP = "motet.envs"
PETTINGZOO_NAMESPACE = "motet"

_CreatorT = TypeVar("_CreatorT", bound=EnvCreator)

registry: dict[str, EnvSpec] = {}
_tried_plugins: set[tuple[str, str]] = set()


@overload
def register(
    id: str, entry_point: None = None, *, kwargs: Mapping[str, Any] | None = None, **defaults: Any
) -> Callable[[_CreatorT], _CreatorT]: ...


@overload
def register(
    id: str,
    entry_point: EnvCreator | str,
    *,
    kwargs: Mapping[str, Any] | None = None,
    **defaults: Any,
) -> None: ...


def register(
    id: str,
    entry_point: EnvCreator | str | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    **defaults: Any,
) -> Callable[[_CreatorT], _CreatorT] | None:
    """Register a task under an id, here and in PettingZoo's registry.

    Without an entry point it is a decorator:

        @register("haiku-v0", num_agents=2)
        def haiku(**kwargs): ...

    Args:
        id: `[namespace/]name[-vN]`; raise N whenever a change can alter learning results.
        entry_point: a callable that returns a `pettingzoo.ParallelEnv`, or `"module:attribute"`.
        kwargs: keyword arguments for the entry point.
        **defaults: more of them.

    Returns:
        The decorator where `entry_point` is None, otherwise None.

    Raises:
        gymnasium.error.Error: the id or the entry point is malformed.
        gymnasium.error.RegistrationError: the id is taken by another entry point, or the name is
            taken with versions where this has none, or without where this has one.
        TypeError: a keyword is both in `kwargs` and in `defaults`.
    """
    twice = sorted(set(kwargs or {}) & set(defaults))
    if twice:
        raise TypeError(
            f"Expected each default of {id} either in kwargs or by name, got both for "
            f"{', '.join(twice)}."
        )
    merged = {**(kwargs or {}), **defaults}
    if entry_point is not None:
        _add(EnvSpec(id, entry_point, merged))
        return None
    EnvSpec(id, make)  # a malformed id is reported where it stands

    def decorate(creator: _CreatorT) -> _CreatorT:
        _add(EnvSpec(id, creator, merged))
        return creator

    return decorate


def make(id: str | EnvSpec, **kwargs: Any) -> Any:
    """Make a registered environment.

    Args:
        id: an id, with or without a version (then the latest is taken), perhaps after the name of
            a module to import first (`"module:id"`); or an `EnvSpec`.
        **kwargs: keyword arguments for the entry point, over those it was registered with.

    Returns:
        A `pettingzoo.ParallelEnv` whose `unwrapped.spec` makes it again.

    Raises:
        gymnasium.error.NamespaceNotFound: no such namespace.
        gymnasium.error.NameNotFound: no such name.
        gymnasium.error.VersionNotFound: no such version.
        gymnasium.error.DeprecatedEnv: no such version, but later ones.
        TypeError: the entry point refuses the arguments, or returns no parallel environment.
    """
    env_spec = id if isinstance(id, EnvSpec) else _find_spec(id)
    return env_spec.make(**kwargs)


def spec(id: str) -> EnvSpec:
    """Return what is registered under an id, found as by `make`.

    Raises:
        gymnasium.error.UnregisteredEnv: no such namespace, name or version.
        gymnasium.error.DeprecatedEnv: no such version, but later ones.
    """
    return _find_spec(id)


def pprint_registry(*, disable_print: bool = False) -> str | None:
    """Print a table of all tasks, those of plug-ins included.

    Args:
        disable_print: return the table instead.

    Returns:
        The table if `disable_print`, otherwise None.
    """
    load_plugins()
    lines = [("id", "entry point", "defaults")]
    for id in sorted(registry):
        defaults = (f"{key}={reprlib.repr(v)}" for key, v in registry[id].kwargs.items())
        lines.append((id, registry[id].origin, ", ".join(defaults)))
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    table = "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    if disable_print:
        return table
    print(table)
    return None


def load_plugins() -> None:
    """Load those entry points of the group `motet.envs` that were not tried before.

    One that fails gives a warning and leaves the others alone.
    """
    for plugin in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        if (plugin.name, plugin.value) in _tried_plugins:
            continue
        _tried_plugins.add((plugin.name, plugin.value))
        try:
            loaded = plugin.load()
            if callable(loaded):
                loaded()
        # Somebody else's code may fail in any way, and whoever asked for another task must not
        # suffer from it.
        except (Exception, SystemExit) as exc:  # noqa: BLE001
            warnings.warn(
                f"The plug-in {plugin.name} = {plugin.value} of the group {ENTRY_POINT_GROUP} "
                f"was not loaded: {type(exc).__name__}: {exc}",
                stacklevel=2,
            )


def _find_spec(id: str) -> EnvSpec:
    """Resolve an id; warnings point to the caller of the public function above this one."""
    if not isinstance(id, str):
        raise TypeError(f"Expected an environment's id or an EnvSpec, got {id!r}.")
    module, colon, id = id.rpartition(":")
    if colon:
        _import_registering(module)
    namespace, name, version = parse_env_id(id)
    found = _resolve(namespace, name, version)
    if found is None:
        load_plugins()
        found = _resolve(namespace, name, version)
    if found is None and namespace == PETTINGZOO_NAMESPACE:
        namespace = None  # PettingZoo's name of a task without a namespace
        found = _resolve(namespace, name, version)
    if found is None:
        raise _not_found(namespace, name, version)
    latest = _resolve(namespace, name, None)
    if version is None and found.version is not None:
        warnings.warn(f"Using the latest version, {found.id}, for the id {id}.", stacklevel=3)
    elif latest is not None and latest.id != found.id:
        warnings.warn(
            f"{found.id} is out of date; consider upgrading to {latest.id}.",
            DeprecationWarning,
            stacklevel=3,
        )
    return found


def _specs_of(namespace: str | None, name: str) -> list[EnvSpec]:
    """Return all versions of a task, the latest last."""
    specs = [s for s in registry.values() if (s.namespace, s.name) == (namespace, name)]
    return sorted(specs, key=lambda s: -1 if s.version is None else s.version)


def _resolve(namespace: str | None, name: str, version: int | None) -> EnvSpec | None:
    if version is not None:
        return registry.get(get_env_id(namespace, name, version))
    specs = _specs_of(namespace, name)
    return specs[-1] if specs else None


def _not_found(namespace: str | None, name: str, version: int | None) -> error.Error:
    namespaces = {s.namespace for s in registry.values() if s.namespace is not None}
    if namespace is not None and namespace not in namespaces:
        hint = _suggestion(namespace, namespaces) or f" Is the package for {namespace} installed?"
        return error.NamespaceNotFound(f"Namespace {namespace} not found.{hint}")
    specs = _specs_of(namespace, name)
    if not specs:
        names = {s.name for s in registry.values() if s.namespace == namespace}
        where = f" in namespace {namespace}" if namespace else ""
        hint = _suggestion(name, names) or " pprint_registry() lists all that are registered."
        return error.NameNotFound(f"Environment {name} not found{where}.{hint}")
    latest = specs[-1]
    message = f"Environment {get_env_id(namespace, name, None)} has no version v{version}."
    if latest.version is None or (version is not None and version < latest.version):
        return error.DeprecatedEnv(f"{message} Please use {latest.id} instead.")
    return error.VersionNotFound(f"{message} It has {', '.join(s.id for s in specs)}.")


def _suggestion(wrong: str, known: set[str]) -> str:
    close = difflib.get_close_matches(wrong, known, n=1)
    return f" Did you mean: {close[0]}?" if close else ""


def _import_registering(module: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as exc:
        raise ModuleNotFoundError(
            f"{exc}. What stands before ':' in an id is a module to import; check that {module!r} "
            "is installed and registers the environment.",
            name=exc.name,
        ) from exc


def _add(new_spec: EnvSpec) -> None:
    for other in _specs_of(new_spec.namespace, new_spec.name):
        if (other.version is None) != (new_spec.version is None):
            raise error.RegistrationError(
                f"Cannot register {new_spec.id}, since {other.id} is registered: a name has either "
                "versions, and then stands for the latest, or none."
            )
    old_spec = registry.get(new_spec.id)
    if old_spec is not None and old_spec.origin != new_spec.origin:
        raise error.RegistrationError(
            f"Cannot register {new_spec.id} for {new_spec.origin}, since it is taken by "
            f"{old_spec.origin}. Choose another id, a new version, or a namespace (mine/...)."
        )
    _mirror(new_spec)
    registry[new_spec.id] = new_spec
    if old_spec is not None:
        warnings.warn(f"Registered {new_spec.id} again, from {new_spec.origin}.", stacklevel=3)


def _mirror(new_spec: EnvSpec) -> None:
    """Let `pettingzoo.make` find the task; it would deep-copy kwargs, so they stay with us."""
    prefix = "" if new_spec.namespace else f"{PETTINGZOO_NAMESPACE}/"
    id = pettingzoo.EnvSpec(prefix + new_spec.id).id
    if id in pettingzoo.parallel_registry and new_spec.id not in registry:
        raise error.RegistrationError(
            f"Cannot register {new_spec.id}, since PettingZoo's registry has another {id}."
        )
    pettingzoo.parallel_registry.pop(id, None)
    pettingzoo.register("parallel", id, functools.partial(make, new_spec))
