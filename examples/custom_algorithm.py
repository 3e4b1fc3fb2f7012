"""Write a learner of your own: a loss, and what it is called.

This one is GSPO (Zheng et al. 2025, arXiv 2507.18071, equations 5 to 7), for a team: whole
completions are clipped by the ratio of their probabilities to those they were sampled with, to the
power of one over their length, where PPO clips token by token. Advantages are MAGRPO's, the
standardised returns of a group; others are one more function, `baseline=`, from (G,) returns to
(G,) advantages.

Run it with:
    python examples/custom_algorithm.py
"""

from dataclasses import dataclass

import tyro
from torch import Tensor

from motet import agents, algos, envs


@dataclass(frozen=True, slots=True, kw_only=True)
class GSPOConfig(algos.MAGRPOConfig):
    """As `MAGRPOConfig`; a completion's ratio is nearer to 1 than a token's, and clipped sooner."""

    clip_range: float = 0.03

    def __post_init__(self) -> None:
        """Refuse what a loss of whole completions cannot use."""
        algos.MAGRPOConfig.__post_init__(self)
        if self.loss_type != "sequence_sum":
            raise ValueError(
                f"Expected loss_type='sequence_sum' with GSPO, got {self.loss_type!r}."
            )


def gspo_loss(log_probs: Tensor, batch: algos.Batch, low: float, high: float) -> Tensor:
    """Return -sum_i w_i min(s_i A_i, clip(s_i, low, high) A_i), with s_i = exp(mean_t log ratio).

    Args:
        log_probs: (B, T) with gradient.
        batch: weights w and advantages A; weights carry all averages, so that a loss is a sum.
        low: lower end of the range that ratios are clipped to.
        high: its upper end.
    """
    log_ratios = (log_probs - batch.old_log_probs).masked_fill(~batch.mask, 0.0)
    ratio = (log_ratios.sum(-1) / batch.mask.sum(-1)).exp()
    advantage = batch.advantages[:, 0]  # all tokens of a completion have the same
    gain = (ratio * advantage).minimum(ratio.clamp(low, high) * advantage)
    return -(batch.weights * gain).sum()


@algos.register("gspo")
class GSPOTrainer(algos.MAGRPOTrainer):
    """MAGRPO whose probability ratios are those of whole completions (GSPO)."""

    config: GSPOConfig
    config_class = GSPOConfig

    def policy_loss(self, log_probs: Tensor, batch: algos.Batch) -> Tensor:
        """Return the loss of a part of a rollout, for an optimizer step or a share of one."""
        low, high = self.config.clip_range, self.config.clip_range_high
        return gspo_loss(log_probs, batch, 1 - low, 1 + (low if high is None else high))


def main(num_updates: int = 6) -> None:
    """Train two pocket models, and compare them with what they were on held-out instructions.

    Args:
        num_updates: rollouts on all ten instructions, each for two steps of both models.
    """
    env = envs.make("story-length-ratio-v0")
    held_out = envs.make("story-length-ratio-v0", split="eval")
    short = agents.GenerationConfig(max_new_tokens=64)
    team = {name: agents.pocket(generation=short) for name in env.possible_agents}

    config = GSPOConfig(
        num_train_epochs=num_updates,
        rollout_batch_size=10,
        train_batch_size=10,  # of 20 groups: the second step has ratios to clip
        num_generations=8,
        agent_learning_rate=1e-3,
    )
    trainer = algos.make("gspo", env, team, config)
    before = algos.evaluate(held_out, trainer.agents, num_samples=8)
    trainer.train()
    after = algos.evaluate(held_out, trainer.agents, num_samples=8)
    print(
        f"Mean reward on held-out instructions {before.metrics['reward_mean']:.3f} before, "
        f"{after.metrics['reward_mean']:.3f} after."
    )


if __name__ == "__main__":
    tyro.cli(main)
