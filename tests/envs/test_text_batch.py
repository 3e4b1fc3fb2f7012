"""TextBatch: many episodes at once are what they are one by one, and errors leave them alone."""

import numpy as np
import pytest
from asymmetric_envs import dilemma
from good_env import Good
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.envs import TextBatch, TextEnv, make
from motet.envs.simulator import steps_in_batches
from motet.envs.wrappers import Wrapper

TEXTS = st.sampled_from(["", "a", "a longer text", "é世🎵", "line\nline"])
PARTS = ("observations", "rewards", "terminations", "truncations", "infos")


class Marked(Wrapper):
    """Counts turns in its memory, and shows the count to the agents."""

    def after_reset(self, observations, infos, *, seed):
        return 0, self.marked(0, observations), infos

    def after_step(self, memory, actions, result):
        shown = self.marked(memory + 1, result.observations)
        return memory + 1, type(result)(**{**fields_of(result), "observations": shown})

    def marked(self, turn, observations):
        return {agent: f"[{turn}] {text}" for agent, text in observations.items()}


class Foreign(Marked):
    """Overrides `step`, as people do who know other libraries: it must not be passed by."""

    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        return observations, {agent: reward + 10 for agent, reward in rewards.items()}, *rest


def fields_of(result):
    return {name: getattr(result, name) for name in type(result).__dataclass_fields__}


def story(**kwargs):
    return make("story-length-ratio-v0", num_turns=3, **kwargs)


ENVS = {
    "bare": story,
    "wrapped": lambda: Marked(Marked(story())),
    "foreign": lambda: Foreign(story()),
    "general-sum": dilemma,
    "branch": lambda: story(early_termination_threshold=0.4, early_termination="branch"),
}


@pytest.mark.parametrize(
    ("name", "fast"),
    [("bare", True), ("wrapped", True), ("foreign", False), ("general-sum", True)],
)
def test_what_steps_in_batches(name, fast):
    assert steps_in_batches(ENVS[name]()) == fast


@pytest.mark.parametrize("name", ENVS)
@settings(max_examples=15)
@given(data=st.data())
def test_episodes_side_by_side_are_those_played_one_by_one(name, data):
    env = ENVS[name]()
    rows = data.draw(st.lists(st.integers(0, len(env.unwrapped.dataset) - 1), max_size=4))
    rows += [0]
    batch = TextBatch(env)
    singles = [env.clone() for _ in rows]
    started = [
        single.reset(seed=row, options={"row": row})
        for single, row in zip(singles, rows, strict=True)
    ]
    assert batch.reset(rows=rows) == [observations for observations, _ in started]
    assert batch.infos == [infos for _, infos in started]
    while any(batch.agents):
        joint = [{agent: data.draw(TEXTS) for agent in live} for live in batch.agents]
        results = batch.step(joint)
        for single, actions, result in zip(singles, joint, results, strict=True):
            if not actions:
                assert result is None
                continue
            assert tuple(getattr(result, part) for part in PARTS) == single.step(actions)
        assert batch.agents == [single.agents for single in singles]


def test_episodes_of_seeds_are_those_of_reset():
    for env in (story(shuffle=True), Marked(story(shuffle=True)), Good()):
        batch = TextBatch(env)
        seeds = [3, 1, 3]
        expected = [env.clone().reset(seed=seed)[0] for seed in seeds]
        assert batch.reset(seeds=seeds) == expected
        assert len(batch) == 3


def test_the_envs_own_episode_is_left_alone():
    env = story()
    before = env.reset(seed=5)
    state = env.get_state()
    batch = TextBatch(env)
    batch.reset(rows=[0, 1])
    batch.step([{"agent_0": "a", "agent_1": "b"}] * 2)
    assert env.get_state() == state
    assert env.reset(seed=5) == before


@pytest.mark.parametrize("name", ["bare", "wrapped", "foreign"])
def test_expanding_tries_siblings_and_stays(name):
    batch = TextBatch(ENVS[name]())
    batch.reset(rows=[4, 2])
    tries = [{"agent_0": "aa", "agent_1": "b" * k} for k in range(4)]
    before = batch.observations[1]
    results = batch.expand(1, tries)
    assert batch.observations[1] == before
    plus = 10 if name == "foreign" else 0
    assert [round(result.rewards["agent_0"] - plus, 6) for result in results] == [
        pytest.approx(0.135335), pytest.approx(0.22313, abs=1e-5),
        pytest.approx(0.367879), pytest.approx(0.606531),
    ]  # fmt: skip
    batch.select(1, results[2])
    assert batch.observations[1] == {a: results[2].observations[a] for a in batch.agents[1]}
    assert "had 2 characters" in batch.observations[1]["agent_1"]
    assert "character" not in batch.observations[0]["agent_1"]


def test_siblings_are_judged_together_and_strangers_are_not():
    env = story(early_termination_threshold=0.5)
    good, bad = {"agent_0": "a", "agent_1": "bb"}, {"agent_0": "", "agent_1": ""}
    batch = TextBatch(env)
    batch.reset(rows=[0, 1])
    assert [result.ended for result in batch.expand(0, [good, good, bad])] == [True] * 3
    assert [result.ended for result in batch.expand(0, [good, bad, bad])] == [False] * 3
    assert [result.ended for result in batch.step([good, bad])] == [True, False]
    assert batch.agents == [[], ["agent_0", "agent_1"]]
    assert batch.step([None, bad])[0] is None


def test_one_reward_call_per_turn():
    calls = []

    def reward(first, second):
        calls.append(len(first))
        return [0.0] * len(first)

    env = TextEnv(
        [{"prompt": "p"}] * 3, reward, transition=lambda prompt: [prompt] * 2, num_turns=2
    )
    for wrapped in (env, Marked(env)):
        batch = TextBatch(wrapped)
        batch.reset(rows=[0, 1, 2])
        both = {"agent_0": "", "agent_1": ""}
        batch.step([both] * 3)
        batch.expand_all([[both] * 2, [], [both] * 3])
        assert calls == [3, 5]
        calls.clear()


def test_episodes_begin_again_one_by_one():
    batch = TextBatch(story())
    batch.reset(rows=[0, 1, 2])
    for _ in range(3):
        batch.step([{"agent_0": "a", "agent_1": "b"}] * 3)
    assert batch.agents == [[], [], []]
    begun = batch.restart([2, 0], rows=[7, 8])
    assert [begun[0], {}, begun[1]] == [batch.observations[i] for i in (2, 1, 0)]
    assert [infos["agent_0"]["row"] for infos in batch.infos] == [8, 1, 7]


def test_a_step_that_fails_moves_nobody():
    def reward(first, second):
        if "bad" in first:
            raise RuntimeError("the judge is out")
        return [0.0] * len(first)

    env = TextEnv([{"prompt": "p"}], reward, transition=lambda prompt: [prompt] * 2, num_turns=2)
    batch = TextBatch(env)
    batch.reset(rows=[0, 0])
    states = list(batch.states)
    with pytest.raises(RuntimeError, match="the judge is out"):
        batch.step([{"agent_0": "ok", "agent_1": ""}, {"agent_0": "bad", "agent_1": ""}])
    assert batch.states == states


def test_arguments_of_other_types_move_nobody():
    batch = TextBatch(story())
    both = {"agent_0": "", "agent_1": ""}
    batch.reset(rows=[0, 1])
    states = list(batch.states)
    tried = batch.expand(0, [both, both])
    for rows in (4, "01", {0: 1}, (row for row in (0, 1))):
        with pytest.raises(TypeError, match="a list of rows, got"):
            batch.reset(rows=rows)
    with pytest.raises(TypeError, match="a list of seeds, got 3"):
        batch.reset(seeds=3)
    for joint_actions in (None, both, (both for _ in range(2))):
        with pytest.raises(TypeError, match="a list of joint actions, got"):
            batch.step(joint_actions)
    with pytest.raises(TypeError, match="a list of groups, got 0"):
        batch.step([both, both], 0)
    with pytest.raises(TypeError, match=r"a list of joint actions to try, got {'agent_0'"):
        batch.expand(0, both)
    with pytest.raises(TypeError, match=r"a list of lists of joint actions, .* got None"):
        batch.expand_all(None)
    for place in ("0", True, None, 0.0):
        with pytest.raises(TypeError, match="number of an episode, got"):
            batch.select(place, tried[0])
    with pytest.raises(TypeError, match="a list of episodes, got 1"):
        batch.restart(1, rows=[0])
    for result in (None, 1, tried):
        with pytest.raises(TypeError, match="one result that step or expand returned, got"):
            batch.select(0, result)
    assert batch.states == states
    batch.select(np.int64(1), tried[1])
    assert batch.states == [states[0], tried[1].state]


def test_the_repr_counts_episodes():
    batch = TextBatch(story(early_termination_threshold=-1.0))
    batch.reset(rows=[0, 1])
    assert repr(batch).endswith(": 2 episodes, 2 live>")
    batch.step([{"agent_0": "", "agent_1": ""}] * 2)
    assert repr(batch).endswith(": 2 episodes, 0 live>")


def test_wrong_arguments():
    batch = TextBatch(story(early_termination_threshold=-1.0))
    both = {"agent_0": "", "agent_1": ""}
    with pytest.raises(ValueError, match=r"Expected rows=\[...\] or seeds=\[...\]"):
        batch.reset()
    with pytest.raises(ValueError, match="got 1 seeds for 2 rows"):
        batch.reset(rows=[0, 1], seeds=[0])
    with pytest.raises(IndexError, match="from 0 to 9, got 10"):
        batch.reset(rows=[10])
    batch.reset(rows=[0, 1])
    with pytest.raises(ValueError, match="for each of 2 episodes, got 1"):
        batch.step([both])
    with pytest.raises(ValueError, match=r"\['agent_0', 'agent_1'\] missing"):
        batch.step([None, both])
    with pytest.raises(IndexError, match="an episode from 0 to 1, got 2"):
        batch.expand(2, [both])
    with pytest.raises(ValueError, match="a list of joint actions for each of 2"):
        batch.expand_all([[both]])
    with pytest.raises(ValueError, match="each of 1 episodes, got 2"):
        batch.restart([0], rows=[1, 2])
    with pytest.raises(ValueError, match=r"each episode once, got \[1, 1\]"):
        batch.restart([1, 1], rows=[1, 2])
    batch.step([both, both])
    assert batch.agents == [[], []]
    with pytest.raises(ValueError, match="None as the joint action of episode 1"):
        batch.step([{}, both])
    with pytest.raises(ValueError, match="no joint actions for episode 0, which has ended, got 1"):
        batch.expand(0, [both])
    with pytest.raises(TypeError, match=r"an env with clone\(\)"):
        TextBatch(17)
    with pytest.raises(TypeError, match=r"got the class <class 'motet\.envs\.text_env\.TextEnv'>"):
        TextBatch(TextEnv)
    with pytest.raises(TypeError, match="only for a TextEnv"):
        TextBatch(Good(), reward_workers=2)
    with pytest.raises(ValueError, match="Expected seeds for an env without a dataset"):
        TextBatch(Good()).reset(rows=[0])
