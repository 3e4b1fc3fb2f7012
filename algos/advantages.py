"""Advantages of a group: G completions sampled from one prompt, by what they are credited.

Every baseline is a function from (G,) returns to (G,) advantages; a learner is given one of them.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Baseline = Callable[[Tensor], Tensor]

# Returns that differ by less than this, relative to their size, differ by rounding only.
_ROUNDING = 1e-9


def group_mean(returns: Tensor) -> Tensor:
    """Return A = R - mean(R) (MAGRPO, arXiv 2508.04652, section 4).

    Args:
        returns: (G,) with G of at least 2.

    Returns:
        (G,) advantages.
    """
    _check_group(returns, "the group's mean")
    return returns - returns.mean()


def leave_one_out(returns: Tensor) -> Tensor:
    """Return A_k = R_k - mean of the others (RLOO, Ahmadian et al. 2024, arXiv 2402.14740).

    Args:
        returns: (G,) with G of at least 2.

    Returns:
        (G,) advantages.
    """
    _check_group(returns, "the mean of the others")
    size = returns.shape[0]
    return (returns - returns.mean()) * size / (size - 1)


def no_baseline(returns: Tensor) -> Tensor:
    """Return A = R (REINFORCE, Williams 1992).

    Args:
        returns: (G,) with G of at least 1.

    Returns:
        (G,) advantages.
    """
    return returns


def group_advantages(returns: Tensor, baseline: Baseline, *, normalize: bool) -> Tensor | None:
    """Return a group's advantages, or None where the group says nothing.

    Args:
        returns: (G,) credits of the group's completions.
        baseline: what is subtracted.
        normalize: divide by the population standard deviation of the returns.

    Returns:
        (G,) advantages; None where they are all zero, or where there is no spread to divide by.
    """
    advantages = baseline(returns)
    scale = max(float(returns.abs().max()), torch.finfo(returns.dtype).tiny)
    if normalize:
        std = returns.std(correction=0)
        return None if float(std) <= _ROUNDING * scale else advantages / std
    return None if float(advantages.abs().max()) <= _ROUNDING * scale else advantages


def _check_group(returns: Tensor, what: str) -> None:
    if returns.ndim != 1 or returns.shape[0] < 2:
        raise ValueError(
            f"Expected num_generations of at least 2 for {what} as baseline, got returns of shape "
            f"{tuple(returns.shape)}: one completion has nothing to be compared with."
        )
