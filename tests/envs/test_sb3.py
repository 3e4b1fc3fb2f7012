"""The view for stable-baselines3: the contract of its VecEnv, and that its learners learn."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from good_env import Good
from gymnasium import error, spaces
from gymnasium.utils.env_checker import data_equivalence
from sb3_contrib import MaskablePPO
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from motet.agents import FixedAgent
from motet.envs import TextEnv, make, to_gymnasium, to_sb3_vec_env
from motet.envs.wrappers import PickOfK, TimeLimit, Wrapper

LENGTHS = ["x" * 10 * (i + 1) for i in range(8)]
ROWS = [{"prompt": f"prompt {i}"} for i in range(7)]
AGENTS = ["agent_0", "agent_1"]


@pytest.fixture(autouse=True)
def _log_folder(tmp_path, monkeypatch):
    """Keep what stable-baselines3's loggers make, even silent ones, out of the shared folder."""
    monkeypatch.setenv("SB3_LOGDIR", str(tmp_path))


def lengths(first, second):
    """Reward each agent its own number of characters."""
    return {"agent_0": [float(len(x)) for x in first], "agent_1": [float(len(x)) for x in second]}


def task(num_turns=2, reward_func=lengths, **kwargs):
    parts = {"transition": lambda prompt, agent_completions: list(agent_completions)}
    return TextEnv(ROWS, reward_func, num_turns=num_turns, **{**parts, **kwargs})


def picks(**kwargs):
    return PickOfK(task(**kwargs), LENGTHS)


def story(**kwargs):
    return PickOfK(make("story-length-ratio-v0", **kwargs), LENGTHS)


def ragged():
    """Offer one candidate on row 2, three on the others, and one to three in the second turn."""
    return PickOfK(
        task(), lambda seen, agent: LENGTHS[: 1 + (len(seen) + seen.count("2")) % 3], k=3
    )


def rows_of(env, num_steps, slot=0):
    """Return the row of each episode of a slot."""
    rows = [env.reset_infos[slot]["row"]]
    for _ in range(num_steps):
        assert env.step(np.zeros(env.num_envs, int))[2][slot], "a task of one turn"
        rows += [env.reset_infos[slot]["row"]]
    return rows


class Cut(Good):
    """Ends `ann` by truncation, after `bob` has left by termination."""

    def step(self, actions):
        observations, rewards, ended, cut, infos = super().step(actions)
        cut = {agent: agent == "ann" and ended[agent] for agent in ended}
        ended = {agent: ended[agent] and not cut[agent] for agent in ended}
        return observations, rewards, ended, cut, infos


# --- the contract of VecEnv ------------------------------------------------------------------


def test_shared_slots_are_the_agents_of_each_episode():
    env = to_sb3_vec_env(picks(), 3)
    inside = picks()
    assert (env.num_envs, env.action_space) == (6, spaces.Discrete(8))
    assert env.observation_space == inside.observation_space("agent_0")
    env.seed(0)
    observations = env.reset()
    assert observations.shape == (6, *env.observation_space.shape)
    assert observations.dtype == np.float32
    observations, rewards, dones, infos = env.step(np.array([0, 1, 2, 3, 4, 5]))
    np.testing.assert_array_equal(rewards, [10, 20, 30, 40, 50, 60])
    assert rewards.dtype == np.float32
    assert dones.dtype == bool
    assert not dones.any()
    assert [info["text"] for info in infos] == LENGTHS[:6]
    assert [info["row"] for info in infos] == [0, 0, 1, 1, 2, 2]
    assert [info["TimeLimit.truncated"] for info in infos] == [False] * 6


def test_centralised_slots_are_episodes():
    env = to_sb3_vec_env(picks(), 3, "centralised", reward="sum")
    assert (env.num_envs, env.action_space) == (3, spaces.MultiDiscrete([8, 8]))
    env.seed(0)
    env.reset()
    _, rewards, _, infos = env.step(np.array([[0, 1], [2, 3], [4, 5]]))
    np.testing.assert_array_equal(rewards, [30, 70, 110])
    assert rewards.dtype == np.float32
    assert infos[2]["agent_1"]["text"] == LENGTHS[5]
    one = to_sb3_vec_env(picks(), 1, "centralised", joint_action="discrete")
    assert one.action_space == spaces.Discrete(64)
    one.reset()
    assert one.step(np.array([8 * 1 + 2]))[1] == [(20 + 30) / 2]


@pytest.mark.parametrize("mode", ["shared", "centralised"])
def test_the_end_of_an_episode(mode):
    env = to_sb3_vec_env(picks(), 2, mode)
    reference = picks()
    width = 2 if mode == "centralised" else 1
    actions = np.ones((env.num_envs, width), int).squeeze()
    env.seed(0)
    env.reset()
    env.step(actions)
    observations, _, dones, infos = env.step(actions)
    assert dones.all()
    reference.reset(seed=0)
    for _ in range(2):
        seen, *_ = reference.step(dict.fromkeys(AGENTS, 1))
    last = {
        "shared": seen["agent_0"],
        "centralised": np.concatenate(list(seen.values())),
    }[mode]
    np.testing.assert_array_equal(infos[0]["terminal_observation"], last)
    assert infos[0]["TimeLimit.truncated"] is False
    seen, begun = reference.reset()
    first = {"shared": seen["agent_0"], "centralised": np.concatenate(list(seen.values()))}[mode]
    np.testing.assert_array_equal(observations[0], first)
    reset_info = env.reset_infos[0] if mode == "shared" else env.reset_infos[0]["agent_0"]
    assert (reset_info["row"], reset_info["turn"]) == (begun["agent_0"]["row"], 0)
    infos = env.step(actions)[3]
    assert "terminal_observation" not in infos[0]


@pytest.mark.parametrize("shuffle", [False, True])
def test_it_plays_the_episodes_of_separate_envs_stepped_one_by_one(shuffle):
    num_envs, num_steps = 3, 40
    env = to_sb3_vec_env(picks(shuffle=shuffle), num_envs)
    env.seed(5)
    observations = env.reset()
    rng = np.random.default_rng(0)
    actions = rng.integers(8, size=(num_steps, 2 * num_envs))
    separate = [picks(shuffle=shuffle) for _ in range(num_envs)]
    seen = []
    for i, one in enumerate(separate):
        one.reset(seed=5 + 2 * i)  # the seed of the episode's first slot
        for _ in range(i):  # i rows further on
            first, infos = one.reset()
        seen.append(first if i else one.reset(seed=5 + 2 * i)[0])
    joined = np.stack([one[agent] for one in seen for agent in AGENTS])
    np.testing.assert_array_equal(observations, joined)
    rows = set()
    for step in range(num_steps):
        observations, rewards, dones, infos = env.step(actions[step])
        for i, one in enumerate(separate):
            joint = {agent: actions[step, 2 * i + j] for j, agent in enumerate(AGENTS)}
            seen, earned, ended, _, told = one.step(joint)
            if not one.agents:
                seen, begun = one.reset()
                rows.add(begun["agent_0"]["row"])
            for j, agent in enumerate(AGENTS):
                slot = 2 * i + j
                np.testing.assert_array_equal(observations[slot], seen[agent])
                assert rewards[slot] == earned[agent]
                assert dones[slot] == ended[agent]
                assert infos[slot]["text"] == told[agent]["text"]
    assert rows == set(range(7))


@pytest.mark.parametrize("joint_action", ["multi_discrete", "discrete"])
@pytest.mark.parametrize(
    "make_env", [lambda: picks(shuffle=True), lambda: TimeLimit(picks(num_turns=3), 2)]
)
def test_one_team_plays_what_it_plays_in_stable_baselines3s_own_vec_env(make_env, joint_action):
    env = to_sb3_vec_env(make_env(), 1, "centralised", joint_action=joint_action)
    theirs = DummyVecEnv([lambda: to_gymnasium(make_env(), joint_action=joint_action)])
    assert (env.observation_space, env.action_space) == (
        theirs.observation_space,
        theirs.action_space,
    )
    for one in (env, theirs):
        one.seed(3)
    np.testing.assert_array_equal(env.reset(), theirs.reset())
    env.action_space.seed(0)
    num_ended = 0
    for _ in range(40):
        actions = np.array([env.action_space.sample()])
        ours, expected = env.step(actions), theirs.step(actions)
        assert [part.dtype for part in ours[:3]] == [part.dtype for part in expected[:3]]
        assert data_equivalence(ours, expected)
        assert data_equivalence(env.reset_infos, theirs.reset_infos)
        num_ended += int(ours[2][0])
    assert num_ended == 20


def test_episodes_side_by_side_are_not_the_same():
    env = to_sb3_vec_env(picks(num_turns=1), 3)
    env.seed(0)
    env.reset()
    assert [info["row"] for info in env.reset_infos] == [0, 0, 1, 1, 2, 2]
    assert rows_of(env, 8, slot=4) == [2, 3, 4, 5, 6, 0, 1, 2, 3]
    env = to_sb3_vec_env(picks(num_turns=1, shuffle=True), 3)
    env.seed(0)
    env.reset()
    orders = [rows_of(env, 14, slot) for slot in (0, 2, 4)]
    assert len(set(map(tuple, orders))) == 3


def test_seeds_are_those_of_the_next_reset_only():
    orders = []
    for seed in (3, 3, 4):
        env = to_sb3_vec_env(picks(num_turns=1, shuffle=True), 2)
        env.seed(seed)
        env.reset()
        first = rows_of(env, 20)
        env.reset()  # goes on
        orders.append((first, rows_of(env, 20)))
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert orders[0][0] != orders[0][1]
    unseeded = []
    for _ in range(2):
        env = to_sb3_vec_env(picks(num_turns=1, shuffle=True))
        env.reset()
        unseeded.append(rows_of(env, 28))
    assert unseeded[0] != unseeded[1]


def test_an_option_picks_the_row_of_the_next_reset():
    env = to_sb3_vec_env(picks(), 2)
    env.seed(0)
    env.set_options({"row": 6})
    env.reset()
    assert {info["row"] for info in env.reset_infos} == {6}
    env.reset()
    assert [info["row"] for info in env.reset_infos] == [0, 0, 1, 1], "the order was left alone"
    env.set_options([{"row": 5}, {}, {"row": 3}, {"row": 3}])
    env.reset()
    assert [info["row"] for info in env.reset_infos] == [5, 5, 3, 3]
    env.set_options([{"row": 1}, {"row": 2}, {}, {}])
    with pytest.raises(ValueError, match=r"the same options for the 2 slots of .*, got .* 2\}"):
        env.reset()
    env.set_options({"row": 1, "level": 2})
    with pytest.raises(ValueError, match=r"\{'row': i\} or nothing as options, .* 'level': 2"):
        env.reset()


def test_one_reward_and_one_writer_call_for_each_step():
    calls = []

    class Writer(FixedAgent):
        def act(self, observations, num_generations=1, *, seed=None):
            calls.append(("writer", len(observations)))
            return super().act(observations, num_generations, seed=seed)

    def reward(first, second):
        calls.append(("reward", len(first)))
        return [0.0] * len(first)

    env = PickOfK(task(1, reward), strategies=["{prompt}", "again {prompt}"], writer=Writer("word"))
    env = to_sb3_vec_env(env, 4)
    env.reset()
    assert calls == []
    env.step(np.array([0, 1] * 4))
    assert calls == [("writer", 8), ("reward", 4)]


def test_an_agent_that_leaves_early_is_done_once_and_its_slot_idles():
    env = to_sb3_vec_env(PickOfK(Cut(), ["a", "bc"]), 2)
    env.seed(0)
    env.reset()
    seen = [env.step(np.ones(4, int)) for _ in range(6)]
    done = np.array([dones for _, _, dones, _ in seen])
    expected = [[0, 0], [0, 1], [1, 0], [0, 0], [0, 1], [1, 0]]
    np.testing.assert_array_equal(done, np.tile(expected, 2))
    observations, rewards, _, infos = seen[1]
    assert not observations[1].any()
    assert rewards[1] > 0
    assert infos[1]["terminal_observation"].any()
    assert infos[1]["TimeLimit.truncated"] is False
    observations, rewards, _, infos = seen[2]
    assert rewards[1] == 0
    assert infos[1] == {"idle": True, "TimeLimit.truncated": False}
    assert infos[0]["TimeLimit.truncated"] is True
    assert observations[1].any(), "the next episode has begun"
    env.reset()
    for _ in range(2):
        env.step(np.ones(4, int))
    assert env.env_method("action_masks", indices=[0, 1])[0].tolist() == [True, True]
    assert env.env_method("action_masks", indices=[0, 1])[1].tolist() == [True, False]


def test_a_team_with_an_agent_that_left_early():
    env = to_sb3_vec_env(PickOfK(Cut(), ["a", "bc"]), 1, "centralised", reward="sum")
    inside = to_gymnasium(PickOfK(Cut(), ["a", "bc"]), reward="sum")
    env.seed(4)
    np.testing.assert_array_equal(env.reset()[0], inside.reset(seed=4)[0])
    for last in (False, False, True):
        expected = inside.step(np.array([1, 0]))
        observations, rewards, dones, infos = env.step(np.array([[1, 0]]))
        seen = infos[0]["terminal_observation"] if last else observations[0]
        np.testing.assert_array_equal(seen, expected[0])
        assert rewards[0] == np.float32(expected[1])
        assert dones[0] == (expected[2] or expected[3]) == last
        assert infos[0]["TimeLimit.truncated"] is last


@pytest.mark.parametrize(
    "candidates", [LENGTHS, lambda seen, agent: [seen[:5], agent], FixedAgent("word")]
)
def test_a_cut_episode_ends_on_what_the_next_turn_would_show(candidates):
    k = None if candidates is LENGTHS else 2
    cut_inside = to_sb3_vec_env(PickOfK(TimeLimit(task(), 1), candidates, k=k), 2)
    cut_outside = to_sb3_vec_env(TimeLimit(PickOfK(task(), candidates, k=k), 1), 2)
    uncut = to_sb3_vec_env(PickOfK(task(), candidates, k=k), 2)
    seen = []
    for env in (cut_inside, cut_outside, uncut):
        env.seed(0)
        env.reset()
        observations, _, dones, infos = env.step(np.zeros(4, int))
        assert dones.all() == (env is not uncut)
        if dones.all():
            assert {info["TimeLimit.truncated"] for info in infos} == {True}
            observations = np.stack([info["terminal_observation"] for info in infos])
        seen.append(observations)
    np.testing.assert_array_equal(seen[0], seen[2])
    np.testing.assert_array_equal(seen[1], seen[2])


def test_attributes_and_methods_are_those_of_each_slots_episode():
    env = to_sb3_vec_env(picks(render_mode="ansi"), 2)
    assert env.render_mode == "ansi"
    assert env.spec is None
    env.seed(0)
    env.reset()
    env.step(np.array([0, 1, 2, 3]))
    assert env.get_attr("num_turns") == [2] * 4
    assert env.get_attr("agents", indices=1) == [AGENTS]
    assert env.env_method("choices", "agent_0", indices=[0, -1]) == [tuple(LENGTHS)] * 2
    transcripts = env.env_method("render")
    assert "prompt 0" in transcripts[1]
    assert "prompt 1" in transcripts[2]
    assert env.has_attr("action_masks")
    assert not env.has_attr("nothing")
    for name in ("reset", "step", "set_state"):
        with pytest.raises(ValueError, match="leaves episodes where they are, got"):
            env.env_method(name)
    assert env.env_is_wrapped(PickOfK) == [True] * 4
    assert env.env_is_wrapped(Wrapper, indices=[0]) == [True]
    assert env.env_is_wrapped(VecMonitor) == [False] * 4


def test_an_attribute_is_set_where_it_is_and_for_all():
    original = picks()
    env = to_sb3_vec_env(original, 2)
    env.set_attr("render_mode", "ansi")
    assert env.env.unwrapped.render_mode == "ansi"
    assert env.get_attr("render_mode") == ["ansi"] * 4
    assert original.unwrapped.render_mode is None
    with pytest.raises(ValueError, match="all 4 slots"):
        env.set_attr("render_mode", "ansi", indices=[0])
    with pytest.raises(AttributeError, match="'rendermode'"):
        env.set_attr("rendermode", "ansi")


def test_the_env_given_is_left_alone():
    inside = picks()
    inside.reset(seed=0)
    before = inside.get_state()
    env = to_sb3_vec_env(inside, 2)
    env.reset()
    env.step(np.zeros(4, int))
    assert inside.get_state() == before
    assert env.action_space is not inside.action_space("agent_0")


def test_the_monitor_logs_returns_of_agents_or_of_the_team():
    for mode, width, expected in (("shared", (), 20.0), ("centralised", (2,), 20.0)):
        env = VecMonitor(to_sb3_vec_env(story(num_turns=2), 2, mode), None)
        env.reset()
        for _ in range(2):
            infos = env.step(np.zeros((env.num_envs, *width), int))[3]
        assert [info["episode"]["l"] for info in infos] == [2] * env.num_envs
        assert expected > infos[0]["episode"]["r"] > 0
    assert env.unwrapped.spec.id == "story-length-ratio-v0"


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "exception", "sentence"),
    [
        (lambda: to_sb3_vec_env(task()), TypeError, "TextSpace.*wrap it in .*PickOfK first"),
        (lambda: to_sb3_vec_env("story-length-ratio-v0"), TypeError, "a PettingZoo ParallelEnv"),
        (lambda: to_sb3_vec_env(picks(), 0), ValueError, "num_envs of at least 1"),
        (lambda: to_sb3_vec_env(picks(), mode="joint"), ValueError, "'centralised', got 'joint'"),
        (lambda: to_sb3_vec_env(picks(), reward="sum"), ValueError, "only in mode 'centralised'"),
        (
            lambda: to_sb3_vec_env(picks(), mode="centralised", reward="max"),
            ValueError,
            "'mean' or 'sum'",
        ),
    ],
)
def test_what_has_no_view(build, exception, sentence):
    with pytest.raises(exception, match=sentence):
        build()


def test_agents_that_share_a_policy_need_the_same_spaces():
    class Uneven(PickOfK):
        def action_space(self, agent):
            return spaces.Discrete(8 if agent == "agent_0" else 5)

    with pytest.raises(ValueError, match=r"same spaces of all agents.*agent_1; use mode='central"):
        to_sb3_vec_env(Uneven(task(), LENGTHS))
    env = to_sb3_vec_env(Uneven(task(), LENGTHS), mode="centralised")
    assert env.action_space == spaces.MultiDiscrete([8, 5])


def test_an_env_that_cannot_be_cloned():
    class NoClone(Good):
        clone = None

        def observation_space(self, agent):
            return spaces.Box(-1, 1, (3,), np.float32)

        def action_space(self, agent):
            return spaces.Discrete(2)

    with pytest.raises(TypeError, match=r"Expected an env with clone\(\), .*check_env lists"):
        to_sb3_vec_env(NoClone())


def test_actions_before_a_reset_or_too_few_or_masked():
    env = to_sb3_vec_env(ragged(), 2)
    with pytest.raises(error.ResetNeeded):
        env.step(np.zeros(4, int))
    with pytest.raises(error.ResetNeeded):
        env.env_method("action_masks")
    env.set_options({"row": 2})
    env.reset()
    with pytest.raises(ValueError, match=r"4 actions of Discrete\(3\), got .* shape \(3,\)"):
        env.step(np.zeros(3, int))
    with pytest.raises(ValueError, match=r"integers as actions, got array\(\[0.9, 0"):
        env.step(np.full(4, 0.9))
    with pytest.raises(ValueError, match="as the action of agent_0, got 2; infos"):
        env.step(np.array([2, 2, 2, 2]))


def test_without_stable_baselines3_a_sentence_says_what_to_install():
    code = """
import sys
sys.modules["stable_baselines3"] = None
from motet.envs import make, to_sb3_vec_env
from motet.envs.wrappers import PickOfK
try:
    to_sb3_vec_env(PickOfK(make("story-length-ratio-v0"), ["a"]))
except ImportError as exc:
    print(exc)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install stable-baselines3" in ran.stdout


# --- it learns -------------------------------------------------------------------------------


def learnt(learner, env, num_steps, **kwargs):
    """Train, and return the mean reward of the greedy policy."""
    model = learner("MlpPolicy", env, seed=0, device="cpu", **kwargs)
    model.learn(num_steps)
    mean, _ = evaluate_policy(model, VecMonitor(env), n_eval_episodes=20)
    return model, float(mean)


@pytest.mark.parametrize("mode", ["shared", "centralised"])
def test_a2c_learns(mode):
    env = to_sb3_vec_env(story(), 8, mode)
    _, mean = learnt(A2C, env, 4096)
    assert mean > 0.9  # a random policy earns 0.5


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["shared", "centralised"])
def test_ppo_learns(mode):
    env = VecNormalize(to_sb3_vec_env(story(), 8, mode), norm_obs=False)
    model = PPO("MlpPolicy", env, n_steps=64, seed=0, device="cpu")
    model.learn(10_000)
    mean, _ = evaluate_policy(model, VecMonitor(env.venv), n_eval_episodes=20)
    assert mean > 0.9


def test_dqn_learns_on_one_number():
    env = to_sb3_vec_env(story(), 8, "centralised", joint_action="discrete")
    settings = {"learning_starts": 200, "target_update_interval": 200, "learning_rate": 1e-3}
    _, mean = learnt(DQN, env, 4096, exploration_fraction=0.5, **settings)
    assert mean > 0.9


def test_the_same_seed_gives_the_same_weights():
    weights = []
    for _ in range(2):
        env = to_sb3_vec_env(story(shuffle=True), 4)
        model = PPO("MlpPolicy", env, n_steps=16, seed=3, device="cpu").learn(256)
        weights.append(torch.cat([p.flatten() for p in model.policy.parameters()]))
    assert torch.equal(*weights)


@pytest.mark.parametrize("mode", ["shared", "centralised"])
def test_a_masked_candidate_is_never_picked(mode):
    played = []

    class Watched(Wrapper):
        def before_step(self, memory, actions):
            played.extend(actions.values())
            return actions

    env = to_sb3_vec_env(Watched(ragged()), 4, mode)
    model = MaskablePPO("MlpPolicy", env, n_steps=32, seed=0, device="cpu").learn(512)
    assert len(played) >= 512
    assert set(played) == {0, 1, 2}, "and one that is masked would have raised"
    observations = env.reset()
    masks = np.stack(env.env_method("action_masks"))
    actions, _ = model.predict(observations, action_masks=masks)
    env.step(actions)
