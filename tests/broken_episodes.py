"""Environments that break a rule which `check_env` sees only in several episodes."""

import copy
import math
import random

import numpy as np
from good_env import AfterStep, Good, broken

from motet.envs import TextSpace


@broken("episodes end", "within 1000 turns")
class Endless(Good):
    def ends(self, agent):
        return False


@broken("num_turns", "at most 3 turns, but the episode had 4")
class OneTurnMore(Good):
    def ends(self, agent):
        return self.turn > self.num_turns


@broken("same spaces", "env.observation_space('ann')")
class NewObservationSpaces(Good):
    def observation_space(self, agent):
        return TextSpace()


@broken("same spaces", "env.action_space('ann')")
class NewActionSpaceAtReset(Good):
    def reset(self, seed=None, options=None):
        self.spaces = copy.deepcopy(self.spaces)
        return super().reset(seed)

    def observation_space(self, agent):
        return FIXED_SPACE


FIXED_SPACE = TextSpace()


@broken("determinism", "reset(seed=0)", "in a second environment", "observations after reset")
class UnseededReset(Good):
    def reset(self, seed=None, options=None):
        return super().reset()


@broken("determinism", "infos after reset")
class UnseededInfo(Good):
    def inform(self, agents):
        return {a: {"number": np.random.default_rng().random()} for a in agents}


@broken("determinism", "observations of step 2")
class UnseededSecondTurn(AfterStep):
    def change(self, observations, *rest):
        if self.turn == 2:
            observations = dict.fromkeys(observations, str(np.random.default_rng().random()))
        return observations, *rest


@broken("determinism", "rewards of step 3")
class UnseededReward(Good):
    def reward(self, agent, action):
        return float(np.random.default_rng().random()) if self.turn == 3 else 0.0


@broken("determinism", "agents of step 2 are ['ann'] and then []")
class UnseededEnd(Good):
    episodes = 0

    def reset(self, seed=None, options=None):
        UnseededEnd.episodes += 1
        return super().reset(seed)

    def ends(self, agent):
        return super().ends(agent) or (self.turn == 2 and UnseededEnd.episodes > 1)


@broken("determinism", "in one that has played before", "infos after reset")
class RemembersEpisodes(Good):
    episodes = 0

    def inform(self, agents):
        self.episodes += self.turn == 0
        return {agent: {"episode": self.episodes} for agent in agents}


@broken("seeded stream", "reset() after reset(seed=0)", "observations after reset")
class StreamOnlyWhereSeeded(Good):
    def reset(self, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        return super().reset()


@broken("global random generators", "random's global generator changed")
class GlobalRandom(Good):
    def reset(self, seed=None, options=None):
        if seed is not None:
            random.seed(seed)
        random.random()
        return super().reset(seed)


@broken("global random generators", "numpy.random's global generator changed")
class GlobalNumpy(Good):
    def reset(self, seed=None, options=None):
        np.random.seed(0)
        return super().reset(seed)


@broken("global random generators", "torch's global generator changed")
class GlobalTorch(Good):
    def reset(self, seed=None, options=None):
        import torch

        torch.manual_seed(0)
        torch.rand(1)
        return super().reset(seed)


@broken("unknown options", "ValueError: which option?")
class RefusesOptions(Good):
    def reset(self, seed=None, options=None):
        if options:
            raise ValueError("which option?")
        return super().reset(seed)


@broken("unknown options", "expected reset(options=", "to give", "but it gave")
class OptionsChangeTheStart(Good):
    def reset(self, seed=None, options=None):
        return super().reset(seed if options is None else seed + 1)


@broken("step after the end", "expected step({})")
class StepsOnForNobody(Good):
    def step(self, actions):
        return super().step(actions) if self.agents else ({}, {}, {}, {}, {})


@broken("step after the end", "expected step({'ann'")
class StepsOnForAgents(Good):
    def step(self, actions):
        if not self.agents and actions:
            return {}, {}, {}, {}, {}
        return super().step(actions)


class Lenient(Good):
    """Fills in what is missing, so that each subclass can accept one thing."""

    def step(self, actions):
        return super().step(self.mend(actions) if self.agents else actions)


@broken("bad actions", "where the action of ann is missing")
class AcceptsMissing(Lenient):
    def mend(self, actions):
        return dict.fromkeys(self.agents, "") | actions


@broken("bad actions", "where 'somebody_else', who is no agent, acts too")
class AcceptsUnknown(Lenient):
    def mend(self, actions):
        return {a: x for a, x in actions.items() if a in self.agents}


@broken("bad actions", "where the action of ann is None")
class AcceptsNone(Lenient):
    def mend(self, actions):
        return {a: "" if x is None else x for a, x in actions.items()}


@broken("bad actions", "where the action of ann is b'bytes'")
class AcceptsBytes(Lenient):
    def mend(self, actions):
        return {a: x.decode() if isinstance(x, bytes) else x for a, x in actions.items()}


@broken("bad actions", "names 'somebody_else'", "ValueError: bad actions")
class NamesNobody(Good):
    def check(self, actions):
        try:
            super().check(actions)
        except KeyError:
            raise ValueError("bad actions") from None


@broken("bad actions", "a ValueError, TypeError or KeyError", "AttributeError: ann has no strip")
class FailsLater(Good):
    def check(self, actions):
        if not all(isinstance(action, str) for action in actions.values()):
            raise AttributeError("ann has no strip")
        super().check(actions)


class Picky(Good):
    """Samples only plain words, so that only the unusual texts reach the fault."""

    def __init__(self, num_turns=3):
        super().__init__(num_turns)
        for agent in self.spaces:
            self.spaces[agent] = TextSpace(samples=["word", "words"])


@broken("any text", "where every action is ''", "ZeroDivisionError")
class FailsForEmptyText(Picky):
    def reward(self, agent, action):
        return 1 / len(action)


@broken("any text", r"where every action is '\n\n\n'", "IndexError")
class FailsForBlankText(Picky):
    def reward(self, agent, action):
        return float(len(action.split()[0])) if action else 0.0


@broken("any text", "UnicodeEncodeError")
class FailsForEmoji(Picky):
    def reward(self, agent, action):
        return float(len(action.encode("latin-1")))


@broken("any text", "where every action is 'word word", "OverflowError")
class FailsForLongText(Picky):
    def reward(self, agent, action):
        return 1 / math.exp(len(action))


@broken("any text", "where actions are unusual texts", "IndexError")
class FailsWhereOnlyOneIsEmpty(Picky):
    def check(self, actions):
        super().check(actions)
        if len({not action for action in actions.values()}) == 2:
            raise IndexError("ann's text has no counterpart")
