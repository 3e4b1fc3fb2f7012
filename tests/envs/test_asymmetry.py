"""Agents that differ: who acts when, what each reads, what each is paid, and how many there are."""

import pytest
from asymmetric_envs import WORDS, crowd, describe_and_guess, dilemma, round_robin

from motet.agents import FixedAgent, RandomAgent
from motet.algos import collect_rollouts, evaluate
from motet.envs import TextBatch, TextEnv, check_env


@pytest.mark.parametrize("make_env", [describe_and_guess, dilemma])
def test_two_differing_agents_keep_all_rules(make_env):
    check_env(make_env)


@pytest.mark.parametrize("num_agents", range(1, 9))
@pytest.mark.parametrize("make_env", [round_robin, crowd])
def test_one_to_eight_agents_keep_all_rules(make_env, num_agents):
    check_env(make_env, num_agents=num_agents, seeds=[0])


def test_an_action_out_of_turn_is_ignored():
    env = describe_and_guess()
    observations, infos = env.reset(options={"row": 1})
    assert observations == {
        "speaker": "Describe it. The word is umbrella.",
        "listener": "Wait.",
    }
    assert {name: info["acts"] for name, info in infos.items()} == {
        "speaker": True,
        "listener": False,
    }
    observations, rewards, _, _, infos = env.step(
        {"speaker": "keeps off rain", "listener": "umbrella"}
    )
    assert rewards == {"speaker": 0.0, "listener": 0.0}
    assert observations["listener"] == "Which word is this? keeps off rain"
    assert env.get_state().actions == (("keeps off rain", ""),)
    assert [info["acts"] for info in infos.values()] == [False, True]
    _, rewards, terminations, _, infos = env.step({"speaker": "ladder", "listener": "umbrella"})
    assert rewards == {"speaker": 1.0, "listener": 1.0}
    assert all(terminations.values())
    assert not any(info["acts"] for info in infos.values())
    assert env.get_state().actions[1] == ("", "umbrella")


def test_only_those_whose_turn_it_is_are_asked():
    team = {"speaker": FixedAgent("thing"), "listener": RandomAgent(WORDS, seed=0)}
    rollout = collect_rollouts(describe_and_guess(), team, [0, 1, 2], num_generations=4, seed=0)
    first, second = rollout.levels
    assert {name for node in first for name in node.completions} == {"speaker"}
    assert {name for node in second for name in node.completions} == {"listener"}
    for node in second:
        texts = [completion.text for completion in node.completions["listener"]]
        assert node.rewards["speaker"] == tuple(float(text == WORDS[node.row]) for text in texts)


def test_rewards_of_each_agents_own():
    env = dilemma()
    env.reset()
    assert env.step({"ann": "C", "bob": "D"})[1] == {"ann": 0.0, "bob": 5.0}
    observations, rewards, *_ = env.step({"ann": "D", "bob": "D"})
    assert rewards == {"ann": 1.0, "bob": 1.0}
    assert observations == {"ann": "The other said 'D'.", "bob": "The other said 'D'."}
    assert env.get_state().rewards == ((0.0, 5.0), (1.0, 1.0))
    metrics = evaluate(env, {"ann": FixedAgent("C"), "bob": FixedAgent("D")}).metrics
    assert metrics["return_mean"] == 3 * 2.5


def test_eight_speak_one_after_the_other():
    env = round_robin(8)
    team = {name: FixedAgent(name) for name in env.possible_agents}
    assert evaluate(env, team).metrics["return_mean"] == 8.0
    echo = dict.fromkeys(env.possible_agents, FixedAgent("same"))
    assert evaluate(env, echo).metrics["return_mean"] == 1.0


def test_crossing_joins_only_those_who_act():
    env = round_robin(3)
    team = dict.fromkeys(env.possible_agents, RandomAgent(["a", "b", "c"], seed=0))
    rollout = collect_rollouts(env, team, [0], num_generations=2, joint_mode="cross", seed=0)
    assert [len(level) for level in rollout.levels] == [1, 2, 4]  # 2, not 2^3, per node


def test_a_batch_ignores_actions_out_of_turn_too():
    batch = TextBatch(describe_and_guess())
    batch.reset(rows=[0, 2])
    batch.step([{"speaker": "x", "listener": "y"}] * 2)
    results = batch.step([{"speaker": "", "listener": word} for word in ("ladder", "no")])
    assert [result.rewards["listener"] for result in results] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("acting", "error", "sentence"),
    [
        ("agent_0", TypeError, "list of the agents that act in each turn"),
        ([], TypeError, "list of the agents that act in each turn"),
        (["agent_0"], TypeError, "put a single name into a list"),
        ([[]], ValueError, "at least one of"),
        ([[["agent_0"]]], ValueError, r"to act in turn 1, got \[\['agent_0'\]\]"),
        ([["nobody"]], ValueError, r"to act in turn 1, got \['nobody'\]"),
        (lambda when: ["agent_0"], TypeError, "'when'.*row, turn"),
    ],
)
def test_what_acting_must_be(acting, error, sentence):
    with pytest.raises(error, match=sentence):
        TextEnv([{"prompt": "p"}], lambda a, b: [0.0] * len(a), acting=acting)


def test_a_function_that_names_a_stranger_is_caught_at_reset():
    env = TextEnv(
        [{"prompt": "p"}], lambda a, b: [0.0] * len(a), acting=lambda row: [row["prompt"]]
    )
    with pytest.raises(ValueError, match=r"to act in turn 1, got \['p'\]"):
        env.reset()
