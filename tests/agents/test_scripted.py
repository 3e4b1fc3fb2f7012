"""Agents without a model."""

import pytest

from motet.agents import Agent, FixedAgent, RandomAgent, ReplayAgent


def texts(groups: list[list]) -> list[list[str]]:
    return [[completion.text for completion in group] for group in groups]


def test_fixed_answers() -> None:
    assert texts(FixedAgent("yes").act(["a", "b"], 2)) == [["yes", "yes"], ["yes", "yes"]]
    assert texts(FixedAgent(str.upper).act(["a", "b"])) == [["A"], ["B"]]


def test_random_answers_are_seeded_and_uniform() -> None:
    agent = RandomAgent(["x", "y"], seed=0)
    first = texts(agent.act(["a"] * 500, 2, seed=1))
    assert first == texts(agent.act(["a"] * 500, 2, seed=1))
    assert first != texts(agent.act(["a"] * 500, 2))
    share = sum(group.count("x") for group in first) / 1000
    assert 0.45 < share < 0.55
    with pytest.raises(ValueError, match="at least one text"):
        RandomAgent([])


def test_replay_gives_answers_in_order_and_says_when_they_are_over() -> None:
    agent = ReplayAgent(["1", "2", "3", "4", "5"])
    assert texts(agent.act(["a", "b"], 2)) == [["1", "2"], ["3", "4"]]
    with pytest.raises(ValueError, match=r"at most 1 more answers .* got a request for 2"):
        agent.act(["a"], 2)
    assert texts(agent.act(["a"])) == [["5"]]


def test_they_are_agents() -> None:
    for agent in (FixedAgent(""), RandomAgent([""]), ReplayAgent([])):
        assert isinstance(agent, Agent)
