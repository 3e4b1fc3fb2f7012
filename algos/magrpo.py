"""MAGRPO: multi-agent group-relative policy optimisation.

From "LLM Collaboration with Multi-Agent Reinforcement Learning" (Liu et al. 2025, arXiv
2508.04652, section 4). Every agent samples G completions from its prompt, these form joint
completions, and every branch goes on to the next turn. A completion is credited its own reward plus
the mean of what follows; its advantage is that credit less the mean of its group. Each agent's
policy is moved by its own completions alone.

How this departs from the paper, all of it by default and each with a setting:

1. Advantages are divided by the group's standard deviation (`advantage_normalization`).
2. Gradients are clipped by their norm (`max_grad_norm`).
3. Groups without spread are skipped and leave the mean over groups, unless a KL in the loss trains
   them.
4. The loss is a mean over the nodes of a turn that carry a gradient, and a sum over turns. Where
   most episodes end early, the few that go on have the later turn's whole weight.

    make demo
"""

import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch

from motet.agents import Agent, LMAgent
from motet.algos.advantages import Baseline, group_mean
from motet.algos.batch import Group, rollout_groups, samples_by_agent, weighted_samples
from motet.algos.collect import ParallelTextEnv, collect_rollouts
from motet.algos.config import MAGRPOConfig
from motet.algos.evaluation import Evaluation, evaluate
from motet.algos.kl import kl_costs, mean_token_kl
from motet.algos.logger import (
    ConsoleLogger,
    JSONLLogger,
    Logger,
    Loggers,
    ProgressBar,
    WandbLogger,
    require_wandb,
)
from motet.algos.metrics import means, rollout_metrics, turn_metrics
from motet.algos.parts import TaskParts, TeamMember, build_team, resolve_envs
from motet.algos.returns import rollout_returns
from motet.algos.rollout import Rollout
from motet.algos.streaming import checked_limit, first_rows, stream_of, wrapped_rows
from motet.algos.team import trainable_policies, with_sampling
from motet.algos.update import PolicyUpdater
from motet.envs import TextEnv
from motet.envs.simulator import make_simulator, text_env_of


class MAGRPOTrainer:
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
        baseline: from a group's returns to its advantages; MAGRPO's is the group's mean.
        loggers: where metrics go beside console and `output_dir`; `train` does not close them.
        wandb_config: turns on Weights & Biases, with these options of `wandb.init`.
        **parts: see `TaskParts`.

    Attributes:
        agents: agent by name, as trained so far; they play in any env.
        env: what they are trained on.
        eval_env: what they are evaluated on, or None.
        num_env_steps: joint actions rewarded so far while training.

    Raises:
        ValueError: where arguments are missing or contradict each other.
        TypeError: where the reward function or the transition cannot be called.
    """

    def __init__(  # noqa: PLR0913  # two documented ways to call it
        self,
        env: ParallelTextEnv | None = None,
        agents: Mapping[str, Agent] | Sequence[TeamMember] = (),
        config: MAGRPOConfig | None = None,
        *,
        args: MAGRPOConfig | None = None,
        eval_env: ParallelTextEnv | None = None,
        baseline: Baseline = group_mean,
        loggers: Sequence[Logger] = (),
        wandb_config: Mapping[str, Any] | None = None,
        **parts: Unpack[TaskParts],
    ) -> None:
        if config is not None and args is not None:
            raise ValueError("Expected config= or args=, which are the same; got both.")
        self.config = _checked_config(config or args or MAGRPOConfig())
        self.env, self.eval_env = resolve_envs(env, eval_env, agents, parts, self.config)
        self.agents = dict(agents) if isinstance(agents, Mapping) else build_team(agents, parts)
        if set(self.agents) != set(self.env.possible_agents):
            raise ValueError(
                f"Expected an agent for each of {list(self.env.possible_agents)}, got "
                f"{list(self.agents)}."
            )
        self._check_schedule()
        if not callable(baseline):
            raise TypeError(f"Expected a function from returns to advantages, got {baseline!r}.")
        self._baseline = baseline
        self._check_group_size()
        self._samplers = with_sampling(self.agents, **self.config.generation)
        self._updaters = [
            PolicyUpdater(policy, self.config) for policy in trainable_policies(self._samplers)
        ]
        self._rng = np.random.default_rng(self.config.seed)
        self._extra_loggers = _checked_loggers(loggers)
        _check_wandb(wandb_config)
        self._wandb_config = wandb_config
        self._went_on = False
        self._stepped = False
        self.num_env_steps = 0

    # --- what users call ----------------------------------------------------------------------

    def train(self) -> None:
        """Train, with an evaluation before, in between and after where there are held-out rows.

        Raises:
            ValueError: where a prompt does not fit into an agent's context; nothing is trained.
            FloatingPointError: where a loss or gradient is not finite.
        """
        self._check_prompts()
        console = ConsoleLogger()
        opened = Loggers(self._open_loggers())
        loggers = Loggers([console, opened, *self._extra_loggers])
        schedule = list(self._schedule())
        bar = ProgressBar(len(schedule), console.console, visible=self.config.progress_bar)
        history: dict[str, list[float]] = defaultdict(list)
        try:
            with bar:
                self._log_evaluation(loggers)
                for index, rows in enumerate(schedule, start=1):
                    for updater in self._updaters:
                        updater.schedule((index - 1) / len(schedule))
                    metrics = self._train_on(rows)
                    last = index == len(schedule)
                    bar.advance(
                        metrics["rollout/reward_mean"],
                        metrics["time/generation_tokens_per_second"],
                    )
                    for name, value in metrics.items():
                        history[name].append(value)
                    if index % self.config.logging_steps == 0 or last:
                        loggers.log(means(history), self.num_env_steps)
                        history.clear()
                    every = self.config.eval_interval
                    if last or (every and index % every == 0):
                        self._log_evaluation(loggers)
                self._warn_if_one_turn()
                self._warn_if_nothing_learnt()
        finally:
            opened.close()  # those that were passed in are their owner's to close

    def evaluate(self, *, num_samples: int = 1, do_sample: bool = True) -> Evaluation:
        """Play episodes on the held-out rows, or on those trained on where there are none.

        Args:
            num_samples: episodes per row.
            do_sample: False takes the most likely tokens.
        """
        env = self.env if self.eval_env is None else self.eval_env
        return evaluate(
            env,
            self._samplers,
            self._eval_rows(env),
            num_samples=num_samples,
            do_sample=do_sample,
            seed=self.config.seed,
        )

    def save_model(self, output_dir: str | Path) -> None:
        """Write one folder per language-model agent, each of which plain transformers loads.

        Args:
            output_dir: gets the folders `agent_0`, `agent_1`, ..., by the agents' names.
        """
        for name, agent in self.agents.items():
            if isinstance(agent, LMAgent):
                agent.save_pretrained(Path(output_dir) / name)

    # --- one rollout --------------------------------------------------------------------------

    def collect(self, rows: Sequence[int]) -> Rollout:
        """Sample trees from rows, with the settings of the config and the next seed."""
        return collect_rollouts(
            self.env,
            self._samplers,
            rows,
            num_generations=self.config.num_generations,
            joint_mode=self.config.joint_mode,
            seed=int(self._rng.integers(2**63)),
        )

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Train on a rollout.

        Returns:
            `turn_k/...` and `train/...` metrics.
        """
        returns = rollout_returns(rollout, self.config.discount)
        metrics = turn_metrics(rollout, returns)
        if self.config.kl_return_coef:
            kl = {k: v for each in self._updaters for k, v in each.sampled_kl(rollout).items()}
            metrics["train/kl"] = mean_token_kl(rollout, kl)
            costs = kl_costs(kl, self.config.kl_return_coef)
            returns = rollout_returns(rollout, self.config.discount, costs)
        trained = [name for updater in self._updaters for name in updater.policy.agents]
        groups, without = rollout_groups(
            rollout,
            returns,
            trained,
            baseline=self._baseline,
            normalize=bool(self.config.advantage_normalization),
        )
        num_groups = len(groups) + len(without)
        metrics["train/frac_zero_std_groups"] = len(without) / max(num_groups, 1)
        if self.config.kl_loss_coef:
            groups += without  # a KL holds them near the reference like all others
        steps = list(self._steps(groups))
        metrics["train/num_optimizer_steps"] = float(len(steps))
        metrics["train/learning_rate"] = self._updaters[0].learning_rate
        if steps:
            metrics["train/loss"] = float(np.mean([step["loss"] for step in steps]))
            metrics["train/grad_norm"] = float(np.mean([step["grad_norm"] for step in steps]))
            if self.config.kl_loss_coef:
                sums = [sum(step[key] for step in steps) for key in ("kl", "completion_tokens")]
                metrics["train/kl"] = sums[0] / sums[1]
        metrics["train/tokens_computed"] = sum(step["tokens"] for step in steps)
        return metrics

    def _train_on(self, rows: Sequence[int]) -> dict[str, float]:
        start = time.perf_counter()
        stream = stream_of(self.env)
        rollout = self.collect(rows if stream is None else wrapped_rows(stream, rows))
        collected = time.perf_counter()
        metrics = self.update(rollout)
        done = time.perf_counter()
        self.num_env_steps += rollout.num_joint_actions
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

    def _steps(self, groups: Sequence[Group]) -> Iterator[dict[str, float]]:
        """Take the optimizer steps of a rollout."""
        longest = max(
            agent.generation.max_new_tokens
            for updater in self._updaters
            for agent in updater.policy.agents.values()
        )
        weighted = weighted_samples(groups, self.config.loss_type, longest)
        size = self.config.train_batch_size or max(len(groups), 1)
        for _ in range(self.config.num_iterations):
            order = self._rng.permutation(len(groups))
            for start in range(0, len(groups), size):
                chunk = [weighted[i] for i in order[start : start + size]]
                samples = samples_by_agent(chunk, scale=len(groups) / len(chunk))
                for updater in self._updaters:
                    own = {name: samples[name] for name in updater.policy.agents if name in samples}
                    if own:
                        yield updater.step(own)

    # --- the order of things ------------------------------------------------------------------

    def _schedule(self) -> Iterator[list[int]]:
        """Yield the rows of each rollout; of a stream in its order, counted beyond its end."""
        width = self.config.rollout_batch_size
        inner = text_env_of(self.env)
        if stream_of(self.env) is not None:
            for index in range(self.config.num_rollouts or 100):
                yield list(range(index * width, (index + 1) * width))
            return
        if inner is None:
            for _ in range(self.config.num_rollouts or 100):
                yield self._rng.integers(2**31, size=width).tolist()
            return
        for _ in range(self.config.num_train_epochs or 1):
            order = self._rng.permutation(len(inner.dataset)).tolist()
            for start in range(0, len(order), width):
                yield order[start : start + width]

    def _eval_rows(self, env: ParallelTextEnv) -> list[int]:
        limit = self.config.eval_num_samples
        stream = stream_of(env)
        if stream is not None:
            return first_rows(stream, limit)
        inner = text_env_of(env)
        if inner is not None:
            return list(range(len(inner.dataset)))[:limit]
        return list(range(limit or 16))

    def _log_evaluation(self, loggers: Logger) -> None:
        if self.eval_env is None:
            return
        metrics = {f"eval/{name}": value for name, value in self.evaluate().metrics.items()}
        loggers.log(metrics, self.num_env_steps)

    def _open_loggers(self) -> list[Logger]:
        opened: list[Logger] = []
        if self.config.output_dir is not None:
            opened.append(JSONLLogger(Path(self.config.output_dir) / "metrics.jsonl"))
        if self._wandb_config is not None:
            opened.append(WandbLogger(**self._wandb_config))
        return opened

    # --- checks before compute is spent -------------------------------------------------------

    def _check_schedule(self) -> None:
        has_rows, streams = text_env_of(self.env) is not None, stream_of(self.env) is not None
        kind = "an env with a dataset" if has_rows else "an env without a dataset"
        if streams:
            kind = "an env with a stream, whose length is unknown"
        by_epochs = has_rows and not streams
        ignored = "num_rollouts" if by_epochs else "num_train_epochs"
        used = "num_train_epochs" if by_epochs else "num_rollouts"
        if getattr(self.config, ignored) is not None:
            raise ValueError(
                f"Expected {used} for {kind}, got {ignored}={getattr(self.config, ignored)}."
            )
        if stream_of(self.eval_env) is not None:
            checked_limit(self.config.eval_num_samples)

    def _check_group_size(self) -> None:
        size = self.config.num_generations
        self._baseline(torch.zeros(size, dtype=torch.float64))
        if self.config.advantage_normalization and size < 2:
            raise ValueError(
                "Expected num_generations of at least 2 with advantage_normalization, got 1: one "
                "completion has no spread to divide by."
            )

    def _check_prompts(self) -> None:
        """Encode the first prompts of all rows: too long a prompt stops before it costs time.

        Of a stream those of the first rollout, and of the rows that are evaluated on: reading all
        would cost more than it saves, or never end.
        """
        for env in (self.env, self.eval_env):
            inner = text_env_of(env)
            if env is None or inner is None:
                continue
            simulator = make_simulator(env)  # what wrappers make of the prompts counts
            for row in self._rows_to_check(env, inner):
                first = simulator.start([row])[0]
                for name, prompt in first.observations.items():
                    agent = self._samplers[name]
                    if isinstance(agent, LMAgent) and first.infos[name].get("acts", True):
                        agent.encode(prompt)

    def _rows_to_check(self, env: ParallelTextEnv, inner: TextEnv) -> Iterable[int]:
        stream = stream_of(env)
        if stream is None:
            return range(len(inner.dataset))
        if env is self.eval_env:
            return self._eval_rows(env)
        return wrapped_rows(stream, range(self.config.rollout_batch_size))

    def _warn_if_nothing_learnt(self) -> None:
        if not self._stepped:
            warnings.warn(
                "No optimizer step was taken: in every group all completions earned the same, so "
                "that there was nothing to prefer. Check the reward function, or raise "
                "num_generations or the temperature.",
                stacklevel=3,
            )

    def _warn_if_one_turn(self) -> None:
        inner = text_env_of(self.env)
        if inner is None or inner.num_turns == 1 or self._went_on:
            return
        if inner.early_termination_threshold is None:
            return  # a wrapper ended them, a TimeLimit say
        warnings.warn(
            f"Every group ended at turn 1 although num_turns={inner.num_turns}: the mean reward of "
            f"each was above early_termination_threshold={inner.early_termination_threshold}. "
            "Later turns were never trained; raise the threshold, or set it to None.",
            stacklevel=3,
        )


def _checked_config(config: MAGRPOConfig) -> MAGRPOConfig:
    if not isinstance(config, MAGRPOConfig):
        raise TypeError(f"Expected a MAGRPOConfig as config, got {config!r}.")
    if config.advantage_normalization is None:
        return replace(config, advantage_normalization=True)
    return config


def _checked_loggers(loggers: Sequence[Logger]) -> list[Logger]:
    if not isinstance(loggers, list | tuple):
        raise TypeError(f"Expected a list of loggers, got {loggers!r}.")
    for logger in loggers:
        if not isinstance(logger, Logger):
            raise TypeError(f"Expected loggers with log and close, got {logger!r}.")
    return list(loggers)


def _check_wandb(wandb_config: Mapping[str, Any] | None) -> None:
    if wandb_config is None:
        return
    if not isinstance(wandb_config, Mapping):
        raise TypeError(
            f"Expected wandb_config as a dict of options of wandb.init, got {wandb_config!r}."
        )
    require_wandb()
