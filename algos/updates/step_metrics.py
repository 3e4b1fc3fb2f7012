"""What the optimizer steps of a rollout are summarised by: `train/` metrics, overall and by policy.

A policy's own are logged under the name of its first agent, where there is more than one policy.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

_PER_TOKEN = ("kl", "entropy", "clip_fraction")


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step of a policy.

    Attributes:
        policy: its name.
        iteration: which pass over the rollout the step belongs to, from 0.
        sums: what `PolicyUpdater.step` returned.
    """

    policy: str
    iteration: int
    sums: Mapping[str, float]


def step_metrics(
    steps: Sequence[Step], learning_rates: Mapping[str, float], *, with_loss: bool = True
) -> dict[str, float]:
    """Return the `train/` metrics of a rollout's steps.

    `num_optimizer_steps`, `tokens_computed` and `learning_rate` are there always; where there are
    steps, `num_iterations` and the means over them: of `loss` and `grad_norm` over steps, of `kl`,
    `entropy` and `clip_fraction` over the tokens of all passes, where they were measured, and of
    `approx_kl` over those of the last pass, which says how far the rollout took the policy.

    Args:
        steps: in their order.
        learning_rates: of each policy, by name.
        with_loss: False where the steps' losses are no more than a way to a gradient.
    """
    several = len(learning_rates) > 1
    metrics = {
        "train/num_optimizer_steps": float(len(steps)),
        "train/learning_rate": float(np.mean(list(learning_rates.values()))),
    }
    if several:
        metrics |= {f"train/learning_rate/{name}": own for name, own in learning_rates.items()}
    if steps:
        metrics["train/num_iterations"] = 1.0 + steps[-1].iteration
        measured = _measures(steps, with_loss=with_loss)
        for metric, measure in measured.items():
            metrics[f"train/{metric}"] = measure(steps)
        for name in learning_rates if several else ():
            own = [step for step in steps if step.policy == name]
            for metric, measure in measured.items() if own else ():
                metrics[f"train/{metric}/{name}"] = measure(own)
    metrics["train/tokens_computed"] = sum(step.sums["tokens"] for step in steps)
    return metrics


def approx_kl(steps: Sequence[Step]) -> float:
    """Return the mean over tokens of how far a policy was from the one that sampled.

    Args:
        steps: of which those of the last pass count; at least one.
    """
    return _token_mean(
        [step for step in steps if step.iteration == steps[-1].iteration], "approx_kl"
    )


def _measures(
    steps: Sequence[Step], *, with_loss: bool
) -> dict[str, Callable[[Sequence[Step]], float]]:
    """Return how each metric is made of steps."""
    means = ("loss", "grad_norm") if with_loss else ("grad_norm",)
    per_token = [name for name in _PER_TOKEN if name in steps[0].sums]
    return {
        **{name: partial(_step_mean, name=name) for name in means},
        **{name: partial(_token_mean, name=name) for name in per_token},
        "approx_kl": approx_kl,
    }


def _step_mean(steps: Sequence[Step], name: str) -> float:
    return float(np.mean([step.sums[name] for step in steps]))


def _token_mean(steps: Sequence[Step], name: str) -> float:
    tokens = sum(step.sums["completion_tokens"] for step in steps)
    return sum(step.sums[name] for step in steps) / tokens
