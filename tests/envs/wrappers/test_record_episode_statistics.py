"""RecordEpisodeStatistics: returns and lengths, in infos and queues."""

import pytest
from good_env import Good
from paid_env import paid, paid_env, said

from motet.envs.wrappers import RecordEpisodeStatistics, RewardShaping, TimeLimit


def test_the_last_infos_have_the_return_and_the_number_of_turns():
    env = RecordEpisodeStatistics(paid_env(num_turns=2))
    _, infos = env.reset(seed=0)
    assert "episode" not in infos["agent_0"]
    *_, infos = env.step(said(1, 10))
    assert all("episode" not in info for info in infos.values())
    *_, infos = env.step(said(2.5, -3))
    assert infos["agent_0"]["episode"] == {"r": 3.5, "l": 2}
    assert infos["agent_1"]["episode"] == {"r": 7.0, "l": 2}
    assert infos["agent_1"]["row"] == 0


def test_queues_hold_the_last_episodes_by_agent():
    env = RecordEpisodeStatistics(paid_env(num_turns=1), buffer_length=2)
    for first in (1, 2, 3):
        paid(env, (first, -first))
    assert {name: list(queue) for name, queue in env.return_queue.items()} == {
        "agent_0": [2.0, 3.0],
        "agent_1": [-2.0, -3.0],
    }
    assert list(env.length_queue["agent_0"]) == [1, 1]
    assert env.return_queue["agent_0"].maxlen == 2
    assert RecordEpisodeStatistics(paid_env()).length_queue["agent_0"].maxlen == 100


def test_agents_that_leave_early_get_theirs_when_they_leave():
    env = RecordEpisodeStatistics(Good())  # pays 1 / (1 + len(action) + turn); bob has two turns
    env.reset(seed=0)
    env.step({"ann": "", "bob": ""})
    *_, infos = env.step({"ann": "", "bob": "xx"})
    assert "episode" not in infos["ann"]
    assert infos["bob"]["episode"] == {"r": 1 / 2 + 1 / 5, "l": 2}
    *_, infos = env.step({"ann": ""})
    assert set(infos) == {"ann"}
    assert infos["ann"]["episode"] == {"r": 1 / 2 + 1 / 3 + 1 / 4, "l": 3}
    assert {name: list(queue) for name, queue in env.length_queue.items()} == {
        "ann": [3],
        "bob": [2],
    }


def test_episodes_that_are_left_before_their_end_do_not_count():
    env = RecordEpisodeStatistics(paid_env())
    paid(env, (1, 1), (1, 1))
    paid(env, (2, 2), (2, 2), (2, 2))
    assert list(env.return_queue["agent_0"]) == [6.0]


def test_only_ends_that_come_from_inside_are_seen():
    inside = RecordEpisodeStatistics(TimeLimit(paid_env(), 2))
    paid(inside, (1, 1), (2, 2))
    assert list(inside.return_queue["agent_0"]) == [3.0]
    outside = TimeLimit(RecordEpisodeStatistics(paid_env()), 2)
    paid(outside, (1, 1), (2, 2))
    assert list(outside.return_queue["agent_0"]) == []


def test_a_clone_has_queues_of_its_own():
    env = RecordEpisodeStatistics(paid_env(num_turns=1))
    paid(env, (1, 1))
    twin = env.clone()
    paid(twin, (2, 2))
    paid(env, (3, 3))
    assert list(env.return_queue["agent_0"]) == [1.0, 3.0]
    assert list(twin.return_queue["agent_0"]) == [1.0, 2.0]
    assert twin.return_queue["agent_0"].maxlen == 100


def test_branches_stepped_in_a_batch_and_replays_count_each():
    env = RecordEpisodeStatistics(paid_env(num_turns=2))
    env.reset(seed=0)
    env.step(said(1, 0))
    state = env.get_state()
    results = env.step_batch([state, state], [said(5, 0), said(7, 0)])
    assert [result.infos["agent_0"]["episode"]["r"] for result in results] == [6.0, 8.0]
    for _ in range(2):
        env.set_state(state)
        env.step(said(2, 0))
    assert list(env.return_queue["agent_0"]) == [6.0, 8.0, 3.0, 3.0]


def test_a_taken_key_is_refused_and_can_be_another():
    inner = RecordEpisodeStatistics(RewardShaping(paid_env(num_turns=2), "last_turn"))
    env = RecordEpisodeStatistics(inner)
    with pytest.raises(ValueError, match=r"infos without 'episode', got .* for agent_0; pass"):
        paid(env, (1, 1), (2, 2))
    env = RecordEpisodeStatistics(inner.clone(), stats_key="outer")
    env.reset(seed=0)
    env.step(said(1, 1))
    *_, infos = env.step(said(2, 2))
    assert infos["agent_1"]["episode"] == infos["agent_1"]["outer"] == {"r": 2.0, "l": 2}


def test_wrong_arguments():
    with pytest.raises(ValueError, match="buffer_length of at least 1, got 0"):
        RecordEpisodeStatistics(paid_env(), buffer_length=0)
    with pytest.raises(TypeError, match="integer as buffer_length, got None"):
        RecordEpisodeStatistics(paid_env(), buffer_length=None)
    with pytest.raises(TypeError, match="string as stats_key, got 3"):
        RecordEpisodeStatistics(paid_env(), stats_key=3)
