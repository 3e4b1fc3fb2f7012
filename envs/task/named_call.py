"""Call a user's function with the named values it asks for.

Reward functions and transitions take what they need by name. The signature is read once, when the
env is built, so that a parameter nothing can fill is an error before any compute is spent. There
is no retry and no guessing; whatever the function raises passes through untouched.
"""

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class NamedCall:
    """A function together with the names that it takes.

    The first `num_positional` parameters are filled by position, the others by name from
    `available`. A parameter with a default that nothing fills keeps its default, and so does one
    that `functools.partial` has bound. `**kwargs` takes every available name.

    Args:
        func: the user's function, a `functools.partial`, or any other callable.
        role: what the function is to the caller, for messages: "reward_func".
        positional: what the positional arguments are, for messages, and how many there are.
        available: names that can be filled.

    Raises:
        TypeError: where `func` is not callable, is a coroutine function, has no signature, takes
            too few positional arguments, or has a required parameter that nothing fills.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        *,
        role: str,
        positional: Sequence[str] = (),
        available: Collection[str],
    ) -> None:
        if not callable(func):
            raise TypeError(f"Expected a callable as {role}, got {func!r}.")
        if inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(type(func).__call__):
            raise TypeError(
                f"Expected a function that returns its result as {role}, got the coroutine "
                f"function {func!r}; call asyncio.run in a function of your own."
            )
        self.func = func
        self._role = role
        self._positional = tuple(positional)
        try:
            parameters = list(inspect.signature(func).parameters.values())
        except ValueError as exc:
            raise TypeError(
                f"Expected a function whose parameters can be read as {role}, got {func!r}; call "
                "it from a function of your own."
            ) from exc
        named = self._without_positional(parameters, positional)
        bound = set(func.keywords) if isinstance(func, functools.partial) else set()
        self.names = frozenset(p.name for p in named if p.name in available) - bound
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
            self.names = (
                frozenset(available) - bound - {p.name for p in parameters if p not in named}
            )
        self._check_fillable(named, bound, available)

    def __call__(self, *args: Any, **values: Any) -> Any:
        """Call the function with `args` and with those of `values` that it takes."""
        return self.func(*args, **{name: values[name] for name in values if name in self.names})

    def _without_positional(
        self, parameters: list[inspect.Parameter], positional: Sequence[str]
    ) -> list[inspect.Parameter]:
        if positional and any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
            return [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
        slots = [p for p in parameters if p.kind in _POSITIONAL]
        if len(slots) < len(positional):
            raise TypeError(
                f"Expected {self._role} to take {len(positional)} positional arguments "
                f"({', '.join(positional)}), got a function of {len(slots)}: "
                f"{self._name()}{inspect.signature(self.func)}."
            )
        taken = slots[: len(positional)]
        return [p for p in parameters if p not in taken]

    def _check_fillable(
        self, named: list[inspect.Parameter], bound: set[str], available: Collection[str]
    ) -> None:
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        for parameter in named:
            required = parameter.default is inspect.Parameter.empty
            if parameter.kind in variadic or not required or parameter.name in bound:
                continue
            by_name = parameter.kind is not inspect.Parameter.POSITIONAL_ONLY
            if not by_name or parameter.name not in available:
                first = ""
                if self._positional:
                    first = f"the first ones are {', '.join(self._positional)}, and "
                raise TypeError(
                    f"Nothing fills the parameter '{parameter.name}' of {self._role} "
                    f"{self._name()}{inspect.signature(self.func)}; {first}what can be asked for "
                    f"by name is {', '.join(sorted(available))}. Rename it, or give it a default."
                )

    def _name(self) -> str:
        func = self.func.func if isinstance(self.func, functools.partial) else self.func
        return str(func.__name__) if inspect.isroutine(func) else type(func).__name__


def by_name(names: Collection[str], builders: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """Build only the values that are asked for: histories cost time that nobody else should pay."""
    return {name: build() for name, build in builders.items() if name in names}
