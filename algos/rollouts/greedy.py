"""Greedy episodes beside a rollout: what the most likely answers would have earned from each node.

ReMax (Li et al. 2023, arXiv 2310.10505) subtracts it from the returns of what was sampled. From
every node one more episode is played to its end, in which each language model takes its most likely
token every time, frozen ones and those behind an endpoint (temperature 0) too; agents of other
kinds, a person say, answer as they always do. Per turn all of these episodes together take one
`act` of each distinct agent, and their joint actions go to the env in one call with the sampled
ones.

Pitfall: an env that ends groups of siblings early judges a greedy joint action by itself, as in a
loop of one's own. It may end where its siblings go on, and earns nothing then for the turns that it
skips. The baseline is no less valid for it, since it depends on nothing that was sampled; it is
less close.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from motet.agents import Completion
from motet.algos.rollouts.rollout import Node
from motet.envs.text_state import StepResult


class LiveState(Protocol):
    """A state that still runs, in which agents are asked."""

    @property
    def observations(self) -> Mapping[str, str]:
        """What each live agent sees."""

    def actions(self, chosen: Mapping[str, Completion]) -> dict[str, str]:
        """Return a joint action for the env from what the acting agents say."""

    def after(self, chosen: Mapping[str, Completion], result: StepResult) -> Self:
        """Return the state that follows what the acting agents said."""


L = TypeVar("L", bound=LiveState)
Answers = dict[str, tuple[Completion, ...]]
"""(G,) completions by acting agent."""


@dataclass(slots=True)
class _Episode(Generic[L]):
    """A greedy episode from one node: where it stands, and what it has earned by agent."""

    depth: int
    index: int
    live: L
    chosen: dict[str, Completion] = field(default_factory=dict)
    rewards: dict[str, list[float]] = field(default_factory=dict)
    turns_credited: int = 1


class GreedyEpisodes(Generic[L]):
    """Play greedy episodes from the nodes of a rollout, turn by turn with it.

    Args:
        ask: from states and seeds to one answer of each acting agent in each of the states.

    Attributes:
        running: episodes that go on.
    """

    def __init__(
        self,
        ask: Callable[
            [Sequence[L], np.random.SeedSequence], list[dict[str, tuple[Completion, ...]]]
        ],
    ) -> None:
        self._ask = ask
        self.running: list[_Episode[L]] = []
        self._ended: list[_Episode[L]] = []

    def begin(self, live: Sequence[L], depth: int) -> None:
        """Begin an episode at each node of a level."""
        self.running += [_Episode(depth, index, node) for index, node in enumerate(live)]

    def act(self, seeds: np.random.SeedSequence) -> tuple[list[L], list[list[dict[str, str]]]]:
        """Return the states of the running episodes, and the one joint action in each."""
        live = [episode.live for episode in self.running]
        for episode, answers in zip(self.running, self._ask(live, seeds), strict=True):
            episode.chosen = {name: group[0] for name, group in answers.items()}
        return live, [[episode.live.actions(episode.chosen)] for episode in self.running]

    def advance(self, results: Sequence[Sequence[StepResult]]) -> None:
        """Go on from what the env answered to `act`."""
        going_on = []
        for episode, (result,) in zip(self.running, results, strict=True):
            for name in episode.live.observations:
                episode.rewards.setdefault(name, []).append(result.turn_rewards[name])
            if result.ended:
                episode.turns_credited = result.turns_credited
                self._ended.append(episode)
            else:
                episode.live = episode.live.after(episode.chosen, result)
                going_on.append(episode)
        self.running = going_on

    def recorded(self, levels: Sequence[Sequence[Node]]) -> tuple[tuple[Node, ...], ...]:
        """Return the levels of the rollout with what the episodes earned in their nodes."""
        written = [list(level) for level in levels]
        for episode in self._ended:
            written[episode.depth][episode.index] = replace(
                levels[episode.depth][episode.index],
                greedy_rewards={name: tuple(own) for name, own in episode.rewards.items()},
                greedy_turns_credited=episode.turns_credited,
            )
        return tuple(map(tuple, written))
