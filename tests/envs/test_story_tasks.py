"""The tasks of the comparison: their rewards by hand, and what they refuse."""

import math

import pytest

from motet.envs import check_env, make
from motet.envs.story_budget import budget_reward, num_sentences
from motet.envs.story_name_match import NAMES, name_feedback, name_match_reward, names_in


@pytest.mark.parametrize("id", ["story-name-match-v0", "story-budget-v0"])
@pytest.mark.parametrize("num_turns", [1, 3])
def test_the_tasks_keep_to_the_rules(id, num_turns):
    check_env(id, num_turns=num_turns)


# --- story-name-match-v0 ----------------------------------------------------------------------


def test_names_are_whole_words_in_their_order():
    text = "Tomorrow Tom's friend Mira met Tom, Ada-Lu and mira."
    assert names_in(text) == ["Tom", "Mira", "Ada"]


@pytest.mark.parametrize(
    ("first", "second", "reward"),
    [
        ("Mira sang.", "Long ago Mira slept.", 1.0),
        ("Mira sang.", "Tom sang.", 0.0),
        ("Mira met Tom.", "Tom met Mira.", 1.0),
        ("Mira met Tom.", "Mira sang.", 1 / 2),  # 1 of 2
        ("Mira met Tom.", "Tom met Ada.", 1 / 3),  # 1 of 3
        (" ".join(NAMES), "Mira sang.", 1 / 14),
        ("", "", 0.0),
        ("The sea sang.", "The sea sang.", 0.0),  # the same, and about nobody
        ("", "Mira sang.", 0.0),
    ],
)
def test_name_match_reward(first, second, reward):
    assert name_match_reward([first], [second]) == [pytest.approx(reward)]
    assert name_match_reward([second], [first]) == [pytest.approx(reward)]


def test_names_can_be_others():
    env = make("story-name-match-v0", names=["Zoë"])
    env.reset(seed=0)
    rewards = env.step({"agent_0": "Zoë sang to Mira.", "agent_1": "Zoë slept."})[1]
    assert rewards == {"agent_0": 1.0, "agent_1": 1.0}


def test_name_feedback_tells_each_the_other_ones_names():
    first, second = name_feedback("Sing:", ["Mira met Tom.", "The sea."], 2)
    assert "was about Mira, Tom, the other about nobody;" in first
    assert "was about nobody, the other about Mira, Tom;" in second


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"split": "test"}, "split 'train' or 'eval', got 'test'"),
        ({"names": "Mira"}, "names as a collection of words, got 'Mira'"),
        ({"names": []}, r"names as a collection of words, got \[\]"),
        ({"names": ["Mary Ann"]}, "names of one word each, got 'Mary Ann'"),
    ],
)
def test_name_match_refuses(given, match):
    with pytest.raises(ValueError, match=match):
        make("story-name-match-v0", **given)


# --- story-budget-v0 --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("One. Two! Three?", 3),
        ("One... Two?!", 2),
        ('"We have time," said Tom.', 1),
        ("One. This one is cut", 1),
        ("... !? .", 0),
        ("Été. 世.", 2),
        ("a" * 1_000_000, 0),  # in time that grows with the text, not with its square
    ],
)
def test_num_sentences(text, count):
    assert num_sentences(text) == count


def episode(counts, **kwargs):
    """Play texts of these numbers of sentences, a pair per turn; return agent_0's rewards."""
    env = make("story-budget-v0", num_turns=len(counts), **kwargs)
    env.reset(seed=0)
    rewards = [env.step({"agent_0": "Rain. " * a, "agent_1": "Sun. " * b})[1] for a, b in counts]
    assert all(own["agent_0"] == own["agent_1"] for own in rewards)
    assert not env.agents
    return [own["agent_0"] for own in rewards]


@pytest.mark.parametrize(
    ("counts", "last"),
    [
        ([(2, 2), (2, 2)], 1.0),
        ([(1, 3), (0, 5)], 1.0),  # 9 is one too many, whoever wrote it
        ([(1, 1), (4, 1)], 1.0),  # 7 is one too few
        ([(3, 3), (2, 2)], math.exp(-1 / 2)),  # 10: two off, one of them for nothing
        ([(0, 0), (1, 1)], math.exp(-5 / 2)),  # 2: six off
        ([(0, 0), (0, 0)], math.exp(-7 / 2)),
        ([(8, 0)], 1.0),
        ([(1, 1), (1, 1), (1, 1)], math.exp(-1 / 2)),  # 6
    ],
)
def test_the_budget_is_paid_at_the_last_turn_alone(counts, last):
    assert episode(counts) == [*[0.0] * (len(counts) - 1), pytest.approx(last)]


def test_the_budget_can_be_another():
    assert episode([(1, 1), (10, 10)], budget=22) == [0.0, 1.0]


def test_budget_reward_scores_many_at_once():
    histories = [
        {"a": [("", "A. B.")], "b": [("", "C.")]},
        {"a": [("", "A.")], "b": [("", "")]},
    ]
    rewards = budget_reward(["D. E.", "B."], ["F.", "C."], [2, 2], histories, budget=6)
    assert rewards == [1.0, pytest.approx(math.exp(-1))]  # 6; 3 is three off


def test_budget_feedback_counts_what_is_left():
    env = make("story-budget-v0", num_turns=3)
    env.reset(seed=0)
    first = env.step({"agent_0": "A. B.", "agent_1": "C."})[0]
    assert "the first of two, had 2 sentences. Together you have written 3;" in first["agent_0"]
    assert "the second of two, had 1 sentences. " in first["agent_1"]
    assert "the goal is 8, 5 are left." in first["agent_1"]
    second = env.step({"agent_0": "A. B. C. D.", "agent_1": "E. F."})[0]
    assert "had 4 sentences. Together you have written 9;" in second["agent_0"]
    assert "the goal is 8, 0 are left." in second["agent_0"]


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"split": "test"}, ValueError, "split 'train' or 'eval', got 'test'"),
        ({"num_turns": 0}, ValueError, "num_turns of at least 1, got 0"),
        ({"budget": 0}, ValueError, "budget of at least 1, got 0"),
        ({"budget": 7.5}, TypeError, "an integer as budget, got 7.5"),
    ],
)
def test_the_budget_refuses(given, error, match):
    with pytest.raises(error, match=match):
        make("story-budget-v0", **given)
