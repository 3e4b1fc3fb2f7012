"""What happens around a learner: the order of a run, and all that is due in it.

`Trainer` says what is learnt from a rollout. Here are the schedule, the log, evaluations,
checkpoints, callbacks, and how a run begins, goes on and ends.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from motet.algos.callbacks import Callback, Callbacks
from motet.algos.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from motet.algos.checkpoint_folder import checkpoint_name, find_checkpoint
from motet.algos.checks import (
    check_left,
    check_metrics,
    checked_loggers,
    warn_if_nothing_learnt,
    warn_if_one_turn,
)
from motet.algos.config import TrainerConfig
from motet.algos.memory import memory_metrics
from motet.algos.metrics import means, rollout_metrics
from motet.algos.randomness import set_global_states
from motet.algos.rollouts.half_rollout import HalfRollout
from motet.algos.rollouts.rollout import Rollout
from motet.algos.run_folder import RunFolder
from motet.algos.schedule import row_schedule
from motet.algos.spread import SpreadWatch
from motet.algos.streaming import stream_of, wrapped_rows
from motet.algos.tracking.console import ConsoleLogger
from motet.algos.tracking.logger import Logger, Loggers
from motet.algos.tracking.opening import open_loggers
from motet.algos.tracking.progress_bar import ProgressBar
from motet.algos.tracking.run_settings import run_settings
from motet.algos.tracking.samples import log_evaluation

if TYPE_CHECKING:
    from motet.algos.trainer import Trainer


@dataclass(slots=True)
class RunProgress:
    """How far a run is.

    Attributes:
        num_env_steps: joint actions rewarded so far, those of greedy episodes among them.
        num_optimizer_steps: of all policies.
        rollouts_done: rollouts trained on.
        schedule_seed: of the order of rows, drawn as the run begins.
        best_return: of its evaluations; None before the first one.
        went_on: whether an episode had a second turn.
        stepped: whether a policy was trained.
        history: metrics since the last entry of the log.
        unreported: metrics of a rollout after which nothing was logged, evaluated or saved yet;
            None where all of that is done.
    """

    num_env_steps: int = 0
    num_optimizer_steps: int = 0
    rollouts_done: int = 0
    schedule_seed: int | None = None
    best_return: float | None = None
    went_on: bool = False
    stepped: bool = False
    history: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    unreported: dict[str, float] | None = None

    def begun_anew(self) -> Self:
        """Return that of another run of the same trainer, which goes on counting steps."""
        return type(self)(
            num_env_steps=self.num_env_steps, num_optimizer_steps=self.num_optimizer_steps
        )

    def state_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        state = {name: getattr(self, name) for name in self.__slots__}
        return state | {"history": {name: list(own) for name, own in self.history.items()}}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> Self:
        """Return what `state_dict` was of."""
        history = defaultdict(list, {name: list(own) for name, own in state["history"].items()})
        return cls(**{**state, "history": history})


class TrainingRun:
    """The run of a trainer, or one after the other.

    Args:
        trainer: who learns.
        callbacks: of the user.
        loggers: of the user.
        wandb_config: options of `wandb.init`; None where Weights & Biases is not asked for by them.

    Attributes:
        progress: how far it is.
    """

    def __init__(
        self,
        trainer: "Trainer",
        callbacks: Sequence[Callback],
        loggers: Sequence[Logger],
        wandb_config: Mapping[str, Any] | None,
    ) -> None:
        self.progress = RunProgress()
        self._trainer = trainer
        self._callbacks = Callbacks(callbacks)
        self._given_loggers = checked_loggers(loggers)
        self._loggers = Loggers([])
        self._wandb_config = wandb_config
        config = trainer.config
        self._folder = RunFolder(config.output_dir, config.save_total_limit)
        self._half: HalfRollout | None = None  # what is trained on just now
        self._trained: Rollout | None = None  # what was, while it is not written
        self._stopping = False
        self._clock = time.perf_counter()  # at which it began, less what it took before
        self._num_rollouts = 0
        self._spread = SpreadWatch()

    @property
    def _config(self) -> TrainerConfig:
        return self._trainer.config  # which a learner may still complete when this is made

    def go(self, resume_from: str | Path | None) -> None:
        """Run from the beginning, or from a checkpoint, to the end; see `Trainer.train`."""
        half = self._begin(resume_from)
        # of its own generator: the first rows of a longer run are those of a shorter one
        orders = np.random.default_rng(self.progress.schedule_seed)
        schedule = list(row_schedule(self._trainer.env, self._config, orders))
        self._num_rollouts = len(schedule)
        check_left(self.progress.rollouts_done, len(schedule))
        console = ConsoleLogger()
        after = None if resume_from is None else self.progress.num_env_steps
        opened = open_loggers(self._config, self._wandb_config, after=after)
        self._loggers = Loggers([console, opened, *self._given_loggers])
        bar = ProgressBar(len(schedule), console.console, visible=self._config.progress_bar)
        try:
            with bar:
                bar.advance_to(self.progress.rollouts_done)
                self._train(schedule, half, bar)
        finally:
            self._half = self._trained = None
            opened.close()  # those that were passed in are their owner's to close

    def checkpoint_to(self, folder: str | Path) -> None:
        """Write a checkpoint; see `Trainer.save_checkpoint`."""
        elapsed_s = time.perf_counter() - self._clock
        if self._half is None:
            checkpoint = Checkpoint(state=self._trainer.state_dict(), elapsed_s=elapsed_s)
        else:
            checkpoint = self._half.checkpoint(self._trainer.state_dict, elapsed_s)
        write_checkpoint(folder, checkpoint, self._config, type(self._trainer).__name__)

    # --- the order of things ------------------------------------------------------------------

    def _begin(self, resume_from: str | Path | None) -> Rollout | None:
        """Begin, or go on; return the rollout that was being trained on."""
        self._stopping, half, elapsed_s = False, None, 0.0
        self._spread = SpreadWatch()
        if resume_from is None:
            self.progress = self.progress.begun_anew()
            self._folder.set_aside()
        else:
            found = find_checkpoint(resume_from)
            checkpoint = read_checkpoint(found, self._config, type(self._trainer).__name__)
            self._trainer.load_state_dict(checkpoint.state)
            set_global_states(checkpoint.randomness)
            half, elapsed_s = checkpoint.rollout, checkpoint.elapsed_s
            self._folder.go_on_from(found, self.progress.rollouts_done)
        if self.progress.schedule_seed is None:
            self.progress.schedule_seed = int(self._trainer.rng.integers(2**63))
        for updater in self._trainer.updaters:
            updater.after_step = self._after_step
        self._clock = time.perf_counter() - elapsed_s
        return half

    def _train(
        self, schedule: Sequence[Sequence[int]], half: Rollout | None, bar: ProgressBar
    ) -> None:
        progress, trainer = self.progress, self._trainer
        self._half = None if half is None else HalfRollout(half)
        self._loggers.log_config(run_settings(self._config, type(trainer).__name__))
        self._heed(self._callbacks.on_train_begin(trainer))
        if progress.rollouts_done == 0 and half is None:
            self._evaluate()
        if progress.unreported is not None:  # of a checkpoint that a callback wrote in `on_update`
            self._report(progress.unreported)
        while progress.rollouts_done < len(schedule) and not self._stopping:
            trainer.set_progress(progress.rollouts_done / len(schedule))
            metrics = self._train_on(schedule[progress.rollouts_done], half)
            half = None
            progress.rollouts_done += 1
            progress.unreported = metrics
            bar.advance(
                metrics["rollout/reward_mean"], metrics["time/generation_tokens_per_second"]
            )
            self._heed(self._callbacks.on_update(trainer, metrics))
            self._report(metrics)
        if progress.rollouts_done:
            warn_if_one_turn(trainer.env, went_on=progress.went_on, stacklevel=5)
            warn_if_nothing_learnt(stepped=progress.stepped, stacklevel=5)
        self._callbacks.on_train_end(trainer)

    def _heed(self, goes_on: bool | None) -> None:
        self._stopping |= goes_on is False

    def _train_on(self, rows: Sequence[int], rollout: Rollout | None) -> dict[str, float]:
        """Collect a rollout, unless a checkpoint has one that was not done with, and update."""
        trainer = self._trainer
        start = time.perf_counter()
        sampled = rollout is None
        if rollout is None:
            stream = stream_of(trainer.env)
            rollout = trainer.collect(rows if stream is None else wrapped_rows(stream, rows))
        collected = time.perf_counter()
        trainer.annotations.clear()
        self._half = HalfRollout(rollout)
        self._heed(self._callbacks.on_rollout(trainer, rollout))
        self._half.begin(trainer.state_dict() if self._config.checkpoint_steps else None)
        metrics = trainer.update(rollout)
        check_metrics(metrics, type(trainer).__name__)
        self._half = None
        updated = time.perf_counter()
        self._trained = rollout
        self._save_rollout(self.progress.rollouts_done + 1)
        self.progress.num_env_steps += rollout.num_env_steps
        self.progress.went_on |= len(rollout.levels) > 1
        self.progress.stepped |= metrics["train/num_optimizer_steps"] > 0
        self._spread.observe(metrics)
        num_computed, num_sampled = metrics["train/tokens_computed"], sampled * rollout.num_tokens
        whole = {
            **metrics,
            **rollout_metrics(rollout),
            "time/generation_tokens_per_second": num_sampled / (collected - start),
            "time/update_tokens_per_second": num_computed / (updated - collected),
            "time/rollout_seconds": collected - start,
            "time/update_seconds": updated - collected,
            **memory_metrics(),
        }
        return {name: float(value) for name, value in whole.items()}  # not numpy's: they are saved

    # --- what is due --------------------------------------------------------------------------

    def _report(self, metrics: Mapping[str, float]) -> None:
        """Log, evaluate and save what is due after a rollout."""
        progress, config = self.progress, self._config
        number = progress.rollouts_done
        progress.unreported = None
        for name, value in metrics.items():
            progress.history[name].append(value)

        def due(every: int) -> bool:
            return self._ends_with(number) or bool(every and number % every == 0)

        if due(config.logging_steps):
            self._log()
        if due(config.eval_interval):
            self._evaluate()
        if self._ends_with(number):  # which the evaluation may have decided
            self._log()
            self._save_rollout(number)
        self._trained = None
        if config.checkpoint_interval and due(config.checkpoint_interval):
            self._folder.save_checkpoint(checkpoint_name(number), self.checkpoint_to)

    def _ends_with(self, number: int) -> bool:
        return number == self._num_rollouts or self._stopping

    def _log(self) -> None:
        """Log the means since the last entry, where there is anything since."""
        history = self.progress.history
        if history:
            entry = means(history)
            history.clear()  # before: a checkpoint that a logger writes is past this entry
            self._loggers.log({**entry, **self._axes()}, self.progress.num_env_steps)

    def _evaluate(self) -> None:
        trainer, progress = self._trainer, self.progress
        if trainer.eval_env is None:
            return
        evaluation = trainer.evaluate()
        log_evaluation(self._loggers, evaluation, progress.num_env_steps, self._axes())
        self._folder.save_evaluation(progress.rollouts_done, evaluation.rollout, trainer.samplers)
        reached = evaluation.metrics["return_mean"]
        if progress.best_return is None or reached > progress.best_return:
            progress.best_return = reached
            if self._config.save_best:
                self._folder.save_best(trainer)
        self._heed(self._callbacks.on_eval(trainer, evaluation))

    def _axes(self) -> dict[str, float]:
        """Return what entries of the log have beside the env steps."""
        return {
            "time/optimizer_steps": float(self.progress.num_optimizer_steps),
            "time/elapsed_seconds": time.perf_counter() - self._clock,
        }

    def _after_step(self) -> None:
        """Count an optimizer step of a policy, and save what is due."""
        self.progress.num_optimizer_steps += 1
        every = self._config.checkpoint_steps
        if self._half is not None:
            self._half.num_steps += 1
            if every and self.progress.num_optimizer_steps % every == 0:
                name = checkpoint_name(self.progress.rollouts_done, self._half.num_steps)
                if not self._folder.has_reached(name):  # by the run that this one goes on from
                    self._folder.save_checkpoint(name, self.checkpoint_to)

    def _save_rollout(self, number: int) -> None:
        """Write the rollout that was trained on, where it is the first, the last, or due."""
        every, rollout, trainer = self._config.rollout_logging_steps, self._trained, self._trainer
        if rollout is None or not every:
            return
        if number == 1 or number % every == 0 or self._ends_with(number):
            noted = trainer.annotations.noted_in(rollout)
            self._folder.save_rollout(number, noted, trainer.samplers)
            self._trained = None
