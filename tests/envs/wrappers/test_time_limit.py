"""TimeLimit: who is truncated when, and who is not."""

import pytest
from good_env import Good
from gymnasium import error
from paid_env import paid_env, said

from motet.envs.wrappers import TimeLimit


def flags(env, num_turns, actions):
    """Return terminations and truncations of each turn."""
    env.reset(seed=0)
    taken = []
    for _ in range(num_turns):
        live = {agent: actions[agent] for agent in env.agents}
        taken.append(env.step(live)[2:4])
    return taken


def test_agents_that_would_go_on_are_truncated_at_the_limit():
    env = TimeLimit(paid_env(num_turns=3), 2)
    both_false = dict.fromkeys(env.possible_agents, False)
    both_true = dict.fromkeys(env.possible_agents, True)
    assert flags(env, 2, said(1, 1)) == [(both_false, both_false), (both_false, both_true)]
    assert env.agents == []
    assert env.env.agents == ["agent_0", "agent_1"]
    with pytest.raises(error.ResetNeeded, match="after its end"):
        env.step(said(1, 1))
    observations, _ = env.reset()
    assert observations == {"agent_0": "q", "agent_1": "q"}
    assert env.agents == ["agent_0", "agent_1"]


@pytest.mark.parametrize("limit", [3, 4])
def test_the_end_of_the_task_is_a_termination_alone(limit):
    env = TimeLimit(paid_env(num_turns=3), limit)
    *_, (terminations, truncations) = flags(env, 3, said(1, 1))
    assert set(terminations.values()) == {True}
    assert set(truncations.values()) == {False}


def test_agents_that_leave_and_agents_that_are_cut_in_one_turn():
    env = TimeLimit(Good(), 2)  # bob's task has two turns, ann's three
    *_, (terminations, truncations) = flags(env, 2, {"ann": "a", "bob": "b"})
    assert terminations == {"ann": False, "bob": True}
    assert truncations == {"ann": True, "bob": False}
    assert env.agents == []


def test_a_truncation_from_inside_stays_and_is_no_second_one():
    env = TimeLimit(TimeLimit(paid_env(), 1), 3)
    ((terminations, truncations),) = flags(env, 1, said(1, 1))
    assert set(terminations.values()) == {False}
    assert set(truncations.values()) == {True}
    assert env.agents == []


def test_a_cut_agent_keeps_the_prompt_that_would_have_come():
    env = TimeLimit(paid_env(), 1)
    env.reset(seed=0)
    assert env.step(said(1, 2))[0] == {"agent_0": "p after 1: 1", "agent_1": "p after 1: 2"}


def test_the_count_is_part_of_a_snapshot_and_starts_again_with_an_episode():
    env = TimeLimit(paid_env(), 2)
    env.reset(seed=0)
    start = env.get_state()
    env.step(said(1, 1))
    env.set_state(start)
    assert set(env.step(said(1, 1))[3].values()) == {False}
    twin = env.clone()
    assert set(env.step(said(1, 1))[3].values()) == {True}
    ended = env.get_state()
    assert set(twin.step(said(1, 1))[3].values()) == {True}
    env.reset()
    assert set(env.step(said(1, 1))[3].values()) == {False}
    env.set_state(ended)
    assert env.agents == []


def test_wrong_limits():
    for limit in (1.5, "2", None, True):
        with pytest.raises(TypeError, match="integer as max_episode_steps, got"):
            TimeLimit(paid_env(), limit)
    with pytest.raises(ValueError, match="max_episode_steps of at least 1, got 0"):
        TimeLimit(paid_env(), max_episode_steps=0)
    assert TimeLimit(paid_env(), max_episode_steps=7).max_episode_steps == 7
