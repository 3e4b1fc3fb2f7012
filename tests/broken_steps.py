"""Environments that break a rule which `check_env` can see in a single step."""

import math

import numpy as np
from good_env import AfterStep, Good, broken

from motet.envs import TextSpace


@broken("observations in their space", "observation of ann after step 2", "TextSpace()", "17 (int)")
class NumberForText(AfterStep):
    def change(self, observations, *rest):
        return (observations | {"ann": 17} if self.turn == 2 else observations), *rest


@broken("observations in their space", "of ann after reset", r"'lone \ud800' (str)")
class LoneSurrogate(Good):
    def observe(self, agents):
        return super().observe(agents) | {"ann": "lone \ud800"}


@broken("rewards", "reward of ann after step 1", "nan (float)")
class NotANumber(Good):
    def reward(self, agent, action):
        return math.nan


@broken("rewards", "-inf (float)")
class Infinite(Good):
    def reward(self, agent, action):
        return -math.inf


@broken("rewards", "np.float64(0.5) (float64)")
class NumpyReward(Good):
    def reward(self, agent, action):
        return np.float64(0.5)


@broken("rewards", "it is 1 (int)")
class WholeReward(Good):
    def reward(self, agent, action):
        return 1


@broken("rewards", "nan", "[where every action is '']")
class NotANumberForEmptyText(Good):
    def reward(self, agent, action):
        return 0.5 if action else math.nan

    def action_space(self, agent):
        return self.spaces[agent]

    def __init__(self, num_turns=3):
        super().__init__(num_turns)
        for agent in self.spaces:
            self.spaces[agent] = TextSpace(samples=["a"])


@broken("flags", "terminations['ann'] after step 1", "(bool)", "np.False_")
class NumpyFlag(Good):
    def ends(self, agent):
        return np.bool_(super().ends(agent))


@broken("flags", "truncations['ann']", "0 (int)")
class NumberForFlag(AfterStep):
    def change(self, observations, rewards, terminations, truncations, infos):
        return observations, rewards, terminations, dict.fromkeys(truncations, 0), infos


@broken("fresh objects", "infos after step 1 is the same dict as infos after reset")
class SameInfos(Good):
    def __init__(self, num_turns=3):
        super().__init__(num_turns)
        self.infos = {agent: {} for agent in self.possible_agents}

    def inform(self, agents):
        for agent in [agent for agent in self.infos if agent not in agents]:
            del self.infos[agent]
        return self.infos


@broken("fresh objects", "infos after reset['bob'] is the same dict as infos after reset['ann']")
class SharedInfo(Good):
    def inform(self, agents):
        info = {"turn": self.turn}
        return {agent: info for agent in agents}  # noqa: C420


@broken("fresh objects", "infos after step 1['ann']['history'][0] is the same list")
class SharedHistory(Good):
    def __init__(self, num_turns=3):
        super().__init__(num_turns)
        self.history = []

    def inform(self, agents):
        return {"ann": {"history": (self.history,)}, "bob": {}} if "bob" in agents else {"ann": {}}


@broken("keys", "observations of ['ann', 'bob'] after step 2", "['bob'] are missing", "leave")
class NoFinalObservation(AfterStep):
    def change(self, observations, *rest):
        return {a: x for a, x in observations.items() if a in self.agents}, *rest


@broken("keys", "rewards of ['ann'] after step 3", "['bob'] are too many")
class StaleReward(AfterStep):
    def change(self, observations, rewards, *rest):
        return observations, rewards | {"bob": 0.0}, *rest


@broken("keys", "infos of ['ann', 'bob'] after reset", "['ann', 'bob'] are missing")
class NoInfosAtReset(Good):
    def reset(self, seed=None, options=None):
        return super().reset(seed)[0], {}


@broken("five dicts", "expected a tuple of", "after step 1")
class FourParts(AfterStep):
    def change(self, observations, rewards, terminations, truncations, infos):
        return observations, rewards, terminations, infos


@broken("five dicts", "expected rewards to be a dict after step 1, but got 1.0")
class TeamReward(AfterStep):
    def change(self, observations, rewards, *rest):
        return observations, 1.0, *rest


@broken("agents is a list", "('ann', 'bob')")
class TupleOfAgents(Good):
    def reset(self, seed=None, options=None):
        returned = super().reset(seed)
        self.agents = tuple(self.agents)
        return returned


@broken("possible agents", "after reset", "'eve'")
class UnknownAgent(Good):
    def reset(self, seed=None, options=None):
        super().reset(seed)
        self.agents = ["ann", "eve"]
        return self.observe(self.agents), self.inform(self.agents)


@broken("agents leave", "expected agents to be ['ann'] after step 2", "['ann', 'bob']")
class AgentStays(AfterStep):
    def change(self, *parts):
        if self.turn == 2:
            self.agents = ["ann", "bob"]
        return parts
