"""The loop that learners share: collect a rollout, update, log, evaluate, save.

A learner is a subclass with one method, `update`, from a rollout to metrics. What most of them do
there ends in `optimize`: the optimizer steps over groups of completions with advantages.

    class Imitate(Trainer):
        def update(self, rollout):
            metrics = turn_metrics(rollout, rollout_returns(rollout, self.config.discount))
            return {**metrics, **self.optimize(best_of_each_group(rollout))}
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
from torch import Tensor

from motet.agents import Agent, LMAgent
from motet.algos.callbacks import Callback
from motet.algos.checks import (
    check_prompts,
    check_team,
    check_trackers,
    checked_config,
)
from motet.algos.config import TrainerConfig
from motet.algos.evaluation import Evaluation
from motet.algos.evaluations.held_out import evaluate_held_out
from motet.algos.identity import check_identity, run_identity
from motet.algos.parts import TaskParts, TeamMember, build_team, resolve_envs
from motet.algos.randomness import rng_state, set_rng_state
from motet.algos.rollouts.annotations import Annotations
from motet.algos.rollouts.collect import ParallelTextEnv, collect_rollouts
from motet.algos.rollouts.rollout import Rollout
from motet.algos.schedule import check_schedule
from motet.algos.team import trainable_policies, with_sampling
from motet.algos.tracking.logger import Logger
from motet.algos.training_run import RunProgress, TrainingRun
from motet.algos.updates.batch import Batch, Group, samples_by_agent, weighted_samples
from motet.algos.updates.learning_rates import check_learning_rates
from motet.algos.updates.losses import clipped_loss, policy_gradient_loss, truncated_importance_loss
from motet.algos.updates.step_metrics import Step, approx_kl, step_metrics
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
        policies = trainable_policies(self.samplers)
        check_learning_rates(self.config.agent_learning_rate, policies, self.agents)
        self.updaters = [
            PolicyUpdater(policy, self.config, self.policy_loss) for policy in policies
        ]
        self.rng = np.random.default_rng(self.config.seed)
        self.annotations = Annotations()
        check_trackers(self.config, wandb_config)
        self._run = TrainingRun(self, callbacks, loggers, wandb_config)

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

    def stops_early(self, approx_kl: float) -> bool:
        """Tell, after a pass over a rollout, whether to leave out those to come.

        Args:
            approx_kl: of the pass; see `motet.algos.updates.step_metrics`.
        """
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
        self._run.go(resume_from)

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
        self._run.checkpoint_to(output_dir)

    @property
    def num_env_steps(self) -> int:
        """Joint actions rewarded so far while training, those of greedy episodes among them."""
        return self._run.progress.num_env_steps

    @property
    def num_optimizer_steps(self) -> int:
        """Optimizer steps of all policies so far in `train`."""
        return self._run.progress.num_optimizer_steps

    def made_of(self) -> dict[str, str]:
        """Return what a run that goes on has in common with this one, besides the settings."""
        return run_identity(self.env, self.samplers, self.updaters)

    def state_dict(self) -> dict[str, Any]:
        """Return what changes while training; a learner with more of it adds its own."""
        return {
            "made_of": self.made_of(),
            "policies": {each.policy.name: each.state_dict() for each in self.updaters},
            "rng": rng_state(self.rng),
            "progress": self._run.progress.state_dict(),
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
        self._run.progress = RunProgress.from_state_dict(state["progress"])

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
            `train/...` metrics; see `motet.algos.updates.step_metrics`.
        """
        trained = [name for updater in self.updaters for name in updater.policy.agents]
        self.annotations.note(groups, trained)
        rates = {each.policy.name: each.learning_rate for each in self.updaters}
        return step_metrics(list(self._steps(groups)), rates)

    def _steps(self, groups: Sequence[Group]) -> Iterator[Step]:
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
        for iteration in range(self.config.num_iterations):
            order = self.rng.permutation(len(groups))
            taken = []
            for start in range(0, len(groups), size):
                chunk = [weighted[i] for i in order[start : start + size]]
                samples = samples_by_agent(chunk, scale=len(groups) / len(chunk))
                for updater in self.updaters:
                    own = {name: samples[name] for name in updater.policy.agents if name in samples}
                    if own:
                        taken.append(Step(updater.policy.name, iteration, updater.step(own)))
            yield from taken
            if taken and self.stops_early(approx_kl(taken)):
                return
