"""Cut episodes after a number of turns."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from motet.envs.task.parts import checked_count
from motet.envs.text_state import StepResult
from motet.envs.wrappers.wrapper import Infos, Observations, Wrapper


class TimeLimit(Wrapper):
    """Truncate an episode after a number of turns, whatever the env inside would do.

    As Gymnasium's, but for an agent that the task itself ends in the last turn: it is terminated
    and not truncated too, so that no learner bootstraps from beyond the end of a task.

    The number of turns that belongs to a task is its `num_turns`, which terminates. The limit here
    is a budget from outside: agents that it cuts keep the observation of the turn that does not
    come, for learners to bootstrap from.

    Args:
        env: the env to wrap.
        max_episode_steps: turns after which agents that would go on are truncated.

    Raises:
        TypeError: where `max_episode_steps` is no integer.
        ValueError: where it is below 1.
    """

    def __init__(self, env: Any, max_episode_steps: int) -> None:
        super().__init__(env)
        self.max_episode_steps = checked_count("max_episode_steps", max_episode_steps)

    def after_reset(
        self, observations: Observations, infos: Infos, *, seed: int
    ) -> tuple[int, Observations, Infos]:
        """Start with no turns taken."""
        return 0, observations, infos

    def after_step(
        self, memory: int, actions: Mapping[str, Any], result: StepResult
    ) -> tuple[int, StepResult]:
        """Truncate agents that would go on beyond the limit."""
        turn = memory + 1
        if turn < self.max_episode_steps:
            return turn, result
        truncations = {
            agent: truncated or not result.terminations[agent]
            for agent, truncated in result.truncations.items()
        }
        return turn, replace(result, truncations=truncations)
