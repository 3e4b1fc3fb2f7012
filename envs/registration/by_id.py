"""The registry: tasks by id, as Gymnasium has it, for parallel environments.

Gymnasium's own registry refuses multi-agent environments, and PettingZoo's has neither suggestions
nor plug-ins. This one has Gymnasium's id grammar, errors and behaviour, and mirrors each entry into
PettingZoo's: what `make("haiku-v0")` makes, `pettingzoo.make("parallel", "motet/haiku-v0")` makes
too; an id with a namespace of its own keeps it there. It departs from Gymnasium in this:

1. `register` is also a decorator, and its further keywords are defaults of the entry point.
2. A taken id is an error, unless the same function or class comes again, as when a notebook's cell
   runs twice. The same means: of the same module and qualified name. All lambdas of a module have
   one name, so that a cell with a lambda can run twice too.
3. Defaults are not deep-copied: they may hold a dataset.
4. `spec` resolves an id without a version, as `make` does.
5. A dataset and a reward function are enough to register a `TextEnv`, without an entry point.
6. A task declares its range of rewards, and need not be made for the table of all tasks.
7. Installed packages may add tasks through the entry-point group `motet.envs`; `plugins` has the
   form. They are loaded when an id is not found, or for the list of all ids.

Registration is per process: hand worker processes an `EnvSpec`, not an id.
"""

import functools
import importlib
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, overload

import pettingzoo
from gymnasium import error
from gymnasium.envs.registration import parse_env_id

from motet.envs.data.sources import DataSource
from motet.envs.registration.entry_point import EnvCreator, check_spelling
from motet.envs.registration.env_spec import TEXT_ENV, EnvSpec
from motet.envs.registration.lookup import not_found, resolve, versions_of
from motet.envs.registration.plugins import PluginLoader
from motet.envs.registration.table import registry_table

__all__ = ["EnvSpec", "load_plugins", "make", "pprint_registry", "register", "registry", "spec"]

PETTINGZOO_NAMESPACE = "motet"

_CreatorT = TypeVar("_CreatorT", bound=EnvCreator)

registry: dict[str, EnvSpec] = {}
_plugins = PluginLoader("motet.envs")


@overload
def register(
    id: str,
    entry_point: None = None,
    *,
    dataset: DataSource,
    reward_func: Callable[..., Any],
    **defaults: Any,
) -> None: ...


@overload
def register(
    id: str,
    entry_point: None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    reward_range: tuple[float, float] | None = None,
    nondeterministic: bool = False,
    **defaults: Any,
) -> Callable[[_CreatorT], _CreatorT]: ...


@overload
def register(
    id: str,
    entry_point: EnvCreator | str,
    *,
    kwargs: Mapping[str, Any] | None = None,
    reward_range: tuple[float, float] | None = None,
    nondeterministic: bool = False,
    **defaults: Any,
) -> None: ...


def register(
    id: str,
    entry_point: EnvCreator | str | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    reward_range: tuple[float, float] | None = None,
    nondeterministic: bool = False,
    **defaults: Any,
) -> Callable[[_CreatorT], _CreatorT] | None:
    """Register a task under an id, here and in PettingZoo's registry.

    With a dataset and a reward function, and without an entry point, it registers a `TextEnv`:

        register("haiku-v0", dataset=[{"prompt": "Rain"}], reward_func=count_syllables)

    Without an entry point and without one of these it is a decorator of a factory or of a class:

        @register("haiku-v0", num_agents=2)
        def haiku(**kwargs) -> TextEnv: ...

    Args:
        id: `[namespace/]name[-vN]`; raise N whenever a change can alter learning results.
        entry_point: a callable that returns a `pettingzoo.ParallelEnv`, or `"module:attribute"`.
        kwargs: keyword arguments for the entry point.
        reward_range: the lowest and the highest reward that an agent can earn in a turn; declared
            for readers, not passed on. An entry point's own such parameter goes into `kwargs`.
        nondeterministic: declares that the same seed and actions can give different episodes; not
            passed on either.
        **defaults: more keyword arguments for the entry point.

    Returns:
        The decorator where there is nothing yet to register, otherwise None.

    Raises:
        gymnasium.error.Error: the id or the entry point is malformed.
        gymnasium.error.RegistrationError: the id is taken by another entry point (for a `TextEnv`:
            another reward function), or the name is taken with versions where this has none, or
            without where this has one.
        TypeError: a keyword is both in `kwargs` and in `defaults`, a part is of another type, or
            one of dataset and reward function is there and the other one misspelt.
        ValueError: `reward_range` is not two numbers in order.
    """
    if not isinstance(id, str):
        raise TypeError(
            f'Expected a string as an environment\'s id, as in @register("name-v0"), got {id!r}.'
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TypeError(f"Expected a mapping as kwargs of {id}, got {kwargs!r}.")
    twice = sorted(set(kwargs or {}) & set(defaults))
    if twice:
        raise TypeError(
            f"Expected each default of {id} either in kwargs or by name, got both for "
            f"{', '.join(twice)}."
        )
    merged = {**(kwargs or {}), **defaults}
    if entry_point is None and {"dataset", "reward_func"} <= merged.keys():
        entry_point = TEXT_ENV
        if not callable(merged["reward_func"]):
            raise TypeError(
                f"Expected a function as reward_func of {id}, got {merged['reward_func']!r}."
            )

    if entry_point is None:
        check_spelling(id, merged)

    def spec_of(creator: EnvCreator | str) -> EnvSpec:
        return EnvSpec(id, creator, merged, reward_range, nondeterministic)

    if entry_point is not None:
        _add(spec_of(entry_point))
        return None
    spec_of(make)  # what is malformed is reported where it stands

    def decorate(creator: _CreatorT) -> _CreatorT:
        _add(spec_of(creator))
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


def pprint_registry(
    *, exclude_namespaces: Collection[str] = (), disable_print: bool = False
) -> str | None:
    """Print a table of all tasks, those of plug-ins included, without making any of them.

    The numbers of agents and turns are the defaults `num_agents` and `num_turns` that the task was
    registered with, else those of the entry point's signature, or of the class that a factory with
    `**kwargs` is annotated to return; "?" stands where neither tells. A factory that fixes another
    number inside should register it instead.

    Args:
        exclude_namespaces: namespaces whose tasks are left out.
        disable_print: return the table instead.

    Returns:
        The table if `disable_print`, otherwise None.

    Raises:
        TypeError: `exclude_namespaces` is a single string.
    """
    if isinstance(exclude_namespaces, str):
        raise TypeError(
            f"Expected a list of namespaces to exclude, got {exclude_namespaces!r}; put it into "
            "brackets."
        )
    load_plugins()
    table = registry_table(registry.values(), exclude_namespaces)
    if disable_print:
        return table
    print(table)
    return None


def load_plugins() -> None:
    """Load those entry points of the group `motet.envs` that were not tried before.

    One that fails gives a warning and leaves the others alone.
    """
    _plugins.load()


def _find_spec(id: str) -> EnvSpec:
    """Resolve an id; warnings point to the caller of the public function above this one."""
    if not isinstance(id, str):
        raise TypeError(f"Expected an environment's id or an EnvSpec, got {id!r}.")
    module, colon, id = id.rpartition(":")
    if colon:
        _import_registering(module)
    namespace, name, version = parse_env_id(id)
    found = resolve(registry, namespace, name, version)
    if found is None:
        load_plugins()
        found = resolve(registry, namespace, name, version)
    if found is None and namespace == PETTINGZOO_NAMESPACE:
        namespace = None  # PettingZoo's name of a task without a namespace
        found = resolve(registry, namespace, name, version)
    if found is None:
        raise not_found(registry, namespace, name, version)
    latest = resolve(registry, namespace, name, None)
    if version is None and found.version is not None:
        warnings.warn(f"Using the latest version, {found.id}, for the id {id}.", stacklevel=3)
    elif latest is not None and latest.id != found.id:
        warnings.warn(
            f"{found.id} is out of date; consider upgrading to {latest.id}.",
            DeprecationWarning,
            stacklevel=3,
        )
    return found


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
    for other in versions_of(registry, new_spec.namespace, new_spec.name):
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
