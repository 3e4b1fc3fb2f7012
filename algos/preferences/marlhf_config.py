"""Settings of MARLHF."""

from dataclasses import dataclass, fields, replace
from typing import Self

from motet.algos.config import TrainerConfig
from motet.algos.preferences.madpo_config import check_pairs
from motet.algos.preferences.pairs import PairSelection
from motet.algos.preferences.reward_model import Overflow
from motet.algos.registration import spec


@dataclass(frozen=True, slots=True, kw_only=True)
class MARLHFConfig(TrainerConfig):
    """Settings of MARLHF: of the learner that takes its steps, and of the reward model.

    Those of `TrainerConfig` can be given in two ways. Without `algo_config` they are given here,
    and one that is left at its default is left to the learner named by `algo`, but for
    `num_generations`, which pairs are made of. With `algo_config` all of them are given there.

    Besides those of `TrainerConfig`:

    Attributes:
        algo: name of a registered learner that trains on rollouts.
        algo_config: its settings; None for its own defaults.
        reward_learning_rate: AdamW's learning rate for the reward model.
        reward_num_epochs: passes over the pairs of each rollout.
        reward_batch_size: pairs per optimizer step of the reward model.
        reward_normalization: bring what the reward model says to mean 0 and standard deviation 1
            over each rollout: alone it says what is better, not by how much or than what.
        reward_overflow: what to do with a joint action that does not fit into the reward model's
            context: "raise", or "truncate" all parts of it alike; see `RewardModel.encode`.
        pair_selection: which joint actions of a group are compared; see `select_pairs`.
        pairs_per_group: at most so many pairs of a team at a node; None takes all.
    """

    algo: str = "magrpo"
    algo_config: TrainerConfig | None = None
    reward_learning_rate: float = 1e-5
    reward_num_epochs: int = 1
    reward_batch_size: int = 8
    reward_normalization: bool = True
    reward_overflow: Overflow = "raise"
    pair_selection: PairSelection = "disjoint"
    pairs_per_group: int | None = None

    def __post_init__(self) -> None:
        TrainerConfig.__post_init__(self)
        if not self.reward_learning_rate > 0:
            raise ValueError(
                f"Expected reward_learning_rate above 0, got {self.reward_learning_rate}."
            )
        for name in ("reward_num_epochs", "reward_batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"Expected {name} of at least 1, got {getattr(self, name)}.")
        check_pairs(self.num_generations, self.pairs_per_group)
        if self.algo_config is not None:
            self._check_one_place(self.algo_config)

    def _check_iterations(self) -> None:
        """The learner's own settings are checked."""

    def _check_one_place(self, algo_config: TrainerConfig) -> None:
        for field in fields(TrainerConfig):
            here, there = getattr(self, field.name), getattr(algo_config, field.name)
            if here not in (field.default, there):
                raise ValueError(
                    f"Expected {field.name} in algo_config, got {here!r} beside it and {there!r} "
                    "in it; with an algo_config all that learners have in common belongs there."
                )

    def resolved(self) -> Self:
        """Return the same settings with an `algo_config`, and all they share equal to it.

        Raises:
            KeyError: where no learner has that name.
            TypeError: where the learner does not train on rollouts or is MARLHF itself, or
                `algo_config` is another learner's.
        """
        kind = spec(self.algo).config_class
        if not issubclass(kind, TrainerConfig) or issubclass(kind, MARLHFConfig):
            raise TypeError(
                f"Expected algo= to name a learner that trains on rollouts, got {self.algo!r}, "
                f"whose settings are {kind.__name__}."
            )
        shared = fields(TrainerConfig)
        own = self.algo_config
        if own is None:
            given = {field.name: getattr(self, field.name) for field in shared}
            changed = {f.name: given[f.name] for f in shared if given[f.name] != f.default}
            own = kind(**{**changed, "num_generations": self.num_generations})
        if not isinstance(own, kind):
            raise TypeError(
                f"Expected a {kind.__name__} as algo_config for algo={self.algo!r}, got {own!r}."
            )
        return replace(
            self, algo_config=own, **{field.name: getattr(own, field.name) for field in shared}
        )
