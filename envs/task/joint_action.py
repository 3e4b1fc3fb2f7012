"""What every env checks of the actions that it is given."""

from collections.abc import Mapping, Sequence
from typing import Any

from motet.envs.text_space import TextSpace


def checked_texts(actions: Any, spaces: Mapping[str, TextSpace]) -> tuple[str, ...]:
    """Return (N,) texts in the agents' order.

    Args:
        actions: what `step` got: a text by agent.
        spaces: action space by agent.

    Raises:
        TypeError: where `actions` is no mapping or an action no string.
        ValueError: where an agent is missing or unknown, or a text outside its space.
    """
    if not isinstance(actions, Mapping):
        raise TypeError(f"Expected a mapping of one action per agent, got {actions!r}.")
    if actions.keys() != spaces.keys():
        _raise_for_names(actions, list(spaces))
    for name, space in spaces.items():
        if actions[name] not in space:
            raise text_error(actions[name], f"the action of {name}")
    return tuple([actions[name] for name in spaces])


def text_error(value: Any, what: str) -> TypeError | ValueError:
    """Return the error for what lies outside the space of all texts.

    Args:
        value: what came.
        what: what it should be, for messages: "the action of agent_0".
    """
    if not isinstance(value, str):
        return TypeError(
            f"Expected a string as {what}, got {value!r} of type {type(value).__name__}."
        )
    return ValueError(
        f"Expected UTF-8-encodable text as {what}, got {value[:80]!r}; it holds a lone surrogate."
    )


def _raise_for_names(actions: Mapping[str, Any], names: Sequence[str]) -> None:
    missing = [name for name in names if name not in actions]
    unknown = [name for name in actions if name not in names]
    raise ValueError(
        f"Expected one action for each of {names}, got actions with {missing} missing and "
        f"{unknown} unknown; pass '' for an agent that has nothing to say or is not to act."
    )
