"""What a critic said of a rollout, what it should have said, and what is trained on that."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from motet.algos.actor_critics.critic import Read
from motet.algos.actor_critics.critic_update import CriticUpdater, ValueSample
from motet.algos.actor_critics.critics import AnyCritic
from motet.algos.actor_critics.value_head import ValueHead
from motet.algos.actor_critics.value_loss import explained_variance
from motet.algos.actor_critics.value_samples import ValueTarget
from motet.algos.actor_critics.value_targets import Place, Targets, Values, standardized
from motet.algos.rollouts.rollout import Advantage, Rollout
from motet.algos.updates.batch import Group


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a critic read and said.

    Attributes:
        critic: who.
        turns: of the nodes, by place.
        reads: what it read, by place.
        outputs: what its head put out for the place's agent: (E,) for each read.
    """

    critic: AnyCritic
    turns: Mapping[Place, int]
    reads: Mapping[Place, tuple[Read, ...]]
    outputs: Mapping[Place, tuple[Tensor, ...]]

    @property
    def head(self) -> ValueHead:
        """The critic's head."""
        return self.critic.head

    def values(self) -> Values:
        """Return what it said in the unit of rewards."""
        return {
            place: tuple(self.head.in_rewards(each, place.agent) for each in own)
            for place, own in self.outputs.items()
        }

    def observe(self, targets: Mapping[Place, Targets]) -> None:
        """Take the targets into the head's running moments."""
        by_agent: dict[str, list[Tensor]] = defaultdict(list)
        for place in self.reads:
            by_agent[place.agent].extend(targets[place].values)
        for agent, own in by_agent.items():
            self.head.observe(torch.cat(own), agent)

    def value_targets(
        self, targets: Mapping[Place, Targets]
    ) -> dict[Place, tuple[ValueTarget, ...]]:
        """Return what the head should put out for each read.

        Weights are those of the policy loss: a mean over the nodes of an agent at a turn, at a node
        over its reads, in a read over what is asked; summed over turns and agents.

        Args:
            targets: by place, in the unit of rewards.
        """
        count = Counter((place.agent, turn) for place, turn in self.turns.items())
        found = {}
        for place, outputs in self.outputs.items():
            share = 1 / (count[place.agent, self.turns[place]] * len(outputs))
            found[place] = tuple(
                ValueTarget(
                    output=self.head.agents.index(place.agent),
                    old_values=tuple(old.tolist()),
                    targets=tuple(self.head.in_outputs(wanted, place.agent).tolist()),
                    weight=share / len(old),
                )
                for old, wanted in zip(outputs, targets[place].values, strict=True)
            )
        return found


def judge(
    critic: AnyCritic, rollout: Rollout, reads: Mapping[Place, tuple[Read, ...]]
) -> Judgement:
    """Ask a critic about a rollout, each distinct text once."""
    outputs = iter(critic.outputs([read for own in reads.values() for read in own]))
    index = {name: i for i, name in enumerate(critic.head.agents)}
    return Judgement(
        critic,
        {place: rollout.levels[place.level][place.node].turn for place in reads},
        reads,
        {
            place: tuple(next(outputs)[:, index[place.agent]] for _ in own)
            for place, own in reads.items()
        },
    )


def judged_groups(
    rollout: Rollout,
    targets: Mapping[Place, Targets],
    shared: Sequence[Judgement],
    *,
    normalize: bool,
    token_level: bool,
    silent: Collection[str] = (),
) -> list[Group]:
    """Return the groups of all agents that were judged.

    Args:
        rollout: that was judged.
        targets: by place.
        shared: of critics that are trained with their policy, on what its groups say.
        normalize: whether to standardise each agent's advantages.
        token_level: whether there is one for each token.
        silent: agents whose advantages are the critic's error alone, and 0 instead; see
            `without_spread`.
    """
    values = {place: own for each in shared for place, own in each.value_targets(targets).items()}
    advantages = {
        place: [torch.zeros_like(each) for each in own.advantages]
        if place.agent in silent
        else list(own.advantages)
        for place, own in targets.items()
        if own.advantages
    }
    groups = []
    for place, own in (_standardized(advantages) if normalize else advantages).items():
        node = rollout.levels[place.level][place.node]
        completions = node.completions[place.agent]
        wanted = values.get(place, ())
        if wanted and not token_level:  # the node's: its completions share it
            wanted = (wanted[0].scaled(1 / len(completions)),) * len(completions)
        of_each: tuple[Advantage, ...] = tuple(
            tuple(each.tolist()) if token_level else float(each) for each in own
        )
        groups.append(Group(place.agent, node.turn, completions, of_each, wanted))
    return groups


def fit_critics(
    judgements: Sequence[Judgement],
    targets: Mapping[Place, Targets],
    num_iterations: int,
    num_batches: int,
    rng: np.random.Generator,
) -> Iterator[dict[str, float]]:
    """Train critics with a trunk of their own: one step of each for each batch of nodes.

    Args:
        judgements: of the critics.
        targets: by place.
        num_iterations: passes over the nodes.
        num_batches: of a pass.
        rng: draws the order of the nodes.

    Yields:
        What `CriticUpdater.step` returns.
    """
    samples: dict[tuple[int, int], dict[int, list[ValueSample]]] = {}
    for i, judgement in enumerate(judgements):
        wanted = judgement.value_targets(targets)
        for place, reads in judgement.reads.items():
            node = samples.setdefault((place.level, place.node), defaultdict(list))
            node[i] += map(ValueSample, reads, wanted[place])
    nodes = list(samples.values())
    for _ in range(num_iterations if nodes else 0):
        order = rng.permutation(len(nodes))
        for chunk in np.array_split(order, min(max(num_batches, 1), len(nodes))):
            for i, judgement in enumerate(judgements):
                own = [sample for j in chunk for sample in nodes[j].get(i, ())]
                if own and isinstance(judgement.critic, CriticUpdater):
                    yield judgement.critic.step(own, scale=len(nodes) / len(chunk))


def explained(values: Values, targets: Mapping[Place, Targets]) -> dict[str, float]:
    """Return `train/explained_variance` of what was said, nothing where targets do not vary."""
    pairs = [(place, i) for place, own in values.items() for i in range(len(own))]
    if not pairs:
        return {}
    said = torch.cat([values[place][i] for place, i in pairs])
    known = explained_variance(said, torch.cat([targets[place].values[i] for place, i in pairs]))
    return {} if known is None else {"train/explained_variance": known}


def _standardized(advantages: Mapping[Place, list[Tensor]]) -> dict[Place, list[Tensor]]:
    """Return advantages standardised for each agent."""
    by_agent: dict[str, list[Place]] = defaultdict(list)
    for place in advantages:
        by_agent[place.agent].append(place)
    found: dict[Place, list[Tensor]] = {}
    for places in by_agent.values():
        scaled = iter(standardized([each for place in places for each in advantages[place]]))
        for place in places:
            found[place] = [next(scaled) for _ in advantages[place]]
    return {place: found[place] for place in advantages}
