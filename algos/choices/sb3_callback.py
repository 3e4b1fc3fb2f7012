"""How a trainer follows a model of stable-baselines3 while it learns.

This module imports that library, and is imported when a learner is trained only.
"""

from collections.abc import Callable
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback


class RolloutCallback(BaseCallback):
    """Call functions at a model's steps and at the borders of its rollouts.

    Where a rollout begins, the update of the one before is done, and all that the model goes on
    from stands still.

    Args:
        record: gets rewards, dones and infos of each step.
        collected: called where a rollout ends, before the update.
        begun: called where a rollout begins.
    """

    def __init__(
        self,
        record: Callable[[Any, Any, Any], None],
        collected: Callable[[], None],
        begun: Callable[[], None],
    ) -> None:
        super().__init__()
        self._record = record
        self._collected = collected
        self._begun = begun

    def _on_step(self) -> bool:
        self._record(self.locals["rewards"], self.locals["dones"], self.locals["infos"])
        return True

    def _on_rollout_end(self) -> None:
        self._collected()

    def _on_rollout_start(self) -> None:
        self._begun()
