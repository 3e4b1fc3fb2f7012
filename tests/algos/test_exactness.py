"""An update is what the slow reference says, whatever the rollout and the settings are.

The rollouts are drawn, not sampled: see `drawn_rollouts` for what is in them and `drawn_cases` for
where another option is added. The learner pads, sorts, packs and splits as it likes; the reference
reads one sequence at a time without any padding, so that equality with it covers left and right
padding, micro-batches of any budget, and siblings that share what they begin with.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from drawn_cases import Case, cases
from drawn_rollouts import REPEATABLE
from hypothesis import given, settings
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from transformers import PreTrainedModel

Gradients = dict[str, Tensor]


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
    with recorded_steps() as recorded:
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


def check(case: Case) -> None:
    models: Mapping[str, PreTrainedModel] = case.models()
    for model in models.values():
        model.zero_grad()
    expected = case.expected_loss()
    if expected.requires_grad:
        expected.backward()
    gradients = {
        (name, key): torch.zeros(()) if weight.grad is None else weight.grad.clone()
        for name, model in models.items()
        for key, weight in model.named_parameters()
        if weight.requires_grad
    }
    loss, learnt_gradients = learnt(case)
    if len(set(case.steps()[1])) == 1:  # else the mean over steps is not that over groups
        assert loss == pytest.approx(expected.item(), rel=1e-5, abs=1e-5)
    for (name, key), reference in gradients.items():
        weight = models[name].get_parameter(key)
        gradient = learnt_gradients.get(id(weight), torch.zeros(()))
        error = float((gradient - reference).norm())
        assert error <= 1e-5 * float(reference.norm()) + 1e-7, (name, key)


@settings(REPEATABLE, max_examples=100)
@given(cases())
def test_loss_and_gradients_of_any_update_equal_the_reference(case: Case) -> None:
    check(case)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=1000)
@given(cases())
def test_loss_and_gradients_of_ten_times_more_updates_equal_the_reference(case: Case) -> None:
    check(case)
