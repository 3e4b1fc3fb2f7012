"""How learners step branches: no layer is lost, and both ways give the same records."""

from dataclasses import replace

import numpy as np
import pytest
from good_env import Good
from pettingzoo.utils import BaseParallelWrapper

from motet.agents import FixedAgent
from motet.algos import collect_rollouts
from motet.algos.rollouts.returns import rollout_returns
from motet.envs import RewardWorkers, StreamedRows, TextBatch, TextEnv, make
from motet.envs.simulator import make_simulator, steps_in_batches
from motet.envs.wrappers import TimeLimit, Wrapper

TEAM = {"agent_0": FixedAgent("a"), "agent_1": FixedAgent("bb")}


class Forwards(BaseParallelWrapper):
    """PettingZoo's own base, whose clone() is that of the env inside."""

    def step(self, actions):
        observations, rewards, *rest = self.env.step(actions)
        return observations, {agent: reward + 100 for agent, reward in rewards.items()}, *rest


class Foreign(Wrapper):
    """Overrides `step`, and is cloned for every branch."""

    def step(self, actions):
        return super().step(actions)


class PaysOne(Wrapper):
    """Pays otherwise, without a word in the infos."""

    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        return observations, dict.fromkeys(rewards, 1.5), *rest


def story(**kwargs):
    return make("story-length-ratio-v0", **({"num_turns": 3} | kwargs))


def credited(**kwargs):
    return story(early_termination_threshold=0.9, early_termination="branch", **kwargs)


@pytest.mark.parametrize(
    ("wrap", "named"),
    [
        (Forwards, r"Forwards\(TextEnv\) .* got TextEnv"),
        (lambda env: Wrapper(Forwards(env)), r"Wrapper\(Forwards\(TextEnv\)\) .* got Wrapper\("),
        (
            lambda env: TimeLimit(Wrapper(Forwards(Wrapper(env))), 2),
            r"TimeLimit\(Wrapper\(Forwards\(Wrapper\(TextEnv\)\)\)\) ",
        ),
    ],
)
def test_a_layer_that_clones_would_lose_is_refused(wrap, named):
    env = wrap(story())
    with pytest.raises(TypeError, match=f"Expected clone.. of {named}.*drops itself"):
        collect_rollouts(env, TEAM, [0], num_generations=2)
    with pytest.raises(TypeError, match=f"Expected clone.. of {named}"):
        TextBatch(env).reset(rows=[0])
    with pytest.raises(TypeError, match=f"Expected clone.. of {named}"):
        TextBatch(env, reward_workers=RewardWorkers(2))


@pytest.mark.parametrize("make_env", [story, lambda: Foreign(story()), Good])
def test_numpy_seeds_are_seeds(make_env):
    first, second = TextBatch(make_env()), TextBatch(make_env())
    assert first.reset(seeds=np.arange(3)) == second.reset(seeds=[0, 1, 2])


@pytest.mark.parametrize("discount", [1.0, 0.5])
def test_the_credit_of_an_early_stop_is_the_same_clone_by_clone(discount):
    nodes, returns = [], []
    for env in (credited(), Foreign(credited()), Wrapper(Foreign(Wrapper(credited())))):
        rollout = collect_rollouts(env, TEAM, [0], num_generations=2)
        nodes.append(rollout.levels[0][0])
        returns.append(rollout_returns(rollout, discount)[0][0]["agent_0"].tolist())
    assert nodes[0].rewards["agent_0"] == (1.0, 1.0)
    assert nodes[0].turns_credited == (3, 3)
    assert nodes[1] == nodes[2] == nodes[0]
    assert returns[1] == returns[2] == returns[0] == [1 + discount + discount**2] * 2


def test_rewards_that_a_foreign_layer_changes_count_once():
    node = collect_rollouts(PaysOne(credited()), TEAM, [0], num_generations=2).levels[0][0]
    assert node.rewards == {"agent_0": (1.5, 1.5), "agent_1": (1.5, 1.5)}
    assert node.turns_credited == (1, 1)


def test_infos_of_an_env_that_is_no_text_env_mean_what_they_mean_there():
    class Credits(Good):
        def inform(self, agents):
            return {agent: {"turn_reward": 1.0, "turns_credited": 2} for agent in agents}

        def reward(self, agent, action):
            return 2.0

    team = dict.fromkeys(("ann", "bob"), FixedAgent("a"))
    node = collect_rollouts(Credits(), team, [0], num_generations=2).levels[0][0]
    assert node.rewards["ann"] == (2.0, 2.0)
    assert node.turns_credited == (1, 1)


class Loud(TextEnv):
    """Writes its first prompts and infos by the two public methods that `reset` uses."""

    def initial_state(self, row):
        state = super().initial_state(row)
        return replace(state, observations=(tuple(map(str.upper, state.observations[0])),))

    def infos(self, state):
        return {agent: {**info, "loud": True} for agent, info in super().infos(state).items()}


@pytest.mark.parametrize("wrap", [lambda env: env, Wrapper])
def test_what_a_subclass_makes_of_the_start_is_in_batches_too(wrap):
    env = wrap(Loud([{"prompt": "rain"}, {"prompt": "snow"}], lambda a, b: [1.0] * len(a)))
    assert steps_in_batches(env)
    batch = TextBatch(env)
    assert batch.reset(rows=[1]) == [dict.fromkeys(TEAM, "SNOW")]
    assert (batch.observations[0], batch.infos[0]) == env.reset(options={"row": 1})


def test_whoever_enters_a_state_of_a_batch_goes_on_in_the_order_of_rows():
    env = story(shuffle=True)
    env.reset(seed=3)
    result = env.reset_batch([2])[0]
    following = env.clone().reset()
    twin = env.clone()
    twin.reset(options={"row": 2})
    assert twin.get_state() == result.state
    env.set_state(result.state)
    assert env.reset() == following


def test_a_turn_reads_each_row_once():
    class Counted(list):
        read = 0

        def __getitem__(self, index):
            type(self).read += 1
            return super().__getitem__(index)

    rows = Counted({"prompt": str(i)} for i in range(4))
    env = TextEnv(
        rows,
        lambda a, b: [0.0] * len(a),
        num_turns=2,
        transition=lambda prompt, agent_completions, num_agents: [prompt] * num_agents,
    )
    simulator = make_simulator(env)
    states = [result.state for result in simulator.start([3, 0, 3])]
    Counted.read = 0
    simulator.step(states, [dict.fromkeys(TEAM, "")] * 3, range(3))
    assert Counted.read == 2


def test_a_turn_over_a_stream_reads_it_forwards():
    class Letters:
        starts = 0

        def __iter__(self):
            type(self).starts += 1
            return iter([{"prompt": str(i)} for i in range(40)])

    env = TextEnv(
        StreamedRows(Letters(), cache_size=4),
        lambda a, b: [0.0] * len(a),
        num_turns=2,
        transition=lambda prompt, agent_completions, num_agents: [prompt] * num_agents,
    )
    simulator = make_simulator(env)
    states = [result.state for result in simulator.start([0, 30])] * 3
    Letters.starts = 0
    results = simulator.step(states, [dict.fromkeys(TEAM, "")] * 6, range(6))
    assert [result.observations["agent_0"] for result in results] == ["0", "30"] * 3
    assert Letters.starts <= 1


class Whispers(Wrapper):
    """Has a global view of its own."""

    def state(self):
        return f"turn {len(self.env.get_state().actions)}"


@pytest.mark.parametrize(
    "wrap", [lambda env: env, Wrapper, Foreign, lambda env: Wrapper(Wrapper(env))]
)
def test_nodes_get_the_global_view_of_their_state(wrap):
    env = wrap(story(num_turns=2))
    rollout = collect_rollouts(env, TEAM, [0, 3], num_generations=2, with_state=True)
    plain = collect_rollouts(env, TEAM, [0, 3], num_generations=2)
    for level, plain_level in zip(rollout.levels, plain.levels, strict=True):
        for node, other in zip(level, plain_level, strict=True):
            assert other == replace(node, state="")
            env.reset(options={"row": node.row})
            if node.turn == 2:
                env.step({"agent_0": "a", "agent_1": "bb"})
            assert node.state == "\n\n".join(env.state())
            assert node.state.endswith(f"> {node.observations['agent_1']}")


def test_a_wrapper_may_have_a_view_of_its_own():
    rollout = collect_rollouts(
        Whispers(story(num_turns=2)), TEAM, [0], num_generations=1, with_state=True
    )
    assert [node.state for node in rollout.nodes()] == ["turn 0", "turn 1"]


def test_an_env_without_a_view_has_none_and_numbers_are_refused():
    team = {name: FixedAgent("a") for name in Good().possible_agents}
    rollout = collect_rollouts(Good(), team, [0], num_generations=1, with_state=True)
    assert {node.state for node in rollout.nodes()} == {""}

    class Numbers(Good):
        def state(self):
            return np.zeros(3)

    with pytest.raises(TypeError, match=r"state\(\) of Numbers to return texts"):
        collect_rollouts(Numbers(), team, [0], num_generations=1, with_state=True)
