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

    def after(
        self, actions: tuple[str, ...], rewards: tuple[float, ...], *, ended: bool
    ) -> "TextState":
        """Return the state after a turn, before its next prompts.

        Written out, as the two below: `dataclasses.replace` takes a tenth of a step's time.
        """
        return TextState(
            self.row,
            self.observations,
            (*self.actions, actions),
            (*self.rewards, rewards),
            ended,
            self.order,
        )

    def seeing(self, prompts: tuple[str, ...]) -> "TextState":
        """Return the state with the prompts of the coming turn."""
        observations = (*self.observations, prompts)
        return TextState(self.row, observations, self.actions, self.rewards, self.ended, self.order)

    def ordered(self, order: RowOrder) -> "TextState":
        """Return the state with another order of rows."""
        return TextState(self.row, self.observations, self.actions, self.rewards, self.ended, order)

    def histories(self, agent_names: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
        """Return each agent's turns so far as (observation, action) pairs."""
        turns = list(zip(self.observations, self.actions, strict=False))
        return {
            name: [(seen[i], said[i]) for seen, said in turns] for i, name in enumerate(agent_names)
        }


def check_running(states: Sequence[Any]) -> None:
    """Raise where one of several states has ended.

    Raises:
        ValueError: with what to do.
    """
    if any(state.ended for state in states):
        raise ValueError("Expected states that have not ended; drop those whose `ended` is set.")


def check_state_fits(state: Any, num_agents: int, num_turns: int, num_rows: int | None) -> None:
    """Raise where a state has other agents than a task, or is beyond its turns or its rows.

    Args:
        state: what should be a state of the task.
        num_agents: N.
        num_turns: turns of an episode.
        num_rows: rows of the dataset, None where their number is not known yet.

    Raises:
        TypeError: where it is no `TextState`.
        ValueError: where it is of another task.
    """
    if not isinstance(state, TextState):
        advice = "; pass its `state`" if isinstance(state, ResetResult | StepResult) else ""
        shown = f"a {type(state).__name__}" if advice else repr(state)[:200]
        raise TypeError(f"Expected a state that get_state() returned, got {shown}{advice}.")
    if (
        len(state.observations[-1]) != num_agents
        or state.turn + (not state.ended) > num_turns
        or (num_rows is not None and state.row >= num_rows)
    ):
        raise ValueError(
            "Expected a state of this env or of a clone of it: "
            f"{num_agents} agents, {num_turns} turns, "
            f"{'a stream of' if num_rows is None else num_rows} rows; got one of "
            f"{len(state.observations[-1])} agents, {'ended' if state.ended else 'running'} after "
            f"{state.turn} turns, on row {state.row}; set it in the env that it comes from."
        )


@dataclass(frozen=True, slots=True)
class ResetResult:
    """What `reset` returns, as a record, with the state at the start.

    Attributes:
        state: the state to step from; a wrapper's hooks get None where they have no use for it.
        observations: first prompt by agent.
        infos: by agent, `row`, `turn` (0) and `acts`.
    """

    state: Any
    observations: dict[str, Any]
    infos: dict[str, dict[str, Any]]

    @property
    def live(self) -> list[str]:
        """Agents of the episode."""
        return list(self.observations)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What `step` returns, as a record, with the state that follows.

    Attributes:
        state: the state after the step: a `TextState`, or a `WrapperState` of a wrapped env.
        observations: next prompt by agent, empty after the last turn.
        rewards: reward by agent.
        terminations: whether the task is over, by agent.
        truncations: whether something outside the task cut it, by agent.
        infos: by agent, `row`, `turn`, `acts`, `turn_reward` (of this turn alone) and
            `turns_credited` (how many turns it counts for in `rewards`).
        credit: the reward of this turn alone by agent, and how many turns it counts for in
            `rewards`; None where that is one.
    """

    state: Any
    observations: dict[str, Any]
    rewards: dict[str, float]
    terminations: dict[str, bool]
    truncations: dict[str, bool]
    infos: dict[str, dict[str, Any]]
    credit: tuple[dict[str, float], int] | None = None

    def at(self, state: Any) -> "StepResult":
        """Return the result with another state; written out for speed, as in `TextState`."""
        return StepResult(
            state,
            self.observations,
            self.rewards,
            self.terminations,
            self.truncations,
            self.infos,
            self.credit,
        )

    @property
    def five_dicts(
        self,
    ) -> tuple[
        dict[str, Any],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """What PettingZoo's `step` returns."""
        return self.observations, self.rewards, self.terminations, self.truncations, self.infos

    @property
    def turn_rewards(self) -> dict[str, float]:
        """Reward of this turn alone, by agent."""
        return self.rewards if self.credit is None else self.credit[0]

    @property
    def turns_credited(self) -> int:
        """How many turns it counts for in `rewards`."""
        return 1 if self.credit is None else self.credit[1]

    @property
    def live(self) -> list[str]:
        """Agents that go on."""
        return [
            agent
            for agent in self.observations
            if not self.terminations[agent] and not self.truncations[agent]
        ]

    @property
    def ended(self) -> bool:
        """Whether no agent goes on."""
        return not self.live
