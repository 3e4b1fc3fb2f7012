"""Learners of stable-baselines3: what can be learnt without moving a weight of a language model.

A small policy sees a prompt as numbers and picks one of K texts, or one of K ways to put the prompt
to a frozen language model. It is the question to ask before fine-tuning: is that worth it?

| name               | class                        | from                                        |
|--------------------|------------------------------|---------------------------------------------|
| `sb3-ppo`          | `PPO`                        | Schulman et al. 2017, arXiv 1707.06347      |
| `sb3-a2c`          | `A2C`                        | Mnih et al. 2016, arXiv 1602.01783          |
| `sb3-dqn`          | `DQN`                        | Mnih et al. 2013, arXiv 1312.5602           |
| `sb3-maskable-ppo` | `MaskablePPO` of sb3-contrib | Huang and Ontanon 2020, arXiv 2006.14171    |

The classes are used as they are. What differs from calling them by hand:

1. Defaults for episodes of a turn or two, where theirs are for long ones: PPO's rollouts have 32
   steps of each slot instead of 2,048; DQN remembers 100,000 timesteps instead of a million, and
   copies its target network every 500 instead of 10,000.
2. What they draw from global random generators comes from a stream apart, which a checkpoint holds.
3. The policy is told what an agent is told: its prompt, and which agent it is. The turn and the
   last reward are hidden, and a task that wants them known puts them into its prompts. So the
   trained policy is an agent that reads texts and plays in any loop.

Pitfalls: in mode "shared" each agent learns while the others do, and two that must match may wait
for each other; mode "centralised" picks for all of them, and its agents have to be asked together.
DQN's joint pick is one of K^N.

    python examples/sb3_choices.py
"""

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from motet.agents import Agent
from motet.algos.callbacks import Callback, Callbacks
from motet.algos.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from motet.algos.checkpoint_folder import checkpoint_name, find_checkpoint
from motet.algos.checks import check_trackers, checked_loggers, warn_if_one_turn
from motet.algos.choices.offer_files import described
from motet.algos.choices.pick_agent import PickAgent
from motet.algos.choices.pick_env import (
    check_all_act,
    check_masks,
    pick_layer,
    picking_env,
    text_env_in,
)
from motet.algos.choices.sb3_config import SB3Config
from motet.algos.choices.sb3_model import make_model, model_arguments, model_state, set_model_state
from motet.algos.choices.sb3_policy import SB3Learner, SB3Policy
from motet.algos.choices.turn_meter import TurnMeter
from motet.algos.evaluation import Evaluation
from motet.algos.evaluations.held_out import evaluate_held_out
from motet.algos.identity import check_identity, env_identity
from motet.algos.memory import memory_metrics
from motet.algos.randomness import OwnRandomness, kept_randomness
from motet.algos.registration import register
from motet.algos.rollouts.collect import ParallelTextEnv
from motet.algos.run_folder import RunFolder
from motet.algos.streaming import checked_limit, stream_of
from motet.algos.tracking.console import ConsoleLogger
from motet.algos.tracking.logger import Logger, Loggers
from motet.algos.tracking.opening import open_loggers
from motet.algos.tracking.progress_bar import ProgressBar
from motet.algos.tracking.run_settings import run_settings
from motet.algos.tracking.samples import log_evaluation
from motet.envs import to_sb3_vec_env


class _StoppedError(Exception):
    """Ends the learning of stable-baselines3 where a rollout begins."""


class SB3Trainer:
    """Train a policy that picks texts for a team, with a learner of stable-baselines3.

        trainer = algos.make("sb3-ppo", env, writer, algos.SB3Config(strategies=[...]))
        trainer.train()
        algos.evaluate(held_out, trainer.agents)

    Args:
        env: a text env, for which the config says what to pick from, or one of picks, `PickOfK`,
            bare or wrapped, which takes an encoder of your own.
        agents: the frozen team that the policy picks for: agent by name, or one for all. They
            write where the config has strategies, or `k` alone; where it has candidates, they are
            not asked. None with an env of picks, whose writers are in it.
        config: settings.
        learner: which class learns; `algos.make` sets it.
        eval_env: text env with held-out rows.
        callbacks: called at the events of a run but `on_rollout`; one that returns False ends it.
        loggers: where metrics go beside console and `output_dir`; `train` does not close them.
        wandb_config: options of `wandb.init`, which turn Weights & Biases on.

    Attributes:
        config: settings.
        agents: `PickAgent` by name, as trained so far; they play in any env of texts. In mode
            "centralised" one agent under all names.
        env: the text env that they are trained in.
        eval_env: what they are evaluated on, or None.
        model: the model of stable-baselines3.

    Raises:
        ImportError: where the learner's library is not installed, with what to type.
        TypeError: where an argument is of another type.
        ValueError: where arguments are missing or contradict each other, or a setting is not one of
            the learner.
    """

    def __init__(  # noqa: PLR0913  # each is a part of its own
        self,
        env: Any,
        agents: Mapping[str, Agent] | Agent | None = None,
        config: SB3Config | None = None,
        *,
        learner: SB3Learner = "sb3-ppo",
        eval_env: ParallelTextEnv | None = None,
        callbacks: Sequence[Callback] = (),
        loggers: Sequence[Logger] = (),
        wandb_config: Mapping[str, Any] | None = None,
    ) -> None:
        self.config = _checked_config(config)
        self._learner = learner
        arguments = model_arguments(learner, self.config)
        picks = picking_env(env, agents, self.config)
        check_masks(picks, learner)
        self.env = text_env_in(picks)
        self.eval_env = self._checked_eval_env(eval_env)
        self._callbacks = Callbacks(callbacks)
        self._folder = RunFolder(self.config.output_dir, self.config.save_total_limit)
        self._best_return: float | None = None  # of the evaluations so far
        self._stopping = False
        self._run_clock = time.perf_counter()  # at which the run began, less what it took before
        self._extra_loggers = checked_loggers(loggers)
        check_trackers(self.config, wandb_config)
        self._wandb_config = wandb_config
        names = list(picks.possible_agents)
        one_number = learner == "sb3-dqn" and self.config.mode == "centralised"
        slots = to_sb3_vec_env(
            picks,
            self.config.num_envs,
            self.config.mode,
            joint_action="discrete" if one_number else "multi_discrete",
        )
        self._randomness = OwnRandomness()
        with self._randomness.entered():
            self.model = make_model(learner, slots, arguments)
        if self.config.checkpoint_interval or self.config.save_best:
            slots.get_state()  # raises now where episodes cannot be saved
        if self.config.mode == "centralised":
            self._meter = TurnMeter(slots.num_envs, names)
        else:
            self._meter = TurnMeter(slots.num_envs, agents=names)
        self._run_start = 0  # timestep at which the last call of train() began
        self._reported = 0  # timestep of the last border of rollouts
        self._timings: dict[str, list[float]] = {"rollout": [], "update": []}
        self._clock = 0.0
        self.agents: dict[str, Agent] = self._made_agents(picks, names)

    # --- what users call ----------------------------------------------------------------------

    @property
    def num_env_steps(self) -> int:
        """Joint actions rewarded so far while training."""
        slots_per_episode: int = self.model.n_envs // self.config.num_envs
        return int(self.model.num_timesteps) // slots_per_episode

    def train(self, *, resume_from: str | Path | None = None) -> None:
        """Train for `total_timesteps`, with evaluations where there are held-out rows.

        Args:
            resume_from: folder of a checkpoint of a like run, which goes on from there, on a CPU
                to the bit as if it had not stopped. Its states of episodes are pickled objects,
                which can run any code when they are read: resume none that you do not trust.

        Raises:
            ValueError: where a checkpoint is not of a like run.
            FloatingPointError: where a loss is not finite.
        """
        with self._randomness.entered():
            self._stopping, elapsed_s = False, 0.0
            if resume_from is None:
                self._run_start = self._reported = self.model.num_timesteps
                self._best_return = None
                self._folder.set_aside()
            else:
                elapsed_s = self._load(resume_from)
            self._run_clock = time.perf_counter() - elapsed_s
            console = ConsoleLogger()
            opened = self._opened_loggers(resumes=resume_from is not None)
            loggers = Loggers([console, opened, *self._extra_loggers])
            total = self.config.total_timesteps
            bar = ProgressBar(
                total, console.console, visible=self.config.progress_bar, unit="timesteps/s"
            )
            try:
                with bar:
                    loggers.log_config(run_settings(self.config, self._learner))
                    bar.advance_to(self.model.num_timesteps - self._run_start)
                    self._heed(self._callbacks.on_train_begin(self))
                    if resume_from is None:
                        self._log_evaluation(loggers)
                    if not self._stopping:
                        self._learn(loggers, bar)
                    self._report(loggers, bar, last=True)
                    self._callbacks.on_train_end(self)
            finally:
                opened.close()  # those that were passed in are their owner's to close
        warn_if_one_turn(self.env, went_on=self._meter.deepest > 1, stacklevel=3)

    def evaluate(
        self, *, num_samples: int | None = None, do_sample: bool | None = None
    ) -> Evaluation:
        """Play episodes on the held-out rows, or on those trained on where there are none.

        Args:
            num_samples: episodes per row; None for `eval_episodes_per_row` of the config.
            do_sample: False takes the likeliest picks, None is `eval_do_sample`. Writers write as
                they are set.
        """
        env = self.env if self.eval_env is None else self.eval_env
        return evaluate_held_out(
            env, self.agents, self.config, num_samples=num_samples, do_sample=do_sample
        )

    def save_model(self, output_dir: str | Path) -> None:
        """Write what `load_pick_agents` reads: a folder per agent, with the model as a zip in it.

        Args:
            output_dir: gets the folders `agent_0`, `agent_1`, ..., by the agents' names, or `team`
                where one policy picks for all.
        """
        for name, agent in self.agents.items():
            assert isinstance(agent, PickAgent)  # made here
            if len(agent.names) == 1:
                agent.save_pretrained(Path(output_dir) / name)
            else:
                agent.save_pretrained(Path(output_dir) / "team")

    def save_checkpoint(self, output_dir: str | Path) -> None:
        """Write what `train(resume_from=output_dir)` of a trainer made like this one goes on from.

        Raises:
            TypeError: where the env's episodes cannot be saved: those of one stepped by clones.
        """
        elapsed_s = time.perf_counter() - self._run_clock
        checkpoint = Checkpoint(state=self.state_dict(), elapsed_s=elapsed_s)
        write_checkpoint(output_dir, checkpoint, self._kept_settings(), self._learner)

    def made_of(self) -> dict[str, str]:
        """Return what a run that goes on has in common with this one, besides the settings."""
        agent = next(iter(self.agents.values()))
        assert isinstance(agent, PickAgent)  # made here
        offers = {name: str(value) for name, value in described(agent.offers).items()}
        return env_identity(self.env) | offers

    def state_dict(self) -> dict[str, Any]:
        """Return what changes while training, as it is where a rollout begins or a run has ended.

        Raises:
            TypeError: as `save_checkpoint`.
        """
        return {
            "made_of": self.made_of(),
            "model": model_state(self.model, self._randomness.get_state()),
            "meter": self._meter.get_state(),
            "run_start": self._run_start,
            "reported": self._reported,
            "best_return": self._best_return,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Bring the trainer into a state that `state_dict` of one made alike returned.

        Raises:
            ValueError: where it is that of another env or other picks; nothing is changed.
        """
        check_identity(state["made_of"], self.made_of())
        self._randomness.set_state(set_model_state(self.model, state["model"]))
        self._meter.set_state(state["meter"])
        self._run_start, self._reported = state["run_start"], state["reported"]
        self._best_return = state["best_return"]

    # --- one run ------------------------------------------------------------------------------

    def _learn(self, loggers: Logger, bar: ProgressBar) -> None:
        from motet.algos.choices.sb3_callback import RolloutCallback  # noqa: PLC0415  # imports SB3

        def begun() -> None:
            self._report(loggers, bar, last=False)
            if self._stopping:  # before a step of the rollout: what is saved can be gone on with
                raise _StoppedError

        self._clock = time.perf_counter()
        with suppress(_StoppedError):
            self.model.learn(
                self._run_start + self.config.total_timesteps - self.model.num_timesteps,
                callback=RolloutCallback(self._record, lambda: self._lap("rollout"), begun),
                log_interval=None,
                reset_num_timesteps=False,
            )

    def _record(self, rewards: Any, dones: Any, infos: Sequence[Mapping[str, Any]]) -> None:
        if self.config.mode == "centralised":
            seen = [*self.model.env.reset_infos]
            seen += [info for info, done in zip(infos, dones, strict=True) if not done]
            check_all_act(seen, list(self.agents))
        self._meter.record(rewards, dones, infos)

    def _report(self, loggers: Logger, bar: ProgressBar, *, last: bool) -> None:
        """Log, evaluate and save what is due where a rollout begins, or after the last one."""
        now, before = int(self.model.num_timesteps), self._reported
        if now == before:  # nothing was learnt since
            self._clock = time.perf_counter()
            return
        self._lap("update")
        self._reported = now

        def due(every: int) -> bool:
            return last or self._stopping or bool(every and now // every > before // every)

        seconds = self._timings["rollout"][-1] + self._timings["update"][-1]
        reward = self._meter.metrics()["rollout/reward_mean"]
        bar.advance(reward, (now - before) / seconds, by=now - before)
        logs = due(self.config.logging_steps)
        if logs:
            self._log(loggers)
        if due(self.config.eval_interval):
            self._log_evaluation(loggers)
        if self._stopping and not logs:  # the evaluation ends the run
            self._log(loggers)
        every = self.config.checkpoint_interval
        if every and due(every):
            self._folder.save_checkpoint(checkpoint_name(now), self.save_checkpoint)
        self._clock = time.perf_counter()

    def _lap(self, what: str) -> None:
        now = time.perf_counter()
        self._timings[what].append(now - self._clock)
        self._clock = now

    def _log(self, loggers: Logger) -> None:
        """Log what turns paid, what the learner recorded, and how long it took."""
        metrics = self._meter.metrics()
        for name, value in self.model.logger.name_to_value.items():
            if name.startswith(("train/", "rollout/")):
                metrics[name] = float(value)
        if "train/entropy_loss" in metrics:  # less the entropy, which has a name of its own
            metrics["train/entropy"] = -metrics.pop("train/entropy_loss")
        self.model.logger.dump()  # to nowhere: it forgets them
        undefined = "train/explained_variance"  # where all returns are equal
        if not math.isfinite(metrics.get(undefined, 0.0)):
            del metrics[undefined]
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise FloatingPointError(
                    f"Expected finite metrics, got {name}={value} after "
                    f"{self.model.num_timesteps} timesteps; lower the learning rate."
                )
        for what, seconds in self._timings.items():
            metrics[f"time/{what}_seconds"] = float(np.mean(seconds))
            seconds.clear()
        metrics |= memory_metrics()
        self._meter.clear()
        loggers.log({**metrics, **self._axes()}, self.num_env_steps)
        self._heed(self._callbacks.on_update(self, metrics))

    def _log_evaluation(self, loggers: Logger) -> None:
        if self.eval_env is None:
            return
        with kept_randomness():  # whatever a task draws from, the run goes on as without
            evaluation = self.evaluate()
        log_evaluation(loggers, evaluation, self.num_env_steps, self._axes())
        number = int(self.model.num_timesteps)
        self._folder.save_evaluation(number, evaluation.rollout, self.agents)
        reached = evaluation.metrics["return_mean"]
        if self._best_return is None or reached > self._best_return:
            self._best_return = reached
            if self.config.save_best:
                self._folder.save_best(self)
        self._heed(self._callbacks.on_eval(self, evaluation))

    def _axes(self) -> dict[str, float]:
        """Return what entries of the log have beside the env steps."""
        return {
            "time/optimizer_steps": float(self.model._n_updates),
            "time/elapsed_seconds": time.perf_counter() - self._run_clock,
        }

    def _opened_loggers(self, *, resumes: bool) -> Loggers:
        after = self.num_env_steps if resumes else None
        return open_loggers(self.config, self._wandb_config, after=after)

    def _load(self, folder: str | Path) -> float:
        """Go to where a checkpoint was written; return the seconds that it had taken."""
        found = find_checkpoint(folder)
        checkpoint = read_checkpoint(found, self._kept_settings(), self._learner)
        self.load_state_dict(checkpoint.state)
        self._folder.go_on_from(found, int(self.model.num_timesteps))
        if self.model.num_timesteps - self._run_start >= self.config.total_timesteps:
            warnings.warn(
                "The run had ended: the checkpoint is past all of its "
                f"{self.config.total_timesteps} timesteps, and nothing is left to train. For a "
                "longer one raise total_timesteps.",
                stacklevel=3,
            )
        return checkpoint.elapsed_s

    def _heed(self, goes_on: bool | None) -> None:
        self._stopping |= goes_on is False

    def _kept_settings(self) -> Any:
        """Return settings that a run that goes on must have, and others at their defaults."""
        free: dict[str, Any] = {"verbose": 0}
        further = (self.config.algo_kwargs or {}).values()
        if self._learner != "sb3-dqn" and not any(callable(value) for value in further):
            # DQN's exploration, and schedules, go by how much of the run is left
            free["total_timesteps"] = SB3Config().total_timesteps
        return replace(self.config, **free)

    # --- what is made once --------------------------------------------------------------------

    def _made_agents(self, picks: Any, names: Sequence[str]) -> dict[str, Agent]:
        layer = pick_layer(picks)
        assert layer is not None  # of `picking_env`
        policy = SB3Policy(self._learner, self.model)
        seed = self.config.seed
        if self.config.mode == "centralised":
            return dict.fromkeys(names, PickAgent(policy, layer.offers, names, seed=seed))
        return {
            name: PickAgent(policy, layer.offers, [name], seed=seed + i)
            for i, name in enumerate(names)
        }

    def _checked_eval_env(self, eval_env: Any) -> Any:
        if eval_env is None:
            return None
        if pick_layer(eval_env) is not None:
            eval_env = text_env_in(eval_env)
        if not callable(getattr(eval_env, "clone", None)):
            raise TypeError(f"Expected an env with clone() as eval_env, got {eval_env!r}.")
        if list(eval_env.possible_agents) != list(self.env.possible_agents):
            raise ValueError(
                f"Expected eval_env with the agents {list(self.env.possible_agents)} of env, got "
                f"{list(eval_env.possible_agents)}."
            )
        if stream_of(eval_env) is not None:
            checked_limit(self.config.eval_num_samples)
        return eval_env


@register("sb3-ppo", config_class=SB3Config)
def sb3_ppo(**kwargs: Any) -> SB3Trainer:
    """PPO of stable-baselines3 over picks of K texts, or of K ways to ask a frozen model."""
    return SB3Trainer(learner="sb3-ppo", **kwargs)


@register("sb3-a2c", config_class=SB3Config)
def sb3_a2c(**kwargs: Any) -> SB3Trainer:
    """A2C of stable-baselines3 over picks of K texts, or of K ways to ask a frozen model."""
    return SB3Trainer(learner="sb3-a2c", **kwargs)


@register("sb3-dqn", config_class=SB3Config)
def sb3_dqn(**kwargs: Any) -> SB3Trainer:
    """DQN of stable-baselines3 over picks of K texts, or of K ways to ask a frozen model."""
    return SB3Trainer(learner="sb3-dqn", **kwargs)


@register("sb3-maskable-ppo", config_class=SB3Config)
def sb3_maskable_ppo(**kwargs: Any) -> SB3Trainer:
    """PPO of sb3-contrib over picks, which knows where there are fewer than K candidates."""
    return SB3Trainer(learner="sb3-maskable-ppo", **kwargs)


def _checked_config(config: Any) -> SB3Config:
    if config is None:
        return SB3Config()
    if not isinstance(config, SB3Config):
        raise TypeError(f"Expected an SB3Config as config, got {config!r}.")
    return config
