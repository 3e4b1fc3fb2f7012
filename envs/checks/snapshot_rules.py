"""The rules of `check_env` about snapshots and clones, which learners branch episodes with.

Each takes a factory of fresh environments and one checked episode of the first of its seeds.
"""

import pickle
from typing import Any

from gymnasium.utils.env_checker import data_equivalence

from motet.envs.checks.played_episode import (
    PARTS,
    AnyEnv,
    EnvCheckError,
    Episode,
    Factory,
    sampled,
)
from motet.envs.simulator import layers_of, named_layers
from motet.envs.wrappers.wrapper import SNAPSHOTS


def require_methods(env: AnyEnv) -> None:
    """Raise unless `env` has the three methods."""
    missing = [name for name in SNAPSHOTS if not callable(getattr(env, name, None))]
    if missing:
        raise EnvCheckError(
            "snapshots",
            f"expected {type(env).__name__} to have the methods {', '.join(SNAPSHOTS)}, with which "
            f"learners branch episodes, but {', '.join(missing)} is missing",
        )


def check_methods(make_env: Factory, episode: Episode, seed: int) -> None:
    """The three methods exist."""
    require_methods(make_env())


def check_set_state(make_env: Factory, episode: Episode, seed: int) -> None:
    """A snapshot brings its turn back, from any other turn, also after pickling."""
    env = make_env()
    env.reset(seed=seed)
    states = []
    for turn in episode.turns:
        states.append(env.get_state())
        env.step(turn.actions)
    order = [*reversed(range(len(states))), *range(len(states))]
    for i in order:
        env.set_state(states[i])
        _expect_turn(env, episode, i, "after set_state")
    twin = env.clone()
    for i in order:
        twin.set_state(_pickled(states[i]))
        _expect_turn(twin, episode, i, "after set_state of a pickled state in a clone")


def check_seeded_branches(make_env: Factory, episode: Episode, seed: int) -> None:
    """A seed gives a branch a random stream of its own, the same for the same seed."""
    env = make_env()
    env.reset(seed=seed)
    state = env.get_state()
    branches = [env, env.clone(seed=seed + 1)]
    for branch in branches:
        branch.set_state(state, seed=seed)
    first, second = (branch.step(dict(episode.turns[0].actions)) for branch in branches)
    if not data_equivalence(first, second, exact=True):
        raise EnvCheckError(
            "snapshots",
            f"expected set_state(state, seed={seed}) and one step to give the same each time, but "
            f"got {first!r:.300} and then {second!r:.300}",
        )


def check_stream_restored(make_env: Factory, episode: Episode, seed: int) -> None:
    """A snapshot holds what decides the next episode."""
    env = make_env()
    env.reset(seed=seed)
    state = env.get_state()
    first = env.reset()
    env.set_state(state)
    second = env.reset()
    if not data_equivalence(first, second, exact=True):
        raise EnvCheckError(
            "snapshots",
            "expected reset() after set_state(state) to give the episode that reset() gave when "
            f"the state was taken, but got {first!r:.300} and then {second!r:.300}",
        )


def check_clone_is_whole(make_env: Factory, episode: Episode, seed: int) -> None:
    """A clone has the wrappers and the type of the original."""
    env = make_env()
    env.reset(seed=seed)
    require_whole(env, env.clone())


def require_whole(env: AnyEnv, twin: AnyEnv) -> None:
    """Raise unless `twin`, a clone of `env`, has its wrappers and its type."""
    if twin is env or layers_of(twin) != layers_of(env):
        raise EnvCheckError(
            "clones are whole",
            f"expected clone() of {named_layers(env)} to give a new env with the same layers, but "
            f"got {'the same object' if twin is env else named_layers(twin)}; a wrapper must clone "
            "itself around a clone of its inner env",
        )


def check_clone_is_apart(make_env: Factory, episode: Episode, seed: int) -> None:
    """Neither playing a clone changes the original, nor the other way round."""
    env, untouched = make_env(), make_env()
    env.reset(seed=seed)
    first_twin = env.clone()
    for agent in env.possible_agents:
        if first_twin.action_space(agent) is env.action_space(agent):
            raise EnvCheckError(
                "clones are apart",
                f"expected a clone to have an action space of its own for {agent}, but it is the "
                "original's, and sampling from it would change what the original samples",
            )
    for i in range(len(episode.turns)):
        _expect_turn(env.clone(), episode, i, "in a clone")
        _play_out(env.clone())
        _play_out(env.clone(seed=seed + 1))
        _expect_turn(env, episode, i, "after clones were played to their end")
    untouched.reset(seed=seed)
    for turn in episode.turns:
        untouched.step(turn.actions)
    if not data_equivalence(untouched.reset(), env.reset(), exact=True):
        raise EnvCheckError(
            "clones are apart",
            "expected reset() of an env not to depend on what its clones did, but its next "
            "episode is another one",
        )
    for i in range(len(episode.turns)):
        _expect_turn(first_twin, episode, i, "in a clone after the original was played")


def _expect_turn(env: AnyEnv, episode: Episode, i: int, where: str) -> None:
    expected = episode.turns[i]
    live = episode.turns[i - 1].agents if i else episode.agents
    if env.agents != live:
        raise _parted("agents", f"before step {i + 1}", live, env.agents, where)
    results = env.step(dict(expected.actions))
    for name, old, new in zip(PARTS, expected.results, results, strict=True):
        if not data_equivalence(old, new, exact=True):
            raise _parted(name, f"of step {i + 1}", old, new, where)
    if env.agents != expected.agents:
        raise _parted("agents", f"after step {i + 1}", expected.agents, env.agents, where)


def _parted(name: str, when: str, old: Any, new: Any, where: str) -> EnvCheckError:
    return EnvCheckError(
        "clones are apart" if "clone" in where else "snapshots",
        f"expected {name} {when} to be the same {where}, but it was {old!r:.300} and is "
        f"{new!r:.300}",
    )


def _play_out(env: AnyEnv) -> None:
    while env.agents:
        env.step(sampled(env, 0))
    env.reset()


def _pickled(state: Any) -> Any:
    try:
        return pickle.loads(pickle.dumps(state))
    except (pickle.PickleError, TypeError, AttributeError) as exc:
        raise EnvCheckError(
            "states pickle", f"expected get_state() to return what pickle can copy, but {exc}"
        ) from exc
