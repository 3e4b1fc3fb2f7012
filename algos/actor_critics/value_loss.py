"""How wrong a critic is: pure functions of values, targets and weights."""

import torch
from torch import Tensor


def value_loss(
    values: Tensor,
    old_values: Tensor,
    targets: Tensor,
    weights: Tensor,
    clip_range: float | None = None,
) -> Tensor:
    """Return sum_e w_e max((v_e - y_e)^2, (clip(v_e) - y_e)^2).

    clip(v) = old + clamp(v - old, -c, c) keeps a value near what it was when the targets were made
    (OpenAI baselines' ppo2; Engstrom et al. 2020, arXiv 2005.12729, section 3). The larger of the
    two errors counts, so that a value that has left the range the wrong way is brought back.

    Args:
        values: (E,) with gradient.
        old_values: (E,) of before the update.
        targets: (E,) what the values should be.
        weights: (E,) share of each; they carry every average, as a policy loss's weights do.
        clip_range: c, in the unit of the values; None does not clip.

    Returns:
        () loss.
    """
    shapes = [tuple(each.shape) for each in (values, old_values, targets, weights)]
    if values.ndim != 1 or len(set(shapes)) > 1:
        raise ValueError(
            f"Expected values, old values, targets and weights of one shape (E,), got {shapes}."
        )
    errors = (values - targets).square()
    if clip_range is not None:
        near = old_values + (values - old_values).clamp(-clip_range, clip_range)
        errors = errors.maximum((near - targets).square())
    return (weights * errors).sum()


def explained_variance(values: Tensor, targets: Tensor) -> float | None:
    """Return 1 - Var(y - v) / Var(y): 1 for a perfect critic, 0 for one that knows the mean only.

    Args:
        values: (E,) what the critic said.
        targets: (E,) what it should have said.

    Returns:
        The share; below 0 where the critic is worse than a constant, None where targets do not
        vary.
    """
    if values.ndim != 1 or values.shape != targets.shape:
        raise ValueError(
            f"Expected values and targets of one shape (E,), got {tuple(values.shape)} and "
            f"{tuple(targets.shape)}."
        )
    variance = targets.var(correction=0)
    if not len(targets) or float(variance) <= torch.finfo(targets.dtype).eps:
        return None
    return float(1 - (targets - values).var(correction=0) / variance)
