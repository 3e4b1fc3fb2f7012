"""The parts of a text task: its functions as they are called, and the rules that join them."""

from motet.envs.task.reward_processors import RewardProcessor, RewardProcessors
from motet.envs.task.text_task import TextTask

__all__ = ["RewardProcessor", "RewardProcessors", "TextTask"]
