"""The base of all wrappers: what a failing hook leaves behind, and what changed rewards count."""

from dataclasses import replace

import numpy as np
import pytest
from good_env import Good
from gymnasium import error

from motet.agents import FixedAgent
from motet.algos import collect_rollouts
from motet.envs import make, to_aec, wrappers
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


def test_a_turn_that_fails_half_way_inside_was_not_played():
    class Halfway(Good):
        broken = False

        def reward(self, agent, action):
            if self.broken:
                raise OSError("no space left")
            return super().reward(agent, action)

    inner, sound = Halfway(), Good()
    env = Wrapper(inner)
    assert env.reset(seed=0) == sound.reset(seed=0)
    inner.broken = True
    with pytest.raises(OSError, match="no space left"):
        env.step(dict.fromkeys(env.agents, "a"))
    inner.broken = False
    while sound.agents:
        actions = dict.fromkeys(sound.agents, "a")
        assert env.step(actions) == sound.step(actions)
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


def test_an_env_without_snapshots_is_refused_at_once():
    class Plain(Good):
        get_state = clone = None

    with pytest.raises(TypeError, match=r"to wrap, got .* without get_state, clone: wrappers"):
        Wrapper(Plain())


def test_a_state_of_something_else_is_refused():
    env = Wrapper(story())
    env.reset()
    with pytest.raises(TypeError, match="Expected a state that get_state"):
        env.set_state(env.unwrapped.get_state())


class Drawn(Wrapper):
    """Shows what it draws in an episode."""

    def after_reset(self, observations, infos, *, seed):
        drawn = int(np.random.default_rng(seed).integers(2**62))
        return None, {agent: f"{text} {drawn}" for agent, text in observations.items()}, infos


def test_wrappers_of_a_stack_draw_apart_and_apart_from_the_env():
    drawn = set()
    for seed in range(5):
        env = Drawn(Drawn(Drawn(story())))
        for seen, _ in (env.reset(seed=seed), env.reset(), env.reset()):
            drawn.update(map(int, seen["agent_0"].split()[-3:]))
    assert len(drawn) == 5 * 3 * 3
    assert drawn.isdisjoint(int(np.random.default_rng(i).integers(2**62)) for i in range(5))
    env = Drawn(Drawn(story()))
    batch = [result.observations for result in env.reset_batch([0, 0], seeds=[3, 4])]
    assert batch == [env.reset(seed=seed, options={"row": 0})[0] for seed in (3, 4)]
    assert batch[0] != batch[1]


def returning(**hooks):
    """A wrapper whose hooks return what they should not."""
    return type("Odd", (Wrapper,), {name: lambda *_, r=r, **__: r for name, r in hooks.items()})


@pytest.mark.parametrize("returned", [None, ({}, {}), ("memory", None, {}), 17])
def test_what_after_reset_returns_is_checked(returned):
    env = returning(after_reset=returned)(story())
    sentence = r"Expected \(memory, observations, infos\) from after_reset of Odd"
    with pytest.raises(TypeError, match=sentence):
        env.reset()
    with pytest.raises(TypeError, match=sentence):
        env.reset_batch([0])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda result: None, r"Expected \(memory, result\) from after_step of Odd, got None"),
        (lambda result: result, r"Expected \(memory, result\) from after_step of Odd, got StepRes"),
        (lambda result: (0, "five"), r"Expected \(memory, result\) from after_step of Odd"),
        (
            lambda result: (0, replace(result, rewards={"agent_0": 1.0})),
            r"Expected rewards of \['agent_0', 'agent_1'\] from after_step of Odd",
        ),
        (
            lambda result: (0, replace(result, observations={})),
            r"Expected observations of \['agent_0', 'agent_1'\] from after_step of Odd, got {}",
        ),
        (
            lambda result: (0, replace(result, rewards={"agent_0": 1.0, "agent_1": float("nan")})),
            "Expected a finite reward of agent_1 from after_step of Odd, got nan",
        ),
        (
            lambda result: (0, replace(result, rewards={"agent_0": "much", "agent_1": 0.0})),
            "Expected a number as the reward of agent_0 from after_step of Odd, got 'much'",
        ),
    ],
)
def test_what_after_step_returns_is_checked(change, sentence):
    odd = type("Odd", (Wrapper,), {"after_step": lambda self, memory, actions, r: change(r)})
    env = odd(story())
    env.reset()
    state = env.get_state()
    with pytest.raises((TypeError, ValueError), match=sentence):
        env.step(BOTH)
    with pytest.raises((TypeError, ValueError), match=sentence):
        env.step_batch([state], [BOTH])
    assert env.get_state() == state


def test_a_state_of_another_stack_is_refused():
    env, other = Doubled(story()), Rebuilt(story())
    env.reset()
    other.reset()
    sentence = "Expected a state that get_state.. of Doubled returned, got one of Rebuilt"
    with pytest.raises(TypeError, match=sentence):
        env.set_state(other.get_state())
    with pytest.raises(TypeError, match=sentence):
        env.step_batch([other.get_state()], [BOTH])
    with pytest.raises(TypeError, match="got TextState"):
        env.step_batch([env.unwrapped.get_state()], [BOTH])
    with pytest.raises(TypeError, match="Expected a list of states, got None"):
        env.step_batch(None, None)


def test_a_wrapper_that_forgets_its_parent_is_told():
    class Forgetful(Wrapper):
        def __init__(self, env):
            self.wanted = env

    with pytest.raises(AttributeError, match=r"Forgetful to call super\(\).__init__\(env\) first"):
        Forgetful(story()).reset()


def test_an_aec_env_is_refused():
    with pytest.raises(TypeError, match="Expected a PettingZoo ParallelEnv to wrap"):
        Wrapper(to_aec(story()))


def test_a_wrapper_names_what_it_wraps():
    assert repr(Doubled(Wrapper(story()))) == "Doubled(Wrapper(story-length-ratio-v0))"


@pytest.mark.parametrize(
    ("make_wrapped", "sentence"),
    [
        (
            lambda: wrappers.PromptTemplate(story(), lambda: "x"),
            r"a function of \(observation, agent, turn\) as template",
        ),
        (
            lambda: wrappers.TransformAction(story(), [lambda a, b: a]),
            "a function of one text as func",
        ),
        (
            lambda: wrappers.PickOfK(story(), lambda seen: ["a"], k=1),
            r"a function of \(observation, agent\) as candidates",
        ),
        (
            lambda: wrappers.PickOfK(story(), strategies=[lambda: "a"], writer=FixedAgent("a")),
            "a function of one prompt as strategies of agent_0",
        ),
    ],
)
def test_functions_of_other_parameters_are_refused_when_built(make_wrapped, sentence):
    with pytest.raises(TypeError, match=sentence):
        make_wrapped()
