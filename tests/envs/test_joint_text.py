"""One policy that writes for all: the joint prompt, what is parsed of its text, and the env."""

import pickle

import numpy as np
import pytest
from asymmetric_envs import describe_and_guess, dilemma, round_robin
from good_env import Cut, Good
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from paid_env import paid_env

from motet.agents import FixedAgent, RandomAgent
from motet.algos import collect_rollouts, evaluate
from motet.envs import (
    JointText,
    TextBatch,
    TextEnv,
    TextSpace,
    check_env,
    make,
    to_aec,
    to_gymnasium,
)
from motet.envs.simulator import ClonedEpisodes, steps_in_batches
from motet.envs.views import joint_prompt, tagged_sections
from motet.envs.wrappers import PromptTemplate, RecordTranscripts, RewardShaping, TimeLimit

NAMES = ["agent_0", "agent_1"]


def story(**kwargs):
    return make("story-length-ratio-v0", **({"num_turns": 3, "shuffle": True} | kwargs))


def credited():
    return story(early_termination_threshold=0.9, early_termination="branch")


def said(**texts):
    """One text with a section for each agent."""
    return {"team": " ".join(f"<{name}>{text}</{name}>" for name, text in texts.items())}


def by_letter(text, agents):
    return dict(zip(agents, text, strict=False))


# --- the prompt ------------------------------------------------------------------------------


def test_a_prompt_that_all_have_is_shown_once():
    prompt = joint_prompt({"a": "Rain.", "b": "Rain."})
    assert prompt == "Rain.\n\nAnswer in this form: <a>...</a> <b>...</b>\n"


def test_prompts_that_differ_are_shown_by_name():
    prompt = joint_prompt({"a": "Rain.", "b": "Sun."})
    assert prompt == (
        "<a>Rain.</a>\n<b>Sun.</b>\n\nAnswer each in this form: <a>...</a> <b>...</b>\n"
    )


def test_a_prompt_function_of_ones_own():
    env = JointText(paid_env(), prompt_fn=lambda seen: " | ".join(map(": ".join, seen.items())))
    assert env.reset(seed=0)[0] == {"team": "agent_0: p | agent_1: p"}
    assert env.step(said(agent_0="1", agent_1="2"))[0] == {
        "team": "agent_0: p after 1: 1 | agent_1: p after 1: 2"
    }


# --- the parser ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sections"),
    [
        ("<a>one</a><b>two</b>", {"a": "one", "b": "two"}),
        ("<b>two</b> <a>one</a>", {"a": "one", "b": "two"}),
        ("I think: <a>one</a>, then\n<b>\ntwo \n</b>. Done.", {"a": "one", "b": "\ntwo \n"}),
        ("<a></a><b> </b>", {"a": "", "b": " "}),
        ("<b>two</b>", {"b": "two"}),  # missing
        ("", {}),
        ("no tags", {}),
        ("<a>draft</a><a>one</a><b>two</b>", {"a": "one", "b": "two"}),  # twice
        ("<a>one <b>two</b></a>", {"a": "one <b>two</b>"}),  # nested
        ("<a>one <a>two</a>", {"a": "one <a>two"}),
        ("<a>one <b>two</b>", {"b": "two"}),  # never closed
        ("<b>two</b> <a>one", {"b": "two"}),  # cut
        ("one</a> <b>two</b>", {"b": "two"}),  # never opened
        ("<a>one</b><b>two</a>", {"a": "one</b><b>two"}),
        ("<A>one</A><c>three</c><b >two</b>", {}),  # other tags
        ("< a>one</a>", {}),
    ],
)
def test_sections_of_a_text(text, sections):
    assert tagged_sections(text, ["a", "b"]) == sections


def test_names_that_look_like_patterns_or_begin_alike():
    text = "<a.b>one</a.b><a>two</a><axb>three</axb><ab>four</ab>"
    assert tagged_sections(text, ["a", "ab", "a.b"]) == {"a.b": "one", "a": "two", "ab": "four"}


def test_sections_of_degenerate_text_take_no_time():
    # searched once per opening tag this would be 10^10 characters
    assert tagged_sections("<a><b>" * 100_000 + "</b>", ["a", "b"])["b"].startswith("<a><b>")


# --- the env ---------------------------------------------------------------------------------

ENVS = {
    "story": lambda: JointText(story()),
    "sum": lambda: JointText(story(), reward="sum"),
    "credited": lambda: JointText(credited()),
    "letters": lambda: JointText(story(), parser=by_letter),
    "each its own reward": lambda: JointText(dilemma()),
    "by turns": lambda: JointText(describe_and_guess()),
    "three agents": lambda: JointText(round_robin(3)),
    "one agent": lambda: JointText(round_robin(1)),
    "cut inside": lambda: JointText(TimeLimit(story(), 2)),
    "cut outside": lambda: TimeLimit(JointText(story()), 2),
    "shaped": lambda: RewardShaping(JointText(credited()), "improvement"),
    "stack": lambda: PromptTemplate(
        JointText(RewardShaping(TimeLimit(story(), 2), "last_turn")), "{turn} {observation}"
    ),
    "twice": lambda: JointText(JointText(story())),
    "another env": lambda: JointText(Good()),
    "another env, cut": lambda: JointText(Cut()),
}
every_env = pytest.mark.parametrize("name", ENVS)


@every_env
def test_check_env_passes(name):
    check_env(ENVS[name], seeds=(0,))


@pytest.mark.parametrize("name", [name for name in ENVS if "another" not in name])
def test_step_batch_equals_single_steps(name):
    env = ENVS[name]()
    assert steps_in_batches(env)
    inner = env.unwrapped.possible_agents
    texts = [
        " ".join(f"<{agent}>{'x' * (3 * i + k)}</{agent}>" for i, agent in enumerate(inner))
        for k in range(2)
    ]
    joint_actions = [{"team": text} for text in (*texts, "", "ab", "<agent_0>C")]
    env.reset(seed=1)
    while env.agents:
        state = env.get_state()
        results = env.step_batch([state] * len(joint_actions), joint_actions)
        for actions, result in zip(joint_actions, results, strict=True):
            env.set_state(pickle.loads(pickle.dumps(state)))
            assert env.step(actions) == result.five_dicts
            assert env.get_state() == result.state


@every_env
def test_clones_and_batches_are_collected_alike(name):
    env = ENVS[name]()
    team = {"team": RandomAgent(["", "ab", "<agent_0>a</agent_0><agent_1>bbb</agent_1>", "<ann>x"])}
    rollout = collect_rollouts(env, team, [0, 0], num_generations=3, seed=2)

    class Foreign(type(env)):
        """Is stepped clone by clone, since it overrides `step`."""

        def step(self, actions):
            return super().step(actions)

    slow = ENVS[name]()
    slow.__class__ = Foreign
    assert not steps_in_batches(slow)
    assert rollout == collect_rollouts(slow, team, [0, 0], num_generations=3, seed=2)


def test_an_episode_is_that_of_the_env_inside():
    env, inside = JointText(story(num_turns=2)), story(num_turns=2)
    observations, infos = env.reset(seed=3)
    seen, infos_inside = inside.reset(seed=3)
    row = infos_inside["agent_0"]["row"]
    assert observations == {"team": joint_prompt(seen)}
    assert infos == {"team": {"acts": True, "row": row, "turn": 0, "agents": infos_inside}}
    for turn in (1, 2):
        texts = {"agent_0": "xx", "agent_1": "xxx"}
        observations, rewards, terminations, truncations, infos = env.step(said(**texts))
        seen, paid, *_, infos_inside = inside.step(texts)
        assert observations == {"team": joint_prompt(seen) if turn == 1 else ""}
        assert rewards == {"team": paid["agent_0"]} == {"team": pytest.approx(np.exp(-0.5))}
        assert (terminations, truncations) == ({"team": turn == 2}, {"team": False})
        assert infos == {
            "team": {
                "acts": turn == 1,
                "row": row,
                "turn": turn,
                "texts": texts,
                "missing": [],
                "agents": infos_inside,
                "turn_reward": rewards["team"],
                "turns_credited": 1,
            }
        }
    assert env.agents == []
    assert data_equivalence(env.state(), inside.state())


def test_who_has_no_section_says_nothing_and_is_named():
    heard = []

    def reward(first, second):
        heard.extend(zip(first, second, strict=True))
        return [0.0] * len(first)

    env = JointText(TextEnv([{"prompt": "p"}], reward))
    for text, texts, missing in [
        ("<agent_1>b</agent_1>", ("", "b"), ["agent_0"]),
        ("<agent_0>a</agent_0><agent_1>b", ("a", ""), ["agent_1"]),
        ("<agent_0></agent_0><agent_1>b</agent_1>", ("", "b"), []),
        ("nothing", ("", ""), NAMES),
    ]:
        env.reset()
        info = env.step({"team": text})[-1]["team"]
        assert heard.pop() == texts
        assert info["texts"] == dict(zip(NAMES, texts, strict=True))
        assert info["missing"] == missing


def test_the_team_earns_the_mean_or_the_sum():
    for reward, earned in (("mean", 2.5), ("sum", 5.0)):
        env = JointText(dilemma(), reward=reward)
        env.reset(seed=0)
        assert env.step(said(ann="C", bob="D"))[1] == {"team": earned}  # 0 and 5
    with pytest.raises(ValueError, match="Expected reward 'mean' or 'sum', got 'max'"):
        JointText(dilemma(), reward="max")


def test_agents_that_have_left_are_not_asked_and_still_count():
    env, inside = JointText(Good(), prompt_fn=",".join), Good()
    assert env.reset(seed=0)[0] == {"team": "ann,bob"}
    inside.reset(seed=0)
    prompts = ["ann,bob", "ann", ""]  # bob leaves a turn before ann
    for prompt in prompts:
        paid = inside.step(dict.fromkeys(inside.agents, "ab"))[1]
        seen, rewards, ended, cut, infos = env.step(said(ann="ab", bob="ab"))
        assert seen == {"team": prompt}
        assert rewards == {"team": pytest.approx(sum(paid.values()) / 2)}
        assert (ended, cut) == ({"team": prompt == ""}, {"team": False})
        assert infos["team"]["texts"].keys() == paid.keys()


def test_a_team_that_is_cut_sees_what_would_have_come():
    env = JointText(TimeLimit(paid_env(), 1))
    env.reset(seed=0)
    seen, _, ended, cut, _ = env.step(said(agent_0="1", agent_1="2"))
    assert seen["team"].startswith("<agent_0>p after 1: 1</agent_0>")
    assert (ended, cut) == ({"team": False}, {"team": True})
    env = JointText(Cut())  # bob is terminated, ann truncated later
    env.reset(seed=0)
    *_, (_, _, ended, cut, _) = [env.step({"team": ""}) for _ in range(3)]
    assert (ended, cut) == ({"team": False}, {"team": True})


def test_only_those_who_act_are_in_the_prompt_and_are_parsed():
    env = JointText(describe_and_guess())
    assert "<listener>" not in env.reset(seed=0)[0]["team"]
    seen, *_, infos = env.step(said(speaker="You climb it.", listener="ladder"))
    assert infos["team"]["texts"] == {"speaker": "You climb it.", "listener": ""}
    assert infos["team"]["missing"] == []
    assert "<speaker>" not in seen["team"]
    assert "Which word is this? You climb it." in seen["team"]
    assert env.step(said(listener="ladder"))[1] == {"team": 1.0}


def test_the_credit_of_an_early_stop_is_the_teams():
    env = JointText(credited())
    env.reset(seed=0)
    actions = said(agent_0="xx", agent_1="xxxxx")
    _, rewards, ended, _, infos = env.step(actions)
    assert (rewards, ended) == ({"team": 3.0}, {"team": True})
    assert (infos["team"]["turn_reward"], infos["team"]["turns_credited"]) == (1.0, 3)
    team = {"team": FixedAgent(actions["team"])}
    (node,) = collect_rollouts(env, team, [0], num_generations=1).levels[0]
    assert (node.rewards, node.turns_credited) == ({"team": (1.0,)}, (3,))


def test_a_scripted_team_earns_what_its_agents_earn_apart():
    apart = {"agent_0": FixedAgent("xx"), "agent_1": FixedAgent("x" * 4)}
    together = {"team": FixedAgent(said(agent_0="xx", agent_1="x" * 4)["team"])}
    metrics = evaluate(story(), apart).metrics
    joint = evaluate(JointText(story()), together).metrics
    assert metrics.pop("num_completions") == 2 * joint.pop("num_completions")
    assert metrics == joint


def test_views_and_wrappers_go_around_it(tmp_path):
    env = RecordTranscripts(JointText(story(num_turns=1)), tmp_path / "log.jsonl")
    batch = TextBatch(env)
    batch.reset(rows=[0, 1])
    batch.step([{"team": "x"}] * 2)
    assert (tmp_path / "log.jsonl").read_text().count("\n") == 2
    gym = to_gymnasium(JointText(story()))
    gym.reset(seed=0)
    assert gym.step({"team": ""})[1] == pytest.approx(0.0, abs=1)
    aec = to_aec(JointText(story()))
    aec.reset(seed=0)
    assert aec.agent_selection == "team"
    assert aec.last()[0].endswith("<agent_0>...</agent_0> <agent_1>...</agent_1>\n")


# --- what is refused -------------------------------------------------------------------------


def test_a_section_outside_its_space_is_missing():
    class Short(Good):
        def __init__(self, num_turns=3):
            super().__init__(num_turns)
            self.spaces = {agent: TextSpace(max_length=3) for agent in self.possible_agents}

    env = JointText(Short(), prompt_fn=lambda seen: "?")
    env.reset(seed=0)
    info = env.step(said(ann="long text", bob="ab"))[-1]["team"]
    assert (info["texts"], info["missing"]) == ({"ann": "", "bob": "ab"}, ["ann"])


def test_envs_and_functions_that_do_not_fit():
    class Loud(Good):
        def action_space(self, agent):
            return spaces.Text(5)

    with pytest.raises(ValueError, match=r"whose agents may say nothing.*action space of ann"):
        JointText(Loud())
    with pytest.raises(TypeError, match="Expected a PettingZoo ParallelEnv to wrap"):
        JointText(None)
    with pytest.raises(TypeError, match=r"Expected a function f\(observations\) as prompt_fn, got"):
        JointText(story(), prompt_fn="Answer.")
    with pytest.raises(TypeError, match=r"Expected a function of \(text, agents\) as parser, got"):
        JointText(story(), parser=lambda text: {})
    with pytest.raises(KeyError, match="Expected the agent 'team', got 'agent_0'"):
        JointText(story()).action_space("agent_0")


@pytest.mark.parametrize(
    ("parser", "error", "sentence"),
    [
        (lambda text, agents: [text], TypeError, "a mapping of texts by agent from the parser"),
        (lambda text, agents: {"bob": text}, ValueError, r"got some of \['bob'\]"),
        (lambda text, agents: {"agent_0": None}, TypeError, "section of agent_0 .* leave out"),
    ],
)
def test_faults_of_a_parser_are_named_and_the_turn_can_be_played_again(parser, error, sentence):
    parsers = [tagged_sections, parser]

    def parse(text, agents):
        return parsers.pop()(text, agents)

    env = JointText(story(), parser=parse)
    env.reset(seed=0)
    before = env.get_state()
    with pytest.raises(error, match=sentence):
        env.step({"team": "x"})
    assert env.get_state() == before
    env.step({"team": "x"})


def test_a_prompt_that_is_no_text_is_named():
    env = JointText(story(), prompt_fn=lambda seen: None)
    with pytest.raises(TypeError, match=r"a string as what prompt_fn returns for .*'agent_0'"):
        env.reset()


def test_clones_by_the_slow_path_keep_the_view():
    started = ClonedEpisodes(JointText(story())).start([2])[0]
    assert list(started.observations) == ["team"]
