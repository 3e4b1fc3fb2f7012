"""Entropy of the policy: a bonus that keeps it from settling too early, and what samples tell.

At a completion token, H = -sum_v p_v log p_v over the distribution that it was sampled from, with
temperature, top-k and top-p. The bonus adds `ent_coef` times their average to what is maximised
(Williams and Peng 1991; Mnih et al. 2016, arXiv 1602.01783, section 4). It is taken at the contexts
that were sampled, whose own dependence on the policy is left out, as there.

`ent_coef` is in nats: advantages with a standard deviation of 1 outweigh 0.01 and not 1. Where
completions are long, `loss_type="sequence_sum"` adds up their tokens' entropies too.
"""

from collections.abc import Iterable

from torch import Tensor

from motet.agents import Completion


def entropy_loss(entropies: Tensor, weights: Tensor) -> Tensor:
    """Return -sum_i w_i sum_t H_it: averaged as the policy loss averages its tokens.

    Args:
        entropies: (B, T) of the tokens' distributions, with gradient, 0 where there is no token.
        weights: (B,) of the sequences.

    Returns:
        () loss, to be multiplied by `ent_coef`.
    """
    if entropies.ndim != 2 or weights.shape != entropies.shape[:1]:
        raise ValueError(
            "Expected entropies of shape (B, T) and weights of shape (B,), got "
            f"{tuple(entropies.shape)} and {tuple(weights.shape)}."
        )
    return -(weights * entropies.sum(-1)).sum()


def entropy_estimate(completions: Iterable[Completion]) -> float:
    """Return the mean of -log pi over the tokens of completions, 0 where there are none.

    The mean of a sampled token's -log pi is the entropy of what it was sampled from: this costs no
    computation, and is noisier than the entropies themselves.
    """
    log_probs = [value for completion in completions for value in completion.log_probs]
    return -sum(log_probs) / max(len(log_probs), 1)
