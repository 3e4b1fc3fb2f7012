"""Losses of preferences: pure functions of margins.

A margin is by how much more one of two things is believed to be the better one: of reward models
the difference of their two outputs, of policies that of their log-probabilities to a reference.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

PreferenceLossType = Literal["sigmoid", "ipo"]


def bradley_terry_loss(margins: Tensor) -> Tensor:
    """Return -log sigmoid(m) (Bradley and Terry 1952; arXiv 2203.02155, equation 1).

    Args:
        margins: (P,) by pair.

    Returns:
        (P,) losses.
    """
    _check(margins)
    return -logsigmoid(margins)


def dpo_loss(margins: Tensor, beta: float, label_smoothing: float = 0.0) -> Tensor:
    """Return -(1 - s) log sigmoid(beta m) - s log sigmoid(-beta m).

    DPO (Rafailov et al. 2023, arXiv 2305.18290, equation 7); with a share s of preferences that are
    taken to be wrong (Mitchell 2023, "A note on DPO with noisy preferences").

    Args:
        margins: (P,) by pair, in log-probabilities.
        beta: what a unit of them is worth.
        label_smoothing: s.

    Returns:
        (P,) losses.
    """
    _check(margins)
    scaled = beta * margins
    return -(1 - label_smoothing) * logsigmoid(scaled) - label_smoothing * logsigmoid(-scaled)


def ipo_loss(margins: Tensor, beta: float) -> Tensor:
    """Return (m - 1 / (2 beta))^2 (IPO, Azar et al. 2023, arXiv 2310.12036, equation 17).

    A margin has a goal here, where DPO's grows as long as the preference is certain.

    Args:
        margins: (P,) by pair, in log-probabilities.
        beta: the paper's tau.

    Returns:
        (P,) losses.
    """
    _check(margins)
    return (margins - 1 / (2 * beta)).square()


def margin_gradients(losses: Tensor, margins: Tensor) -> Tensor:
    """Return (P,) the derivative of each pair's loss by its margin.

    Args:
        losses: (P,) computed from `margins`.
        margins: (P,) a leaf that requires a gradient.
    """
    (gradients,) = torch.autograd.grad(losses.sum(), margins)
    return gradients


def _check(margins: Tensor) -> None:
    if margins.ndim != 1:
        raise ValueError(f"Expected margins of shape (P,), got {tuple(margins.shape)}.")
