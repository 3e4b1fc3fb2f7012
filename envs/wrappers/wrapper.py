"""The base of Motet's wrappers: three hooks, and snapshots and batches come by themselves.

PettingZoo's `BaseParallelWrapper` forwards what it does not know to the env that it wraps. So its
`clone()` returns the inner env without the wrapper, and a learner that branches episodes loses it
silently. A `Wrapper` here keeps what it remembers of an episode apart from itself, as an immutable
memory, and changes an episode only in hooks that are functions of that memory:

    class Shout(Wrapper):
        def before_step(self, memory, actions):
            return {agent: text.upper() for agent, text in actions.items()}

Snapshots, clones, and stepping many branches at once (`step_batch`, with one call of the reward
function) follow from the hooks, so that a wrapped `TextEnv` is as fast as a bare one. A subclass
that overrides `reset` or `step` instead still works, and learners step it clone by clone.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import gymnasium
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

from motet.envs.task.parts import check_sequence
from motet.envs.text_state import ResetResult, StepResult, check_running
from motet.envs.wrappers.hook_results import checked_after, checked_begin
from motet.envs.wrappers.wrapper_state import WrapperState

Observations = dict[str, Any]
Infos = dict[str, dict[str, Any]]

SNAPSHOTS = ("get_state", "set_state", "clone")


class Wrapper(BaseParallelWrapper):  # type: ignore[misc]  # PettingZoo is untyped here
    """Wrap a parallel env that has `get_state`, `set_state` and `clone`.

    Override `after_reset`, `before_step` and `after_step`. They change nothing but what they
    return: memories are immutable and pickle, dicts that come in are left as they are. A wrapper
    that records may write outside of them, and then records every branch that is tried.

    Args:
        env: the env to wrap.

    Raises:
        TypeError: where `env` is no PettingZoo parallel env, or lacks one of the three.
    """

    def __init__(self, env: Any) -> None:
        if not isinstance(env, ParallelEnv):
            raise TypeError(
                f"Expected a PettingZoo ParallelEnv to wrap, got {env!r}; make one with "
                "envs.make(id) first."
            )
        missing = [name for name in SNAPSHOTS if not callable(getattr(env, name, None))]
        if missing:
            raise TypeError(
                f"Expected an env with {', '.join(SNAPSHOTS)} to wrap, got {env!r} without "
                f"{', '.join(missing)}: wrappers take back a turn whose hooks fail, and are cloned."
            )
        super().__init__(env)
        self.agents: list[str] = []
        self._memory: Any = None
        self._started = False
        self._depth: int = env._depth + 1 if isinstance(env, Wrapper) else 0
        self._stream = (int.from_bytes(os.urandom(6), "big"), 0)

    # --- hooks --------------------------------------------------------------------------------

    def after_reset(
        self, observations: Observations, infos: Infos, *, seed: int
    ) -> tuple[Any, Observations, Infos]:
        """Return the memory of a new episode, and its observations and infos.

        Args:
            observations: first observation by agent.
            infos: info by agent.
            seed: source of any randomness of this wrapper in this episode.
        """
        del seed
        return None, observations, infos

    def before_step(self, memory: Any, actions: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the actions that the env inside gets.

        Args:
            memory: the episode's, from the last hook.
            actions: action by live agent.
        """
        del memory
        return actions

    def after_step(
        self, memory: Any, actions: Mapping[str, Any], result: StepResult
    ) -> tuple[Any, StepResult]:
        """Return the memory after a turn, and what the turn brought.

        Rewards that this changes are what learners see: infos follow them by themselves.

        Args:
            memory: the episode's, from the last hook.
            actions: as the wrapper got them.
            result: what the env inside returned; its `state` is not the wrapper's to read.
        """
        del actions
        return memory, result

    def with_seed(self, memory: Any, seed: int) -> Any:
        """Return a memory whose randomness comes from another seed; see `set_state`."""
        del seed
        return memory

    def after_reset_batch(
        self, results: Sequence[ResetResult], seeds: Sequence[int]
    ) -> list[tuple[Any, Observations, Infos]]:
        """Apply `after_reset` to each of several episodes; override to treat them together."""
        return [
            self.after_reset(result.observations, result.infos, seed=seed)
            for result, seed in zip(results, seeds, strict=True)
        ]

    def before_step_batch(
        self, memories: Sequence[Any], joint_actions: Sequence[Mapping[str, Any]]
    ) -> list[tuple[Any, Mapping[str, Any]]]:
        """Apply `before_step` to each of several episodes; override to treat them together.

        Returns:
            For each, the memory that `after_step` gets, and the actions that the env inside gets.
        """
        return [
            (memory, self.before_step(memory, actions))
            for memory, actions in zip(memories, joint_actions, strict=True)
        ]

    def after_step_batch(
        self,
        memories: Sequence[Any],
        joint_actions: Sequence[Mapping[str, Any]],
        results: Sequence[StepResult],
    ) -> list[tuple[Any, StepResult]]:
        """Apply `after_step` to each of several episodes; override to treat them together."""
        return [
            self.after_step(memory, actions, result)
            for memory, actions, result in zip(memories, joint_actions, results, strict=True)
        ]

    # --- PettingZoo's interface ---------------------------------------------------------------

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observations, Infos]:
        """Start an episode; see the env inside."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self.agents = []  # should a hook raise, there is no episode that both know
        if seed is not None:
            self._stream = (int(seed), 0)
        started = ResetResult(None, observations, infos)
        self._memory, observations, infos = self._begin([started], [self._drawn()])[0]
        self._started = True
        self.agents = list(observations)
        return observations, infos

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[Observations, dict[str, float], dict[str, bool], dict[str, bool], Infos]:
        """Play one turn; see the env inside.

        Raises:
            gymnasium.error.ResetNeeded: before the first `reset` and after the end.
        """
        if not self.agents:
            raise gymnasium.error.ResetNeeded(
                "Expected a running episode, got step() "
                f"{'after its end' if self._started else 'before reset()'}; call reset()."
            )
        memory, played = self.before_step_batch([self._memory], [actions])[0]
        before = self.env.get_state()
        try:
            inner = StepResult(None, *self.env.step(played))
            self._memory, result = self._after([memory], [actions], [inner])[0]
        except BaseException:
            self.env.set_state(before)  # the turn was not played, and can be played again
            raise
        self.agents = result.live
        return result.five_dicts

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.env})"

    __repr__ = __str__

    def __getattr__(self, name: str) -> Any:
        if "env" not in self.__dict__:
            raise AttributeError(
                f"Expected __init__ of {type(self).__name__} to call super().__init__(env) first, "
                f"got no env to look for {name!r} in."
            )
        return super().__getattr__(name)

    # --- snapshots ----------------------------------------------------------------------------

    def get_state(self) -> WrapperState:
        """Return a snapshot of this wrapper and of the env inside."""
        return self._snapshot(self._memory, self.agents, self._stream, self.env.get_state())

    def set_state(self, state: WrapperState, *, seed: int | None = None) -> None:
        """Go to a snapshot of this env or of a clone of it.

        Args:
            state: what `get_state` returned.
            seed: gives the wrapper and the env inside a random stream of their own from here on.

        Raises:
            TypeError: where `state` is something else.
        """
        self._check_own(state)
        self.env.set_state(state.inner, seed=seed)
        self._memory, self._stream = state.memory, state.stream
        self.agents, self._started = list(state.agents), True
        self._reseed(seed)

    def clone(self, *, seed: int | None = None) -> Self:
        """Return an independent wrapper, at the same point, around a clone of the env inside.

        Args:
            seed: as in `set_state`.
        """
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.env = self.env.clone(seed=seed)
        twin.agents = self.agents[:]
        twin._reseed(seed)
        return twin

    # --- batched stepping ---------------------------------------------------------------------

    def reset_batch(
        self, rows: Sequence[int], *, seeds: Sequence[int] | None = None
    ) -> list[ResetResult]:
        """Start an episode on each of several rows, without entering any; see `TextEnv`."""
        inner = self.env.reset_batch(rows, seeds=seeds)
        streams = [(int(seed), 0) for seed in (rows if seeds is None else seeds)]
        begun = self._begin(inner, [self._seed_of(stream) for stream in streams])
        return [
            ResetResult(
                self._snapshot(memory, observations, (entropy, count + 1), result.state),
                observations,
                infos,
            )
            for result, (entropy, count), (memory, observations, infos) in zip(
                inner, streams, begun, strict=True
            )
        ]

    def step_batch(
        self,
        states: Sequence[WrapperState],
        joint_actions: Sequence[Mapping[str, Any]],
        groups: Sequence[int] | None = None,
    ) -> list[StepResult]:
        """Play one turn from each of several states, with one call of the reward function.

        See `TextEnv.step_batch`; groups are judged by the rewards of the env inside.
        """
        check_sequence("states", states)
        check_sequence("joint actions", joint_actions)
        for state in states:
            self._check_own(state)
        if len(states) != len(joint_actions):
            raise ValueError(
                f"Expected as many joint actions as states, got {len(states)} states and "
                f"{len(joint_actions)} joint actions."
            )
        check_running(states)
        before = self.before_step_batch([state.memory for state in states], joint_actions)
        inner = self.env.step_batch(
            [state.inner for state in states], [played for _, played in before], groups
        )
        after = self._after([memory for memory, _ in before], joint_actions, inner)
        return [
            result.at(self._snapshot(memory, result.live, state.stream, result.state))
            for state, (memory, result) in zip(states, after, strict=True)
        ]

    # --- parts --------------------------------------------------------------------------------

    def _after(
        self,
        memories: Sequence[Any],
        joint_actions: Sequence[Mapping[str, Any]],
        inner: Sequence[StepResult],
    ) -> list[tuple[Any, StepResult]]:
        name = type(self).__name__
        after = self.after_step_batch(memories, joint_actions, inner)
        return [
            checked_after(returned, before, name)
            for before, returned in zip(inner, after, strict=True)
        ]

    def _begin(
        self, results: Sequence[ResetResult], seeds: Sequence[int]
    ) -> list[tuple[Any, Observations, Infos]]:
        name = type(self).__name__
        return [checked_begin(one, name) for one in self.after_reset_batch(results, seeds)]

    def _snapshot(
        self, memory: Any, agents: Iterable[str], stream: tuple[int, int], inner: Any
    ) -> WrapperState:
        return WrapperState(memory, tuple(agents), stream, inner, type(self).__name__)

    def _check_own(self, state: object) -> None:
        name = type(self).__name__
        if not isinstance(state, WrapperState):
            raise TypeError(
                f"Expected a state that get_state() of {name} returned, got {repr(state)[:200]}."
            )
        if state.wrapper != name:
            raise TypeError(
                f"Expected a state that get_state() of {name} returned, got one of "
                f"{state.wrapper}: wrappers must be stacked as they were."
            )

    def _drawn(self) -> int:
        seed = self._seed_of(self._stream)
        self._stream = (self._stream[0], self._stream[1] + 1)
        return seed

    def _seed_of(self, stream: tuple[int, int]) -> int:
        """Mix the stream's seed, the episode's number and the layer into 63 bits (SplitMix64).

        Else two wrappers of a stack, or one and the env, would draw the same.
        """
        entropy, episode = stream
        mixed = entropy * 0x9E3779B97F4A7C15 + episode * 0xD1B54A32D192ED03
        mixed = (mixed + (self._depth + 1) * 0x8CB92BA72F3D8DD7) & (2**64 - 1)
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & (2**64 - 1)
        return (mixed ^ (mixed >> 31)) & (2**63 - 1)

    def _reseed(self, seed: int | None) -> None:
        if seed is not None:
            self._stream = (int(seed), 0)
            if self._started:
                self._memory = self.with_seed(self._memory, self._drawn())
