"""Relatives of MAGRPO that differ in the baseline alone.

With `advantage_normalization` all of them divide by the group's spread; it is off here by default,
since the point of these learners is what they subtract.
"""

from typing import Any

from motet.algos.advantages import leave_one_out, no_baseline
from motet.algos.config import MAGRPOConfig
from motet.algos.magrpo import MAGRPOTrainer
from motet.algos.registration import register

register("magrpo")(MAGRPOTrainer)


@register("marloo")
def marloo(*, config: MAGRPOConfig | None = None, **kwargs: Any) -> MAGRPOTrainer:
    """MAGRPO with the leave-one-out baseline (RLOO, arXiv 2402.14740) for each agent."""
    config = config or MAGRPOConfig(advantage_normalization=False)
    return MAGRPOTrainer(config=config, baseline=leave_one_out, **kwargs)


@register("mareinforce")
def mareinforce(*, config: MAGRPOConfig | None = None, **kwargs: Any) -> MAGRPOTrainer:
    """MAGRPO without a baseline: REINFORCE for each agent."""
    config = config or MAGRPOConfig(advantage_normalization=False)
    return MAGRPOTrainer(config=config, baseline=no_baseline, **kwargs)
