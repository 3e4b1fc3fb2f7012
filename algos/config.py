"""Settings that all learners of rollouts have: every field is read, and checked once."""

from dataclasses import dataclass
from typing import Any, Literal

from motet.agents import GenerationConfig
from motet.agents.checks import check_fields
from motet.algos.rollouts.collect import JointMode
from motet.algos.tracking.trackers import checked_report_to
from motet.algos.updates.batch import LossType
from motet.algos.updates.kl import KLEstimator, KLPlace
from motet.algos.updates.offload import Offload

LRSchedulerType = Literal["constant", "linear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerConfig:
    """Settings of the loop, of sampling and of the update; each learner's own come on top.

    Attributes:
        num_train_epochs: passes over the rows of an env with a dataset of known length; None for
            one.
        num_rollouts: rollouts, from seeded resets of an env without a dataset, or from the next
            rows of a stream; None for 100.
        rollout_batch_size: rows per rollout; wider is faster per row.
        train_batch_size: groups per optimizer step, over all agents; None takes all of a rollout.
            The later steps of a rollout are slightly off-policy; `clip_range` and
            `importance_sampling_cap` bound that.
        num_iterations: optimizer passes over each rollout; more than one needs one of these two.
        agent_learning_rate: AdamW's learning rate, at the start.
        lr_scheduler_type: "constant", or "linear" to bring it down to zero over the rollouts.
        weight_decay: AdamW's weight decay.
        max_grad_norm: gradients are scaled down to this norm per policy; None never does.
        num_generations: G, completions per agent and node.
        num_turns: turns of the env that the trainer builds, None for one; with `env=` leave it.
        joint_mode: "aligned" joins the agents' k-th completions, "cross" all with all.
        discount: weight of the next turn's return.
        early_termination_threshold: of the env that the trainer builds; see `TextEnv`.
        advantage_normalization: divide advantages by the group's standard deviation; None leaves
            it to the learner: MAGRPO does, most of its relatives do not.
        loss_type: what the tokens of a group are averaged over; see `weighted_samples`.
        clip_range: clip probability ratios to 1 +- this (PPO); None trains on log-probabilities.
        clip_range_high: clip them to 1 + this from above instead (DAPO); None is `clip_range`.
        importance_sampling_cap: weigh each token's gradient by its probability ratio, cut off
            above this (IMPALA): for completions of an older policy. None does not weigh.
        mask_truncated_completions: leave completions that `max_new_tokens` cut out of the loss (and
            of a KL in it); they stay in the group that the others are compared with (DAPO).
        kl_coef: weight of the KL to the policy as training began; 0 has no reference, which is a
            second copy of the weights otherwise.
        kl_estimator: how it is estimated from sampled tokens; see `motet.algos.updates.kl`.
        kl_in: "loss" adds it to the loss, averaged over tokens as `loss_type` says; groups without
            spread are trained on it then, and count in the mean over groups. "return" takes each
            completion's sum over its tokens from its own return, before the baseline.
        ent_coef: weight of the policy's entropy, which is added to what is maximised, averaged over
            tokens as `loss_type` says; groups without spread are trained on it then, and count in
            the mean over groups. See `motet.algos.updates.entropy`.
        max_new_tokens: while training, overrides the agents' own; None leaves it.
        temperature: as `max_new_tokens`.
        top_p: as `max_new_tokens`.
        top_k: as `max_new_tokens`.
        bf16: as `max_new_tokens`; the forward and backward passes of an update are in it too.
        max_tokens_per_batch: most tokens, padding included, of one forward and backward pass; None
            takes what was fastest for small models: 1,024 on a CPU, 16,384 elsewhere.
        gradient_checkpointing: keep each layer's input only and compute the rest again in the
            backward pass: less memory, about a third more computation.
        offload_optimizer: where AdamW's state of a policy is kept while others step: "cpu" for host
            memory, "disk" for a temporary folder; None leaves it where the policy is.
        eval_interval: rollouts between evaluations; 0 evaluates before and after training only.
        eval_num_samples: held-out rows to evaluate on, the first ones; None takes all, which a
            stream has no number of, and 16 seeds of an env without a dataset.
        eval_episodes_per_row: episodes of each of these rows.
        eval_do_sample: sample while evaluating; False takes the most likely tokens.
        logging_steps: rollouts between two log entries, which average over them.
        seed: of sampling and of the order of rows.
        checkpoint_interval: rollouts between checkpoints in `output_dir`/checkpoints, the end of
            the run included; 0 writes none.
        checkpoint_steps: optimizer steps between further checkpoints, in the middle of a rollout's
            update too, for which a copy of weights and optimizers is held; 0 writes none.
        save_total_limit: checkpoints that stay, the newest ones; None for all.
        save_best: after an evaluation with the highest return so far, write the checkpoint
            `output_dir`/checkpoints/best, and the models beside it.
        rollout_logging_steps: rollouts between two that are written to `output_dir`/rollouts, the
            first and the last one included; 0 writes none.
        output_dir: folder for `metrics.jsonl`, rollouts, evaluations, checkpoints, and for what an
            error leaves; None writes nothing.
        report_to: where metrics go beside console and `metrics.jsonl`: any of "csv", "tensorboard",
            "wandb", "trackio" and "mlflow", in a list, or one by itself; see docs/tracking.md.
        project: what the run belongs to, for trackers: MLflow calls it an experiment.
        run_name: what trackers call the run; None has them make a name up.
        progress_bar: show one.
    """

    num_train_epochs: int | None = None
    num_rollouts: int | None = None
    rollout_batch_size: int = 1
    train_batch_size: int | None = None
    num_iterations: int = 1
    agent_learning_rate: float = 5e-6
    lr_scheduler_type: LRSchedulerType = "constant"
    weight_decay: float = 0.0
    max_grad_norm: float | None = 1.0
    num_generations: int = 4
    num_turns: int | None = None
    joint_mode: JointMode = "aligned"
    discount: float = 1.0
    early_termination_threshold: float | None = -0.2
    advantage_normalization: bool | None = None
    loss_type: LossType = "sequence_sum"
    clip_range: float | None = None
    clip_range_high: float | None = None
    importance_sampling_cap: float | None = None
    mask_truncated_completions: bool = False
    kl_coef: float = 0.0
    kl_estimator: KLEstimator = "k3"
    kl_in: KLPlace = "loss"
    ent_coef: float = 0.0
    max_new_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    bf16: bool | None = None
    max_tokens_per_batch: int | None = None
    gradient_checkpointing: bool = False
    offload_optimizer: Offload | None = None
    eval_interval: int = 16
    eval_num_samples: int | None = None
    eval_episodes_per_row: int = 1
    eval_do_sample: bool = True
    logging_steps: int = 1
    seed: int = 42
    checkpoint_interval: int = 0
    checkpoint_steps: int = 0
    save_total_limit: int | None = 1
    save_best: bool = False
    rollout_logging_steps: int = 10
    output_dir: str | None = None
    report_to: tuple[str, ...] = ()
    project: str = "motet"
    run_name: str | None = None
    progress_bar: bool = True

    def __post_init__(self) -> None:
        check_fields(self, others=("report_to",))
        object.__setattr__(self, "report_to", checked_report_to(self.report_to, self.output_dir))
        GenerationConfig(**self.generation)
        self._check_ranges()
        if not self.kl_coef and (self.kl_estimator, self.kl_in) != ("k3", "loss"):
            raise ValueError(
                f"Expected kl_coef above 0 with kl_estimator={self.kl_estimator!r} and "
                f"kl_in={self.kl_in!r}, got 0: there would be no KL to estimate."
            )
        for name in ("checkpoint_interval", "checkpoint_steps", "save_best"):
            if getattr(self, name) and self.output_dir is None:
                raise ValueError(
                    f"Expected an output_dir with {name}={getattr(self, name)}, got None: "
                    "checkpoints need a folder."
                )
        self._check_iterations()

    def _check_iterations(self) -> None:
        _check_ratios(self)

    def _check_ranges(self) -> None:
        for name in _AT_LEAST_ONE:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"Expected {name} of at least 1, got {value}.")
        for name in _ABOVE_ZERO:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"Expected {name} above 0, got {value}.")
        for name in _AT_LEAST_ZERO:
            if getattr(self, name) < 0:
                raise ValueError(f"Expected {name} of at least 0, got {getattr(self, name)}.")
        if not 0 <= self.discount <= 1:
            raise ValueError(f"Expected discount from 0 to 1, got {self.discount}.")

    @property
    def generation(self) -> dict[str, Any]:
        """Sampling settings that override the agents' own."""
        fields = ("max_new_tokens", "temperature", "top_p", "top_k", "bf16")
        return {name: getattr(self, name) for name in fields if getattr(self, name) is not None}

    @property
    def kl_loss_coef(self) -> float:
        """Weight of the KL in the loss, 0 where it is in the return."""
        return self.kl_coef if self.kl_in == "loss" else 0.0

    @property
    def kl_return_coef(self) -> float:
        """Weight of the KL in the return, 0 where it is in the loss."""
        return self.kl_coef if self.kl_in == "return" else 0.0


def _check_ratios(config: TrainerConfig) -> None:
    clip_range, cap = config.clip_range, config.importance_sampling_cap
    if config.num_iterations > 1 and clip_range is None and cap is None:
        raise ValueError(
            f"Expected a clip_range with num_iterations={config.num_iterations}, got None: after "
            "the first pass the completions come from an older policy. Set clip_range=0.2, or "
            "importance_sampling_cap=2.0, or num_iterations=1."
        )
    if clip_range is not None and cap is not None:
        raise ValueError(
            f"Expected clip_range or importance_sampling_cap, got {clip_range} and {cap}: both "
            "weigh tokens by the same probability ratio, which would count twice. Set one to None."
        )
    if config.clip_range_high is not None and clip_range is None:
        raise ValueError(
            f"Expected a clip_range with clip_range_high={config.clip_range_high}, got None: it "
            "is the upper end of that range. Set clip_range=0.2, or clip_range_high=None."
        )


_ABOVE_ZERO = (
    "agent_learning_rate",
    "max_grad_norm",
    "clip_range",
    "clip_range_high",
    "importance_sampling_cap",
)
_AT_LEAST_ZERO = (
    "weight_decay",
    "kl_coef",
    "ent_coef",
    "eval_interval",
    "checkpoint_interval",
    "checkpoint_steps",
    "rollout_logging_steps",
    "seed",
)
_AT_LEAST_ONE = (
    "num_train_epochs",
    "num_rollouts",
    "rollout_batch_size",
    "train_batch_size",
    "num_iterations",
    "num_generations",
    "num_turns",
    "max_tokens_per_batch",
    "eval_num_samples",
    "eval_episodes_per_row",
    "logging_steps",
    "save_total_limit",
)
