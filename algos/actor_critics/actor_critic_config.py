"""Settings of the actor-critics."""

from dataclasses import dataclass
from typing import Literal

from motet.algos.config import TrainerConfig

CriticKind = Literal["separate", "shared"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorCriticConfig(TrainerConfig):
    """Settings of `iac` and `maac`.

    Besides those of `TrainerConfig`, some of which have other defaults. `advantage_normalization`
    is over all advantages of an agent in a rollout here, less their mean, and on unless it is
    False. What `mask_truncated_completions` leaves out trains critics still, but for those that
    share the policy's trunk. `weight_decay`, `max_grad_norm`, `lr_scheduler_type`,
    `gradient_checkpointing` and `offload_optimizer` hold for critics too.

    Attributes:
        gae_lambda: from 0, the one-step temporal difference, to 1, the return less the value; see
            `motet.algos.actor_critics.value_targets`.
        critic: "separate" for a trunk of its own; "shared" puts the value head on the policy's,
            which the value loss then trains too.
        critic_learning_rate: of the critic; of the value head alone where the trunk is shared.
        vf_coef: weight of the value loss: beside the policy's where the trunk is shared, before
            `max_grad_norm` otherwise.
        clip_range_vf: how far a value may move in a rollout's updates before it is clipped, in the
            unit of the critic's outputs; None does not clip. See the module `value_loss`.
        value_head_hidden_size: of a hidden layer in the value head; None for a linear one.
        normalize_values: let the critic learn values less their running mean, over their running
            standard deviation.
        token_level: judge before each token of a completion, not once for a turn.
        target_kl: leave out the rest of `num_iterations` once a pass has found the policy further
            than 1.5 times this from the one that sampled; None never does.
    """

    rollout_batch_size: int = 8
    num_generations: int = 1
    gae_lambda: float = 0.0
    critic: CriticKind = "separate"
    critic_learning_rate: float = 1e-5
    vf_coef: float = 0.5
    clip_range_vf: float | None = None
    value_head_hidden_size: int | None = None
    normalize_values: bool = False
    token_level: bool = False
    target_kl: float | None = None

    def __post_init__(self) -> None:
        TrainerConfig.__post_init__(self)
        if not 0 <= self.gae_lambda <= 1:
            raise ValueError(f"Expected gae_lambda from 0 to 1, got {self.gae_lambda}.")
        for name in ("critic_learning_rate", "vf_coef", "clip_range_vf", "target_kl"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"Expected {name} above 0, got {value}.")
        if self.value_head_hidden_size is not None and self.value_head_hidden_size < 1:
            raise ValueError(
                "Expected value_head_hidden_size of at least 1, got "
                f"{self.value_head_hidden_size}; None has no hidden layer."
            )
        if self.target_kl is not None and self.num_iterations == 1:
            raise ValueError(
                f"Expected num_iterations above 1 with target_kl={self.target_kl}, got 1: there is "
                "no further pass to leave out."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PPOConfig(ActorCriticConfig):
    """Settings of `ippo` and `mappo`: those of `ActorCriticConfig` with PPO's defaults."""

    rollout_batch_size: int = 16
    train_batch_size: int | None = 16
    num_iterations: int = 4
    clip_range: float | None = 0.2
    gae_lambda: float = 0.95
    clip_range_vf: float | None = 0.2
    normalize_values: bool = True

    def __post_init__(self) -> None:
        ActorCriticConfig.__post_init__(self)
        if self.clip_range is None:
            raise ValueError(
                "Expected a clip_range for PPO, got None; iac and maac train without a ratio."
            )
