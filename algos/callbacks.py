"""What users hang into a run: look at a rollout, change a rate, stop when the goal is reached.

trainer = algos.make("magrpo", env, team, callbacks=[algos.StopOnThreshold(0.9)])
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from motet.algos.evaluation import Evaluation
from motet.algos.rollouts.rollout import Rollout
from motet.algos.suggesting import suggestion


class Callback:
    """Called by a learner at the events of a run; override what you need.

    A method that returns False ends the run, as in stable-baselines3: after the rollout it is in,
    with the evaluation and the checkpoint of an end. Anything else, None included, lets it go on.
    What comes of comparing numbers of NumPy and torch counts as the bool that it is.
    """

    def on_train_begin(self, trainer: Any) -> bool | None:
        """Called before the first evaluation, also of a run that goes on from a checkpoint."""

    def on_rollout(self, trainer: Any, rollout: Rollout) -> bool | None:
        """Called with what was sampled, before the update; by `Trainer`s alone."""

    def on_update(self, trainer: Any, metrics: Mapping[str, float]) -> bool | None:
        """Called after each update, with the metrics of its rollout.

        Learners of stable-baselines3 call it with each entry of the log, the means since the last;
        fixed teams, which have no updates, never do.
        """

    def on_eval(self, trainer: Any, evaluation: Evaluation) -> bool | None:
        """Called after each evaluation on held-out rows."""

    def on_train_end(self, trainer: Any) -> None:
        """Called after the last evaluation; not where an error ends the run."""


class StopOnThreshold(Callback):
    """End a run as soon as a metric reaches a value.

    Args:
        threshold: the value.
        metric: its name: `eval/...` of evaluations, or any that is logged of a rollout.
        at_most: stop at or below the value instead of at or above it.

    Raises:
        ValueError: where the threshold is no number.

    Warns:
        UserWarning: at the end of a run that never had such a metric.
    """

    def __init__(
        self, threshold: float, metric: str = "eval/return_mean", *, at_most: bool = False
    ) -> None:
        if not math.isfinite(threshold):
            raise ValueError(f"Expected a finite number as threshold, got {threshold}.")
        self.threshold = threshold
        self.metric = metric
        self.at_most = at_most
        self._known: set[str] = set()

    def on_train_begin(self, trainer: Any) -> None:
        """Forget the metrics of an earlier run."""
        del trainer
        self._known.clear()

    def on_update(self, trainer: Any, metrics: Mapping[str, float]) -> bool | None:
        """Compare a metric of the rollout."""
        del trainer
        return self._goes_on(metrics)

    def on_eval(self, trainer: Any, evaluation: Evaluation) -> bool | None:
        """Compare a metric of the evaluation."""
        del trainer
        return self._goes_on({f"eval/{name}": each for name, each in evaluation.metrics.items()})

    def on_train_end(self, trainer: Any) -> None:
        """Warn where the metric was never there, as a misspelt one."""
        del trainer
        if self._known and self.metric not in self._known:
            hint = suggestion(self.metric, self._known) or f" There were {sorted(self._known)}."
            warnings.warn(
                f"The run never had a metric {self.metric!r} to stop by.{hint}", stacklevel=4
            )

    def _goes_on(self, metrics: Mapping[str, float]) -> bool | None:
        self._known.update(metrics)
        if self.metric not in metrics:  # a second turn, which not every rollout has
            return None
        value = metrics[self.metric]
        return value > self.threshold if self.at_most else value < self.threshold


class Callbacks(Callback):
    """Several callbacks as one; all are called, also when an earlier one ends the run.

    Args:
        callbacks: in the order in which they are called.

    Raises:
        TypeError: where one is none.
    """

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        if not isinstance(callbacks, list | tuple):
            raise TypeError(f"Expected a list of callbacks, got {callbacks!r}.")
        for callback in callbacks:
            if not isinstance(callback, Callback):
                raise TypeError(
                    f"Expected instances of motet.algos.Callback as callbacks, got {callback!r}."
                )
        self._callbacks = list(callbacks)

    def on_train_begin(self, trainer: Any) -> bool:
        """Call all of them; see `Callback`."""
        return _go_on([each.on_train_begin(trainer) for each in self._callbacks])

    def on_rollout(self, trainer: Any, rollout: Rollout) -> bool:
        """Call all of them; see `Callback`."""
        return _go_on([each.on_rollout(trainer, rollout) for each in self._callbacks])

    def on_update(self, trainer: Any, metrics: Mapping[str, float]) -> bool:
        """Call all of them; see `Callback`."""
        return _go_on([each.on_update(trainer, metrics) for each in self._callbacks])

    def on_eval(self, trainer: Any, evaluation: Evaluation) -> bool:
        """Call all of them; see `Callback`."""
        return _go_on([each.on_eval(trainer, evaluation) for each in self._callbacks])

    def on_train_end(self, trainer: Any) -> None:
        """Call all of them; see `Callback`."""
        for each in self._callbacks:
            each.on_train_end(trainer)


def _go_on(returned: Sequence[object]) -> bool:
    return not any(map(_is_false, returned))


def _is_false(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dtype == torch.bool and value.numel() == 1 and not value.item()
    return isinstance(value, bool | np.bool_) and not value
