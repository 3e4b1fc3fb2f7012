"""The recipe of an environment: what the registry holds and worker processes should be given."""

import dataclasses
import difflib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pettingzoo
from gymnasium import error
from gymnasium.envs.registration import parse_env_id

from motet.envs.registration.entry_point import (
    EnvCreator,
    importable_path,
    listed,
    load_creator,
    origin,
    parameters,
    passed_on,
    short,
)
from motet.envs.task.parts import checked_number

TEXT_ENV = "motet.envs.text_env:TextEnv"


@dataclass(frozen=True)
class EnvSpec:
    """What is needed to make an environment.

    Two specs are equal where all parts are; a callable equals the `"module:attribute"` that names
    this very object.

    Attributes:
        id: `[namespace/]name[-vN]`.
        entry_point: a callable that returns the environment, or where it is: `"module:attribute"`.
        kwargs: keyword arguments for the entry point; those of `make` win over them. They are not
            deep-copied, since they may hold a dataset.
        reward_range: the lowest and the highest reward that an agent can earn in a turn of the
            task as registered; None where that is not declared.
        nondeterministic: whether the same seed and the same actions can lead to different
            episodes, as where a served model or a sandbox answers.

    Raises:
        gymnasium.error.Error: the id or the entry point is malformed.
        TypeError: a part is of another type.
        ValueError: `reward_range` is not two numbers in order.
    """

    id: str
    entry_point: EnvCreator | str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    reward_range: tuple[float, float] | None = None
    nondeterministic: bool = False

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
        if not isinstance(self.kwargs, Mapping):
            raise TypeError(
                f"Expected a mapping as the kwargs of {self.id}, got {short(self.kwargs)}."
            )
        if not isinstance(self.nondeterministic, bool):
            raise TypeError(
                f"Expected True or False as nondeterministic of {self.id}, got "
                f"{self.nondeterministic!r}."
            )
        object.__setattr__(self, "kwargs", dict(self.kwargs))
        object.__setattr__(self, "reward_range", _checked_range(self.id, self.reward_range))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EnvSpec):
            return NotImplemented
        mine = (self.id, self.kwargs, self.reward_range, self.nondeterministic)
        theirs = (other.id, other.kwargs, other.reward_range, other.nondeterministic)
        return mine == theirs and _same_creator(self.entry_point, other.entry_point)

    def __hash__(self) -> int:
        return hash(self.id)

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
        """Where the task was defined: `module:qualified name`.

        That is where its entry point was, but where its reward function was if the entry point is
        `TextEnv` itself, which many tasks share.
        """
        defined = origin(self.entry_point)
        if defined == TEXT_ENV and "reward_func" in self.kwargs:
            return origin(self.kwargs["reward_func"])
        return defined

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
        creator = load_creator(self.entry_point, self.id)
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

    def to_json(self) -> str:
        """Return the spec as JSON, from which `from_json` makes an equal one in any process.

        A function or class as the entry point is written as the `"module:attribute"` that names
        it. Infinite numbers are written as Python's `json` does.

        Raises:
            ValueError: the entry point has no such name, or JSON cannot hold one of the kwargs.
        """
        path = importable_path(self.entry_point)
        if path is None:
            raise ValueError(
                f"Expected an entry point of {self.id} that another process can import, got "
                f"{self.entry_point!r}; put it at the top of a module, and register it as "
                "'module:attribute'."
            )
        for key, value in self.kwargs.items():
            _check_json(self.id, f"kwargs[{key!r}]", value)
        parts = {f.name: self.__dict__[f.name] for f in dataclasses.fields(self)}
        return json.dumps({**parts, "entry_point": path})

    @classmethod
    def from_json(cls, json_env_spec: str) -> Self:
        """Return the spec that `to_json` wrote; nothing is imported before it makes an env.

        Args:
            json_env_spec: a JSON object with the attributes of a spec; those with a default may
                be missing.

        Raises:
            ValueError: the text is no JSON, or no object with the attributes of a spec.
            gymnasium.error.Error: the id or the entry point is malformed.
            TypeError: a part is of another type.
        """
        if not isinstance(json_env_spec, str):
            raise TypeError(f"Expected JSON text that to_json() wrote, got {short(json_env_spec)}.")
        try:
            parts = json.loads(json_env_spec)
        except json.JSONDecodeError as exc:
            raise ValueError(
                f"Expected JSON text that to_json() wrote, got {short(json_env_spec)}: {exc}."
            ) from exc
        names = [f.name for f in dataclasses.fields(cls)]
        needed = {"id", "entry_point"}
        if not isinstance(parts, dict) or not needed <= parts.keys() <= set(names):
            raise ValueError(
                f"Expected a JSON object with id and entry_point, and perhaps "
                f"{', '.join(n for n in names if n not in needed)}, got {short(parts)}."
            )
        return cls(**parts)

    def pprint(
        self,
        *,
        disable_print: bool = False,
        include_entry_points: bool = False,
        print_all: bool = False,
    ) -> str | None:
        """Print the spec, one line per part; long values are cut short.

        Args:
            disable_print: return the lines instead.
            include_entry_points: with the entry point.
            print_all: with the entry point and with what has its default value.

        Returns:
            The lines if `disable_print`, otherwise None.
        """
        lines = [f"id={self.id}"]
        if include_entry_points or print_all:
            lines.append(f"entry_point={origin(self.entry_point)}")
        if self.kwargs or print_all:
            kwargs = ", ".join(f"{key!r}: {short(value)}" for key, value in self.kwargs.items())
            lines.append(f"kwargs={{{kwargs}}}")
        if self.reward_range is not None or print_all:
            lines.append(f"reward_range={self.reward_range}")
        if self.nondeterministic or print_all:
            lines.append(f"nondeterministic={self.nondeterministic}")
        text = "\n".join(lines)
        if disable_print:
            return text
        print(text)
        return None


def _checked_range(id: str, reward_range: Sequence[float] | None) -> tuple[float, float] | None:
    if reward_range is None:
        return None
    if not isinstance(reward_range, tuple | list) or len(reward_range) != 2:
        raise ValueError(
            f"Expected (lowest, highest) as reward_range of {id}, got {short(reward_range)}."
        )
    low, high = (checked_number(f"reward_range of {id}", bound) for bound in reward_range)
    if low > high:
        raise ValueError(
            f"Expected the lowest before the highest as reward_range of {id}, got {reward_range}."
        )
    return low, high


def _same_creator(one: EnvCreator | str, other: EnvCreator | str) -> bool:
    if isinstance(one, str) == isinstance(other, str):
        return one == other
    path = importable_path(one)
    return path is not None and path == importable_path(other)


def _check_json(id: str, where: str, value: Any) -> None:
    """Raise unless JSON gives back an equal value."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            _check_json(id, f"{where}[{i}]", item)
    elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
        for key, item in value.items():
            _check_json(id, f"{where}[{key!r}]", item)
    elif isinstance(value, float) and math.isnan(value):
        raise ValueError(f"Expected {where} of {id} to equal itself after a round trip, got NaN.")
    elif value is not None and not isinstance(value, str | int | float):
        instead = (
            "give a list"
            if isinstance(value, tuple)
            else "make it in a function that builds the env, and register that as 'module:function'"
        )
        raise ValueError(
            f"Expected {where} of {id} to be what JSON holds (None, a bool, a number, a string, a "
            f"list, or a dict with strings as keys), got {short(value)} of type "
            f"{type(value).__name__}; {instead}."
        )


def _accepted_names(creator: EnvCreator) -> str:
    own, passed = parameters(creator), passed_on(creator)
    if own is None:
        return "not known"
    accepted = listed(own) or "none"
    return f"{accepted}, which may be {listed(passed)}" if passed else accepted


def _suggestion(creator: EnvCreator, given: Mapping[str, Any], exc: TypeError) -> str:
    """Return what a keyword that the error names may have been meant to be."""
    accepted = [p.name for p in [*(parameters(creator) or ()), *passed_on(creator)]]
    for name in given:
        close = difflib.get_close_matches(name, accepted, n=1)
        if name not in accepted and close and f"'{name}'" in str(exc):
            return f"; did you mean {close[0]} by {name}?"
    return ""
