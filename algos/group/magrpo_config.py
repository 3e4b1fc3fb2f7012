"""Settings of the group-relative learners."""

from dataclasses import dataclass

from motet.algos.config import TrainerConfig
from motet.algos.group.grouping import GroupBy


@dataclass(frozen=True, slots=True, kw_only=True)
class MAGRPOConfig(TrainerConfig):
    """Settings of MAGRPO and its relatives.

    Attributes:
        group_by: which completions of an agent are compared with one another: "node", siblings;
            "turn", all at a turn of the rollout; "batch", all of the rollout. See
            `motet.algos.group.grouping`.

    Besides those of `TrainerConfig`.
    """

    group_by: GroupBy = "node"
