"""Immutable records of an episode: where it stands, and what one step brought."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Where an env stands in its dataset: all that its next `reset()` depends on.

    Attributes:
        position: how many rows of the current pass have been used.
        pass_seed: the seed of the current pass's permutation, None where rows come in order.
        rng: state of the env's bit generator, None before anything was drawn.
    """

    position: int = 0
    pass_seed: int | None = None
    rng: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TextState:
    """A snapshot of an episode, small and picklable; datasets and models never enter it.

    Attributes:
        row: index of the dataset row.
        observations: one (N,) tuple of prompts per turn, the current one last.
        actions: one (N,) tuple of texts per turn taken.
        rewards: one (N,) tuple of rewards per turn taken.
        ended: whether the episode is over.
        order: what the next `reset()` depends on.
    """

    row: int
    observations: tuple[tuple[str, ...], ...]
    actions: tuple[tuple[str, ...], ...] = ()
    rewards: tuple[tuple[float, ...], ...] = ()
    ended: bool = False
    order: RowOrder = RowOrder()

    @property
    def turn(self) -> int:
        """Number of turns taken."""
        return len(self.actions)

    def histories(self, agent_names: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
        """Return each agent's turns so far as (observation, action) pairs."""
        turns = list(zip(self.observations, self.actions, strict=False))
        return {
            name: [(seen[i], said[i]) for seen, said in turns] for i, name in enumerate(agent_names)
        }


@dataclass(frozen=True, slots=True)
class StepResult:
    """What `TextEnv.step` returns, as a record, with the state that follows.

    Attributes:
        state: the state after the step.
        observations: next prompt by agent, empty after the last turn.
        rewards: reward by agent.
        terminations: whether the task is over, by agent.
        truncations: whether something outside the task cut it, by agent.
        infos: by agent, `row`, `turn`, `acts`, `turn_reward` (of this turn alone) and
            `turns_credited` (how many turns it counts for in `rewards`).
    """

    state: TextState
    observations: dict[str, str]
    rewards: dict[str, float]
    terminations: dict[str, bool]
    truncations: dict[str, bool]
    infos: dict[str, dict[str, Any]]
