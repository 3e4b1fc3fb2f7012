"""What a task is made of: reward functions, reward processors, transitions, early termination."""

import functools
import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch

from motet.envs.task.reward_processors import RewardProcessors
from motet.envs.text_env import TextEnv

ROWS = [
    {"prompt": "Rain", "answer": 7, "level": "easy"},
    {"prompt": "Sun", "answer": 9, "level": "hard"},
]
SAID = {"agent_0": "one", "agent_1": "two"}


def ones(first, second):
    return [1.0] * len(first)


def keep(prompt, agent_completions, num_agents):
    return [prompt] * num_agents


def started(reward_func=ones, row=0, **kwargs):
    """Build an env with a transition and reset it."""
    env = TextEnv(ROWS, reward_func, **{"transition": keep, **kwargs})
    env.reset(seed=0, options={"row": row})
    return env


class Recorder:
    """A reward function that keeps what it was called with."""

    def __init__(self):
        self.calls = []

    def __call__(self, first, second, **named):
        self.calls.append(((first, second), named))
        return [1.0] * len(first)


# --- what a reward function is given ---------------------------------------------------------


def test_one_list_of_texts_per_agent():
    recorder = Recorder()
    env = started(recorder)
    state = env.get_state()
    env.step_batch([state] * 3, [{"agent_0": x, "agent_1": x * 2} for x in "abc"])
    assert [call[0] for call in recorder.calls] == [(["a", "b", "c"], ["aa", "bb", "cc"])]


def test_kwargs_get_every_name():
    recorder = Recorder()
    env = started(recorder, num_turns=2, row=1)
    env.step(SAID)
    env.step({"agent_0": "1", "agent_1": "2"})
    columns = {"prompt": ["Sun"], "answer": [9], "level": ["hard"]}
    given = {"prompts": ["Sun"], "rows": [ROWS[1]], "batch_items": [ROWS[1]], **columns}
    first, second = (named for _, named in recorder.calls)
    assert first == {**given, "turn": [1], "histories": [{"agent_0": [], "agent_1": []}]}
    histories = [{"agent_0": [("Sun", "one")], "agent_1": [("Sun", "two")]}]
    assert second == {**given, "turn": [2], "histories": histories}


def test_named_parameters_are_filled_by_name_in_any_position():
    given = {}

    def reward(first, second, answer, rows, *, turn, prompts, batch_items, histories, level):
        given.update(locals())
        return [float(a) for a in answer]

    env = started(reward)
    states = [env.initial_state(0), env.initial_state(1)]
    results = env.step_batch(states, [SAID, SAID])
    assert [result.rewards["agent_0"] for result in results] == [7.0, 9.0]
    assert given["answer"] == [7, 9]
    assert given["level"] == ["easy", "hard"]
    assert given["turn"] == [1, 1]
    assert given["prompts"] == ["Rain", "Sun"]
    assert given["rows"] == given["batch_items"] == ROWS
    assert given["histories"] == [{"agent_0": [], "agent_1": []}] * 2


def test_what_nothing_fills_keeps_its_default():
    def reward(first, second, bonus=0.25, *, answer=0, scale=2.0):
        return [bonus + answer[0] * scale]

    assert started(reward).step(SAID)[1]["agent_0"] == 14.25


def test_partials_lambdas_methods_and_callables():
    def reward(first, second, goal, *, weight, answer):
        return [goal * weight + answer[0]]

    class Judge:
        def __call__(self, first, second, *, answer):
            return answer

        def judge(self, first, second, level):
            return [float(len(level[0]))]

    cases = {
        14.0: functools.partial(reward, goal=1.0, weight=7.0),
        7.0: Judge(),
        4.0: Judge().judge,
        3.0: lambda first, second: [len(x) for x in first],
        2.0: lambda *texts: [float(len(texts))],
    }
    for expected, function in cases.items():
        assert started(function).step(SAID)[1] == {"agent_0": expected, "agent_1": expected}


def test_a_bound_argument_wins_over_a_column_of_its_name():
    def reward(first, second, *, answer):
        return [answer]

    assert started(functools.partial(reward, answer=3.0)).step(SAID)[1]["agent_0"] == 3.0


async def judged_later(first, second):
    return [1.0] * len(first)


class JudgedLater:
    async def __call__(self, first, second):
        return [1.0] * len(first)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda first, second, wanted: [1.0], "fills the parameter 'wanted' of reward_func"),
        (lambda first, second, *, wanted: [1.0], "fills the parameter 'wanted' .* answer, batch"),
        (lambda first: [1.0], "take 2 positional arguments .*agent_0.*agent_1.*function of 1"),
        (lambda first, second, wanted, /: [1.0], "fills the parameter 'wanted'"),
        (functools.partial(lambda a, b, c, d: [1.0], c=1), "fills the parameter 'd'"),
        ("ones", "a callable as reward_func, got 'ones'"),
        (lambda a, b, c: [1.0], "the first ones are the completions of agent_0, .*agent_1, and"),
        (judged_later, "returns its result as reward_func, got the coroutine function .*asyncio"),
        (functools.partial(judged_later), "returns its result as reward_func"),
        (JudgedLater(), "returns its result as reward_func"),
        (max, "parameters can be read as reward_func, got <built-in function max>"),
    ],
)
def test_what_cannot_be_called_is_a_type_error_when_built(function, sentence):
    with pytest.raises(TypeError, match=sentence):
        TextEnv(ROWS, function)


# --- what a reward function returns ----------------------------------------------------------


@pytest.mark.parametrize(
    "returned",
    [
        [2],
        (2.0,),
        np.array([2.0], dtype=np.float32),
        [np.int64(2)],
        [Fraction(2)],
        torch.tensor([2.0]),
        [torch.tensor(2)],
        {"agent_0": [2.0], "agent_1": {"mine": 2.0}.values()},
    ],
)
def test_rewards_become_python_floats(returned):
    _, rewards, *_ = started(lambda first, second: returned).step(SAID)
    assert rewards == {"agent_0": 2.0, "agent_1": 2.0}
    assert {type(value) for value in rewards.values()} == {float}


def test_a_reward_for_each_agent():
    def reward(first, second):
        return {"agent_1": [2.0] * len(first), "agent_0": [-1.0] * len(first)}

    _, rewards, _, _, infos = started(reward).step(SAID)
    assert rewards == {"agent_0": -1.0, "agent_1": 2.0}
    assert [infos[name]["turn_reward"] for name in rewards] == [-1.0, 2.0]


@pytest.mark.parametrize(
    ("returned", "exception", "sentence"),
    [
        ([1.0, 2.0], ValueError, r"Expected 1 rewards.* got 2 .*\('one', 'two'\)"),
        ([], ValueError, r"Expected 1 rewards.* got 0 .*\('one', 'two'\)"),
        ([math.nan], ValueError, r"finite reward, got nan for row 1 at turn 1 .*'one', 'two'"),
        ([-math.inf], ValueError, r"finite reward, got -inf for row 1 .*'one', 'two'"),
        (
            {"agent_0": [1.0]},
            ValueError,
            r"rewards for \['agent_0', 'agent_1'\], got \['agent_0'\]",
        ),
        ({"agent_0": [1.0], "agent_1": [math.nan]}, ValueError, "finite reward, got nan"),
        ({"agent_0": [1.0], "agent_1": []}, ValueError, "Expected 1 rewards.* got 0"),
        (None, TypeError, "Expected a list of 1 rewards, .* got None from reward_func"),
        (1.0, TypeError, "Expected a list of 1 rewards, .* got 1.0 from reward_func"),
        ("1", TypeError, "Expected a list of 1 rewards, .* got '1' from reward_func"),
        (b"1", TypeError, "Expected a list of 1 rewards, .* got b'1' from reward_func"),
        ({1.0}, TypeError, r"Expected a list of 1 rewards, .* got \{1.0\} from reward_func"),
        (np.array(1.0), TypeError, r"Expected a list of 1 rewards, .* got array\(1.\)"),
        (torch.tensor(1.0), TypeError, r"Expected a list of 1 rewards, .* got tensor\(1.\)"),
        (
            {"agent_0": [1.0], "agent_1": {"mine": 1.0}},
            TypeError,
            r"Expected a list of 1 rewards, .* got \{'mine': 1.0\}",
        ),
    ],
)
def test_wrong_rewards_raise_with_what_caused_them(returned, exception, sentence):
    env = started(lambda first, second: returned, row=1)
    before = env.get_state()
    with pytest.raises(exception, match=sentence):
        env.step(SAID)
    assert env.get_state() == before


@pytest.mark.parametrize(
    "returned",
    [
        ["1.0"],
        [np.str_("1.0")],
        [None],
        [(1.0, 2.0)],
        [1j],
        np.array([1j]),
        np.ones((1, 2)),
        torch.ones(1, 2),
        [{"reward": 1.0}],
    ],
)
def test_what_is_no_number_is_no_reward(returned):
    sentence = "Expected a number as reward, got .* for row 1 at turn 1 with .*'one', 'two'"
    with pytest.raises(TypeError, match=re.compile(sentence, re.DOTALL)):
        started(lambda first, second: returned, row=1).step(SAID)


def test_truth_values_are_rewards():
    for value in (True, np.True_, torch.tensor(True)):
        _, rewards, *_ = started(lambda first, second, value=value: [value]).step(SAID)
        assert rewards == {"agent_0": 1.0, "agent_1": 1.0}


def test_the_sentence_names_the_row_and_texts_of_the_wrong_one():
    env = started(lambda first, second: [1.0, math.nan])
    states = [env.initial_state(0), env.initial_state(1)]
    with pytest.raises(ValueError, match=r"row 1 .*'left', 'right'"):
        env.step_batch(states, [SAID, {"agent_0": "left", "agent_1": "right"}])


@pytest.mark.parametrize("exception", [TypeError("mine"), KeyError("mine"), StopIteration("mine")])
def test_exceptions_of_the_reward_function_pass_untouched_after_one_call(exception):
    calls = []

    def reward(first, second, **kwargs):
        calls.append(1)
        raise exception

    env = started(reward)
    with pytest.raises(type(exception)) as caught:
        env.step(SAID)
    assert caught.value is exception
    assert len(calls) == 1


# --- processors ------------------------------------------------------------------------------


def test_processors():
    scale, shift = RewardProcessors.scale(factor=100.0), RewardProcessors.shift(value=-1.0)
    clip = RewardProcessors.clip(low=-2.0, high=3.0)
    assert scale(0.5) == 50.0
    assert shift(0.5) == -0.5
    assert [clip(-9.0), clip(1.5), clip(9.0)] == [-2.0, 1.5, 3.0]
    assert RewardProcessors.chain(scale, shift)(0.5) == 49.0
    assert RewardProcessors.chain(shift, scale, clip)(0.5) == -2.0
    assert RewardProcessors.chain()(0.5) == 0.5
    with pytest.raises(ValueError, match=r"low <= high, got clip\(low=2, high=1\)"):
        RewardProcessors.clip(2, 1)


def test_a_processor_is_applied_to_each_reward_before_the_threshold():
    env = started(
        lambda first, second: {"agent_0": [0.02], "agent_1": [0.04]},
        reward_processor=RewardProcessors.scale(100.0),
        early_termination_threshold=2.5,
        num_turns=2,
    )
    _, rewards, terminations, *_ = env.step(SAID)
    assert rewards == {"agent_0": 2.0, "agent_1": 4.0}
    assert terminations["agent_0"]


@pytest.mark.parametrize(
    ("build", "exception", "sentence"),
    [
        (lambda p: p.scale("2"), TypeError, "a number as the factor of scale, got '2'"),
        (lambda p: p.scale(math.nan), ValueError, "factor of scale, got NaN"),
        (lambda p: p.scale(math.inf), ValueError, "finite number as the factor of scale, got inf"),
        (lambda p: p.shift("a"), TypeError, "a number as the value of shift, got 'a'"),
        (lambda p: p.shift(-math.inf), ValueError, "value of shift, got -inf"),
        (lambda p: p.clip(math.nan, 1), ValueError, "low of clip, got NaN"),
        (lambda p: p.clip(0, None), TypeError, "a number as high of clip, got None"),
        (lambda p: p.chain("a"), TypeError, "functions of one reward in chain, got 'a'"),
        (lambda p: p.chain([abs]), TypeError, "in chain, got .* one by one"),
    ],
)
def test_wrong_processors_raise_when_they_are_built(build, exception, sentence):
    with pytest.raises(exception, match=sentence):
        build(RewardProcessors)


def test_a_bound_may_be_infinite():
    assert RewardProcessors.clip(-math.inf, 1.0)(-9.0) == -9.0


@pytest.mark.parametrize("processed", [None, "1", [1.0]])
def test_a_processor_returns_a_number(processed):
    env = started(reward_processor=lambda reward: processed)
    with pytest.raises(
        TypeError, match=r"number from reward_processor, got .* row 0 .*'one', 'two'"
    ):
        env.step(SAID)


def test_a_processor_that_makes_a_reward_infinite_is_caught():
    env = started(reward_processor=lambda reward: reward * math.inf)
    with pytest.raises(ValueError, match="finite reward, got inf"):
        env.step(SAID)


# --- transitions -----------------------------------------------------------------------------


def test_a_transition_gets_what_it_names_and_writes_the_next_prompts_verbatim():
    given = []

    def transition(
        prompt,
        agent_completions,
        num_agents,
        *,
        prompt_history_per_agent,
        response_history_per_agent,
        row,
        turn,
        reward,
    ):
        named = dict(locals())
        given.append({name: value for name, value in named.items() if name != "given"})
        return (f" {prompt}\n", "")

    env = started(
        lambda first, second: {"agent_0": [1.0], "agent_1": [2.0]},
        transition=transition,
        num_turns=3,
        formatters=[lambda row: "first", lambda row: "second"],
    )
    assert env.step(SAID)[0] == {"agent_0": " Rain\n", "agent_1": ""}
    env.step({"agent_0": "1", "agent_1": "2"})
    env.step(SAID)
    assert given == [
        {
            "prompt": "Rain",
            "agent_completions": ["one", "two"],
            "num_agents": 2,
            "prompt_history_per_agent": [["first"], ["second"]],
            "response_history_per_agent": [["one"], ["two"]],
            "row": ROWS[0],
            "turn": 1,
            "reward": 1.5,
        },
        {
            "prompt": "Rain",
            "agent_completions": ["1", "2"],
            "num_agents": 2,
            "prompt_history_per_agent": [["first", " Rain\n"], ["second", ""]],
            "response_history_per_agent": [["one", "1"], ["two", "2"]],
            "row": ROWS[0],
            "turn": 2,
            "reward": 1.5,
        },
    ]


def test_a_transition_is_called_once_per_branch_that_goes_on():
    calls = []

    def transition(agent_completions, **kwargs):
        calls.append(agent_completions)
        return agent_completions

    env = started(
        lambda first, second: [float(len(text)) for text in first],
        transition=transition,
        num_turns=2,
        early_termination_threshold=2.0,
    )
    state = env.get_state()
    results = env.step_batch(
        [state] * 3, [{"agent_0": x, "agent_1": "y"} for x in ("", "aaa", "b")]
    )
    assert calls == [["", "y"], ["b", "y"]]
    assert [result.state.ended for result in results] == [False, True, False]
    assert results[2].observations == {"agent_0": "b", "agent_1": "y"}


@pytest.mark.parametrize(
    ("prompts", "exception", "sentence"),
    [
        (["only"], ValueError, r"Expected 2 prompts .* got \['only'\] for row 0 after turn 1"),
        (["a", "b", "c"], ValueError, "Expected 2 prompts"),
        ("ab", TypeError, "Expected a list of 2 prompts .* got 'ab'"),
        (["a", None], TypeError, r"strings from transition, got \['a', None\]"),
        (None, TypeError, "Expected a list of 2 prompts .* got None"),
        (
            {"agent_0": "a", "agent_1": "b"},
            TypeError,
            r"Expected a list of 2 prompts .* got \{'agent_0': .* list in the agents' order",
        ),
        ({"a", "b"}, TypeError, "Expected a list of 2 prompts"),
        (["a", "b\ud800"], ValueError, "from transition, got .* row 0 .* lone surrogate"),
    ],
)
def test_wrong_prompts_raise(prompts, exception, sentence):
    env = started(transition=lambda prompt, agent_completions, num_agents: prompts, num_turns=2)
    before = env.get_state()
    with pytest.raises(exception, match=sentence):
        env.step(SAID)
    assert env.get_state() == before


def test_a_transition_with_a_parameter_that_nothing_fills():
    with pytest.raises(TypeError, match="fills the parameter 'mood' of transition"):
        started(transition=lambda prompt, agent_completions, num_agents, mood: [], num_turns=2)


def test_exceptions_of_a_transition_pass_untouched():
    def transition(prompt, agent_completions, num_agents):
        raise LookupError("mine")

    with pytest.raises(LookupError, match=r"^mine$"):
        started(transition=transition, num_turns=2).step(SAID)


# --- early termination -----------------------------------------------------------------------


class Levels:
    """Rewards each joint action with the number that agent_0 says."""

    def __call__(self, first, second):
        return [float(text) for text in first]


def ended(env, texts, groups=None):
    state = env.get_state()
    actions = [{"agent_0": text, "agent_1": ""} for text in texts]
    return [r.state.ended for r in env.step_batch([state] * len(texts), actions, groups)]


def test_a_group_ends_where_its_mean_is_strictly_above_the_threshold():
    env = started(Levels(), num_turns=2, early_termination_threshold=1.0)
    assert ended(env, ["0", "2"], [0, 0]) == [False, False]  # the mean is exactly 1
    assert ended(env, ["0", "2.1"], [0, 0]) == [True, True]
    assert ended(env, ["0", "2.1", "5", "1", "1"], [3, 3, 0, 0, 7]) == [True] * 4 + [False]
    assert ended(env, ["0", "2.1"]) == [False, True]  # by default each is its own group
    assert started(Levels(), num_turns=2).early_termination_threshold is None
    assert ended(started(Levels(), num_turns=2), ["1e9"]) == [False]


def test_plain_steps_are_groups_of_one_and_earn_their_reward_once():
    env = started(Levels(), num_turns=3, early_termination_threshold=1.0)
    _, rewards, terminations, truncations, _ = env.step({"agent_0": "1", "agent_1": ""})
    assert (rewards["agent_0"], terminations["agent_0"]) == (1.0, False)
    observations, rewards, terminations, truncations, _ = env.step({"agent_0": "2", "agent_1": ""})
    assert rewards == {"agent_0": 2.0, "agent_1": 2.0}
    assert terminations == {"agent_0": True, "agent_1": True}
    assert truncations == {"agent_0": False, "agent_1": False}
    assert set(observations) == {"agent_0", "agent_1"}
    assert env.agents == []


def test_a_branch_is_judged_alone_and_credited_for_the_turns_it_saves():
    env = started(
        Levels(), num_turns=3, early_termination_threshold=1.0, early_termination="branch"
    )
    state = env.get_state()
    actions = [{"agent_0": text, "agent_1": ""} for text in ("0", "2.5", "1")]
    results = env.step_batch([state] * 3, actions, [0, 0, 0])
    assert [result.state.ended for result in results] == [False, True, False]
    assert [result.rewards["agent_0"] for result in results] == [0.0, 7.5, 1.0]
    assert results[1].infos["agent_0"]["turn_reward"] == 2.5
    assert results[1].state.rewards == ((7.5, 7.5),)
    env.set_state(results[0].state)
    assert env.step({"agent_0": "2", "agent_1": ""})[1]["agent_0"] == 4.0
    env.set_state(results[0].state)
    env.step({"agent_0": "1", "agent_1": ""})
    assert env.step({"agent_0": "2", "agent_1": ""})[1]["agent_0"] == 2.0  # the last turn


def test_missing_on_purpose_never_pays_with_branches():
    """Succeeding at once earns at least as much as near misses followed by success."""
    best = {}
    for plan in (["2"], ["1", "2"], ["1", "1", "2"], ["1", "1", "1"]):
        env = started(
            Levels(), num_turns=3, early_termination_threshold=1.0, early_termination="branch"
        )
        rewards = [env.step({"agent_0": text, "agent_1": ""})[1]["agent_0"] for text in plan]
        assert not env.agents
        best[len(plan), plan[-1]] = sum(rewards)
    assert best == {(1, "2"): 6.0, (2, "2"): 5.0, (3, "2"): 4.0, (3, "1"): 3.0}


def test_the_team_is_judged_by_the_mean_over_its_agents():
    def reward(first, second):
        return {"agent_0": [0.0], "agent_1": [2.5]}

    for threshold, expected in ((1.2, True), (1.25, False)):
        env = started(reward, num_turns=2, early_termination_threshold=threshold)
        assert env.step(SAID)[2]["agent_0"] is expected
