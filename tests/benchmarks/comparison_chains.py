"""MAGRPO on whole episodes side by side, to compare its trees with at equal numbers of completions.

`num_generations` episodes start from each row, and none of them branches. A completion is credited
the rewards from its turn on; its group are the completions of the same agent, row and turn, which
from the second turn on answer different prompts. That is how learners made for one turn are used
for several. A tree compares completions of one prompt instead, and averages over what follows them.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch

from motet.agents import Completion
from motet.algos.group.advantages import group_advantages, group_mean
from motet.algos.group.magrpo import MAGRPOTrainer
from motet.algos.group.magrpo_config import MAGRPOConfig
from motet.algos.registration import register
from motet.algos.rollouts.collect import collect_rollouts
from motet.algos.rollouts.returns import rollout_returns
from motet.algos.rollouts.rollout import Rollout
from motet.algos.updates.batch import Group


def register_chains() -> None:
    """Register the learner as "magrpo-chains", for the comparison alone."""
    register("magrpo-chains", config_class=MAGRPOConfig)(ChainsTrainer)


class ChainsTrainer(MAGRPOTrainer):
    """MAGRPO with chains for trees."""

    def collect(self, rows: Sequence[int]) -> Rollout:
        """Play `num_generations` episodes from each row."""
        return collect_rollouts(
            self.env,
            self.samplers,
            [row for row in rows for _ in range(self.config.num_generations)],
            num_generations=1,
            seed=int(self.rng.integers(2**63)),
        )

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Train on episodes, grouped by agent, row and turn."""
        return self.optimize(
            episode_groups(
                rollout, self.config.discount, normalize=self.config.advantage_normalization
            )
        )


def episode_groups(rollout: Rollout, discount: float, *, normalize: bool | None) -> list[Group]:
    """Return the groups of a rollout of chains that have an advantage."""
    credited: dict[tuple[str, int, int], list[tuple[Completion, float]]] = defaultdict(list)
    levels = zip(rollout.levels, rollout_returns(rollout, discount), strict=True)
    for level, returns in levels:
        for node, own in zip(level, returns, strict=True):
            for agent, (completion,) in node.completions.items():
                key = agent, node.row, node.turn
                credited[key].append((completion, float(own[agent][0])))
    groups = []
    for (agent, _, turn), pairs in credited.items():
        completions, credits = zip(*pairs, strict=True)
        advantages = group_advantages(
            torch.tensor(credits, dtype=torch.float64), group_mean, normalize=normalize is not False
        )
        if advantages is not None:
            groups.append(Group(agent, turn, completions, tuple(advantages.tolist())))
    return groups
