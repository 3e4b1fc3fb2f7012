"""The loop that learners share: collect a rollout, update, log, evaluate, save.

A learner is a subclass with one method, `update`, from a rollout to metrics. What most of them do
there ends in `optimize`: the optimizer steps over groups of completions with advantages.

    class Imitate(Trainer):
        def update(self, rollout):
            metrics = turn_metrics(rollout, rollout_returns(rollout, self.config.discount))
            return {**metrics, **self.optimize(best_of_each_group(rollout))}
"""

import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
from torch import Tensor

from motet.agents import Agent, LMAgent
from motet.algos.callbacks import Callback, Callbacks
from motet.algos.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from motet.algos.checkpoint_folder import checkpoint_name, find_checkpoint
from motet.algos.checks import (
    check_left,
    check_metrics,
    check_prompts,
    check_team,
    check_trackers,
    checked_config,
    checked_loggers,
    warn_if_nothing_learnt,
    warn_if_one_turn,
)
from motet.algos.config import TrainerConfig
from motet.algos.evaluation import Evaluation
from motet.algos.evaluations.held_out import evaluate_held_out
from motet.algos.identity import check_identity, run_identity
from motet.algos.metrics import means, rollout_metrics
from motet.algos.parts import TaskParts, TeamMember, build_team, resolve_envs
from motet.algos.randomness import rng_state, set_global_states, set_rng_state
from motet.algos.rollouts.annotations import Annotations
from motet.algos.rollouts.collect import ParallelTextEnv, collect_rollouts
from motet.algos.rollouts.half_rollout import HalfRollout
from motet.algos.rollouts.rollout import Rollout
from motet.algos.run_folder import RunFolder
from motet.algos.schedule import check_schedule, row_schedule
from motet.algos.streaming import stream_of, wrapped_rows
from motet.algos.team import trainable_policies, with_sampling
from motet.algos.tracking.console import ConsoleLogger
from motet.algos.tracking.logger import Logger, Loggers
from motet.algos.tracking.opening import open_loggers
from motet.algos.tracking.progress_bar import ProgressBar
from motet.algos.tracking.run_settings import run_settings
from motet.algos.tracking.samples import log_evaluation
from motet.algos.updates.batch import Batch, Group, samples_by_agent, weighted_samples
from motet.algos.updates.losses import clipped_loss, policy_gradient_loss, truncated_importance_loss
from motet.algos.updates.update import PolicyUpdater


class TrainerOptions(TaskParts, total=False):
    """What every trainer takes besides env, agents and config; see `Trainer`."""

    args: TrainerConfig | None
    eval_env: ParallelTextEnv | None
    callbacks: Sequence[Callback]
    loggers: Sequence[Logger]
    wandb_config: Mapping[str, Any] | None


class Trainer(ABC):
    """Train a team of language models on the rewards of their joint completions.

    There are two ways to call it: with an env and a dict of agents,

        MAGRPOTrainer(env=env, agents={"agent_0": a, "agent_1": b}, config=MAGRPOConfig())

    or with the parts of a task, from which it builds a `TextEnv`,

        MAGRPOTrainer(agents=[model, model], tokenizer=tokenizer, reward_func=f,
                      train_dataset=rows, args=MAGRPOConfig())

    Args:
        env: a `TextEnv`, or any PettingZoo parallel env over strings with `clone()`.
        agents: agent by name; or, with the parts, a list of models, agents or names to load.
        config: settings. `args` is the same by another name.
        args: see `config`.
        eval_env: env with held-out rows.
        callbacks: called at the events of a run; one that returns False ends it.
        loggers: where metrics go beside console and `output_dir`; `train` does not close them.
        wandb_config: options of `wandb.init`, which turn Weights & Biases on.
        **parts: see `TaskParts`.

    Attributes:
        config_class: what `config` must be.
        config: settings.
        agents: agent by name, as trained so far; they play in any env.
        env: what they are trained on.
        eval_env: what they are evaluated on, or None.
        samplers: the agents with the config's sampling settings.
        updaters: one for each policy that is trained.
        rng: draws the order of rows and samples, and the seeds of rollouts.
        num_env_steps: joint actions rewarded so far while training, those of greedy episodes
            among them.
        num_optimizer_steps: that policies have taken so far in `train`.
        annotations: advantages of the rollout that is trained on, which the run's files get.

    Raises:
        ValueError: where arguments are missing or contradict each other.
        TypeError: where the reward function or the transition cannot be called.
    """

    config_class: ClassVar[type[TrainerConfig]] = TrainerConfig
    greedy_baseline: bool = False  # whether `collect` plays greedy episodes, too
    with_state: bool = False  # whether `collect` asks the env for its global view, too

    def __init__(  # noqa: PLR0913  # each is a part of its own
        self,
        env: ParallelTextEnv | None = None,
        agents: Mapping[str, Agent] | Sequence[TeamMember] = (),
        config: TrainerConfig | None = None,
        *,
        args: TrainerConfig | None = None,
        eval_env: ParallelTextEnv | None = None,
        callbacks: Sequence[Callback] = (),
        loggers: Sequence[Logger] = (),
        wandb_config: Mapping[str, Any] | None = None,
        **parts: Unpack[TaskParts],
    ) -> None:
        self.config = checked_config(config, args, self.config_class)
        self.env, self.eval_env = resolve_envs(env, eval_env, agents, parts, self.config)
        self.agents = dict(agents) if isinstance(agents, Mapping) else build_team(agents, parts)
        check_team(self.env, self.agents)
        check_schedule(self.env, self.eval_env, self.config)
        self.samplers = with_sampling(self.agents, **self.config.generation)
        self.updaters = [
            PolicyUpdater(policy, self.config, self.policy_loss)
            for policy in trainable_policies(self.samplers)
        ]
        self.rng = np.random.default_rng(self.config.seed)
        self.num_env_steps = self.num_optimizer_steps = 0
        self.annotations = Annotations()
        self._callbacks = Callbacks(callbacks)
        self._extra_loggers = checked_loggers(loggers)
        check_trackers(self.config, wandb_config)
        self._wandb_config = wandb_config
        self._went_on = False
        self._stepped = False
        self._rollouts_done = 0
        self._schedule_seed: int | None = None  # of the run, drawn as it begins
        self._best_return: float | None = None  # of the evaluations so far
        self._half: HalfRollout | None = None
        self._num_rollouts = 0  # of the run
        config = self.config
        self._folder = RunFolder(config.output_dir, config.save_total_limit)
        self._stopping = False
        self._clock = time.perf_counter()  # at which the run began, less what it took before
        self._history: dict[str, list[float]] = defaultdict(list)  # since the last log entry

    # --- what a learner writes ----------------------------------------------------------------

    @abstractmethod
    def update(self, rollout: Rollout) -> dict[str, float]:
        """Train on a rollout.

        Returns:
            `turn_k/...` metrics, those of `motet.algos.metrics.turn_metrics`, and `train/...`
            metrics, among them those of `optimize`.
        """

    def policy_loss(self, log_probs: Tensor, batch: Batch) -> Tensor:
        """Return the loss of a batch's completions, KL aside: a sum, weighted by `batch.weights`.

        Args:
            log_probs: (B, T) with gradient.
            batch: on the same device.

        Returns:
            () loss.
        """
        config, old = self.config, batch.old_log_probs
        sampled = batch.mask, batch.advantages, batch.weights
        if config.clip_range is not None:
            return clipped_loss(log_probs, old, *sampled, config.clip_range, config.clip_range_high)
        if config.importance_sampling_cap is not None:
            return truncated_importance_loss(
                log_probs, old, *sampled, config.importance_sampling_cap
            )
        return policy_gradient_loss(log_probs, *sampled)

    def set_progress(self, progress: float) -> None:
        """Set the learning rates of the next rollout.

        Args:
            progress: share of the run that is over, from 0 to 1.
        """
        for updater in self.updaters:
            updater.schedule(progress)

    def stops_early(self) -> bool:
        """Tell, after a pass over a rollout, whether to leave out those to come."""
        return False

    # --- what users call ----------------------------------------------------------------------

    def train(self, *, resume_from: str | Path | None = None) -> None:
        """Train, with an evaluation before, in between and after where there are held-out rows.

        Args:
            resume_from: folder of a checkpoint of a like run, or its `output_dir` for the newest
                one there, which goes on from there, to the bit as if it had not stopped. Agents,
                env and settings are those that it began with; how long it goes on, and what it
                logs, may differ. Of a run that has ended nothing is left to train, and a warning
                says so.

        Raises:
            FileNotFoundError: where there is no checkpoint.
            ValueError: where a prompt does not fit into an agent's context, or a checkpoint to the
                run; nothing is trained.
            FloatingPointError: where a loss or gradient is not finite.
        """
        check_prompts(self.env, self.eval_env, self.samplers, self.config)
        half = self._begin(resume_from)
        # of its own generator: the first rows of a longer run are those of a shorter one
        orders = np.random.default_rng(self._schedule_seed)
        schedule = list(row_schedule(self.env, self.config, orders))
        self._num_rollouts = len(schedule)
        check_left(self._rollouts_done, len(schedule))
        console = ConsoleLogger()
        opened = self._opened_loggers(resumes=resume_from is not None)
        loggers = Loggers([console, opened, *self._extra_loggers])
        bar = ProgressBar(len(schedule), console.console, visible=self.config.progress_bar)
        try:
            with bar:
                loggers.log_config(run_settings(self.config, type(self).__name__))
                bar.advance_to(self._rollouts_done)
                self._heed(self._callbacks.on_train_begin(self))
                if self._rollouts_done == 0 and half is None:
                    self._log_evaluation(loggers)
                while self._rollouts_done < len(schedule) and not self._stopping:
                    self.set_progress(self._rollouts_done / len(schedule))
                    metrics = self._train_on(schedule[self._rollouts_done], half)
                    half = None
                    self._rollouts_done += 1
                    bar.advance(
                        metrics["rollout/reward_mean"],
                        metrics["time/generation_tokens_per_second"],
                    )
                    self._heed(self._callbacks.on_update(self, metrics))
                    last = self._rollouts_done == len(schedule) or self._stopping
                    self._report(metrics, loggers, last=last)
                warn_if_one_turn(self.env, went_on=self._went_on)
                warn_if_nothing_learnt(stepped=self._stepped)
                self._callbacks.on_train_end(self)
        finally:
            self._half = None
            opened.close()  # those that were passed in are their owner's to close

    def _begin(self, resume_from: str | Path | None) -> Rollout | None:
        """Begin a run, or go on; return the rollout that it was training on."""
        self._stopping, half, elapsed_s = False, None, 0.0
        if resume_from is None:  # what an earlier run has counted is none of this one
            self._rollouts_done, self._schedule_seed = 0, None
            self._went_on = self._stepped = False
            self._best_return = None
            self._history.clear()
            self._folder.set_aside()
        else:
            found = find_checkpoint(resume_from)
            checkpoint = read_checkpoint(found, self.config, type(self).__name__)
            self.load_state_dict(checkpoint.state)
            set_global_states(checkpoint.randomness)
            half, elapsed_s = checkpoint.rollout, checkpoint.elapsed_s
        if self._schedule_seed is None:
            self._schedule_seed = int(self.rng.integers(2**63))
        for updater in self.updaters:
            updater.after_step = self._after_step
        self._clock = time.perf_counter() - elapsed_s
        return half

    def _heed(self, goes_on: bool | None) -> None:
        self._stopping |= goes_on is False

    def evaluate(
        self, *, num_samples: int | None = None, do_sample: bool | None = None
    ) -> Evaluation:
        """Play episodes on the held-out rows, or on those trained on where there are none.

        Args:
            num_samples: episodes per row; None for `eval_episodes_per_row` of the config.
            do_sample: False takes the most likely tokens; None for `eval_do_sample`.
        """
        env = self.env if self.eval_env is None else self.eval_env
        return evaluate_held_out(
            env, self.samplers, self.config, num_samples=num_samples, do_sample=do_sample
        )

    def save_model(self, output_dir: str | Path) -> None:
        """Write one folder per language-model agent, each of which plain transformers loads.

        Args:
            output_dir: gets the folders `agent_0`, `agent_1`, ..., by the agents' names.
        """
        for name, agent in self.agents.items():
            if isinstance(agent, LMAgent):
                agent.save_pretrained(Path(output_dir) / name)

    def save_checkpoint(self, output_dir: str | Path) -> None:
        """Write what `train(resume_from=output_dir)` of a trainer made like this one goes on from.

        It holds weights, optimizers, random states and counters; a write that is cut short leaves
        the checkpoint that was there before. In the middle of an update it is exact with
        `checkpoint_steps`, which keeps what the update began with; without, after an interrupt say,
        the run that goes on begins that rollout anew, from the weights as they are.
        """
        elapsed_s = time.perf_counter() - self._clock
        if self._half is None:
            checkpoint = Checkpoint(state=self.state_dict(), elapsed_s=elapsed_s)
        else:
            checkpoint = self._half.checkpoint(self.state_dict(), elapsed_s)
        write_checkpoint(output_dir, checkpoint, self.config, type(self).__name__)

    def made_of(self) -> dict[str, str]:
        """Return what a run that goes on has in common with this one, besides the settings."""
        return run_identity(self.env, self.samplers, self.updaters)

    def state_dict(self) -> dict[str, Any]:
        """Return what changes while training; a learner with more of it adds its own."""
        return {
            "made_of": self.made_of(),
            "policies": {each.policy.name: each.state_dict() for each in self.updaters},
            "rng": rng_state(self.rng),
            "schedule_seed": self._schedule_seed,
            "num_env_steps": self.num_env_steps,
            "num_optimizer_steps": self.num_optimizer_steps,
            "best_return": self._best_return,
            "rollouts_done": self._rollouts_done,
            "went_on": self._went_on,
            "stepped": self._stepped,
            "history": {name: list(values) for name, values in self._history.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Bring the trainer into a state that `state_dict` returned.

        Raises:
            ValueError: where it is that of another env or other agents; nothing is changed.
        """
        policies = state["policies"]
        names = [each.policy.name for each in self.updaters]
        if list(policies) != names:
            raise ValueError(
                f"Expected the policies of {names} in the checkpoint, got those of "
                f"{list(policies)}."
            )
        for updater in self.updaters:
            updater.check_state(policies[updater.policy.name])
        check_identity(state["made_of"], self.made_of())
        for updater in self.updaters:
            updater.load_state_dict(policies[updater.policy.name])
        set_rng_state(self.rng, state["rng"])
        self._schedule_seed = state["schedule_seed"]
        self.num_env_steps = state["num_env_steps"]
        self.num_optimizer_steps = state["num_optimizer_steps"]
        self._best_return = state["best_return"]
        self._rollouts_done = state["rollouts_done"]
        self._went_on = state["went_on"]
        self._stepped = state["stepped"]
        self._history = defaultdict(list, {k: list(v) for k, v in state["history"].items()})

    # --- one rollout --------------------------------------------------------------------------

    def collect(self, rows: Sequence[int]) -> Rollout:
        """Sample trees from rows, with the settings of the config and the next seed."""
        return collect_rollouts(
            self.env,
            self.samplers,
            rows,
            num_generations=self.config.num_generations,
            joint_mode=self.config.joint_mode,
            seed=int(self.rng.integers(2**63)),
            greedy_baseline=self.greedy_baseline,
            with_state=self.with_state,
        )

    def optimize(self, groups: Sequence[Group]) -> dict[str, float]:
        """Take the optimizer steps of a rollout.

        Args:
            groups: of the agents that are trained; none takes no step.

        Returns:
            `train/...` metrics: `loss` and `grad_norm` (means over the steps, where there are any),
            `num_optimizer_steps`, `learning_rate`, `tokens_computed`, with a KL in the loss `kl`,
            and with an `ent_coef` `entropy`.
        """
        for group in groups:
            self.annotations.note(group)
        steps = list(self._steps(groups))
        metrics = {
            "train/num_optimizer_steps": float(len(steps)),
            "train/learning_rate": self.updaters[0].learning_rate,
        }
        if steps:
            metrics["train/loss"] = float(np.mean([step["loss"] for step in steps]))
            metrics["train/grad_norm"] = float(np.mean([step["grad_norm"] for step in steps]))
            num_tokens = sum(step["completion_tokens"] for step in steps)
            for name in ("kl", "entropy"):
                if name in steps[0]:
                    metrics[f"train/{name}"] = sum(step[name] for step in steps) / num_tokens
        metrics["train/tokens_computed"] = sum(step["tokens"] for step in steps)
        return metrics

    def _steps(self, groups: Sequence[Group]) -> Iterator[dict[str, float]]:
        longest = max(
            agent.generation.max_new_tokens
            for updater in self.updaters
            for agent in updater.policy.agents.values()
        )
        weighted = weighted_samples(
            groups,
            self.config.loss_type,
            longest,
            mask_truncated=self.config.mask_truncated_completions,
        )
        size = self.config.train_batch_size or max(len(groups), 1)
        for _ in range(self.config.num_iterations):
            order = self.rng.permutation(len(groups))
            for start in range(0, len(groups), size):
                chunk = [weighted[i] for i in order[start : start + size]]
                samples = samples_by_agent(chunk, scale=len(groups) / len(chunk))
                for updater in self.updaters:
                    own = {name: samples[name] for name in updater.policy.agents if name in samples}
                    if own:
                        yield updater.step(own)
            if self.stops_early():
                return

    def _train_on(self, rows: Sequence[int], rollout: Rollout | None) -> dict[str, float]:
        """Collect a rollout, unless a checkpoint has one that was not done with, and update."""
        start = time.perf_counter()
        if rollout is None:
            stream = stream_of(self.env)
            rollout = self.collect(rows if stream is None else wrapped_rows(stream, rows))
        collected = time.perf_counter()
        self.annotations.clear()
        self._half = HalfRollout(rollout)
        self._heed(self._callbacks.on_rollout(self, rollout))
        self._half.begin(self.state_dict() if self.config.checkpoint_steps else None)
        metrics = self.update(rollout)
        self._half = None
        self._save_rollout(rollout)
        check_metrics(metrics, type(self).__name__)
        done = time.perf_counter()
        self.num_env_steps += rollout.num_env_steps
        self._went_on |= len(rollout.levels) > 1
        self._stepped |= metrics["train/num_optimizer_steps"] > 0
        return {
            **metrics,
            **rollout_metrics(rollout),
            "time/generation_tokens_per_second": rollout.num_tokens / (collected - start),
            "time/update_tokens_per_second": metrics["train/tokens_computed"] / (done - collected),
            "time/rollout_seconds": collected - start,
            "time/update_seconds": done - collected,
        }

    # --- the order of things ------------------------------------------------------------------

    def _report(self, metrics: Mapping[str, float], loggers: Logger, *, last: bool) -> None:
        """Log, evaluate and save what is due after a rollout."""
        for name, value in metrics.items():
            self._history[name].append(float(value))  # a checkpoint holds no number of numpy's
        done = self._rollouts_done
        if done % self.config.logging_steps == 0 or last:
            entry = means(self._history)
            self._history.clear()  # before: a checkpoint that a logger writes is past this entry
            loggers.log({**entry, **self._axes()}, self.num_env_steps)
        every = self.config.eval_interval
        if last or (every and done % every == 0):
            self._log_evaluation(loggers)
        every = self.config.checkpoint_interval
        if every and (last or done % every == 0):
            self._folder.save_checkpoint(checkpoint_name(done), self.save_checkpoint)

    def _log_evaluation(self, loggers: Logger) -> None:
        if self.eval_env is None:
            return
        evaluation = self.evaluate()
        log_evaluation(loggers, evaluation, self.num_env_steps, self._axes())
        self._folder.save_evaluation(self._rollouts_done, evaluation.rollout, self.samplers)
        reached = evaluation.metrics["return_mean"]
        if self._best_return is None or reached > self._best_return:
            self._best_return = reached
            if self.config.save_best:
                self._folder.save_best(self)
        self._heed(self._callbacks.on_eval(self, evaluation))

    def _axes(self) -> dict[str, float]:
        """Return what entries of the log have beside the env steps."""
        return {
            "time/optimizer_steps": float(self.num_optimizer_steps),
            "time/elapsed_seconds": time.perf_counter() - self._clock,
        }

    def _after_step(self) -> None:
        """Count an optimizer step of a policy, and save what is due."""
        self.num_optimizer_steps += 1
        every = self.config.checkpoint_steps
        if self._half is not None:
            self._half.num_steps += 1
            if every and self.num_optimizer_steps % every == 0:
                name = checkpoint_name(self._rollouts_done, self._half.num_steps)
                self._folder.save_checkpoint(name, self.save_checkpoint)

    def _save_rollout(self, rollout: Rollout) -> None:
        """Write the rollout that was trained on, where it is the first, the last, or due."""
        every, number = self.config.rollout_logging_steps, self._rollouts_done + 1
        if every and (number % every == 0 or number in (1, self._num_rollouts)):
            self._folder.save_rollout(number, self.annotations.noted_in(rollout), self.samplers)

    def _opened_loggers(self, *, resumes: bool) -> Loggers:
        after = self.num_env_steps if resumes else None
        return open_loggers(self.config, self._wandb_config, after=after)
