"""An environment that keeps every rule of `check_env`, for the tests to break one at a time.

`Good` has three turns and two agents, one of whom leaves a turn early; its observations, rewards
and infos depend on the seed, on the actions and on the turn.
"""

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pettingzoo
import pytest
from gymnasium import error
from pettingzoo.utils import BaseParallelWrapper

from motet.envs import TextSpace


@dataclass(frozen=True)
class State:
    turn: int
    length: int
    agents: tuple[str, ...]
    rng: dict[str, Any]


class Good(pettingzoo.ParallelEnv):
    metadata: ClassVar = {"name": "good_v0", "render_modes": []}
    render_mode = None

    def __init__(self, num_turns=3):
        self.num_turns = num_turns
        self.possible_agents = ["ann", "bob"]
        self.agents = []
        self.spaces = {agent: TextSpace() for agent in self.possible_agents}
        self.rng = np.random.default_rng()
        self.turn = self.length = 0

    def observation_space(self, agent):
        return self.spaces[agent]

    def action_space(self, agent):
        return self.spaces[agent]

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.turn = self.length = 0
        self.agents = self.possible_agents[:]
        return self.observe(self.agents), self.inform(self.agents)

    def step(self, actions):
        if not self.agents:
            raise error.ResetNeeded("call reset()")
        self.check(actions)
        live = self.agents
        self.turn += 1
        self.length += sum(map(len, actions.values()))
        ended = {agent: self.ends(agent) for agent in live}
        self.agents = [agent for agent in live if not ended[agent]]
        return (
            self.observe(live),
            {agent: self.reward(agent, actions[agent]) for agent in live},
            ended,
            dict.fromkeys(live, False),
            self.inform(live),
        )

    def check(self, actions):
        for agent in self.agents:
            if agent not in actions:
                raise ValueError(f"no action of {agent}")
        for agent, action in actions.items():
            if agent not in self.agents:
                raise KeyError(agent)
            if not isinstance(action, str):
                raise TypeError(f"the action of {agent} is {action!r}")

    def ends(self, agent):
        return self.turn >= self.num_turns - (agent == "bob")

    def observe(self, agents):
        return {a: f"{a} {self.turn} {self.length} {self.rng.integers(1000)}" for a in agents}

    def inform(self, agents):
        return {agent: {"turn": self.turn, "lengths": [self.length]} for agent in agents}

    def reward(self, agent, action):
        return 1 / (1 + len(action) + self.turn)

    def get_state(self):
        rng = copy.deepcopy(self.rng.bit_generator.state)
        return State(self.turn, self.length, tuple(self.agents), rng)

    def set_state(self, state, *, seed=None):
        self.turn, self.length, self.agents = state.turn, state.length, list(state.agents)
        self.rng = np.random.default_rng(seed)
        if seed is None:
            self.rng.bit_generator.state = state.rng

    def clone(self, *, seed=None):
        twin = type(self)(self.num_turns)
        twin.set_state(self.get_state(), seed=seed)
        return twin


class FixedStart(Good):
    """A seed for a clone may change its observations; here it does not, as in most tasks."""

    def observe(self, agents):
        return {a: f"{a} {self.turn} {self.length}" for a in agents}


class Cut(Good):
    """Ends `ann` by truncation, after `bob` has left by termination."""

    def step(self, actions):
        observations, rewards, ended, cut, infos = super().step(actions)
        cut = {agent: agent == "ann" and ended[agent] for agent in ended}
        ended = {agent: ended[agent] and not cut[agent] for agent in ended}
        return observations, rewards, ended, cut, infos


class GoodWrapper(BaseParallelWrapper):
    """Shouts, and implements snapshots as a wrapper should."""

    def step(self, actions):
        observations, *rest = self.env.step(actions)
        return {a: x.upper() for a, x in observations.items()}, *rest

    def clone(self, *, seed=None):
        return type(self)(self.env.clone(seed=seed))


BROKEN = []


def broken(rule, *fragments):
    """Enrol a class whose check must fail with this rule and these parts of a sentence."""

    def enrol(cls):
        BROKEN.append(pytest.param(cls, rule, fragments, id=cls.__name__))
        return cls

    return enrol


class AfterStep(Good):
    """Lets a subclass change what step returns."""

    def step(self, actions):
        return self.change(*super().step(actions))
