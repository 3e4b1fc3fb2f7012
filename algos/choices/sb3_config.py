"""Settings of the learners of stable-baselines3, by that library's own names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motet.agents.checks import check_fields
from motet.algos.tracking.trackers import checked_report_to
from motet.envs.views.sb3 import Mode
from motet.envs.wrappers.candidates import Strategy
from motet.envs.wrappers.offers import Candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class SB3Config:
    """Settings of `sb3-ppo`, `sb3-a2c`, `sb3-dqn` and `sb3-maskable-ppo`.

    A timestep is what stable-baselines3 counts: one pick of one agent in mode "shared", so that a
    joint pick of N agents is N of them, and one joint pick in mode "centralised".

    Settings from `learning_rate` to `exploration_final_eps` are those of the learner's class; None
    leaves its own default, but for those that `motet.algos.choices.sb3` lists. One that the class
    does not have is refused.

    Attributes:
        total_timesteps: timesteps to learn for, rounded up to whole rollouts.
        num_envs: episodes side by side.
        mode: "shared": one policy plays every agent; "centralised": one policy sees what all
            agents see, and picks for all of them.
        candidates: what to pick from: texts, a mapping of texts by agent, or a function, as for
            `PickOfK`.
        strategies: ways to put the prompt to the frozen agents, as for `PickOfK`. Without
            candidates and strategies, the agents write `k` candidates to each prompt.
        k: number of candidates, where it is not that of a list.
        policy: name of the network's class.
        learning_rate: step size.
        n_steps: steps of each episode's slot in a rollout; for DQN, steps until a target.
        batch_size: timesteps of a gradient step.
        n_epochs: passes over a rollout.
        gamma: discount from turn to turn.
        gae_lambda: of generalised advantage estimation.
        clip_range: of probability ratios.
        normalize_advantage: whether to.
        ent_coef: weight of the entropy.
        vf_coef: weight of the value loss.
        max_grad_norm: gradients are scaled down to this norm.
        target_kl: a rollout's passes stop beyond this KL.
        buffer_size: timesteps that are remembered.
        learning_starts: timesteps before the first gradient step.
        train_freq: steps of all episodes between updates.
        target_update_interval: timesteps between copies into the target network.
        exploration_fraction: part of the run in which exploration goes down.
        exploration_final_eps: how often it picks at random after that.
        policy_kwargs: of the network, such as `{"net_arch": [64]}`.
        algo_kwargs: further arguments of the learner's class, such as `{"device": "cuda"}`.
        eval_interval: timesteps between evaluations; 0 evaluates before and after training only.
        eval_num_samples: held-out rows to evaluate on, the first ones; None takes all, which a
            stream has no number of, and 16 seeds of an env without a dataset.
        eval_episodes_per_row: episodes of each of these rows.
        eval_do_sample: sample while evaluating; False takes the likeliest picks.
        logging_steps: timesteps between two log entries, which average over them.
        seed: of the policy, its picks and the order of rows.
        checkpoint_interval: timesteps between checkpoints in `output_dir`/checkpoints; 0 writes
            none.
        save_total_limit: checkpoints that stay, the newest ones; None for all.
        save_best: after an evaluation with the highest return so far, write the checkpoint
            `output_dir`/checkpoints/best, and the models beside it.
        output_dir: folder for `metrics.jsonl`, evaluations and checkpoints; None writes none.
        report_to: where metrics go beside console and `metrics.jsonl`: any of "csv", "tensorboard",
            "wandb", "trackio" and "mlflow", in a list, or one by itself; see docs/tracking.md.
        project: what the run belongs to, for trackers: MLflow calls it an experiment.
        run_name: what trackers call the run; None has them make a name up.
        progress_bar: show one.
        verbose: how much stable-baselines3 prints, from 0 to 2.
    """

    total_timesteps: int = 20_000
    num_envs: int = 8
    mode: Mode = "shared"
    candidates: Candidates | None = None
    strategies: Sequence[Strategy] | Mapping[str, Sequence[Strategy]] | None = None
    k: int | None = None
    policy: str = "MlpPolicy"
    learning_rate: float | None = None
    n_steps: int | None = None
    batch_size: int | None = None
    n_epochs: int | None = None
    gamma: float | None = None
    gae_lambda: float | None = None
    clip_range: float | None = None
    normalize_advantage: bool | None = None
    ent_coef: float | None = None
    vf_coef: float | None = None
    max_grad_norm: float | None = None
    target_kl: float | None = None
    buffer_size: int | None = None
    learning_starts: int | None = None
    train_freq: int | None = None
    target_update_interval: int | None = None
    exploration_fraction: float | None = None
    exploration_final_eps: float | None = None
    policy_kwargs: Mapping[str, Any] | None = None
    algo_kwargs: Mapping[str, Any] | None = None
    eval_interval: int = 4_096
    eval_num_samples: int | None = None
    eval_episodes_per_row: int = 1
    eval_do_sample: bool = True
    logging_steps: int = 1_024
    seed: int = 42
    checkpoint_interval: int = 0
    save_total_limit: int | None = 1
    save_best: bool = False
    output_dir: str | None = None
    report_to: tuple[str, ...] = ()
    project: str = "motet"
    run_name: str | None = None
    progress_bar: bool = True
    verbose: int = 0

    def __post_init__(self) -> None:
        check_fields(self, others=(*_OTHERS, "report_to"))
        object.__setattr__(self, "report_to", checked_report_to(self.report_to, self.output_dir))
        for names, fits, what in _RANGES:
            for name in names:
                value = getattr(self, name)
                if value is not None and not fits(value):
                    raise ValueError(f"Expected {name} {what}, got {value}.")
        for name, kinds in _OTHERS.items():
            value = getattr(self, name)
            told = isinstance(value, kinds) and not isinstance(value, str)
            if value is not None and not told and not (name == "candidates" and callable(value)):
                raise TypeError(f"Expected {_DESCRIBED[name]} as {name}, got {value!r}.")
        if self.candidates is not None and self.strategies is not None:
            raise ValueError("Expected candidates or strategies, got both.")
        for name in ("checkpoint_interval", "save_best"):
            if getattr(self, name) and self.output_dir is None:
                raise ValueError(
                    f"Expected an output_dir with {name}={getattr(self, name)}, got None: "
                    "checkpoints need a folder."
                )

    @property
    def learner_settings(self) -> dict[str, Any]:
        """Settings of the learner's class that were given."""
        return {
            name: getattr(self, name)
            for name in LEARNER_SETTINGS
            if getattr(self, name) is not None
        }


# What is no plain value.
_OTHERS: dict[str, tuple[type, ...]] = {
    "candidates": (Sequence, Mapping),
    "strategies": (Sequence, Mapping),
    "policy_kwargs": (Mapping,),
    "algo_kwargs": (Mapping,),
}
_DESCRIBED = {
    "candidates": "a list of texts, a mapping of lists by agent, or a function",
    "strategies": "a list of templates or functions, or a mapping of lists by agent,",
    "policy_kwargs": "a mapping of arguments by name",
    "algo_kwargs": "a mapping of arguments by name",
}
LEARNER_SETTINGS = (
    "learning_rate",
    "n_steps",
    "batch_size",
    "n_epochs",
    "gamma",
    "gae_lambda",
    "clip_range",
    "normalize_advantage",
    "ent_coef",
    "vf_coef",
    "max_grad_norm",
    "target_kl",
    "buffer_size",
    "learning_starts",
    "train_freq",
    "target_update_interval",
    "exploration_fraction",
    "exploration_final_eps",
)
_AT_LEAST_ONE = (
    "total_timesteps",
    "num_envs",
    "k",
    "n_steps",
    "batch_size",
    "n_epochs",
    "buffer_size",
    "train_freq",
    "target_update_interval",
    "eval_num_samples",
    "eval_episodes_per_row",
    "logging_steps",
    "save_total_limit",
)
_AT_LEAST_ZERO = (
    "ent_coef",
    "vf_coef",
    "learning_starts",
    "eval_interval",
    "checkpoint_interval",
    "seed",
)
_ABOVE_ZERO = ("learning_rate", "clip_range", "max_grad_norm", "target_kl")
_FRACTIONS = ("gamma", "gae_lambda", "exploration_fraction", "exploration_final_eps")
_RANGES: tuple[tuple[tuple[str, ...], Callable[[float], bool], str], ...] = (
    (_AT_LEAST_ONE, lambda value: value >= 1, "of at least 1"),
    (_AT_LEAST_ZERO, lambda value: value >= 0, "of at least 0"),
    (_FRACTIONS, lambda value: 0 <= value <= 1, "from 0 to 1"),
    (_ABOVE_ZERO, lambda value: value > 0, "above 0"),
    (("verbose",), lambda value: 0 <= value <= 2, "from 0 to 2"),
)
