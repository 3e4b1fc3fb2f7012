"""Episodes as `check_env` plays them: each step's five dicts are checked at once, then recorded.

What an environment returns is checked as it comes, so that a sentence can name the turn; what is
recorded is a copy, so that an environment that changes an object later does not change the record.
"""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.utils.env_checker import data_equivalence

MAX_TURNS = 1000
PARTS = ("observations", "rewards", "terminations", "truncations", "infos")

# Environments come from anywhere, and PettingZoo's annotations do not survive strict checking.
AnyEnv = Any
Actions = dict[str, Any]
Policy = Callable[[AnyEnv, int], Actions]
Factory = Callable[[], AnyEnv]


class EnvCheckError(AssertionError):
    """An environment breaks a rule.

    Args:
        rule: short name of the rule.
        sentence: what was expected, and what came.
    """

    def __init__(self, rule: str, sentence: str) -> None:
        super().__init__(rule, sentence)
        self.rule = rule
        self.sentence = sentence

    def __str__(self) -> str:
        return f"{self.rule}: {self.sentence}"


@dataclass(frozen=True)
class Turn:
    """One step: the actions, the five dicts that came back, and who is left."""

    actions: Actions
    results: tuple[dict[str, Any], ...]
    agents: list[str]


@dataclass(frozen=True)
class Episode:
    """One episode: what `reset` returned, and every turn."""

    observations: dict[str, Any]
    infos: dict[str, Any]
    agents: list[str]
    turns: list[Turn]


class Returned:
    """Notice when an environment hands out a mutable object that it handed out before."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Any, str]] = {}

    def check(self, value: Any, where: str) -> None:
        """Remember the mutable objects inside `value`; raise if one of them is known."""
        read_only = isinstance(value, np.ndarray) and not value.flags.writeable
        if isinstance(value, Mapping | list | set | bytearray | np.ndarray) and not read_only:
            if id(value) in self._seen:
                raise EnvCheckError(
                    "fresh objects",
                    f"expected fresh objects at every step, but {where} is the same "
                    f"{type(value).__name__} as {self._seen[id(value)][1]}: {value!r:.200}",
                )
            self._seen[id(value)] = (value, where)  # keeps it alive, so that its id stays its own
        if isinstance(value, Mapping):
            for key, inner in value.items():
                self.check(inner, f"{where}[{key!r}]")
        elif isinstance(value, list | tuple):
            for i, inner in enumerate(value):
                self.check(inner, f"{where}[{i}]")


def sampled(env: AnyEnv, turn: int) -> Actions:
    """Sample every live agent's action from its space."""
    return {agent: env.action_space(agent).sample() for agent in env.agents}


def replayed(episode: Episode) -> Policy:
    """Repeat the actions of an episode."""

    def policy(env: AnyEnv, turn: int) -> Actions:
        actions = sampled(env, turn)
        if turn < len(episode.turns):
            actions |= {a: x for a, x in episode.turns[turn].actions.items() if a in actions}
        return actions

    return policy


def play(env: AnyEnv, seed: int | None, policy: Policy = sampled) -> Episode:
    """Play a checked episode from `reset(seed)` to its end."""
    observations, infos = env.reset(seed=seed)
    returned = Returned()
    check_agents(env, "after reset")
    agents = env.agents[:]
    if not agents:
        raise EnvCheckError(
            "possible agents", "expected at least one live agent after reset, but env.agents is []"
        )
    for name, part in (("observations", observations), ("infos", infos)):
        check_keys(name, part, agents, "after reset")
    check_observations(env, observations, "after reset")
    returned.check(observations, "observations after reset")
    returned.check(infos, "infos after reset")
    episode = Episode(copy.deepcopy(observations), copy.deepcopy(infos), agents, [])
    while env.agents:
        turn = len(episode.turns)
        if turn == MAX_TURNS:
            raise EnvCheckError("episodes end", f"expected an end within {MAX_TURNS} turns")
        live = env.agents[:]
        actions = policy(env, turn)
        results = env.step(dict(actions))
        when = f"after step {turn + 1}"
        check_step(env, live, results, when)
        for name, part in zip(PARTS, results, strict=True):
            returned.check(part, f"{name} {when}")
        episode.turns.append(Turn(actions, copy.deepcopy(results), env.agents[:]))
    return episode


def check_step(env: AnyEnv, live: list[str], results: Any, when: str) -> None:
    """Check what one step returned."""
    if not isinstance(results, tuple) or len(results) != 5:
        raise EnvCheckError(
            "five dicts", f"expected a tuple of {PARTS} {when}, but got {results!r:.200}"
        )
    for name, part in zip(PARTS, results, strict=True):
        check_keys(name, part, live, when)
    observations, rewards, terminations, truncations, _ = results
    check_observations(env, observations, when)
    check_rewards(rewards, when)
    check_flags("terminations", terminations, when)
    check_flags("truncations", truncations, when)
    check_agents(env, when)
    left = [agent for agent in live if not terminations[agent] and not truncations[agent]]
    if set(env.agents) != set(left):
        raise EnvCheckError(
            "agents leave", f"expected agents to be {left} {when}, but it is {env.agents}"
        )


def check_agents(env: AnyEnv, when: str) -> None:
    """The live agents are a list without repetition out of the possible ones."""
    agents = env.agents
    if type(agents) is not list:
        raise EnvCheckError(
            "agents is a list",
            f"expected env.agents to be a list {when}, but it is {agents!r}",
        )
    if len(set(agents)) != len(agents) or not set(agents) <= set(env.possible_agents):
        raise EnvCheckError(
            "possible agents",
            f"expected each of env.agents once, out of {env.possible_agents}, {when}, but got "
            f"{agents}",
        )


def check_keys(name: str, part: Any, live: list[str], when: str) -> None:
    """Each part has every agent that was live before the step, leaving ones too, and no other."""
    if not isinstance(part, dict):
        raise EnvCheckError("five dicts", f"expected {name} to be a dict {when}, but got {part!r}")
    if set(part) != set(live):
        missing = [agent for agent in live if agent not in part]
        extra = [key for key in part if key not in live]
        raise EnvCheckError(
            "keys",
            f"expected {name} of {live} {when} (agents that leave get a last one too), but "
            f"{missing} are missing and {extra} are too many",
        )


def check_observations(env: AnyEnv, observations: dict[str, Any], when: str) -> None:
    """Every observation lies in its agent's space."""
    for agent, observation in observations.items():
        space = env.observation_space(agent)
        if observation not in space:
            raise EnvCheckError(
                "observations in their space",
                f"expected the observation of {agent} {when} to be in {space}, but it is "
                f"{observation!r:.200} ({type(observation).__name__})",
            )


def check_rewards(rewards: dict[str, Any], when: str) -> None:
    """Rewards are finite Python floats; numpy's floats and integers surprise loggers and JSON."""
    for agent, reward in rewards.items():
        if type(reward) is not float or not math.isfinite(reward):
            raise EnvCheckError(
                "rewards",
                f"expected the reward of {agent} {when} to be a finite Python float, but it is "
                f"{reward!r} ({type(reward).__name__})",
            )


def check_flags(name: str, flags: dict[str, Any], when: str) -> None:
    """Flags are Python bools; `numpy.bool_` fails elsewhere, as in stable-baselines3's checks."""
    for agent, flag in flags.items():
        if type(flag) is not bool:
            raise EnvCheckError(
                "flags",
                f"expected {name}[{agent!r}] {when} to be a Python bool, but it is {flag!r} "
                f"({type(flag).__name__})",
            )


def difference(first: Episode, second: Episode) -> str | None:
    """Describe where two episodes part, or return None where they are equal."""
    for name in ("agents", "observations", "infos"):
        one, other = getattr(first, name), getattr(second, name)
        if not data_equivalence(one, other, exact=True):
            return f"{name} after reset are {one!r:.300} and then {other!r:.300}"
    # Episodes of different lengths part where only one of them has agents left.
    for turn, (one, other) in enumerate(zip(first.turns, second.turns, strict=False), start=1):
        pairs = [("actions", one.actions, other.actions), ("agents", one.agents, other.agents)]
        pairs += zip(PARTS, one.results, other.results, strict=True)
        for name, a, b in pairs:
            if not data_equivalence(a, b, exact=True):
                return f"{name} of step {turn} are {a!r:.300} and then {b!r:.300}"
    return None
