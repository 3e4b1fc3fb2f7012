"""PromptTemplate: what agents read, and what is left alone."""

import pickle

import pytest
from good_env import Good
from gymnasium import spaces
from paid_env import paid_env, said

from motet.envs import TextEnv, TextSpace, make
from motet.envs.wrappers import PromptTemplate, TimeLimit


def test_all_fields_are_filled_in_every_turn():
    env = PromptTemplate(paid_env(), "{agent} of {num_agents}, turn {turn}: {observation}!")
    observations, _ = env.reset(seed=0)
    assert observations == {
        "agent_0": "agent_0 of 2, turn 1: p!",
        "agent_1": "agent_1 of 2, turn 1: p!",
    }
    assert env.step(said(1, 2))[0] == {
        "agent_0": "agent_0 of 2, turn 2: p after 1: 1!",
        "agent_1": "agent_1 of 2, turn 2: p after 1: 2!",
    }
    env.step(said(1, 2))
    assert env.reset()[0]["agent_0"] == "agent_0 of 2, turn 1: q!"


@pytest.mark.parametrize(
    "text", ["{agent}", "{{agent}}", "{", "}", "{0}", "{observation.__class__}", "%s $agent"]
)
def test_braces_in_observations_are_text(text):
    env = PromptTemplate(TextEnv([{"prompt": text}], lambda a, b: [0.0]), "<{observation}>")
    assert env.reset()[0]["agent_0"] == f"<{text}>"


def test_doubled_braces_in_a_template_are_braces():
    env = PromptTemplate(paid_env(), '{{"prompt": "{observation}", "again": "{observation}"}}')
    assert env.reset(seed=0)[0]["agent_0"] == '{"prompt": "p", "again": "p"}'


def test_a_function_gets_observation_agent_and_turn():
    env = PromptTemplate(paid_env(), lambda *args: repr(args))
    assert env.reset(seed=0)[0]["agent_1"] == "('p', 'agent_1', 1)"
    assert env.step(said(1, 2))[0]["agent_1"] == "('p after 1: 2', 'agent_1', 2)"


def test_each_agent_may_have_its_own():
    env = PromptTemplate(
        paid_env(),
        {"agent_1": lambda observation, agent, turn: f"{turn}", "agent_0": "A {observation}"},
    )
    assert env.reset(seed=0)[0] == {"agent_0": "A p", "agent_1": "1"}


def test_final_observations_stay_as_they_are():
    env = PromptTemplate(paid_env(num_turns=1), "<{observation}>")
    env.reset()
    assert set(env.step(said(1, 1))[0].values()) == {""}
    env, bare = PromptTemplate(Good(), "<{observation}>"), Good()  # bob leaves a turn before ann
    env.reset(seed=0)
    bare.reset(seed=0)
    for _ in range(3):
        actions = dict.fromkeys(bare.agents, "a")
        seen, plain = env.step(actions)[0], bare.step(actions)[0]
        assert set(seen) == set(plain)
        for agent, text in plain.items():
            assert seen[agent] == (f"<{text}>" if agent in bare.agents else text)


def test_what_a_cut_agent_would_have_read_is_formatted_in_either_order():
    for env in (
        PromptTemplate(TimeLimit(paid_env(), 1), "{turn} {observation}"),
        TimeLimit(PromptTemplate(paid_env(), "{turn} {observation}"), 1),
    ):
        env.reset(seed=0)
        assert env.step(said(1, 2))[0] == {"agent_0": "2 p after 1: 1", "agent_1": "2 p after 1: 2"}


def test_what_a_cut_agent_gets_instead_of_a_prompt_stays_empty():
    class Cut(Good):
        def step(self, actions):
            _, rewards, ended, _, infos = super().step(actions)
            self.agents = []
            return (
                dict.fromkeys(ended, ""),
                rewards,
                dict.fromkeys(ended, False),
                dict.fromkeys(ended, True),
                infos,
            )

    env = PromptTemplate(Cut(), "<{observation}>")
    env.reset()
    assert set(env.step({"ann": "", "bob": ""})[0].values()) == {""}


def test_the_turn_is_part_of_a_snapshot():
    env = PromptTemplate(paid_env(), "{turn} {observation}")
    env.reset(seed=0)
    start = env.get_state()
    after = env.step(said(1, 1))[0]
    env.step(said(1, 1))
    env.set_state(pickle.loads(pickle.dumps(start)))
    assert env.step(said(1, 1))[0] == after


def test_the_wrapper_pickles_with_its_env():
    env = PromptTemplate(make("story-length-ratio-v0"), "Be brief. {observation}")
    twin = pickle.loads(pickle.dumps(env))
    assert twin.reset(seed=0) == env.reset(seed=0)


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{observation} {colour}", r"with \{colour\}"),
        ("{observation.__class__}", r"with \{observation.__class__\}"),
        ("{observation[0]}", r"with \{observation\[0\]\}"),
        ("{observation!r}", r"with \{observation!r\}"),
        ("{observation} {turn:>{agent}}", r"with \{turn:>\{agent\}\}"),
        ("{observation} {}", r"with \{\}"),
        ("{observation} {0}", r"with \{0\}"),
        ("{observation", "'}' before end of string; write {{ and }} for braces"),
        ("{observation} }", "Single '}'"),
        ("Answer in French.", "without {observation}; pass a function"),
        ("", "without {observation}"),
        ({"agent_0": "{observation}", "agent_1": "{colour}"}, "with {colour}"),
        (
            {"agent_0": "{observation}"},
            r"template for \['agent_0', 'agent_1'\], got .* \['agent_0'",
        ),
        ({"agent_0": "{observation}", "bob": "{observation}"}, r"got template for .*'bob'"),
    ],
)
def test_wrong_templates(template, sentence):
    with pytest.raises(ValueError, match=sentence.replace("{{", r"\{\{")):
        PromptTemplate(paid_env(), template)


@pytest.mark.parametrize("template", [None, 3, ["{observation}"], b"{observation}"])
def test_templates_of_a_wrong_type(template):
    with pytest.raises(TypeError, match=r"a string or a function f\(observation, agent, turn\)"):
        PromptTemplate(paid_env(), template)


def test_functions_must_return_text_of_the_observation_space():
    with pytest.raises(TypeError, match="string from the template of agent_0, got None of type"):
        PromptTemplate(paid_env(), lambda observation, agent, turn: None).reset()
    with pytest.raises(ValueError, match=r"template of agent_0 to give a text in TextSpace"):
        PromptTemplate(paid_env(), lambda observation, agent, turn: "\ud800").reset()

    class Short(Good):
        def __init__(self):
            super().__init__()
            self.spaces = {agent: TextSpace(30) for agent in self.possible_agents}

    PromptTemplate(Short(), "{observation}").reset()
    with pytest.raises(ValueError, match=r"of ann to give a text in .*30.*characters"):
        PromptTemplate(Short(), "Read this carefully: {observation}!").reset()


def test_observations_must_be_texts():
    class Numbers(Good):
        def observation_space(self, agent):
            return spaces.Discrete(9)

        def observe(self, agents):
            return dict.fromkeys(agents, 5)

    with pytest.raises(TypeError, match="a text as the observation of ann, got 5 of type int"):
        PromptTemplate(Numbers(), "{observation}").reset()
