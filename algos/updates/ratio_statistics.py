"""How far a policy has moved from the one that sampled, as its losses see it."""

import torch
from torch import Tensor

from motet.algos.updates.kl import token_kl


class RatioStatistics:
    """Add up the tokens of losses, pass by pass.

    `approx_kl` is the mean over tokens of exp(d) - 1 - d with d = log pi - log pi_old (k3 of
    http://joschu.net/blog/kl-approx.html), `clip_fraction` the share of tokens whose ratio is
    beyond the clip range; both as stable-baselines3 has them.
    """

    def __init__(self) -> None:
        self._kl, self._clipped, self._tokens = 0.0, 0.0, 0

    def add(
        self,
        log_probs: Tensor,
        old_log_probs: Tensor,
        mask: Tensor,
        clip_range: float | None,
        clip_range_high: float | None = None,
    ) -> None:
        """Add the tokens of a batch.

        Args:
            log_probs: (B, T) now.
            old_log_probs: (B, T) kept from sampling.
            mask: (B, T) True where there is a token.
            clip_range: how far the ratio may be from 1; None for any distance.
            clip_range_high: the same from above; None is `clip_range`.
        """
        log_probs = log_probs.detach()
        self._kl += float(token_kl(old_log_probs, log_probs, mask, "k3").sum())
        self._tokens += int(mask.sum())
        if clip_range is not None:
            ratio = (log_probs - old_log_probs).masked_fill(~mask, 0.0).exp()
            high = clip_range if clip_range_high is None else clip_range_high
            self._clipped += float(torch.sum((ratio < 1 - clip_range) | (ratio > 1 + high)))

    def take(self) -> tuple[float, float, int]:
        """Return approx_kl, clip_fraction and the number of tokens since the last call."""
        tokens = self._tokens
        means = self._kl / max(tokens, 1), self._clipped / max(tokens, 1)
        self._kl, self._clipped, self._tokens = 0.0, 0.0, 0
        return *means, tokens
