"""TransformAction: what the env hears, and the ready functions."""

import pickle

import pytest
from good_env import Good
from paid_env import paid_env, said

from motet.envs import TextEnv, make
from motet.envs.wrappers import TransformAction, extract_tag, strip


def heard(func, first, second):
    """Return what the task hears when two agents speak."""
    texts = []
    env = TextEnv([{"prompt": "p"}], lambda a, b: texts.append((*a, *b)) or [0.0] * len(a))
    wrapped = TransformAction(env, func)
    wrapped.reset()
    wrapped.step({"agent_0": first, "agent_1": second})
    return texts[-1]


def test_one_function_for_all_and_one_for_each():
    assert heard(str.upper, "ab", "cd") == ("AB", "CD")
    assert heard({"agent_1": str.upper, "agent_0": strip}, " ab ", " cd ") == ("ab", " CD ")


def test_several_functions_are_applied_in_their_order():
    assert heard([lambda x: x + "!", str.title, strip], " a", "b") == ("A!", "B!")
    each = {"agent_0": (strip, lambda x: f"<{x}>"), "agent_1": [lambda x: f"< {x}", strip]}
    assert heard(each, " a ", " b ") == ("<a>", "<  b")


def test_rewards_and_prompts_follow_what_was_heard():
    env = TransformAction(paid_env(), extract_tag("pay"))
    env.reset(seed=0)
    observations, rewards, *_ = env.step(said("I want <pay>2</pay>", "or <pay>3</pay> ?"))
    assert rewards == {"agent_0": 2.0, "agent_1": 3.0}
    assert observations["agent_0"] == "p after 1: 2"


def test_the_actions_that_came_in_are_left_as_they_are():
    actions = said(" 1", " 2")
    env = TransformAction(paid_env(), strip)
    env.reset()
    env.step(actions)
    assert actions == said(" 1", " 2")


@pytest.mark.parametrize(
    ("actions", "exception", "sentence"),
    [
        (None, TypeError, "a mapping of one action per agent, got None"),
        (["a", "b"], TypeError, "a mapping of one action per agent"),
        ({"agent_0": "1"}, ValueError, r"\['agent_1'\] missing"),
        (said(1, 1) | {"bob": "1"}, ValueError, r"\['bob'\] unknown"),
        (said(1, 1) | {"agent_1": 17}, TypeError, "agent_1, got 17 of type int"),
        (said(1, 1) | {"agent_1": None}, TypeError, "agent_1, got None"),
        (said(1, 1) | {"agent_0": b"1"}, TypeError, "agent_0, got b'1'"),
    ],
)
def test_what_is_no_text_gets_the_sentence_of_the_env_inside(actions, exception, sentence):
    env = TransformAction(paid_env(), [strip, str.lower])
    env.reset(seed=0)
    with pytest.raises(exception, match=sentence):
        env.step(actions)
    assert env.step(said(1, 1))[1] == {"agent_0": 1.0, "agent_1": 1.0}


def test_agents_that_left_are_not_asked_for():
    env = TransformAction(Good(), {"ann": strip, "bob": str.upper})
    env.reset(seed=0)
    for _ in range(3):
        env.step(dict.fromkeys(env.agents, " a"))
    assert env.agents == []
    assert env.env.length == 1 + 2 + 1 + 2 + 1


def test_functions_must_return_text():
    env = TransformAction(paid_env(), {"agent_0": strip, "agent_1": [strip, len]})
    env.reset()
    with pytest.raises(
        TypeError, match=r"string from func for agent_1, got 1 of type int from <bu"
    ):
        env.step(said(1, 1))
    assert env.env.get_state().turn == 0


def test_exceptions_of_functions_pass_through():
    env = TransformAction(paid_env(), lambda text: text[7])
    env.reset()
    with pytest.raises(IndexError):
        env.step(said(1, 1))


def test_wrong_functions():
    for func in (None, 3, "strip", [strip, 3], {"agent_0": strip, "agent_1": None}):
        with pytest.raises(TypeError, match=r"functions f\(text\) -> text as func, got"):
            TransformAction(paid_env(), func)
    for func in ([], {"agent_0": strip, "agent_1": ()}):
        with pytest.raises(ValueError, match="a function or several as func, got an empty list"):
            TransformAction(paid_env(), func)
    with pytest.raises(ValueError, match=r"func for \['agent_0', 'agent_1'\], got func for \['ag"):
        TransformAction(paid_env(), {"agent_0": strip})


def test_strip():
    assert strip(" \n a b\t\n") == "a b"
    assert strip("\u3000") == ""


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<a>x</a>", "x"),
        ("think <a> x\ny </a> after", " x\ny "),
        ("<a></a>", ""),
        ("<a>one</a> no, <a>two</a>.", "two"),
        ("<a>one</a> and <a>never closed", "one"),
        ("I write <a> and then <a>x</a>", "x"),
        ("<a>x</a> </a>", "x"),
        ("</a> <a>x</a>", "x"),
        ("<a><b>x</b></a>", "<b>x</b>"),
        ("<a>{x} [bold] é世🎵 \\1</a>", "{x} [bold] é世🎵 \\1"),
        ("<a>" * 50_000 + "x" + "</a>" * 50_000, "x"),
    ],
)
def test_the_last_closed_tag_is_taken(text, answer):
    assert extract_tag("a")(text) == answer
    assert extract_tag("a", default="?")(text) == answer


@pytest.mark.parametrize(
    "text",
    ["", "x", "<a>x", "x</a>", "</a>x<a>", "<A>x</A>", "< a>x</ a>", "<ab>x</ab>", '<a b="">x</a>'],
)
def test_without_a_closed_tag_the_default_is_played(text):
    assert extract_tag("a")(text) == ""
    assert extract_tag("a", default="I pass.")(text) == "I pass."
    assert extract_tag("a", default=None)(text) == text


def test_tags_are_names_and_not_patterns():
    assert extract_tag("a.b")("<a.b>x</a.b> <aXb>y</aXb>") == "x"
    assert extract_tag("final_answer-2")("<final_answer-2>x</final_answer-2>") == "x"
    for tag in ("", "<answer>", "a b", "1a", "a\n", None, 3):
        with pytest.raises(ValueError, match="the name of a tag, such as 'answer', got"):
            extract_tag(tag)
    with pytest.raises(TypeError, match="string or None as default, got 0"):
        extract_tag("a", default=0)


def test_the_wrapper_pickles_with_its_env():
    env = TransformAction(make("story-length-ratio-v0"), [extract_tag("a"), strip])
    twin = pickle.loads(pickle.dumps(env))
    texts = said("<a> x </a>", "<a>xx</a>")
    env.reset(seed=0)
    twin.reset(seed=0)
    assert twin.step(texts) == env.step(texts)
    assert env.env.get_state().actions == (("x", "xx"),)
