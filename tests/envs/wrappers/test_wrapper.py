"""The base of all wrappers: what a failing hook leaves behind, and what changed rewards count."""

from dataclasses import replace

import pytest
from gymnasium import error

from motet.agents import FixedAgent
from motet.algos import collect_rollouts
from motet.envs import make
from motet.envs.wrappers import Wrapper

BOTH = {"agent_0": "a", "agent_1": "bb"}


def story(**kwargs):
    return make("story-length-ratio-v0", num_turns=3, **kwargs)


class Fragile(Wrapper):
    """Fails in a hook while `broken` is set."""

    broken = False

    def after_reset(self, observations, infos, *, seed):
        if self.broken:
            raise OSError("no space left")
        return super().after_reset(observations, infos, seed=seed)

    def after_step(self, memory, actions, result):
        if self.broken:
            raise OSError("no space left")
        return memory, result


class Doubled(Wrapper):
    def after_step(self, memory, actions, result):
        return memory, replace(result, rewards={a: 2 * r for a, r in result.rewards.items()})


class Rebuilt(Wrapper):
    """Pays what it was paid, but says so itself."""

    def after_step(self, memory, actions, result):
        return memory, replace(result, rewards=dict(result.rewards))


def test_a_turn_whose_hook_fails_was_not_played():
    env, sound = Fragile(story()), story()
    env.reset(seed=0)
    sound.reset(seed=0)
    env.broken = True
    with pytest.raises(OSError, match="no space left"):
        env.step(BOTH)
    env.broken = False
    assert env.agents == ["agent_0", "agent_1"]
    while sound.agents:
        assert env.step(BOTH) == sound.step(BOTH)
    assert env.agents == []


def test_an_episode_whose_first_hook_fails_did_not_begin():
    env = Fragile(story())
    env.reset(seed=0)
    env.broken = True
    with pytest.raises(OSError, match="no space left"):
        env.reset()
    env.broken = False
    with pytest.raises(error.ResetNeeded):
        env.step(BOTH)
    assert set(env.reset(seed=0)[0]) == set(BOTH)


def test_a_reset_that_fails_inside_leaves_the_episode_running():
    env = Fragile(story())
    env.reset(seed=0)
    with pytest.raises(IndexError):
        env.reset(options={"row": 99})
    assert env.step(BOTH)[1] == {"agent_0": 1.0, "agent_1": 1.0}


@pytest.mark.parametrize("wrapper", [Doubled, Rebuilt])
def test_changed_rewards_count_for_their_turn_alone(wrapper):
    env = story(early_termination_threshold=0.9, early_termination="branch")
    env.reset(seed=0)
    _, rewards, *_, infos = env.step(BOTH)
    assert rewards["agent_0"] == 3.0
    assert (infos["agent_0"]["turn_reward"], infos["agent_0"]["turns_credited"]) == (1.0, 3)
    env = wrapper(env)
    env.reset(seed=0)
    paid = 6.0 if wrapper is Doubled else 3.0
    _, rewards, *_, infos = env.step(BOTH)
    assert rewards["agent_0"] == paid
    assert (infos["agent_0"]["turn_reward"], infos["agent_0"]["turns_credited"]) == (paid, 1)
    team = {"agent_0": FixedAgent("a"), "agent_1": FixedAgent("bb")}
    node = collect_rollouts(env, team, [0], num_generations=2).levels[0][0]
    assert node.rewards["agent_0"] == (paid, paid)
    assert node.turns_credited == (1, 1)


def test_a_wrapper_that_changes_nothing_keeps_the_credit():
    env = Wrapper(story(early_termination_threshold=0.9, early_termination="branch"))
    team = {"agent_0": FixedAgent("a"), "agent_1": FixedAgent("bb")}
    node = collect_rollouts(env, team, [0], num_generations=2).levels[0][0]
    assert node.rewards["agent_0"] == (1.0, 1.0)
    assert node.turns_credited == (3, 3)


def test_groups_end_early_behind_wrappers_too():
    env = Wrapper(Doubled(story(early_termination_threshold=0.9)))
    team = {"agent_0": FixedAgent("a"), "agent_1": FixedAgent("bb")}
    rollout = collect_rollouts(env, team, [0, 1], num_generations=3)
    assert [len(level) for level in rollout.levels] == [2]


def test_an_episode_that_began_before_the_wrapper_must_begin_again():
    inner = story()
    inner.reset(seed=0)
    env = Wrapper(inner)
    assert env.agents == []
    with pytest.raises(error.ResetNeeded, match=r"before reset\(\)"):
        env.step(BOTH)


@pytest.mark.parametrize("env", [None, "story-length-ratio-v0", 17])
def test_only_environments_can_be_wrapped(env):
    with pytest.raises(TypeError, match="Expected a PettingZoo ParallelEnv to wrap"):
        Wrapper(env)


def test_a_state_of_something_else_is_refused():
    env = Wrapper(story())
    env.reset()
    with pytest.raises(TypeError, match="Expected a state that get_state"):
        env.set_state(env.unwrapped.get_state())
