"""The recipe of an environment: what the registry holds and worker processes should be given."""

import dataclasses
import difflib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pettingzoo
from gymnasium import error
from gymnasium.envs.registration import parse_env_id

EnvCreator = Callable[..., Any]


@dataclass(frozen=True)
class EnvSpec:
    """What is needed to make an environment.

    Attributes:
        id: `[namespace/]name[-vN]`.
        entry_point: a callable that returns the environment, or where it is: `"module:attribute"`.
        kwargs: keyword arguments for the entry point; those of `make` win over them. They are not
            deep-copied, since they may hold a dataset.

    Raises:
        gymnasium.error.Error: the id or the entry point is malformed.
        TypeError: the id or the entry point is of another type.
    """

    id: str
    entry_point: EnvCreator | str
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise TypeError(f"Expected a string as an environment's id, got {self.id!r}.")
        parse_env_id(self.id)
        if ":" in self.id:
            raise error.Error(
                f"Expected an id without ':', which separates a module to import first from the "
                f"id that it registers, got {self.id!r}."
            )
        if isinstance(self.entry_point, str):
            if self.entry_point.count(":") != 1:
                raise error.Error(
                    f"Expected 'module:attribute' as the entry point of {self.id}, got "
                    f"{self.entry_point!r}."
                )
        elif not callable(self.entry_point):
            raise TypeError(
                f"Expected a callable or 'module:attribute' as the entry point of {self.id}, got "
                f"{self.entry_point!r}."
            )
        object.__setattr__(self, "kwargs", dict(self.kwargs))

    @property
    def namespace(self) -> str | None:
        """What stands before the slash of the id, if there is one."""
        return parse_env_id(self.id)[0]

    @property
    def name(self) -> str:
        """The id without namespace and version."""
        return parse_env_id(self.id)[1]

    @property
    def version(self) -> int | None:
        """N of the `-vN` at the end of the id, if there is one."""
        return parse_env_id(self.id)[2]

    @property
    def origin(self) -> str:
        """Where the entry point was defined: `module:qualified name`."""
        return _origin(self.entry_point)

    def make(self, **kwargs: Any) -> Any:
        """Make the environment.

        Args:
            **kwargs: keyword arguments for the entry point, over those of the spec.

        Returns:
            A `pettingzoo.ParallelEnv` whose `unwrapped.spec` makes it again.

        Raises:
            TypeError: the entry point refuses the arguments, or returns no parallel environment.
            ImportError: the module of the entry point cannot be imported.
            gymnasium.error.Error: that module has no such callable.
        """
        made_by = dataclasses.replace(self, kwargs={**self.kwargs, **kwargs})
        creator = self._load_creator()
        try:
            env = creator(**made_by.kwargs)
        except TypeError as exc:
            given = ", ".join(made_by.kwargs) or "none"
            raise TypeError(
                f"{exc} [raised when making {self.id}; keyword arguments given: {given}; "
                f"accepted: {_accepted_names(creator)}{_suggestion(creator, made_by.kwargs, exc)}]"
            ) from exc
        if not isinstance(env, pettingzoo.ParallelEnv):
            raise TypeError(
                f"Expected a pettingzoo.ParallelEnv from the entry point of {self.id}, got {env!r}."
            )
        env.unwrapped.spec = made_by
        return env

    def _load_creator(self) -> EnvCreator:
        if not isinstance(self.entry_point, str):
            return self.entry_point
        module_name, _, attribute = self.entry_point.partition(":")
        try:
            module = importlib.import_module(module_name)
        except ImportError as exc:
            exc.add_note(f"[raised when importing the entry point of {self.id}]")
            raise
        creator: EnvCreator | None = getattr(module, attribute, None)
        if not callable(creator):
            raise error.Error(
                f"Expected a callable as the entry point {self.entry_point!r} of {self.id}, got "
                f"{creator!r}."
            )
        return creator


def _accepted_names(creator: EnvCreator) -> str:
    own, passed_on = _parameters(creator), _passed_on(creator)
    if own is None:
        return "not known"
    accepted = _listed(own) or "none"
    return f"{accepted}, which may be {_listed(passed_on)}" if passed_on else accepted


def _suggestion(creator: EnvCreator, given: Mapping[str, Any], exc: TypeError) -> str:
    """Return what a keyword that the error names may have been meant to be."""
    accepted = [p.name for p in [*(_parameters(creator) or ()), *_passed_on(creator)]]
    for name in given:
        close = difflib.get_close_matches(name, accepted, n=1)
        if name not in accepted and close and f"'{name}'" in str(exc):
            return f"; did you mean {close[0]} by {name}?"
    return ""


def _parameters(creator: EnvCreator) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(creator).parameters.values())
    except ValueError:
        return None  # some builtins have no signature


def _passed_on(creator: EnvCreator) -> list[inspect.Parameter]:
    """Return the parameters of the class that a factory with `**kwargs` says it returns."""
    own = _parameters(creator) or []
    if all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in own):
        return []
    made = inspect.signature(creator).return_annotation
    if made is inspect.Signature.empty or not inspect.isclass(made):
        return []
    taken = {p.name for p in own}
    return [p for p in _parameters(made) or [] if p.name not in taken]


def _listed(parameters: Iterable[inspect.Parameter]) -> str:
    return ", ".join(str(p.replace(annotation=p.empty)) for p in parameters)


def _origin(entry_point: EnvCreator | str) -> str:
    if isinstance(entry_point, str):
        return entry_point
    if isinstance(entry_point, functools.partial):
        return _origin(entry_point.func)
    named = entry_point if hasattr(entry_point, "__qualname__") else type(entry_point)
    return f"{named.__module__}:{named.__qualname__}"
