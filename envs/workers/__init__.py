"""Who calls a slow reward function: threads, or processes that can be killed."""

from motet.envs.workers.reward_workers import RewardWorkers

__all__ = ["RewardWorkers"]
