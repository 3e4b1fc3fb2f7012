"""Settings of the group-relative learners."""

from dataclasses import dataclass

from motet.algos.config import TrainerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class MAGRPOConfig(TrainerConfig):
    """Settings of MAGRPO and its relatives, which are those of `TrainerConfig`."""
