"""Relatives of MAGRPO that differ in the baseline alone.

With `advantage_normalization` all of them divide by the group's spread; left to the learner, it is
off here, since the point of these learners is what they subtract.
"""

from dataclasses import replace
from typing import Any

from motet.algos.advantages import leave_one_out, no_baseline
from motet.algos.magrpo import MAGRPOTrainer
from motet.algos.magrpo_config import MAGRPOConfig
from motet.algos.registration import register

register("magrpo")(MAGRPOTrainer)


@register("marloo")
def marloo(*, config: MAGRPOConfig | None = None, **kwargs: Any) -> MAGRPOTrainer:
    """MAGRPO with the leave-one-out baseline (RLOO, arXiv 2402.14740) for each agent."""
    config = _not_normalized(config)
    return MAGRPOTrainer(config=config, baseline=leave_one_out, **kwargs)


@register("mareinforce")
def mareinforce(*, config: MAGRPOConfig | None = None, **kwargs: Any) -> MAGRPOTrainer:
    """MAGRPO without a baseline: REINFORCE for each agent."""
    config = _not_normalized(config)
    return MAGRPOTrainer(config=config, baseline=no_baseline, **kwargs)


def _not_normalized(config: MAGRPOConfig | None) -> MAGRPOConfig:
    config = config or MAGRPOConfig()
    if config.advantage_normalization is None:
        return replace(config, advantage_normalization=False)
    return config
