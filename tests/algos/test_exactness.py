"""An update is what the slow reference says, whatever the rollout and the settings are.

The rollouts are drawn, not sampled: see `drawn_rollouts` for what is in them and `drawn_cases` for
where another option is added. The learner pads, sorts, packs and splits as it likes; the reference
reads one sequence at a time without any padding, so that equality with it covers left and right
padding, micro-batches of any budget, and siblings that share what they begin with.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from drawn_cases import Case, cases
from drawn_rollouts import REPEATABLE
from hypothesis import given, settings
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from motet.algos.updates import head, log_probs


@contextmanager
def recorded_steps() -> Iterator[dict[int, list[dict[int, Tensor]]]]:
    """Keep the gradients, by id of the weight, of every optimizer step, by id of the optimizer."""
    steps: dict[int, list[dict[int, Tensor]]] = defaultdict(list)

    def keep(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        steps[id(optimizer)].append(
            {id(weight): weight.grad.clone() for weight in weights if weight.grad is not None}
        )

    handle = register_optimizer_step_pre_hook(keep)
    try:
        yield steps
    finally:
        handle.remove()


def learnt(case: Case) -> tuple[float, dict[int, Tensor]]:
    """The loss and the gradients of an update, its steps put together again."""
    trainer = case.trainer()
    shares = case.steps()[1]
    with pytest.MonkeyPatch.context() as patch, recorded_steps() as recorded:
        patch.setattr(head, "CHUNK_ROWS", case.chunk_rows)
        patch.setattr(log_probs, "CHUNK_ROWS", case.chunk_rows)
        metrics = trainer.update(case.rollout)
    gradients: dict[int, Tensor] = {}
    for steps in recorded.values():
        # where a policy steps less often, all shares are equal
        for step, share in zip(steps, shares, strict=False):
            for key, gradient in step.items():
                gradients[key] = gradients.get(key, torch.zeros(())) + share * gradient
    count = sum(map(len, recorded.values()))
    assert metrics["train/num_optimizer_steps"] == count
    return metrics.get("train/loss", 0.0) * count * shares[0], gradients


@dataclass
class Total:
    """A sum of terms, and how large they are: what rounding is measured by where they cancel."""

    value: Tensor = field(default_factory=lambda: torch.zeros(()))
    size: float = 0.0

    def add(self, term: Tensor) -> None:
        self.value = self.value + term
        self.size += float(term.norm())

    def equals(self, other: Tensor, largest: float, enlarged: float) -> bool:
        """Whether they are equal but for rounding, which may be enlarged.

        `largest` is the size of the largest gradient. A query that has one key to choose has a
        gradient of zero, and one beside masked keys the rounding of what flows past it.
        """
        error = float((other - self.value).norm())
        allowed = 1e-5 * float(self.value.norm()) + 1e-6 * self.size + 1e-7 * largest
        return error <= enlarged * allowed


def reference(case: Case, weights: Sequence[Tensor]) -> tuple[Total, list[Total]]:
    """The loss and each weight's gradient, from a backward pass per completion."""
    loss, gradients = Total(), [Total() for _ in weights]
    for term in case.expected_terms():
        loss.add(term.detach())
        own = torch.autograd.grad(term, weights, allow_unused=True)
        for total, gradient in zip(gradients, own, strict=True):
            if gradient is not None:
                total.add(gradient)
    return loss, gradients


def check(case: Case) -> None:
    named = {
        weight: (name, key)
        for name, model in case.models().items()
        for key, weight in model.named_parameters()
        if weight.requires_grad
    }
    expected_loss, expected = reference(case, list(named))
    largest = max(total.size for total in expected)
    enlarged = case.enlarged_rounding()
    loss, gradients = learnt(case)
    if len(set(case.steps()[1])) == 1:  # else the mean over steps is not that over groups
        assert expected_loss.equals(torch.tensor(loss), largest, enlarged), (loss, expected_loss)
    for (weight, place), total in zip(named.items(), expected, strict=True):
        gradient = gradients.get(id(weight), torch.zeros(()))
        assert total.equals(gradient, largest, enlarged), (place, gradient, total)


@settings(REPEATABLE, max_examples=60)
@given(cases(kl_in=[None]))
def test_loss_and_gradients_of_any_update_equal_the_reference(case: Case) -> None:
    check(case)


@settings(REPEATABLE, max_examples=30)
@given(cases(kl_in=["loss"]))
def test_loss_and_gradients_with_a_kl_in_the_loss_equal_the_reference(case: Case) -> None:
    check(case)


@settings(REPEATABLE, max_examples=30)
@given(cases(kl_in=["return"]))
def test_loss_and_gradients_with_a_kl_in_the_return_equal_the_reference(case: Case) -> None:
    check(case)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=240)
@given(cases())
def test_loss_and_gradients_of_twice_as_many_updates_equal_the_reference(case: Case) -> None:
    check(case)
