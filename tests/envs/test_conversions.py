"""Views of a parallel env: agent by agent for PettingZoo's AEC API, one agent for Gymnasium."""

import contextlib
import copy
import io
import pickle
import warnings

import gymnasium
import numpy as np
import pytest
from asymmetric_envs import crowd
from good_env import Cut, Good
from gymnasium import error, spaces
from gymnasium.utils.env_checker import check_env as check_gymnasium
from gymnasium.utils.env_checker import data_equivalence
from pettingzoo.test import api_test, render_test, seed_test
from stable_baselines3.common.env_checker import check_env as check_sb3

from motet.envs import TextEnv, make, to_aec, to_gymnasium
from motet.envs.wrappers import PickOfK

LENGTHS = ["x" * 10 * (i + 1) for i in range(8)]
AGENTS = ["agent_0", "agent_1"]


def story(**kwargs):
    return make("story-length-ratio-v0", num_turns=2, **kwargs)


def picks(**kwargs):
    return PickOfK(story(**kwargs), LENGTHS)


def ragged(**kwargs):
    """Offer one candidate to the first agent, and two to the second."""
    return PickOfK(story(**kwargs), {"agent_0": ["x"], "agent_1": ["x", "xx"]}, k=3)


def quietly(test, *arguments):
    with contextlib.redirect_stdout(io.StringIO()):
        test(*arguments)


# --- AEC -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make_env", [story, picks, ragged, Good])
def test_seed_test_passes(make_env):
    seed_test(lambda: to_aec(make_env()))


@pytest.mark.parametrize("make_env", [story, picks])
def test_render_test_passes(make_env):
    quietly(render_test, lambda render_mode: to_aec(make_env(render_mode=render_mode)))


@pytest.mark.parametrize("make_env", [picks, ragged])
def test_api_test_passes_where_observations_are_arrays(make_env):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quietly(api_test, to_aec(make_env()))


@pytest.mark.filterwarnings("ignore")
def test_api_test_cannot_pass_with_texts():
    """Where this fails, PettingZoo has changed: then the docstring of `to_aec` must, too."""
    with pytest.raises(AttributeError, match="'str' object has no attribute 'dtype'"):
        quietly(api_test, to_aec(story()))


def test_agents_are_asked_one_after_the_other_and_then_the_turn_is_played():
    aec, parallel = to_aec(story()), story()
    aec.reset(seed=0)
    parallel.reset(seed=0)
    texts = {"agent_0": "four", "agent_1": "ten letter"}
    for agent in AGENTS:
        assert aec.agent_selection == agent
        assert aec.last()[0] == "Describe a city in the clouds:"
        aec.step(texts[agent])
    observations, rewards, *_ = parallel.step(texts)
    assert [aec.observe(agent) for agent in AGENTS] == list(observations.values())
    assert aec.rewards == rewards == dict.fromkeys(AGENTS, 1.0)


# --- Gymnasium -------------------------------------------------------------------------------

VIEWS = {
    "texts": lambda **kwargs: to_gymnasium(story(**kwargs)),
    "picks": lambda **kwargs: to_gymnasium(picks(**kwargs)),
    "one number": lambda **kwargs: to_gymnasium(picks(**kwargs), joint_action="discrete"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_gymnasiums_check_passes(view):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*No render fps was declared")  # it is text
        quietly(check_gymnasium, VIEWS[view]())
        quietly(check_gymnasium, VIEWS[view](render_mode="ansi"))


@pytest.mark.parametrize("view", ["picks", "one number"])
def test_the_check_of_stable_baselines3_passes(view):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_sb3(VIEWS[view]())


def test_spaces_of_texts_picks_and_numbers():
    texts, numbers, number = (VIEWS[view]() for view in VIEWS)
    assert list(texts.observation_space) == list(texts.action_space) == AGENTS
    size = picks().observation_space("agent_0").shape[0]
    assert numbers.observation_space == spaces.Box(-1, 1, (2 * size,), np.float32)
    assert numbers.action_space == spaces.MultiDiscrete([8, 8])
    assert number.observation_space == numbers.observation_space
    assert number.action_space == spaces.Discrete(64)
    assert texts.spec.id == numbers.spec.id == "story-length-ratio-v0"


def test_an_episode_is_that_of_the_env_inside():
    env, inside = to_gymnasium(picks()), picks()
    observation, infos = env.reset(seed=0)
    seen, infos_inside = inside.reset(seed=0)
    np.testing.assert_array_equal(observation, np.concatenate(list(seen.values())))
    assert data_equivalence(infos, infos_inside)
    for ended in (False, True):
        observation, reward, terminated, truncated, infos = env.step(np.array([1, 4]))
        seen, _, _, _, infos_inside = inside.step({"agent_0": 1, "agent_1": 4})
        np.testing.assert_array_equal(observation, np.concatenate(list(seen.values())))
        assert data_equivalence(infos, infos_inside)
        assert (type(reward), reward) == (float, 1.0)
        assert (terminated, truncated) == (ended, False)
        assert {type(terminated), type(truncated)} == {bool}
    with pytest.raises(error.ResetNeeded):
        env.step(np.array([1, 4]))


def test_one_number_holds_the_first_agents_pick_in_its_highest_digit():
    env = to_gymnasium(picks(), joint_action="discrete")
    env.reset(seed=0)
    infos = env.step(np.int64(8 * 3 + 5))[4]
    assert [infos[agent]["text"] for agent in AGENTS] == [LENGTHS[3], LENGTHS[5]]


def test_the_team_earns_the_mean_or_the_sum():
    def task():
        return TextEnv(
            [{"prompt": "Rain"}],
            lambda a, b: {"agent_0": [float(len(x)) for x in a], "agent_1": [1.0] * len(b)},
        )

    texts = {"agent_0": "abc", "agent_1": ""}
    for arguments, expected in (({}, 2.0), ({"reward": "sum"}, 4.0)):
        env = to_gymnasium(task(), **arguments)
        env.reset()
        assert env.step(texts)[1] == expected


def test_agents_that_left_see_nothing_do_nothing_and_earn_nothing():
    env = to_gymnasium(PickOfK(Good(), ["a", "bc"]), reward="sum")
    env.reset(seed=0)
    size = env.observation_space.shape[0] // 2
    for is_there in (True, False):
        observation, reward, terminated, _, infos = env.step(np.array([1, 1]))
        assert observation[:size].any()
        assert observation[size:].any() == is_there
        assert not terminated
        assert list(infos) == ["ann", "bob"]
    assert reward == 2 / (1 + 2 + 2), "bob's last reward counts"
    assert env.env.agents == ["ann"]
    np.testing.assert_array_equal(env.action_masks(), [True, True, True, False])
    observation, reward, terminated, truncated, infos = env.step(np.array([1, 0]))
    assert observation[:size].any()
    assert not observation[size:].any()
    assert list(infos) == ["ann"]
    assert reward == 1 / (1 + 2 + 3)
    assert (terminated, truncated) == (True, False)
    texts = to_gymnasium(Good(), reward="mean")
    texts.reset(seed=0)
    for _ in range(3):
        observation, reward, *_ = texts.step({"ann": "bc", "bob": ""})
    assert observation["bob"] == ""
    assert observation in texts.observation_space
    assert reward == 1 / (1 + 2 + 3) / 2, "the mean is over all agents"


def test_an_agent_that_left_sees_the_shortest_text_of_its_space():
    class Digits(Good):
        def observation_space(self, agent):
            return spaces.Text(9, min_length=2, charset="0123456789")

        def observe(self, agents):
            return dict.fromkeys(agents, "012")

    env = to_gymnasium(Digits())
    env.reset(seed=0)
    for _ in range(2):
        observation, *_ = env.step({"ann": "", "bob": ""})
    assert observation == {"ann": "012", "bob": "00"}
    assert observation in env.observation_space


def test_a_cut_from_outside_is_a_truncation():
    env = to_gymnasium(Cut())
    env.reset(seed=0)
    flags = [env.step({"ann": "", "bob": ""})[2:4] for _ in range(3)]
    assert flags == [(False, False), (False, False), (False, True)]


def test_masks_are_joined():
    env = to_gymnasium(ragged())
    env.reset(seed=0)
    np.testing.assert_array_equal(env.action_masks(), [1, 0, 0, 1, 1, 0])
    assert env.action_masks().dtype == bool
    env = to_gymnasium(ragged(), joint_action="discrete")
    env.reset(seed=0)
    np.testing.assert_array_equal(env.action_masks(), [1, 1, 0] + [0] * 6)
    env.step(1)
    with pytest.raises(ValueError, match="from 0 to 0 as the action of agent_0, got 1"):
        env.step(4)
    with pytest.raises(error.ResetNeeded):
        to_gymnasium(ragged()).action_masks()
    texts = to_gymnasium(story())
    texts.reset()
    with pytest.raises(TypeError, match="PickOfK"):
        texts.action_masks()


def test_snapshots_and_clones():
    env = to_gymnasium(ragged())
    env.reset(seed=0)
    state = env.get_state()
    assert pickle.loads(pickle.dumps(state)) == state == env.get_state()
    first = env.step(np.array([0, 1]))
    masks = env.action_masks()
    env.step(np.array([0, 0]))
    np.testing.assert_array_equal(env.action_masks(), [1, 0, 0, 1, 0, 0], "nothing to choose")
    env.set_state(state)
    twin = env.clone()
    for branch in (env, twin):
        np.testing.assert_array_equal(branch.action_masks(), [1, 0, 0, 1, 1, 0])
        assert data_equivalence(branch.step(np.array([0, 1])), first)
        np.testing.assert_array_equal(branch.action_masks(), masks)
    twin.step(np.array([0, 0]))
    assert env.env.agents
    assert not twin.env.agents
    assert twin.action_space is not env.action_space
    assert twin.np_random is not env.np_random
    with pytest.raises(TypeError, match="a state that get_state"):
        env.set_state(env.env.get_state())


def test_a_seed_gives_a_clone_a_stream_of_its_own():
    env = to_gymnasium(story(shuffle=True))
    env.reset(seed=0)
    state = env.get_state()
    orders = []
    for seed in (1, 1, 2, None):
        twin = env.clone(seed=seed)
        orders.append([twin.reset()[1]["agent_0"]["row"] for _ in range(30)])
        env.set_state(state, seed=seed)
        assert [env.reset()[1]["agent_0"]["row"] for _ in range(30)] == orders[-1]
        env.set_state(state)
    assert orders[0] == orders[1]
    assert len(set(map(tuple, orders))) == 3


@pytest.mark.filterwarnings("ignore:.*No render fps was declared")
def test_a_spec_makes_a_fresh_env_without_copying_the_dataset():
    env = to_gymnasium(picks())
    env.reset(seed=0)
    made = env.spec.make(render_mode="ansi")
    assert made.unwrapped.env.unwrapped.dataset is env.env.unwrapped.dataset
    observation, _ = made.reset(seed=0)
    np.testing.assert_array_equal(observation, env.reset(seed=0)[0])
    assert "Describe a city in the clouds:" in made.render()
    assert env.render_mode is None
    assert to_gymnasium(Good()).spec is None


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_the_view_of_a_registered_env_pickles_and_copies_with_its_episode(copied):
    env = to_gymnasium(picks(render_mode="ansi"))
    env.reset(seed=0)
    env.step(np.array([1, 4]))
    twin = copied(env)
    assert twin.spec.kwargs == {"render_mode": "ansi"}
    assert data_equivalence(twin.step(np.array([2, 5])), env.step(np.array([2, 5])))


def test_it_fits_gymnasiums_own_tools():
    env = gymnasium.wrappers.RecordEpisodeStatistics(to_gymnasium(picks()))
    env.reset(seed=0)
    env.step(np.array([1, 4]))
    infos = env.step(np.array([1, 4]))[4]
    assert infos["episode"]["r"] == 2.0
    vector = gymnasium.vector.SyncVectorEnv([VIEWS["picks"], VIEWS["picks"]])
    observations, _ = vector.reset(seed=[0, 1])
    assert observations.shape == (2, *VIEWS["picks"]().observation_space.shape)


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("joint_action", "action"),
    [
        ("multi_discrete", [0, 8]),
        ("multi_discrete", [-1, 0]),
        ("multi_discrete", [0.0, 1.0]),
        ("multi_discrete", [0, 0, 0]),
        ("multi_discrete", 3),
        ("multi_discrete", {"agent_0": 0, "agent_1": 0}),
        ("discrete", 64),
        ("discrete", -1),
        ("discrete", [1]),
        ("discrete", "3"),
    ],
)
def test_bad_joint_actions(joint_action, action):
    env = to_gymnasium(picks(), joint_action=joint_action)
    env.reset()
    with pytest.raises(ValueError, match=r"as the joint action of \['agent_0', 'agent_1'\], got"):
        env.step(action)


@pytest.mark.parametrize(
    ("convert", "exception", "sentence"),
    [
        (lambda: to_aec(to_aec(story())), TypeError, "a PettingZoo ParallelEnv, got"),
        (lambda: to_aec("story-length-ratio-v0"), TypeError, r"envs.make\(id\) first"),
        (lambda: to_gymnasium(to_gymnasium(story())), TypeError, "a PettingZoo ParallelEnv, got"),
        (lambda: to_gymnasium(story(), reward="max"), ValueError, "'mean' or 'sum', got 'max'"),
        (lambda: to_gymnasium(picks(), joint_action="one"), ValueError, "'discrete', got 'one'"),
        (lambda: to_gymnasium(story(), joint_action="discrete"), ValueError, "PickOfK first"),
        (
            lambda: to_gymnasium(PickOfK(crowd(8), ["x"] * 300), joint_action="discrete"),
            ValueError,
            r"fewer than 2\^63 joint actions .* of 8 agents; use 'multi_discrete'",
        ),
        (lambda: VIEWS["texts"]().step([1, 2]), TypeError, "a mapping of one action per agent"),
    ],
)
def test_what_cannot_be_converted(convert, exception, sentence):
    with pytest.raises(exception, match=sentence):
        convert()


def test_an_agent_without_a_text_is_named_and_a_stranger_too():
    env = to_gymnasium(story())
    env.reset()
    with pytest.raises(ValueError, match=r"\['agent_1'\] missing and \['agent_2'\] unknown"):
        env.step({"agent_0": "", "agent_2": ""})
