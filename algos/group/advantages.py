"""Advantages of a group: G completions sampled from one prompt, by what they are credited.

Every baseline is a function from (G,) returns to (G,) advantages; a learner is given one of them.
One that needs to know more names it as a parameter, and is told:

| parameter | what it is |
|---|---|
| `greedy_returns` | (G,) return of the most likely joint completion from where each one stands |
| `agent` | name of the agent whose completions they are |

    def regret(returns, greedy_returns):
        return (returns - greedy_returns).clamp(max=0)

Where completions are pooled over a turn or a rollout (`group_by`), G is the size of the pool. One
that learns while it is used has the methods of `LearningBaseline` besides.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

Baseline = Callable[..., Tensor]
"""From (G,) returns, and what it names of `SEEN`, to (G,) advantages."""

SEEN = ("greedy_returns", "agent")

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


def group_max(returns: Tensor) -> Tensor:
    """Return A = R - max(R), of which none is above 0: CoMLRL's MAREMAX.

    It is no unbiased baseline: the maximum depends on the completion that it is subtracted from.

    Args:
        returns: (G,) with G of at least 2.

    Returns:
        (G,) advantages.
    """
    _check_group(returns, "the group's maximum")
    return returns - returns.max()


def greedy_return(returns: Tensor, greedy_returns: Tensor) -> Tensor:
    """Return A = R - R_greedy (ReMax, Li et al. 2023, arXiv 2310.10505, algorithm 1).

    Args:
        returns: (G,) with G of at least 1.
        greedy_returns: (G,) return of the most likely joint completion from the same states.

    Returns:
        (G,) advantages.
    """
    if greedy_returns.shape != returns.shape:
        raise ValueError(
            f"Expected a greedy return for each return, got {tuple(greedy_returns.shape)} and "
            f"{tuple(returns.shape)}."
        )
    return returns - greedy_returns


@runtime_checkable
class LearningBaseline(Protocol):
    """A baseline with a memory: it is shown the returns of a rollout after their advantages."""

    def observe(self, agent: str, returns: Tensor) -> None:
        """Learn from the (K,) returns of an agent's completions in a rollout."""

    def state_dict(self) -> dict[str, Any]:
        """Return what it has learnt, for a checkpoint: numbers, strings, tensors, lists, dicts."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Bring it into a state that `state_dict` returned."""


def learning(baseline: object) -> LearningBaseline | None:
    """Return a baseline that learns, None for one that does not."""
    return baseline if isinstance(baseline, LearningBaseline) else None


def seen_by(baseline: object) -> frozenset[str]:
    """Return what a baseline wants to be told beside the returns; see the module.

    Raises:
        TypeError: where it is no function of returns, or has to be told what nobody knows.
    """
    if not callable(baseline) or isinstance(baseline, type):
        raise TypeError(f"Expected a function from returns to advantages, got {baseline!r}.")
    try:
        parameters = list(inspect.signature(baseline).parameters.values())
    except ValueError:  # one that is written in C
        return frozenset()
    varies = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    asked = [each.name for each in parameters[1:] if each.kind not in varies]
    needed = [each.name for each in parameters[1:] if each.default is inspect.Parameter.empty]
    unknown = [name for name in asked if name in needed and name not in SEEN]
    if not parameters or unknown:
        got = f"one that needs {', '.join(unknown)}" if unknown else "one without parameters"
        raise TypeError(
            f"Expected a baseline of returns and, by name, {' and '.join(SEEN)}, got {got}."
        )
    return frozenset(asked) & frozenset(SEEN)


def group_advantages(returns: Tensor, baseline: Baseline, *, normalize: bool) -> Tensor | None:
    """Return a group's advantages, or None where the group says nothing.

    Args:
        returns: (G,) credits of the group's completions.
        baseline: what is subtracted, of the returns alone.
        normalize: divide by the population standard deviation of the returns.

    Returns:
        (G,) advantages; None where they are all zero, or where there is no spread to divide by.

    Raises:
        ValueError: where the baseline returns another shape.
    """
    advantages = baseline(returns)
    if advantages.shape != returns.shape:
        raise ValueError(
            f"Expected a baseline that returns advantages of shape {tuple(returns.shape)} for "
            f"returns of that shape, got {tuple(advantages.shape)}."
        )
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
