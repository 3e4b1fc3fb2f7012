"""Settings of GRPO."""

from dataclasses import dataclass

from motet.algos.group.magrpo_config import MAGRPOConfig
from motet.algos.updates.batch import LossType


@dataclass(frozen=True, slots=True, kw_only=True)
class GRPOConfig(MAGRPOConfig):
    """Settings of GRPO: those of `MAGRPOConfig`, with the defaults that users of GRPO know.

    Attributes:
        num_generations: G, completions per prompt, as TRL's.
        agent_learning_rate: AdamW's learning rate, as the paper's and TRL's.
        loss_type: the paper's is a mean over a completion's tokens. TRL calls this "grpo"; its
            "bnpo" and "dapo" are "token_mean" here, and its "dr_grpo" is "constant".
        clip_range: TRL's `epsilon`.

    The paper has `kl_coef=0.04` besides; here it is 0, as in TRL, which needs no reference.
    """

    num_generations: int = 8
    agent_learning_rate: float | dict[str, float] = 1e-6
    loss_type: LossType = "sequence_mean"
    clip_range: float | None = 0.2
