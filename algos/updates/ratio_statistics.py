"""How far a policy has moved from the one that sampled, as its losses see it."""

import torch
from torch import Tensor

from motet.algos.updates.batch import Batch
from motet.algos.updates.kl import token_kl


@torch.no_grad()
def ratio_sums(
    log_probs: Tensor,
    batch: Batch,
    clip_range: float | None,
    clip_range_high: float | None = None,
) -> dict[str, float]:
    """Return sums over a batch's tokens, which their number makes means.

    With r = pi / pi_old of a token, as it is before the step:

    `approx_kl` adds up r - 1 - log r, an estimate of KL(pi_old, pi) that is never below 0 (k3 of
    http://joschu.net/blog/kl-approx.html; the `approx_kl` of stable-baselines3's PPO).

    `clip_fraction` counts tokens that PPO's minimum takes the clipped side of, from which no
    gradient comes: r < 1 - clip_range where the advantage is below 0, or r > 1 + clip_range_high
    where it is above 0. That is TRL's `clip_ratio/region_mean`; the `clip_fraction` of
    stable-baselines3 counts all tokens with |r - 1| > clip_range, whatever their advantage.

    Args:
        log_probs: (B, T) now.
        batch: they belong to.
        clip_range: how far the ratio may be from 1; None for any distance, which counts nothing.
        clip_range_high: the same from above; None is `clip_range`.
    """
    log_probs, old, mask = log_probs.detach(), batch.old_log_probs, batch.mask
    sums = {"approx_kl": float(token_kl(old, log_probs, mask, "k3").sum())}
    if clip_range is not None:
        ratio = (log_probs - old).masked_fill(~mask, 0.0).exp()
        high = clip_range if clip_range_high is None else clip_range_high
        below = (ratio < 1 - clip_range) & (batch.advantages < 0)
        above = (ratio > 1 + high) & (batch.advantages > 0)
        sums["clip_fraction"] = float((below | above).sum())
    return sums
