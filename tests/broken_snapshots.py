"""Environments whose snapshots or clones break a rule, or that only PettingZoo's tests catch."""

import copy
from dataclasses import replace

import numpy as np
from good_env import FixedStart, Good, broken
from pettingzoo.utils import BaseParallelWrapper

from motet.envs import TextSpace


@broken("snapshots", "methods get_state, set_state, clone", "get_state, clone is missing")
class NoSnapshots(Good):
    get_state = None
    clone = None


@broken("snapshots", "observations of step 3 to be the same after set_state")
class ForgetsTheTurn(Good):
    def set_state(self, state, *, seed=None):
        super().set_state(replace(state, turn=0), seed=seed)


@broken("snapshots", "agents before step")
class ForgetsTheAgents(Good):
    def set_state(self, state, *, seed=None):
        agents = self.agents
        super().set_state(state, seed=seed)
        self.agents = agents


@broken("snapshots", "to be the same after set_state")
class StateIsTheLiveObject(Good):
    """Its snapshot shares a list with the running episode."""

    def __init__(self, num_turns=3):
        super().__init__(num_turns)
        self.said = []

    def reset(self, seed=None, options=None):
        self.said = []
        return super().reset(seed)

    def step(self, actions):
        self.said.extend(actions.values())
        return super().step(actions)

    def inform(self, agents):
        return {agent: {"texts": len(self.said)} for agent in agents}

    def get_state(self):
        return super().get_state(), self.said

    def set_state(self, state, *, seed=None):
        super().set_state(state[0], seed=seed)
        self.said = state[1]


@broken("snapshots", "expected set_state(state, seed=0) and one step to give the same each time")
class BranchesIgnoreTheirSeed(Good):
    def set_state(self, state, *, seed=None):
        super().set_state(state)
        if seed is not None:
            self.rng = np.random.default_rng()


@broken("snapshots", "expected reset() after set_state(state) to give the episode")
class StateWithoutStream(FixedStart):
    def observe(self, agents):
        if self.turn == 0:
            self.topic = str(self.rng.random())
        return dict.fromkeys(agents, f"{self.topic} {self.turn} {self.length}")

    def get_state(self):
        return super().get_state(), self.topic

    def set_state(self, state, *, seed=None):
        rng = self.rng
        super().set_state(state[0], seed=seed)
        self.rng, self.topic = rng, state[1]

    def clone(self, *, seed=None):
        return copy.deepcopy(self)


@broken("states pickle", "what pickle can copy", "lambda")
class StateWithFunction(Good):
    def get_state(self):
        return super().get_state(), lambda: None

    def set_state(self, state, *, seed=None):
        super().set_state(state[0], seed=seed)


@broken("clones are whole", "the same object")
class CloneIsTheOriginal(Good):
    def clone(self, *, seed=None):
        return self


@broken("clones are whole", "clone() of WrapperWithoutClone(Good", "but got Good")
class WrapperWithoutClone(BaseParallelWrapper):
    def __init__(self):
        super().__init__(Good())


@broken("clones are apart", "an action space of its own for ann")
class CloneSharesSpaces(Good):
    def clone(self, *, seed=None):
        twin = super().clone(seed=seed)
        twin.spaces = self.spaces
        return twin


@broken("clones are apart", "after clones were played to their end")
class CloneSharesGenerator(Good):
    def clone(self, *, seed=None):
        twin = super().clone(seed=seed)
        if seed is None:
            twin.rng = self.rng
        return twin

    def observe(self, agents):
        drawn = self.rng.bit_generator.state["state"]["state"]
        self.rng.random()
        return {a: f"{a} {self.turn} {drawn}" for a in agents}


@broken("clones are apart", "observations of step 1 to be the same in a clone")
class CloneStartsAnew(Good):
    def clone(self, *, seed=None):
        twin = super().clone(seed=seed)
        twin.rng = np.random.default_rng(5)
        return twin


@broken("clones are apart", "its next episode is another one")
class ClonesCount(FixedStart):
    """All clones share a counter that decides the next episode."""

    def __init__(self, num_turns=3, counter=None):
        super().__init__(num_turns)
        self.counter = [0] if counter is None else counter
        self.topic = 0

    def reset(self, seed=None, options=None):
        self.counter[0] = 0 if seed is not None else self.counter[0] + 1
        self.topic = self.counter[0]
        return super().reset(seed)

    def observe(self, agents):
        return dict.fromkeys(agents, f"{self.topic} {self.turn} {self.length}")

    def get_state(self):
        return super().get_state(), self.topic, self.counter[0]

    def set_state(self, state, *, seed=None):
        super().set_state(state[0], seed=seed)
        self.topic, self.counter[0] = state[1:]

    def clone(self, *, seed=None):
        twin = type(self)(self.num_turns, self.counter)
        twin.set_state(self.get_state(), seed=seed)
        return twin


@broken("PettingZoo's parallel_seed_test", "Incorrect action seeding")
class UnseededActions(Good):
    def __init__(self, num_turns=3):
        super().__init__(num_turns)
        for agent in self.spaces:
            self.spaces[agent] = UnseededSpace()


class UnseededSpace(TextSpace):
    def sample(self, mask=None, probability=None):
        return str(np.random.default_rng().random())


@broken("PettingZoo's seed_test of parallel_to_aec", "render_mode")
class NoRenderMode(Good):
    render_mode = property()
