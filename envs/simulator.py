"""Step many branches of an env, in whichever way it can.

A `TextEnv`, bare or in `Wrapper`s, plays a turn from any number of states with one call of its
reward function. Any other parallel env is cloned once for every action that is to be tried.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from motet.envs.text_env import TextEnv
from motet.envs.text_state import ResetResult, StepResult
from motet.envs.wrappers.wrapper import Wrapper

_STEPPING = ("reset", "step", "reset_batch", "step_batch")


class Simulator(Protocol):
    """Begin episodes, and play turns from states without changing them."""

    has_rows: bool

    def start(
        self, rows: Sequence[int] | None = None, seeds: Sequence[int] | None = None
    ) -> list[ResetResult]:
        """Begin an episode for each row, each seed, or each pair of both."""

    def step(
        self,
        states: Sequence[Any],
        joint_actions: Sequence[Mapping[str, Any]],
        groups: Sequence[int],
    ) -> list[StepResult]:
        """Play one turn from each state; `groups` as in `TextEnv.step_batch`."""

    def state_texts(self, states: Sequence[Any]) -> list[str]:
        """Return the env's global view at each state, as text; "" where it has none."""


def make_simulator(env: Any) -> Simulator:
    """Return the fastest simulator that keeps to what the env's own `reset` and `step` do.

    Raises:
        TypeError: where the env has no `clone()`.
        ValueError: where early termination by groups would be lost; see `ClonedEpisodes`.
    """
    return BatchedStates(env) if steps_in_batches(env) else ClonedEpisodes(env)


def step_siblings(
    simulator: Simulator,
    states: Sequence[Any],
    joint_actions: Sequence[Sequence[Mapping[str, Any]]],
    *,
    apart: bool = False,
) -> list[list[StepResult]]:
    """Try several joint actions from each state at once; those of a state are one group.

    Args:
        simulator: plays them.
        states: (B,) states.
        joint_actions: (B,) lists; nothing is played from a state with an empty one.
        apart: each joint action is a group of its own, as one that is played by itself.

    Returns:
        (B,) lists of results.
    """
    places = [i for i, tried in enumerate(joint_actions) for _ in tried]
    flat = simulator.step(
        [states[i] for i in places],
        [actions for tried in joint_actions for actions in tried],
        range(len(places)) if apart else places,
    )
    results: list[list[StepResult]] = [[] for _ in joint_actions]
    for i, result in zip(places, flat, strict=True):
        results[i].append(result)
    return results


def steps_in_batches(env: object) -> bool:
    """Whether `step_batch` does what `step` does: not where a subclass overrides the latter."""
    if isinstance(env, Wrapper):
        return _unchanged(env, Wrapper) and steps_in_batches(env.env)
    return isinstance(env, TextEnv) and _unchanged(env, TextEnv)


def text_env_of(env: object) -> TextEnv | None:
    """Return the `TextEnv` that an env is or wraps, None for any other."""
    inner = env if isinstance(env, TextEnv) else getattr(env, "unwrapped", None)
    return inner if isinstance(inner, TextEnv) else None


class BatchedStates:
    """Step states through `step_batch`: one call of the reward function per turn."""

    has_rows = True

    def __init__(self, env: Any) -> None:
        self._env = env

    def start(
        self, rows: Sequence[int] | None = None, seeds: Sequence[int] | None = None
    ) -> list[ResetResult]:
        """Begin episodes; those of seeds alone are what `reset(seed)` begins."""
        if rows is not None:
            started: list[ResetResult] = self._env.reset_batch(rows, seeds=seeds)
            return started
        scratch = self._env.clone()
        results = []
        for seed in () if seeds is None else seeds:
            observations, infos = scratch.reset(seed=int(seed))
            results.append(ResetResult(scratch.get_state(), observations, infos))
        return results

    def step(
        self,
        states: Sequence[Any],
        joint_actions: Sequence[Mapping[str, Any]],
        groups: Sequence[int],
    ) -> list[StepResult]:
        """Play one turn from each state."""
        results: list[StepResult] = self._env.step_batch(states, joint_actions, groups)
        return results

    def state_texts(self, states: Sequence[Any]) -> list[str]:
        """Return what `state()` of the env returns at each state, as text."""
        scratch = self._env.clone()
        texts = []
        for state in states:
            scratch.set_state(state)
            texts.append(state_text(scratch))
        return texts


class ClonedEpisodes:
    """Step any env with `clone()`; a state here is a clone that stands at it.

    Args:
        env: what to clone.

    Raises:
        TypeError: where the env has no `clone()`.
        ValueError: where it holds a `TextEnv` whose branches end by groups: clones are stepped one
            by one, and would be groups of one.
    """

    def __init__(self, env: Any) -> None:
        if not callable(getattr(env, "clone", None)):
            raise TypeError(
                f"Expected an env with clone(), to branch its episodes, got {env!r}; "
                "motet.envs.check_env lists what it should keep to."
            )
        self._env = env
        inner = text_env_of(env)
        self.has_rows = inner is not None
        grouped = inner is not None and inner.early_termination == "group"
        if inner is not None and grouped and inner.early_termination_threshold is not None:
            raise ValueError(
                "Expected early_termination='branch' for a TextEnv inside "
                f"{type(env).__name__}, got 'group': its branches are stepped one by one. Derive "
                "the wrapper from motet.envs.wrappers.Wrapper, and override its hooks alone."
            )

    def start(
        self, rows: Sequence[int] | None = None, seeds: Sequence[int] | None = None
    ) -> list[ResetResult]:
        """Begin episodes; rows serve as their own seeds where none are given."""
        if rows is not None and not self.has_rows:
            raise ValueError(
                f"Expected seeds for an env without a dataset, got rows for {type(self._env)}."
            )
        count = len(rows if rows is not None else () if seeds is None else seeds)
        results = []
        for i in range(count):
            env = whole_clone(self._env)
            row = None if rows is None else int(rows[i])
            seed = row if seeds is None else int(seeds[i])
            observations, infos = env.reset(
                seed=seed, options=None if row is None else {"row": row}
            )
            results.append(ResetResult(env, dict(observations), infos))
        return results

    def step(
        self,
        states: Sequence[Any],
        joint_actions: Sequence[Mapping[str, Any]],
        groups: Sequence[int],
    ) -> list[StepResult]:
        """Play one turn in a clone of each state."""
        del groups  # clones know nothing of each other
        return [
            self._branch(state, actions)
            for state, actions in zip(states, joint_actions, strict=True)
        ]

    def state_texts(self, states: Sequence[Any]) -> list[str]:
        """Return what `state()` of each clone returns, as text."""
        return [state_text(state) for state in states]

    def _branch(self, state: Any, actions: Mapping[str, Any]) -> StepResult:
        env = whole_clone(state)
        observations, rewards, terminations, truncations, infos = env.step(dict(actions))
        for name, reward in rewards.items():
            if not math.isfinite(reward):
                raise ValueError(
                    f"Expected a finite reward, got {reward} for {name} after the actions "
                    f"{str(dict(actions))[:400]}."
                )
        rewards = {name: float(reward) for name, reward in rewards.items()}
        credit = credit_in_infos(rewards, infos) if self.has_rows else None
        return StepResult(env, observations, rewards, terminations, truncations, infos, credit)


def state_text(env: Any) -> str:
    """Return PettingZoo's `state()`, the global view of an env, as one text.

    Several texts, an agent's each say, are joined by empty lines. An env without `state()`, which
    raises NotImplementedError in PettingZoo's base class, has no global view: "".

    Raises:
        TypeError: where the view is not made of texts.
    """
    if not callable(getattr(env, "state", None)):
        return ""
    try:
        view = env.state()
    except NotImplementedError:
        return ""
    texts = [view] if isinstance(view, str) else np.asarray(view, dtype=object).ravel().tolist()
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(
            f"Expected state() of {type(env).__name__} to return texts, which a critic can read, "
            f"got {str(view)[:200]}; override it to say what the numbers mean."
        )
    return "\n\n".join(texts)


def _unchanged(env: object, base: type) -> bool:
    return all(getattr(type(env), name) is getattr(base, name) for name in _STEPPING)


def layers_of(env: Any) -> list[type]:
    """Return the types of an env and of those that it wraps, the outermost first."""
    layers = [type(env)]
    while "env" in getattr(env, "__dict__", ()):  # a clone may be anything, None too
        env = env.env
        layers.append(type(env))
    return layers


def named_layers(env: Any) -> str:
    """Return the names of an env's layers: "TimeLimit(TextEnv)"."""
    layers = layers_of(env)
    return "(".join(layer.__name__ for layer in layers) + ")" * (len(layers) - 1)


def whole_clone(env: Any) -> Any:
    """Return a clone that has every layer of an env.

    Raises:
        TypeError: where it lacks one: a wrapper that forwards `clone()`, as PettingZoo's do.
    """
    twin = env.clone()
    if layers_of(twin) != layers_of(env):
        raise TypeError(
            f"Expected clone() of {named_layers(env)} to return one, got {named_layers(twin)}: a "
            "wrapper that forwards clone() drops itself. Define clone() on it, or derive it from "
            "motet.envs.wrappers.Wrapper."
        )
    return twin


def credit_in_infos(
    rewards: Mapping[str, float], infos: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, float], int] | None:
    """Return what infos say that the turn alone paid, None where a layer has paid otherwise."""
    told = [infos.get(name, {}) for name in rewards]
    times = {info.get("turns_credited", 1) for info in told}
    if len(times) != 1 or times == {1}:
        return None
    turns: int = times.pop()
    own: dict[str, Any] = {}
    for (name, reward), info in zip(rewards.items(), told, strict=True):
        own[name] = info.get("turn_reward")
        if own[name] is None or own[name] * turns != reward:
            return None
    return own, turns
