"""Policy losses: pure functions of log-probabilities, masks, advantages and weights.

A sequence's weight carries every average (over the group, the groups of a turn, the tokens), so
that a loss is a plain sum and can be accumulated over micro-batches without changing it.
"""

from torch import Tensor


def policy_gradient_loss(
    log_probs: Tensor, mask: Tensor, advantages: Tensor, weights: Tensor
) -> Tensor:
    """Return -sum_i w_i sum_t A_it log pi(y_it) (REINFORCE; arXiv 2508.04652, section 4).

    Args:
        log_probs: (B, T) of the sampled tokens, with gradient.
        mask: (B, T) True where there is a token.
        advantages: (B, T) of the tokens; group learners give all of a sequence the same.
        weights: (B,) of the sequences.

    Returns:
        () loss.
    """
    _check(log_probs, mask, advantages, weights)
    per_sequence = (advantages * log_probs).masked_fill(~mask, 0.0).sum(-1)
    return -(weights * per_sequence).sum()


def clipped_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    mask: Tensor,
    advantages: Tensor,
    weights: Tensor,
    clip_range: float,
    clip_range_high: float | None = None,
) -> Tensor:
    """Return -sum_i w_i sum_t min(rho A_it, clip(rho, 1 - c, 1 + c') A_it) (PPO, arXiv 1707.06347).

    rho is the ratio of the token's probability to the one it was sampled with. A c' above c lets
    unlikely tokens grow further than likely ones shrink (DAPO, arXiv 2503.14476, section 3.1).

    Args:
        log_probs: (B, T) of the sampled tokens, with gradient.
        old_log_probs: (B, T) kept from sampling.
        mask: (B, T) True where there is a token.
        advantages: (B, T) of the tokens; group learners give all of a sequence the same.
        weights: (B,) of the sequences.
        clip_range: c.
        clip_range_high: c', None for c.

    Returns:
        () loss.
    """
    _check(log_probs, mask, advantages, weights)
    high = clip_range if clip_range_high is None else clip_range_high
    ratio = (log_probs - old_log_probs).masked_fill(~mask, 0.0).exp()
    gain = (ratio * advantages).minimum(ratio.clamp(1 - clip_range, 1 + high) * advantages)
    return -(weights * gain.masked_fill(~mask, 0.0).sum(-1)).sum()


def sequence_clipped_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    mask: Tensor,
    advantages: Tensor,
    weights: Tensor,
    clip_range: float,
) -> Tensor:
    """Return -sum_i w_i min(rho_i A_i, clip(rho_i, 1 - c, 1 + c) A_i), by whole completions.

    rho_i is the ratio of the completion's probability to the one it was sampled with: the loss of
    TRL's RLOO, which takes a completion for one action (Ahmadian et al. 2024, arXiv 2402.14740).

    Args:
        log_probs: (B, T) of the sampled tokens, with gradient.
        old_log_probs: (B, T) kept from sampling.
        mask: (B, T) True where there is a token.
        advantages: (B, T), the same for all tokens of a sequence; its first one's is taken.
        weights: (B,) of the sequences.
        clip_range: c.

    Returns:
        () loss.
    """
    _check(log_probs, mask, advantages, weights)
    ratio = (log_probs - old_log_probs).masked_fill(~mask, 0.0).sum(-1).exp()
    own = advantages[:, 0]
    gain = (ratio * own).minimum(ratio.clamp(1 - clip_range, 1 + clip_range) * own)
    return -(weights * gain).sum()


def truncated_importance_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    mask: Tensor,
    advantages: Tensor,
    weights: Tensor,
    cap: float,
) -> Tensor:
    """Return -sum_i w_i sum_t min(rho, C) A_it log pi(y_it) (IMPALA, arXiv 1802.01561, sec. 4.2).

    rho is the ratio of the token's probability to the one it was sampled with. No gradient flows
    through min(rho, C): it weighs the policy gradient, whose variance C bounds. Where a PPO loss
    forgets a token whose ratio is too far off, this one still counts it, C times at most.

    Args:
        log_probs: (B, T) of the sampled tokens, with gradient.
        old_log_probs: (B, T) kept from sampling.
        mask: (B, T) True where there is a token.
        advantages: (B, T) of the tokens.
        weights: (B,) of the sequences.
        cap: C.

    Returns:
        () loss.
    """
    _check(log_probs, mask, advantages, weights)
    ratio = (log_probs.detach() - old_log_probs).masked_fill(~mask, 0.0).exp().clamp(max=cap)
    return policy_gradient_loss(log_probs, mask, ratio * advantages, weights)


def _check(log_probs: Tensor, mask: Tensor, advantages: Tensor, weights: Tensor) -> None:
    size = log_probs.shape[:1]
    if log_probs.ndim != 2 or not log_probs.shape == mask.shape == advantages.shape:
        raise ValueError(
            f"Expected log_probs, mask and advantages of one shape (B, T), got "
            f"{tuple(log_probs.shape)}, {tuple(mask.shape)} and {tuple(advantages.shape)}."
        )
    if weights.shape != size:
        raise ValueError(f"Expected weights of shape {tuple(size)}, got {tuple(weights.shape)}.")
