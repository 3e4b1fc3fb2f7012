"""The one place where a reward function is called, and what it returns is checked."""

import contextlib
import copy
import math
import numbers
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from inspect import signature
from typing import Any, Self

from motet.envs.task.named_call import NamedCall, by_name
from motet.envs.task.parts import check_takes
from motet.envs.task.reward_processors import RewardProcessor
from motet.envs.text_state import TextState
from motet.envs.workers.call_outcome import Call, Outcome, Raised, Returned, WorkerTraceback
from motet.envs.workers.reward_workers import RewardPool, RewardWorkers

REWARD_NAMES = ("prompts", "rows", "batch_items", "turn", "histories")


class JointReward:
    """Call a reward function once for many joint actions and check what it returns.

    `reward_func(completions_0, ..., completions_{N-1}, **named)` gets one list of J texts per
    agent and returns J numbers, or `{agent: J numbers}` for rewards of each agent's own. Named
    parameters are lists of length J: `prompts` (the rows' prompts), `rows` (alias
    `batch_items`), `turn` (1 for the first), `histories` (per agent, the earlier turns as
    (observation, action) pairs), and every dataset column. With workers there are J calls instead
    of one, each with lists of length 1.

    Args:
        reward_func: the user's function.
        processor: applied to each value, or None.
        agent_names: (N,) agents in the order of the completions.
        columns: names of the dataset's columns.
        workers: who calls the function, or None for a single call in the caller's own thread.

    Raises:
        TypeError: where a function cannot be called, or a parameter of it not be filled, or where
            it should run in other processes and does not pickle.
        ValueError: where the function asks by name for what is also the name of a column.
    """

    def __init__(
        self,
        reward_func: Callable[..., Any],
        processor: RewardProcessor | None,
        agent_names: Sequence[str],
        columns: Sequence[str],
        workers: RewardWorkers | None = None,
    ) -> None:
        if processor is not None and not callable(processor):
            raise TypeError(
                f"Expected a function of one reward as reward_processor, got {processor!r}."
            )
        if processor is not None:
            check_takes(processor, "reward_processor", "reward")
        self._agents = tuple(agent_names)
        self._processor = processor
        self._columns = tuple(columns)
        self._call = NamedCall(
            reward_func,
            role="reward_func",
            positional=[f"the completions of {name}" for name in agent_names],
            available={*REWARD_NAMES, *columns},
        )
        self._check_not_shadowed(reward_func)
        self._pool = None if workers is None else RewardPool(reward_func, workers)

    def _check_not_shadowed(self, reward_func: Callable[..., Any]) -> None:
        """Raise where the function asks for a name that means a column and something else."""
        asked = self._call.names & {*signature(reward_func).parameters}  # **kwargs asks for nothing
        both = [name for name in REWARD_NAMES if name in asked and name in self._columns]
        if both:
            raise ValueError(
                f"Expected other dataset columns than {both}, which reward_func is given by these "
                f"names already, got columns named so; rename them, as in "
                f"column_mapping={{{both[0]!r}: 'own_{both[0]}'}}."
            )

    def __call__(
        self,
        states: Sequence[TextState],
        actions: Sequence[tuple[str, ...]],
        rows: Sequence[Mapping[str, Any]],
    ) -> list[tuple[float, ...]]:
        """Return each joint action's reward per agent.

        Args:
            states: (J,) states before the actions.
            actions: (J,) joint actions, each (N,) texts.
            rows: (J,) dataset rows.

        Returns:
            (J,) tuples of (N,) rewards, processed and finite.

        Raises:
            ValueError: where the function returns another number of rewards than J, other agents
                than the env's, or a value that is not finite.
            TypeError: where it returns no list, or one of something else than numbers.
            TimeoutError: where a worker's call takes longer than its limit.
            RuntimeError: where a worker process dies.
        """
        if self._pool is not None:
            return self._spread(self._pool, states, actions, rows)
        args, named = self._arguments(states, actions, rows)
        return self._per_agent(self._call(*args, **named), states, actions)

    def with_workers(self, workers: RewardWorkers | None) -> Self:
        """Return the same rewards with others to call the function."""
        twin = copy.copy(self)
        twin._pool = None if workers is None else RewardPool(self._call.func, workers)
        return twin

    def close(self) -> None:
        """End the workers, if there are any; the next call starts others."""
        if self._pool is not None:
            self._pool.close()

    def _spread(
        self,
        pool: RewardPool,
        states: Sequence[TextState],
        actions: Sequence[tuple[str, ...]],
        rows: Sequence[Mapping[str, Any]],
    ) -> list[tuple[float, ...]]:
        calls = [
            self._arguments([state], [texts], [row])
            for state, texts, row in zip(states, actions, rows, strict=True)
        ]
        rewards: list[tuple[float, ...]] = []
        with contextlib.closing(pool.outcomes(calls)) as outcomes:
            for outcome, state, texts in zip(outcomes, states, actions, strict=True):
                returned = _returned(outcome, state, texts)
                rewards += self._per_agent(returned, [state], [texts])
        return rewards

    def _arguments(
        self,
        states: Sequence[TextState],
        actions: Sequence[tuple[str, ...]],
        rows: Sequence[Mapping[str, Any]],
    ) -> Call:
        completions = [list(texts) for texts in zip(*actions, strict=True)]
        return Call(completions, self._named(states, rows))

    def _per_agent(
        self, returned: Any, states: Sequence[TextState], actions: Sequence[tuple[str, ...]]
    ) -> list[tuple[float, ...]]:
        if isinstance(returned, Mapping):
            if set(returned) != set(self._agents):
                raise ValueError(
                    f"Expected rewards for {list(self._agents)}, got {list(returned)} from "
                    "reward_func; return one list per agent, or a single list for the team."
                )
            columns = [self._checked(returned[name], actions, states) for name in self._agents]
        else:
            columns = [self._checked(returned, actions, states)] * len(self._agents)
        return list(zip(*columns, strict=True))

    def _named(
        self, states: Sequence[TextState], rows: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        if not self._call.names:
            return {}
        builders: dict[str, Callable[[], Any]] = {
            name: lambda name=name: [row[name] for row in rows]  # type: ignore[misc]
            for name in self._columns
        }
        builders["prompts"] = lambda: [row["prompt"] for row in rows]
        builders["rows"] = lambda: list(rows)
        builders["batch_items"] = builders["rows"]
        builders["turn"] = lambda: [state.turn + 1 for state in states]
        builders["histories"] = lambda: [state.histories(self._agents) for state in states]
        return by_name(self._call.names, builders)

    def _checked(
        self, returned: Any, actions: Sequence[tuple[str, ...]], states: Sequence[TextState]
    ) -> list[float]:
        listed = isinstance(returned, Collection) and getattr(returned, "ndim", 1) > 0
        if not listed or isinstance(returned, str | bytes | bytearray | Set | Mapping):
            raise TypeError(
                f"Expected a list of {len(actions)} rewards, one per joint action, got "
                f"{_shorten(returned)} from reward_func."
            )
        if len(returned) != len(actions):
            raise ValueError(
                f"Expected {len(actions)} rewards, one per joint action, got {len(returned)} "
                f"from reward_func for {_shorten(actions)}."
            )
        rewards = []
        for value, texts, state in zip(returned, actions, states, strict=True):
            reward = _number(value)
            if reward is None:
                raise TypeError(
                    f"Expected a number as reward, got {_shorten(value)} {_where(state, texts)}."
                )
            if self._processor is not None and math.isfinite(reward):
                processed = self._processor(reward)
                reward = _number(processed)
                if reward is None:
                    raise TypeError(
                        f"Expected a number from reward_processor, got {_shorten(processed)} "
                        f"{_where(state, texts)}."
                    )
            if not math.isfinite(reward):
                raise ValueError(f"Expected a finite reward, got {reward} {_where(state, texts)}.")
            rewards.append(reward)
        return rewards


def _number(value: Any) -> float | None:
    """Return a real number, NumPy scalar or tensor of one as a float, None for all else.

    An integer or a fraction that is too large for a float is infinite.
    """
    if isinstance(value, float):  # by far the most, and the other checks take longer
        return float(value)
    if not isinstance(value, numbers.Real) and hasattr(value, "item"):
        try:
            value = value.item()
        except (ValueError, RuntimeError):  # an array or a tensor of several values
            return None
    if not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return -math.inf if value <= 0 else math.inf


def _returned(outcome: Outcome, state: TextState, texts: tuple[str, ...]) -> Any:
    """Return what the function returned in a worker, or raise what it raised there."""
    if isinstance(outcome, Returned):
        return outcome.value
    cause = WorkerTraceback(outcome.trace) if outcome.trace else None
    if isinstance(outcome, Raised):
        error = outcome.exception
        error.add_note(f"reward_func raised this {_where(state, texts)}.")
    else:
        error = outcome.kind(f"{outcome.what} {_where(state, texts)}; {outcome.advice}.")
    if cause is None:
        raise error
    raise error from cause


def _where(state: TextState, texts: tuple[str, ...]) -> str:
    return f"for row {state.row} at turn {state.turn + 1} with the completions {_shorten(texts)}"


def _shorten(texts: object, limit: int = 400) -> str:
    shown = repr(texts)
    return shown if len(shown) <= limit else f"{shown[:limit]}... ({len(shown)} characters)"
