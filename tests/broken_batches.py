"""Environments that break the rule about batches, for `tests/envs/test_check_env.py`."""

from dataclasses import replace

from good_env import broken

from motet.envs import make
from motet.envs.wrappers import Wrapper


class TwoTurns(Wrapper):
    """Stands around a task, as wrappers do that are handed to `check_env` as a factory."""

    def __init__(self):
        super().__init__(make("story-length-ratio-v0", num_turns=2))


@broken("batches", "rewards of step 1", "in branch 1")
class CountsOnItself(TwoTurns):
    """Keeps its count on the wrapper: siblings count each other."""

    def after_reset(self, observations, infos, *, seed):
        self.turns = 0
        return None, observations, infos

    def after_step(self, memory, actions, result):
        self.turns += 1
        rewards = {agent: reward + self.turns for agent, reward in result.rewards.items()}
        return memory, replace(result, rewards=rewards)

    def get_state(self):
        return replace(super().get_state(), memory=self.turns)

    def set_state(self, state, *, seed=None):
        super().set_state(state, seed=seed)
        self.turns = state.memory


@broken("batches", "to leave the env's own episode alone")
class EndsItself(TwoTurns):
    """Ends the env's own episode whenever a turn is played from a state."""

    def after_step_batch(self, memories, joint_actions, results):
        if len(results) > 1:
            self.agents = []
        return super().after_step_batch(memories, joint_actions, results)
