"""A team that is played as it is, under a learner's interface: what training is to be better than.

Swapping a learner's name for a fixed team's keeps everything else: the rows, the seed, the form of
what `evaluate` returns. `num_completions` and `num_tokens` of an `Evaluation` say what it cost, so
that teams which write more than once are compared at equal cost.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from motet.agents import Agent, LMAgent
from motet.algos.callbacks import Callback, Callbacks
from motet.algos.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from motet.algos.checkpoint_folder import find_checkpoint
from motet.algos.checks import check_team, check_trackers, checked_loggers
from motet.algos.evaluation import Evaluation
from motet.algos.evaluations.held_out import evaluate_held_out
from motet.algos.fixed.fixed_config import FixedConfig
from motet.algos.parts import check_parallel_env
from motet.algos.rollouts.collect import ParallelTextEnv
from motet.algos.rollouts.joint_policy import Team, agents_of
from motet.algos.run_folder import RunFolder
from motet.algos.team import check_agent
from motet.algos.tracking.console import ConsoleLogger
from motet.algos.tracking.logger import Logger, Loggers
from motet.algos.tracking.opening import open_loggers
from motet.algos.tracking.run_settings import run_settings
from motet.algos.tracking.samples import log_evaluation


class FixedTeam:
    """Evaluate a team, and train nothing.

    Args:
        env: what a learner would be trained on; evaluated on where there is no `eval_env`.
        team: agent by name, or a `JointPolicy`.
        config: settings.
        eval_env: env with held-out rows.
        best_of: joint completions tried in each turn; see `evaluate`.
        callbacks: called at the beginning, after the evaluation and at the end.
        loggers: where metrics go beside console and `output_dir`; `train` does not close them.
        wandb_config: options of `wandb.init`, which turn Weights & Biases on.

    Attributes:
        config: settings.
        agents: agent by name, with the config's sampling settings; they play in any env.
        policy: what is played: the agents, or what lets them act together.
        env: see the arguments.
        eval_env: see the arguments.
        num_env_steps: joint actions rewarded while training, which are none.

    Raises:
        ValueError: where the agents are not those of the envs.
        TypeError: where an env, an agent or a logger is none.
    """

    def __init__(  # noqa: PLR0913  # each is a part of its own
        self,
        env: ParallelTextEnv,
        team: Team,
        config: FixedConfig,
        *,
        eval_env: ParallelTextEnv | None = None,
        best_of: int = 1,
        callbacks: Sequence[Callback] = (),
        loggers: Sequence[Logger] = (),
        wandb_config: Mapping[str, Any] | None = None,
    ) -> None:
        self.config = config
        self.agents: dict[str, Agent] = dict(agents_of(team))
        self.policy = team
        self.env, self.eval_env = env, eval_env
        held_out = {} if eval_env is None else {"eval_env": eval_env}
        for name, each in {"env": env, **held_out}.items():
            check_parallel_env(name, each)
            check_team(each, self.agents)
        for name, agent in self.agents.items():
            check_agent(name, agent)
        self.num_env_steps = 0
        self._best_of = best_of
        self._callbacks = Callbacks(callbacks)
        self._loggers = checked_loggers(loggers)
        check_trackers(self.config, wandb_config)
        self._wandb_config = wandb_config

    def train(self, *, resume_from: str | Path | None = None) -> None:
        """Evaluate once and log it, as learners do before they train; nothing is trained.

        Args:
            resume_from: what `save_checkpoint` of a team like this one wrote. There is nothing in
                it to go on from; that it is such a one is checked.

        Raises:
            FileNotFoundError: where there is no checkpoint.
            ValueError: where it is of another learner or of other settings.
        """
        if resume_from is not None:
            read_checkpoint(find_checkpoint(resume_from), self._settings, self._name)
        folder = RunFolder(self.config.output_dir, None)
        folder.set_aside()
        begun = time.perf_counter()
        own = open_loggers(self.config, self._wandb_config)
        try:
            loggers = Loggers([ConsoleLogger(), own, *self._loggers])
            loggers.log_config(run_settings(self.config, self._name))
            self._callbacks.on_train_begin(self)
            evaluation = self.evaluate()
            elapsed_s = time.perf_counter() - begun
            axes = {"time/optimizer_steps": 0.0, "time/elapsed_seconds": elapsed_s}
            log_evaluation(loggers, evaluation, self.num_env_steps, axes)
            folder.save_evaluation(0, evaluation.rollout, self.agents)
            self._callbacks.on_eval(self, evaluation)
            self._callbacks.on_train_end(self)
        finally:
            own.close()  # those that were passed in are their owner's to close

    def evaluate(
        self, *, num_samples: int | None = None, do_sample: bool | None = None
    ) -> Evaluation:
        """Play episodes on the held-out rows, or on those of `env` where there are none.

        Args:
            num_samples: episodes per row; None for `eval_episodes_per_row` of the config.
            do_sample: False takes the most likely tokens; None for `eval_do_sample`.
        """
        env = self.env if self.eval_env is None else self.eval_env
        return evaluate_held_out(
            env,
            self.policy,
            self.config,
            num_samples=num_samples,
            do_sample=do_sample,
            best_of=self._best_of,
        )

    def save_model(self, output_dir: str | Path) -> None:
        """Write one folder per language-model agent, as learners do; other agents have no model.

        Args:
            output_dir: gets the folders `agent_0`, `agent_1`, ..., by the agents' names.
        """
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        for name, agent in self.agents.items():
            if isinstance(agent, LMAgent):
                agent.save_pretrained(Path(output_dir) / name)

    def save_checkpoint(self, output_dir: str | Path) -> None:
        """Write which team with which settings this is: all that `train(resume_from=...)` needs."""
        write_checkpoint(output_dir, Checkpoint(state={}), self._settings, self._name)

    @property
    def _settings(self) -> Any:
        return self.config  # checkpoints read the fields of any dataclass

    @property
    def _name(self) -> str:
        return type(self.config).__name__.removesuffix("Config")
