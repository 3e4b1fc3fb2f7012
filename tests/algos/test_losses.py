"""Losses: hand-computed numbers, masks, and the gradient they share."""

import math

import pytest
import torch

from motet.algos.updates.losses import (
    clipped_loss,
    policy_gradient_loss,
    sequence_clipped_loss,
    truncated_importance_loss,
)

LOG_PROBS = torch.tensor([[-1.0, -2.0, -9.0], [-0.5, -0.5, -0.5]])
MASK = torch.tensor([[True, True, False], [True, True, True]])
ADVANTAGES = torch.tensor([[2.0, 2.0, 0.0], [-1.0, -1.0, -1.0]])
WEIGHTS = torch.tensor([0.5, 0.25])


def test_policy_gradient_by_hand() -> None:
    # -(0.5 * 2 * (-1 - 2) + 0.25 * -1 * -1.5)
    loss = policy_gradient_loss(LOG_PROBS, MASK, ADVANTAGES, WEIGHTS)
    assert loss.item() == pytest.approx(2.625)


def test_tokens_may_have_advantages_of_their_own() -> None:
    advantages = torch.tensor([[1.0, 3.0, 9.0], [0.0, -2.0, 4.0]])
    # -(0.5 * (1 * -1 + 3 * -2) + 0.25 * (0 + 1 - 2))
    loss = policy_gradient_loss(LOG_PROBS, MASK, advantages, WEIGHTS)
    assert loss.item() == pytest.approx(3.75)


def test_clipped_by_hand() -> None:
    old = LOG_PROBS - torch.tensor([[math.log(1.5), 0.0, 5.0], [math.log(0.5), 0.0, math.log(1.1)]])
    loss = clipped_loss(LOG_PROBS, old, MASK, ADVANTAGES, WEIGHTS, 0.2)
    # row 0: ratios 1.5 and 1 at advantage 2: min(3, 2.4) + 2
    # row 1: ratios 0.5, 1, 1.1 at advantage -1: min(-0.5, -0.8) - 1 - 1.1
    assert loss.item() == pytest.approx(-(0.5 * 4.4 + 0.25 * -2.9))


def test_padding_has_no_gradient_even_where_it_is_infinite() -> None:
    log_probs = LOG_PROBS.clone()
    log_probs[0, 2] = -math.inf
    log_probs.requires_grad_()
    policy_gradient_loss(log_probs, MASK, ADVANTAGES, WEIGHTS).backward()
    assert log_probs.grad is not None
    assert log_probs.grad.tolist() == [[-1.0, -1.0, 0.0], [0.25, 0.25, 0.25]]


def test_both_losses_have_the_same_gradient_on_fresh_samples() -> None:
    plain = LOG_PROBS.clone().requires_grad_()
    clipped = LOG_PROBS.clone().requires_grad_()
    policy_gradient_loss(plain, MASK, ADVANTAGES, WEIGHTS).backward()
    clipped_loss(clipped, LOG_PROBS, MASK, ADVANTAGES, WEIGHTS, 0.2).backward()
    torch.testing.assert_close(plain.grad, clipped.grad)


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="mask and advantages of one shape"):
        policy_gradient_loss(LOG_PROBS, MASK[:, :2], ADVANTAGES, WEIGHTS)
    with pytest.raises(ValueError, match="weights of shape"):
        policy_gradient_loss(LOG_PROBS, MASK, ADVANTAGES, WEIGHTS[:1])


def test_an_upper_end_of_its_own_by_hand() -> None:
    old = LOG_PROBS - torch.tensor([[math.log(1.5), 0.0, 5.0], [math.log(0.5), 0.0, math.log(1.1)]])
    loss = clipped_loss(LOG_PROBS, old, MASK, ADVANTAGES, WEIGHTS, 0.2, 0.4)
    # as above, but that 1.5 is cut to 1.4: min(3, 2.8) + 2; the lower end is still 0.8
    assert loss.item() == pytest.approx(-(0.5 * 4.8 + 0.25 * -2.9))


def test_truncated_importance_weights_by_hand() -> None:
    old = LOG_PROBS - torch.tensor([[math.log(3.0), 0.0, 5.0], [math.log(0.5), 0.0, math.log(1.1)]])
    log_probs = LOG_PROBS.clone().requires_grad_()
    loss = truncated_importance_loss(log_probs, old, MASK, ADVANTAGES, WEIGHTS, 2.0)
    # row 0: weights min(3, 2) and 1 at advantage 2: 2 * (2 * -1 + 1 * -2)
    # row 1: weights 0.5, 1 and 1.1 at advantage -1: -(0.5 + 1 + 1.1) * -0.5
    assert loss.item() == pytest.approx(-(0.5 * -8 + 0.25 * 1.3))
    loss.backward()
    assert log_probs.grad is not None  # -w A min(rho, C): none through the ratio
    expected = torch.tensor([[-2.0, -1.0, 0.0], [0.125, 0.25, 0.275]])
    torch.testing.assert_close(log_probs.grad, expected)


def test_on_fresh_samples_importance_weights_are_one() -> None:
    plain = policy_gradient_loss(LOG_PROBS, MASK, ADVANTAGES, WEIGHTS)
    for cap in (1.0, 5.0):
        assert plain == truncated_importance_loss(
            LOG_PROBS, LOG_PROBS, MASK, ADVANTAGES, WEIGHTS, cap
        )


def test_ratios_of_whole_completions_by_hand() -> None:
    old = LOG_PROBS - torch.tensor([[math.log(1.5), math.log(2), 5.0], [math.log(0.5), 0.0, 0.0]])
    log_probs = LOG_PROBS.clone().requires_grad_()
    loss = sequence_clipped_loss(log_probs, old, MASK, ADVANTAGES, WEIGHTS, 0.2)
    # row 0: ratio 3 at advantage 2: min(6, 2.4); row 1: 0.5 at -1: min(-0.5, -0.8)
    assert loss.item() == pytest.approx(-(0.5 * 2.4 + 0.25 * -0.8))
    loss.backward()
    assert log_probs.grad is not None
    assert log_probs.grad.tolist() == [[0.0] * 3] * 2  # both are clipped
