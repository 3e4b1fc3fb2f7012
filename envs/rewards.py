"""Rewards: processors that users compose, and the one place where a reward function is called."""

import math
import numbers
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any

from motet.envs.named_call import NamedCall, by_name
from motet.envs.task_parts import checked_number
from motet.envs.text_state import TextState

RewardProcessor = Callable[[float], float]

REWARD_NAMES = ("prompts", "rows", "batch_items", "turn", "histories")


class RewardProcessors:
    """Functions of one reward, applied to every value that a reward function returns."""

    @staticmethod
    def scale(factor: float = 1.0) -> RewardProcessor:
        """Multiply by `factor`. Group-normalised advantages do not change with it.

        Raises:
            TypeError: where `factor` is no number.
            ValueError: where it is not finite.
        """
        times = _checked_finite("the factor of scale", factor)
        return lambda reward: reward * times

    @staticmethod
    def shift(value: float = 0.0) -> RewardProcessor:
        """Add `value`.

        Raises:
            TypeError: where `value` is no number.
            ValueError: where it is not finite.
        """
        added = _checked_finite("the value of shift", value)
        return lambda reward: reward + added

    @staticmethod
    def clip(low: float, high: float) -> RewardProcessor:
        """Limit to [low, high]; an infinite bound limits nothing.

        Raises:
            TypeError: where a bound is no number.
            ValueError: where one is NaN or `low` is above `high`.
        """
        lowest, highest = checked_number("low of clip", low), checked_number("high of clip", high)
        if low > high:
            raise ValueError(f"Expected low <= high, got clip(low={low}, high={high}).")
        return lambda reward: min(max(reward, lowest), highest)

    @staticmethod
    def chain(*processors: RewardProcessor) -> RewardProcessor:
        """Apply `processors` from left to right.

        Raises:
            TypeError: where one cannot be called.
        """
        for processor in processors:
            if not callable(processor):
                raise TypeError(
                    f"Expected functions of one reward in chain, got {processor!r}; pass them one "
                    "by one, as in chain(scale, shift)."
                )

        def chained(reward: float) -> float:
            for processor in processors:
                reward = processor(reward)
            return reward

        return chained


class JointReward:
    """Call a reward function once for many joint actions and check what it returns.

    `reward_func(completions_0, ..., completions_{N-1}, **named)` gets one list of J texts per
    agent and returns J numbers, or `{agent: J numbers}` for rewards of each agent's own. Named
    parameters are lists of length J: `prompts` (the rows' prompts), `rows` (alias
    `batch_items`), `turn` (1 for the first), `histories` (per agent, the earlier turns as
    (observation, action) pairs), and every dataset column.

    Args:
        reward_func: the user's function.
        processor: applied to each value, or None.
        agent_names: (N,) agents in the order of the completions.
        columns: names of the dataset's columns.

    Raises:
        TypeError: where a function cannot be called, or a parameter of it not be filled.
    """

    def __init__(
        self,
        reward_func: Callable[..., Any],
        processor: RewardProcessor | None,
        agent_names: Sequence[str],
        columns: Sequence[str],
    ) -> None:
        if processor is not None and not callable(processor):
            raise TypeError(
                f"Expected a function of one reward as reward_processor, got {processor!r}."
            )
        self._agents = tuple(agent_names)
        self._processor = processor
        self._columns = tuple(columns)
        self._call = NamedCall(
            reward_func,
            role="reward_func",
            positional=[f"the completions of {name}" for name in agent_names],
            available={*REWARD_NAMES, *columns},
        )

    def __call__(
        self,
        states: Sequence[TextState],
        actions: Sequence[tuple[str, ...]],
        rows: Sequence[Mapping[str, Any]],
    ) -> list[tuple[float, ...]]:
        """Return each joint action's reward per agent.

        Args:
            states: (J,) states before the actions.
            actions: (J,) joint actions, each (N,) texts.
            rows: (J,) dataset rows.

        Returns:
            (J,) tuples of (N,) rewards, processed and finite.

        Raises:
            ValueError: where the function returns another number of rewards than J, other agents
                than the env's, or a value that is not finite.
            TypeError: where it returns no list, or one of something else than numbers.
        """
        completions = [list(texts) for texts in zip(*actions, strict=True)]
        returned = self._call(*completions, **self._named(states, rows))
        if isinstance(returned, Mapping):
            if set(returned) != set(self._agents):
                raise ValueError(
                    f"Expected rewards for {list(self._agents)}, got {list(returned)} from "
                    "reward_func; return one list per agent, or a single list for the team."
                )
            columns = [self._checked(returned[name], actions, states) for name in self._agents]
        else:
            columns = [self._checked(returned, actions, states)] * len(self._agents)
        return list(zip(*columns, strict=True))

    def _named(
        self, states: Sequence[TextState], rows: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        builders: dict[str, Callable[[], Any]] = {
            name: lambda name=name: [row[name] for row in rows]  # type: ignore[misc]
            for name in self._columns
        }
        builders["prompts"] = lambda: [row["prompt"] for row in rows]
        builders["rows"] = lambda: list(rows)
        builders["batch_items"] = builders["rows"]
        builders["turn"] = lambda: [state.turn + 1 for state in states]
        builders["histories"] = lambda: [state.histories(self._agents) for state in states]
        return by_name(self._call.names, builders)

    def _checked(
        self, returned: Any, actions: Sequence[tuple[str, ...]], states: Sequence[TextState]
    ) -> list[float]:
        listed = isinstance(returned, Collection) and getattr(returned, "ndim", 1) > 0
        if not listed or isinstance(returned, str | bytes | bytearray | Set | Mapping):
            raise TypeError(
                f"Expected a list of {len(actions)} rewards, one per joint action, got "
                f"{_shorten(returned)} from reward_func."
            )
        if len(returned) != len(actions):
            raise ValueError(
                f"Expected {len(actions)} rewards, one per joint action, got {len(returned)} "
                f"from reward_func for {_shorten(actions)}."
            )
        rewards = []
        for value, texts, state in zip(returned, actions, states, strict=True):
            reward = _number(value)
            if reward is None:
                raise TypeError(
                    f"Expected a number as reward, got {_shorten(value)} {_where(state, texts)}."
                )
            if self._processor is not None and math.isfinite(reward):
                processed = self._processor(reward)
                reward = _number(processed)
                if reward is None:
                    raise TypeError(
                        f"Expected a number from reward_processor, got {_shorten(processed)} "
                        f"{_where(state, texts)}."
                    )
            if not math.isfinite(reward):
                raise ValueError(f"Expected a finite reward, got {reward} {_where(state, texts)}.")
            rewards.append(reward)
        return rewards


def _number(value: Any) -> float | None:
    """Return a real number, NumPy scalar or tensor of one as a float, None for all else."""
    if isinstance(value, float):  # by far the most, and the other checks take longer
        return float(value)
    if not isinstance(value, numbers.Real) and hasattr(value, "item"):
        try:
            value = value.item()
        except (ValueError, RuntimeError):  # an array or a tensor of several values
            return None
    return float(value) if isinstance(value, numbers.Real) else None


def _checked_finite(name: str, value: Any) -> float:
    number = checked_number(name, value)
    if math.isinf(number):
        raise ValueError(f"Expected a finite number as {name}, got {value!r}.")
    return number


def _where(state: TextState, texts: tuple[str, ...]) -> str:
    return f"for row {state.row} at turn {state.turn + 1} with the completions {_shorten(texts)}"


def _shorten(texts: object, limit: int = 400) -> str:
    shown = repr(texts)
    return shown if len(shown) <= limit else f"{shown[:limit]}... ({len(shown)} characters)"
