"""A rollout that is being trained on, and what a checkpoint in the middle of it holds."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from motet.algos.checkpoint import Checkpoint
from motet.algos.randomness import global_states
from motet.algos.rollouts.rollout import Rollout


class HalfRollout:
    """What is known while a learner updates.

    A learner is between any two optimizer steps in a state that only it knows: half of a
    permutation, critics that are yet to be fitted. What its update began with is known, and the
    update is a function of that and of the rollout; so that is what is kept, and what goes on from
    it takes the same steps again.

    Args:
        rollout: that is trained on.

    Attributes:
        num_steps: optimizer steps taken of it.
    """

    def __init__(self, rollout: Rollout) -> None:
        self.num_steps = 0
        self._rollout = rollout
        self._begun = False
        self._state: Mapping[str, Any] | None = None
        self._randomness: Mapping[str, Any] = {}

    def begin(self, state: Mapping[str, Any] | None) -> None:
        """Say that the update begins.

        Args:
            state: of the learner, of which a copy is kept; None keeps none.
        """
        self._begun = True
        if state is not None:
            self._state, self._randomness = _copied(state), global_states()

    def checkpoint(
        self, current_state: Callable[[], Mapping[str, Any]], elapsed_s: float
    ) -> Checkpoint:
        """Return what to go on from.

        Args:
            current_state: returns that of the learner as it is now, where no copy was kept.
            elapsed_s: seconds that the run has taken.
        """
        if not self._begun:
            return Checkpoint(state=current_state(), rollout=self._rollout, elapsed_s=elapsed_s)
        if self._state is None:
            return Checkpoint(state=current_state(), elapsed_s=elapsed_s)
        return Checkpoint(
            state=self._state,
            rollout=self._rollout,
            randomness=self._randomness,
            elapsed_s=elapsed_s,
        )


def _copied(value: Any) -> Any:
    """Return a state whose tensors are copies in host memory."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: _copied(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_copied, value))
    return value
