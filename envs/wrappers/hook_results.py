"""What the hooks of a wrapper return, checked: they are somebody's own code.

A wrong result would come up turns later and elsewhere, and a reward that is not finite ends in
the weights.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from motet.envs.text_state import StepResult


def checked_begin(returned: Any, wrapper: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return what `after_reset` returned for one episode.

    Args:
        returned: the memory, the observations and the infos.
        wrapper: name of its class, for messages.

    Raises:
        TypeError: where it is something else.
    """
    three = isinstance(returned, tuple) and len(returned) == 3
    if not three or not all(isinstance(part, Mapping) for part in returned[1:]):
        raise TypeError(
            f"Expected (memory, observations, infos) from after_reset of {wrapper}, got "
            f"{repr(returned)[:200]}."
        )
    memory, observations, infos = returned
    return memory, observations, infos


def checked_after(returned: Any, before: StepResult, wrapper: str) -> tuple[Any, StepResult]:
    """Return what `after_step` returned for one episode.

    Where it changed rewards, infos follow, and each reward counts for its turn alone.

    Args:
        returned: the memory and the result.
        before: the result that the hook got.
        wrapper: name of its class, for messages.

    Raises:
        TypeError: where it is something else, or a reward is no number.
        ValueError: where a reward is not finite, or it is not of the agents that there were.
    """
    pair = isinstance(returned, tuple) and len(returned) == 2
    if not pair or not isinstance(returned[1], StepResult):
        raise TypeError(
            f"Expected (memory, result) from after_step of {wrapper}, got {repr(returned)[:200]}."
        )
    memory, result = returned
    if result is before:
        return memory, result
    for name in ("observations", "rewards", "terminations", "truncations", "infos"):
        part, old = getattr(result, name), getattr(before, name)
        if part is not old and (not isinstance(part, Mapping) or part.keys() != old.keys()):
            raise ValueError(
                f"Expected {name} of {list(old)} from after_step of {wrapper}, got "
                f"{repr(part)[:200]}."
            )
    if result.rewards is before.rewards:
        return memory, result
    return memory, _recredited(result, wrapper)


def _recredited(result: StepResult, wrapper: str) -> StepResult:
    rewards = {agent: _number(agent, value, wrapper) for agent, value in result.rewards.items()}
    infos = {
        agent: {**info, "turn_reward": rewards[agent], "turns_credited": 1}
        if "turn_reward" in info
        else info
        for agent, info in result.infos.items()
    }
    return replace(result, rewards=rewards, infos=infos, credit=None)


def _number(agent: str, value: Any, wrapper: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(
            f"Expected a number as the reward of {agent} from after_step of {wrapper}, got "
            f"{value!r}."
        ) from None
    if not math.isfinite(number):
        raise ValueError(
            f"Expected a finite reward of {agent} from after_step of {wrapper}, got {value!r}."
        )
    return number
