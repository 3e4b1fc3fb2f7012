"""MAGRPO with the median of a group in place of its mean, as `sample-median`."""

from typing import Any

from torch import Tensor

from motet import algos


def less_median(returns: Tensor) -> Tensor:
    """Return A = R - median(R), for (G,) returns."""
    return returns - returns.median()


def sample_median(**kwargs: Any) -> algos.MAGRPOTrainer:
    """Build `sample-median`."""
    return algos.MAGRPOTrainer(baseline=less_median, **kwargs)


def register_learners() -> None:
    """Register what this package adds; its entry point names this function."""
    algos.register("sample-median")(sample_median)
