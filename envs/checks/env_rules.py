"""The rules of `check_env` that need more than one look: one function each.

Each takes a factory of fresh environments and one checked episode of the first of its seeds.
"""

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.utils.env_checker import data_equivalence

from motet.envs.checks.played_episode import (
    Actions,
    AnyEnv,
    EnvCheckError,
    Episode,
    Factory,
    Policy,
    difference,
    play,
    replayed,
)

_UNLIKELY_SEED = 1_604_331_927
EDGE_TEXTS = ("", "\n\n\n", "👩🏽\u200d🚀🎵", "word " * 20_000)


def check_spaces(make_env: Factory, episode: Episode, seed: int) -> None:
    """Each space is one object for good: seeding it must have an effect."""
    env = make_env()
    for name in ("observation_space", "action_space"):
        spaces = [[getattr(env, name)(agent) for agent in env.possible_agents]]
        spaces.append([getattr(env, name)(agent) for agent in env.possible_agents])
        play(env, seed, replayed(episode))
        spaces.append([getattr(env, name)(agent) for agent in env.possible_agents])
        for agent, first, second, third in zip(env.possible_agents, *spaces, strict=True):
            if first is not second or first is not third:
                raise EnvCheckError(
                    "same spaces",
                    f"expected env.{name}({agent!r}) to return the same object at each call, but "
                    "it returned different ones",
                )


def check_options(make_env: Factory, episode: Episode, seed: int) -> None:
    """Options that an environment does not know change nothing: PettingZoo's tests pass one."""
    env = make_env()
    options = {"an option that no env has": 1}
    try:
        observations, _ = env.reset(seed=seed, options=options)
    except Exception as exc:
        raise EnvCheckError(
            "unknown options",
            f"expected reset(options={options}) to ignore them, but got {type(exc).__name__}: "
            f"{exc}",
        ) from exc
    if not data_equivalence(observations, episode.observations, exact=True):
        raise EnvCheckError(
            "unknown options",
            f"expected reset(options={options}) to give {episode.observations!r:.300}, but it "
            f"gave {observations!r:.300}",
        )


def check_num_turns(make_env: Factory, episode: Episode, seed: int) -> None:
    """An environment that declares `num_turns` keeps to it."""
    limit = getattr(make_env().unwrapped, "num_turns", None)
    if limit is not None and len(episode.turns) > limit:
        raise EnvCheckError(
            "num_turns",
            f"expected at most {limit} turns, but the episode had {len(episode.turns)}",
        )


def check_deterministic(make_env: Factory, episode: Episode, seed: int) -> None:
    """A seed determines the whole episode, also where the environment has played before."""
    env = make_env()
    for situation in ("in a second environment", "in one that has played before"):
        parted = difference(episode, play(env, seed, replayed(episode)))
        if parted is not None:
            raise EnvCheckError(
                "determinism",
                f"expected reset(seed={seed}) and the same actions to give the same episode "
                f"{situation}, but {parted}; if that is in its nature, register it with "
                "nondeterministic=True",
            )


def check_seeded_stream(make_env: Factory, episode: Episode, seed: int) -> None:
    """`reset()` after `reset(seed)` goes on with the seeded stream."""
    episodes = []
    for _ in range(2):
        env = make_env()
        play(env, seed, replayed(episode))
        episodes.append(play(env, None, replayed(episode)))
    parted = difference(*episodes)
    if parted is not None:
        raise EnvCheckError(
            "seeded stream",
            f"expected reset() after reset(seed={seed}) to give the same next episode each time, "
            f"but {parted}",
        )


def check_global_rng(make_env: Factory, episode: Episode, seed: int) -> None:
    """Neither making nor playing draws from, or seeds, a random generator shared by all."""
    generators = _global_generators()
    restored = {name: generator.get_state() for name, generator in generators.items()}
    try:
        # An env that seeds them did so before; only from another state is that a change.
        for generator in generators.values():
            generator.seed(_UNLIKELY_SEED)
        before = {name: generator.get_state() for name, generator in generators.items()}
        play(make_env(), seed, replayed(episode))
        after = {name: generator.get_state() for name, generator in generators.items()}
    finally:
        for name, generator in generators.items():
            generator.set_state(restored[name])
    for name in generators:
        if not data_equivalence(before[name], after[name], exact=True):
            raise EnvCheckError(
                "global random generators",
                f"expected only the env's own generator to be used, but {name}'s global generator "
                "changed while an episode was played",
            )


def check_step_after_end(make_env: Factory, episode: Episode, seed: int) -> None:
    """A step after the end raises."""
    for actions in ({}, episode.turns[-1].actions):
        env = make_env()
        play(env, seed, replayed(episode))
        if _refusal(env, actions) is None:
            raise EnvCheckError(
                "step after the end",
                f"expected step({actions!r:.200}) after the end of the episode to raise, but it "
                "returned",
            )


def check_bad_actions(make_env: Factory, episode: Episode, seed: int) -> None:
    """Missing agents, unknown agents and actions of a wrong type raise and name the agent."""
    good = episode.turns[0].actions
    for what, agent, actions in _bad_actions(make_env(), good):
        env = make_env()
        env.reset(seed=seed)
        refusal = _refusal(env, actions)
        if refusal is None:
            raise EnvCheckError(
                "bad actions", f"expected step() to raise where {what}, but it returned"
            )
        named = str(agent) in str(refusal)
        if not isinstance(refusal, ValueError | TypeError | KeyError) or not named:
            raise EnvCheckError(
                "bad actions",
                f"expected a ValueError, TypeError or KeyError that names {agent!r} where {what}, "
                f"but got {type(refusal).__name__}: {refusal}",
            ) from refusal


def check_edge_texts(make_env: Factory, episode: Episode, seed: int) -> None:
    """Empty, blank, non-ASCII and very long texts are played like any others."""

    def same(text: str) -> Policy:
        return lambda env, turn: {agent: _said(env, agent, text) for agent in env.agents}

    def mixed(env: AnyEnv, turn: int) -> Actions:
        texts = (EDGE_TEXTS[(i + turn) % len(EDGE_TEXTS)] for i in range(len(env.agents)))
        return {a: _said(env, a, x) for a, x in zip(env.agents, texts, strict=True)}

    policies = {f"every action is {text!r:.40}": same(text) for text in EDGE_TEXTS}
    for what, policy in (policies | {"actions are unusual texts": mixed}).items():
        try:
            play(make_env(), seed, policy)
        except EnvCheckError as exc:
            raise EnvCheckError(exc.rule, f"{exc.sentence} [where {what}]") from exc
        # The reward function and the transition are somebody else's and may fail in any way.
        except Exception as exc:
            raise EnvCheckError(
                "any text",
                f"expected a step like any other where {what}, but got {type(exc).__name__}: {exc}",
            ) from exc


def _said(env: AnyEnv, agent: str, text: str) -> Any:
    space = env.action_space(agent)
    return text if text in space else space.sample()


def _bad_actions(env: AnyEnv, good: Actions) -> Iterator[tuple[str, str, Actions]]:
    """Yield what is wrong, the agent to be named, and the actions."""
    stranger = "somebody_else"
    yield (
        f"{stranger!r}, who is no agent, acts too",
        stranger,
        good | {stranger: next(iter(good.values()))},
    )
    for agent in good:
        yield (
            f"the action of {agent} is missing",
            agent,
            {other: action for other, action in good.items() if other != agent},
        )
        for action in (None, 17, b"bytes"):
            if action not in env.action_space(agent):
                yield f"the action of {agent} is {action!r}", agent, good | {agent: action}


def _refusal(env: AnyEnv, actions: Actions) -> Exception | None:
    try:
        env.step(actions)
    except Exception as exc:  # noqa: BLE001 # whatever comes is what the rules judge
        return exc
    return None


@dataclass(frozen=True)
class _GlobalGenerator:
    get_state: Callable[[], Any]
    set_state: Callable[[Any], Any]
    seed: Callable[[int], Any]


def _global_generators() -> dict[str, _GlobalGenerator]:
    found = {
        "random": _GlobalGenerator(random.getstate, random.setstate, random.seed),
        "numpy.random": _GlobalGenerator(
            lambda: np.random.get_state(legacy=False), np.random.set_state, np.random.seed
        ),
    }
    torch = sys.modules.get("torch")  # an env that uses it has imported it
    if torch is not None:
        found["torch"] = _GlobalGenerator(
            lambda: torch.get_rng_state().numpy(),
            lambda state: torch.set_rng_state(torch.from_numpy(state)),
            torch.default_generator.manual_seed,
        )
    return found
