"""Change what agents say before the env hears it."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from motet.envs.task.parts import check_takes
from motet.envs.wrappers.per_agent import one_each
from motet.envs.wrappers.wrapper import Wrapper

Func = Callable[[str], str]


class TransformAction(Wrapper):
    """Apply a function to each agent's text; the env inside gets what it returns.

        TransformAction(env, [extract_tag("answer"), strip])

    Only texts are changed: any other action goes to the env inside, which refuses it. Functions
    must always return the same for the same text.

    Args:
        env: the env to wrap.
        func: `f(text) -> text`, or several, applied in their order; for all agents, or by agent.

    Raises:
        TypeError: where one is no function.
        ValueError: where there is none, or they are not those of the env's agents.
    """

    def __init__(
        self, env: Any, func: Func | Sequence[Func] | Mapping[str, Func | Sequence[Func]]
    ) -> None:
        super().__init__(env)
        self.func = func
        self._chains = {
            agent: _chain(own)
            for agent, own in one_each("func", func, self.possible_agents).items()
        }

    def before_step(self, memory: Any, actions: Any) -> Any:
        """Return the changed texts.

        Raises:
            TypeError: where a function returns no string.
        """
        if not isinstance(actions, Mapping):
            return actions  # the env inside has the sentence for it
        return {agent: self._changed(agent, action) for agent, action in actions.items()}

    def _changed(self, agent: str, action: Any) -> Any:
        if not isinstance(action, str) or agent not in self._chains:
            return action
        for function in self._chains[agent]:
            action = function(action)
            if not isinstance(action, str):
                raise TypeError(
                    f"Expected a string from func for {agent}, got {action!r} of type "
                    f"{type(action).__name__} from {function!r}."
                )
        return action


def strip(text: str) -> str:
    """Return a text without blanks and line breaks at both ends."""
    return text.strip()


def extract_tag(tag: str, default: str | None = "") -> Func:
    """Return a function that takes the text between `<tag>` and `</tag>`.

    Of several it takes the last that is closed: models mention the tag while they think about it,
    and answer at the end. Blanks inside the tags stay; `strip` after it takes them away.

    A completion without the tag, or whose tag was never closed, plays `default`. That is an empty
    text, as for answers that cannot be parsed elsewhere: playing the whole text would hand an
    agent's thoughts to its team-mates and pay for them.

    Args:
        tag: name of the tag, such as "answer".
        default: what is played without one; None for the whole text.

    Raises:
        TypeError: where `default` is neither text nor None.
        ValueError: where `tag` is no name.
    """
    name: Any = tag
    if not isinstance(name, str) or not re.fullmatch(r"[^\W\d][\w.-]*", name):
        raise ValueError(f"Expected the name of a tag, such as 'answer', got {tag!r}.")
    played: Any = default
    if played is not None and not isinstance(played, str):
        raise TypeError(f"Expected a string or None as default, got {default!r}.")
    return partial(_inside, opening=f"<{tag}>", closing=f"</{tag}>", default=default)


def _inside(text: str, *, opening: str, closing: str, default: str | None) -> str:
    last_closing = text.rfind(closing)
    start = text.rfind(opening, 0, last_closing) if last_closing >= 0 else -1
    if start < 0:
        return text if default is None else default
    start += len(opening)
    return text[start : text.index(closing, start)]


def _chain(func: Any) -> tuple[Func, ...]:
    functions = tuple(func) if isinstance(func, list | tuple) else (func,)
    if not functions:
        raise ValueError("Expected a function or several as func, got an empty list.")
    for function in functions:
        if not callable(function):
            raise TypeError(f"Expected functions f(text) -> text as func, got {function!r}.")
        check_takes(function, "func", "text")
    return functions
