"""Policy losses: pure functions of log-probabilities, masks, advantages and weights.

A sequence's weight carries every average (over the group, the groups of a turn, the tokens), so
that a loss is a plain sum and can be accumulated over micro-batches without changing it.
"""

from torch import Tensor


def policy_gradient_loss(
    log_probs: Tensor, mask: Tensor, advantages: Tensor, weights: Tensor
) -> Tensor:
    """Return -sum_i w_i A_i sum_t log pi(y_it) (REINFORCE with baseline; arXiv 2508.04652, sec. 4).

    Args:
        log_probs: (B, T) of the sampled tokens, with gradient.
        mask: (B, T) True where there is a token.
        advantages: (B,) of the sequences.
        weights: (B,) of the sequences.

    Returns:
        () loss.
    """
    _check(log_probs, mask, advantages, weights)
    per_sequence = log_probs.masked_fill(~mask, 0.0).sum(-1)
    return -(weights * advantages * per_sequence).sum()


def clipped_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    mask: Tensor,
    advantages: Tensor,
    weights: Tensor,
    clip_range: float,
) -> Tensor:
    """Return -sum_i w_i sum_t min(rho A_i, clip(rho, 1 - c, 1 + c) A_i) (PPO, arXiv 1707.06347).

    rho is the ratio of the token's probability to the one it was sampled with.

    Args:
        log_probs: (B, T) of the sampled tokens, with gradient.
        old_log_probs: (B, T) kept from sampling.
        mask: (B, T) True where there is a token.
        advantages: (B,) of the sequences.
        weights: (B,) of the sequences.
        clip_range: c.

    Returns:
        () loss.
    """
    _check(log_probs, mask, advantages, weights)
    ratio = (log_probs - old_log_probs).masked_fill(~mask, 0.0).exp()
    advantage = advantages.unsqueeze(-1)
    gain = (ratio * advantage).minimum(ratio.clamp(1 - clip_range, 1 + clip_range) * advantage)
    return -(weights * gain.masked_fill(~mask, 0.0).sum(-1)).sum()


def _check(log_probs: Tensor, mask: Tensor, advantages: Tensor, weights: Tensor) -> None:
    size = log_probs.shape[:1]
    if log_probs.ndim != 2 or mask.shape != log_probs.shape:
        raise ValueError(
            f"Expected log_probs (B, T) and a mask of the same shape, got "
            f"{tuple(log_probs.shape)} and {tuple(mask.shape)}."
        )
    if advantages.shape != size or weights.shape != size:
        raise ValueError(
            f"Expected advantages and weights of shape {tuple(size)}, got "
            f"{tuple(advantages.shape)} and {tuple(weights.shape)}."
        )
