"""What every wrapper keeps to, alone and in stacks, around a TextEnv and around another env."""

import os

import numpy as np
import pytest
from good_env import Good
from hypothesis import given, settings
from hypothesis import strategies as st
from pettingzoo.utils.conversions import parallel_to_aec

from motet.agents import RandomAgent
from motet.algos import collect_rollouts
from motet.envs import check_env, make
from motet.envs.wrappers import (
    OrderEnforcing,
    PromptTemplate,
    RecordEpisodeStatistics,
    RecordTranscripts,
    RewardShaping,
    TimeLimit,
    TransformAction,
    Wrapper,
    extract_tag,
    strip,
)

WRAPPERS = {
    "nothing": Wrapper,
    "time limit": lambda env: TimeLimit(env, 2),
    "late time limit": lambda env: TimeLimit(env, 9),
    "order": OrderEnforcing,
    "statistics": RecordEpisodeStatistics,
    "raw": lambda env: RewardShaping(env, "raw"),
    "improvement": lambda env: RewardShaping(env, "improvement"),
    "last turn": lambda env: RewardShaping(env, "last_turn"),
    "template": lambda env: PromptTemplate(env, "{agent} {turn} {num_agents} {observation}"),
    "template function": lambda env: PromptTemplate(env, lambda seen, agent, turn: f"{turn}{seen}"),
    "transformed": lambda env: TransformAction(env, [extract_tag("a", default=None), strip]),
    "transcripts": lambda env: RecordTranscripts(env, os.devnull),
}
ALL = list(WRAPPERS)
STACKS = {
    **{name: [name] for name in ALL},
    "all": [*ALL[:4], "statistics", "improvement", *ALL[8:]],
    "all in the other order": [*reversed(ALL[8:]), "improvement", "statistics", *ALL[:4]],
    "twice": ["template", "time limit", "improvement"] * 2,
}
TEXTS = ("", "a", " ab ", "<a>xyz</a>", "<a>x</a><a> y ", "Zwölf Zeichen", "é世🎵\n" * 3)
every_stack = pytest.mark.parametrize("stack", STACKS)


def wrapped(env, stack):
    for name in STACKS[stack]:
        env = WRAPPERS[name](env)
    return env


def stories(**kwargs):
    """A task whose branches end early and are credited then."""
    defaults = {"early_termination_threshold": 0.99, "early_termination": "branch"}
    return make("story-length-ratio-v0", num_turns=3, shuffle=True, **(defaults | kwargs))


def parts(result):
    return (
        result.observations,
        result.rewards,
        result.terminations,
        result.truncations,
        result.infos,
    )


@every_stack
def test_check_env_passes_around_a_text_env(stack):
    check_env(lambda: wrapped(make("story-length-ratio-v0", num_turns=3, shuffle=True), stack))


@every_stack
def test_check_env_passes_around_another_env(stack):
    check_env(lambda: wrapped(Good(), stack))


@every_stack
@settings(max_examples=20)
@given(data=st.data())
def test_step_batch_equals_single_steps(stack, data):
    env = wrapped(stories(), stack)
    action = st.fixed_dictionaries(dict.fromkeys(env.possible_agents, st.sampled_from(TEXTS)))
    joint_actions = data.draw(st.lists(action, min_size=1, max_size=4))
    env.reset(seed=data.draw(st.integers(0, 3)))
    while env.agents:
        state = env.get_state()
        results = env.step_batch([state] * len(joint_actions), joint_actions)
        assert env.get_state() == state
        for actions, result in zip(joint_actions, results, strict=True):
            env.set_state(state)
            assert env.step(actions) == parts(result)
            assert env.get_state() == result.state
            assert result.state.ended == result.ended == (not env.agents)


@every_stack
def test_reset_batch_equals_single_resets(stack):
    env = wrapped(stories(), stack)
    rows = [3, 0, 3]
    for row, result in zip(rows, env.reset_batch(rows, seeds=[5, 6, 7]), strict=True):
        assert env.reset(options={"row": row}) == (result.observations, result.infos)
        said = dict.fromkeys(env.agents, " text ")
        assert parts(env.step_batch([result.state], [said])[0]) == env.step(said)


def expect_tree(env, rollout, node, depth):
    """Play every branch of a node in a clone, and compare what came with what was collected."""
    assert node.observations.keys() == set(env.agents)
    for j, picks in enumerate(node.joint_actions):
        branch = env.clone()
        actions = {
            name: node.completions[name][k].text
            for name, k in zip(node.completions, picks, strict=True)
        }
        observations, rewards, *_ = branch.step(actions)
        for name, reward in rewards.items():
            collected = node.rewards[name][j] * node.turns_credited[j]
            assert collected == pytest.approx(reward, abs=1e-12)
        assert node.ended[j] == (not branch.agents)
        if branch.agents:
            child = rollout.levels[depth + 1][node.children[j]]
            assert child.observations == {name: observations[name] for name in branch.agents}
            expect_tree(branch, rollout, child, depth + 1)


@every_stack
@pytest.mark.parametrize("make_env", [stories, Good])
def test_collected_rollouts_equal_branches_played_by_hand(stack, make_env):
    env = wrapped(make_env(), stack)
    team = {name: RandomAgent(list(TEXTS), seed=i) for i, name in enumerate(env.possible_agents)}
    rollout = collect_rollouts(env, team, [1, 2], num_generations=2, joint_mode="cross", seed=0)
    assert len(rollout.levels) > 1
    for root in rollout.levels[0]:
        options = {"row": root.row} if make_env is stories else None
        seen, _ = env.reset(seed=root.row, options=options)
        assert root.observations == seen
        expect_tree(env, rollout, root, 0)


@every_stack
@pytest.mark.parametrize("make_env", [stories, Good])
def test_the_aec_form_pays_the_same(stack, make_env):
    env = wrapped(make_env(), stack)
    env.reset(seed=3)
    totals = dict.fromkeys(env.possible_agents, 0.0)
    while env.agents:
        for agent, reward in env.step(dict.fromkeys(env.agents, " ab "))[1].items():
            totals[agent] += reward
    aec = parallel_to_aec(wrapped(make_env(), stack))
    aec.reset(seed=3)
    paid = dict.fromkeys(env.possible_agents, 0.0)
    for agent in aec.agent_iter():
        _, reward, terminated, truncated, _ = aec.last()
        paid[agent] += reward
        aec.step(None if terminated or truncated else " ab ")
    assert paid == totals


@every_stack
def test_the_env_inside_shows_through(stack):
    inner = stories(render_mode="ansi")
    env = wrapped(inner, stack)
    env.reset(seed=0)
    env.step(dict.fromkeys(env.agents, "text"))
    assert env.unwrapped is inner
    assert env.render() == inner.render()
    assert np.array_equal(env.state(), inner.state())
    assert env.metadata is inner.metadata
    assert env.spec is inner.spec
    assert env.num_turns == 3
    for agent in env.possible_agents:
        assert env.action_space(agent) is inner.action_space(agent)
    assert str(env).endswith("(story-length-ratio-v0" + ")" * len(STACKS[stack]))


@pytest.mark.parametrize("name", ALL)
def test_only_envs_are_wrapped(name):
    for thing in (None, "story-length-ratio-v0", {}):
        with pytest.raises(TypeError, match="Expected a PettingZoo ParallelEnv to wrap, got"):
            WRAPPERS[name](thing)
