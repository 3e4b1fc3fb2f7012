"""RewardShaping: hand-computed rewards of each mode."""

import pytest
from good_env import Good
from paid_env import paid, paid_env, said

from motet.envs.wrappers import RewardShaping, TimeLimit

TURNS = ((0.5, -1.0), (0.25, -0.5), (0.75, -3.0))


def test_raw_pays_what_the_env_pays():
    assert paid(RewardShaping(paid_env(), "raw"), *TURNS) == list(TURNS)


def test_improvement_pays_what_a_turn_adds_to_the_best_so_far():
    rewards = paid(RewardShaping(paid_env(), "improvement"), *TURNS)
    assert rewards == [(0.5, -1.0), (0.0, 0.5), (0.25, 0.0)]
    assert [sum(own) for own in zip(*rewards, strict=True)] == [0.75, -0.5]


def test_last_turn_pays_nothing_before_it():
    rewards = paid(RewardShaping(paid_env(), "last_turn"), *TURNS)
    assert rewards == [(0.0, 0.0), (0.0, 0.0), (0.75, -3.0)]


def test_agents_that_leave_early_are_paid_when_they_leave():
    env = RewardShaping(Good(), "last_turn")  # pays 1 / (1 + len(action) + turn); bob has two turns
    env.reset(seed=0)
    assert env.step({"ann": "", "bob": ""})[1] == {"ann": 0.0, "bob": 0.0}
    assert env.step({"ann": "", "bob": ""})[1] == {"ann": 0.0, "bob": 1 / 3}
    *_, infos = result = env.step({"ann": ""})
    assert result[1] == {"ann": 1 / 4}
    assert set(infos["ann"]) == {"turn", "lengths"}  # nothing is added that was not there
    env = RewardShaping(Good(), "improvement")
    env.reset(seed=0)
    assert env.step({"ann": "x" * 8, "bob": "x" * 8})[1] == {"ann": 0.1, "bob": 0.1}
    assert env.step({"ann": "x", "bob": "x" * 9})[1] == {"ann": 0.25 - 0.1, "bob": 0.0}
    assert env.step({"ann": "x" * 6})[1] == {"ann": 0.0}


def test_last_turn_pays_at_a_truncation_from_inside_and_not_from_outside():
    inside = RewardShaping(TimeLimit(paid_env(), 2), "last_turn")
    assert paid(inside, *TURNS[:2]) == [(0.0, 0.0), (0.25, -0.5)]
    outside = TimeLimit(RewardShaping(paid_env(), "last_turn"), 2)
    assert paid(outside, *TURNS[:2]) == [(0.0, 0.0), (0.0, 0.0)]


def credited_env(mode):
    inner = paid_env(early_termination_threshold=1.0, early_termination="branch")
    return RewardShaping(inner, mode)


def test_raw_keeps_the_credit_of_an_early_end():
    env = credited_env("raw")
    env.reset(seed=0)
    *_, infos = result = env.step(said(2, 2))
    assert result[1] == {"agent_0": 6.0, "agent_1": 6.0}
    assert (infos["agent_0"]["turn_reward"], infos["agent_0"]["turns_credited"]) == (2.0, 3)


@pytest.mark.parametrize("mode", ["improvement", "last_turn"])
def test_other_modes_replace_the_credit_of_an_early_end(mode):
    env = credited_env(mode)
    env.reset(seed=0)
    *_, infos = result = env.step(said(2, 4))
    assert result[1] == {"agent_0": 2.0, "agent_1": 4.0}
    for agent, info in infos.items():
        assert (info["turn_reward"], info["turns_credited"]) == (result[1][agent], 1)


def test_a_shaped_reward_that_happens_to_equal_the_credited_one_counts_once():
    env = credited_env("improvement")
    env.reset(seed=0)
    env.step(said(-3, -3))
    state = env.get_state()
    (result,) = env.step_batch([state], [said(3, 3)])  # credited twice: 6; over the best: 6
    assert result.rewards == {"agent_0": 6.0, "agent_1": 6.0}
    assert result.infos["agent_0"]["turn_reward"] == 6.0
    assert result.infos["agent_0"]["turns_credited"] == result.turns_credited == 1
    assert result.turn_rewards == {"agent_0": 6.0, "agent_1": 6.0}


def test_missing_on_purpose_pays_no_more_than_success():
    """Why the modes exist: with raw sums, succeeding late pays more than succeeding at once."""
    for mode, worth_waiting in (("raw", True), ("improvement", False), ("last_turn", False)):
        returns = []
        for turns in ([(2, 2)], [(1, 1), (1, 1), (2, 2)]):
            inner = paid_env(early_termination_threshold=1.0, early_termination="group")
            rewards = paid(RewardShaping(inner, mode), *turns)
            returns.append(sum(first for first, _ in rewards))
        assert (returns[1] > returns[0]) == worth_waiting


def test_infos_and_rewards_of_the_env_inside_are_left_as_they_are():
    class Keeps(Good):
        def step(self, actions):
            self.kept = super().step(actions)
            return self.kept

    inner = Keeps()
    env = RewardShaping(inner, "last_turn")
    env.reset(seed=0)
    env.step({"ann": "", "bob": ""})
    assert inner.kept[1] == {"ann": 1 / 2, "bob": 1 / 2}


@pytest.mark.parametrize("mode", ["best", None, 1])
def test_wrong_modes(mode):
    with pytest.raises(ValueError, match="'raw', 'improvement' or 'last_turn' as mode, got"):
        RewardShaping(paid_env(), mode)
