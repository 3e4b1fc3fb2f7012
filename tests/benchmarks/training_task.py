"""The task that all sides of `make bench` train on: that of `story-length-ratio-v0`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from training_work import Work

from motet.envs.story_length_ratio import length_feedback, length_ratio_reward


def reward_of(work: Work) -> Callable[..., list[float]]:
    """Return the reward function: the task's own, constant for the prompts that are paid alike."""
    paid_alike = work.paid_alike
    if not paid_alike:
        return length_ratio_reward

    def reward(
        first: Sequence[str], second: Sequence[str], *, batch_items: Sequence[Mapping[str, Any]]
    ) -> list[float]:
        own = length_ratio_reward(first, second)
        return [
            0.5 if row["prompt"] in paid_alike else value
            for row, value in zip(batch_items, own, strict=True)
        ]

    return reward


def feedback(
    prompt: str, agent_completions: list[str], num_agents: int, **histories: Any
) -> list[str]:
    """Return the next prompts, in the words of CoMLRL's transitions."""
    del histories
    return length_feedback(prompt, agent_completions, num_agents)
