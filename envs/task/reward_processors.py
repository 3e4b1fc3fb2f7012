"""Functions of one reward that users compose: scale, shift, clip, chain."""

import math
from collections.abc import Callable
from typing import Any

from motet.envs.task.parts import checked_number

RewardProcessor = Callable[[float], float]


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


def _checked_finite(name: str, value: Any) -> float:
    number = checked_number(name, value)
    if math.isinf(number):
        raise ValueError(f"Expected a finite number as {name}, got {value!r}.")
    return number
