"""TextEnv as a PettingZoo environment: reset, step, the order of rows, snapshots, batches."""

import pickle
import random

import numpy as np
import pytest
from gymnasium import error

from motet import envs
from motet.envs.text_env import TextEnv
from motet.envs.text_space import TextSpace

ROWS = [{"prompt": f"prompt {i}", "answer": i} for i in range(5)]
BOTH = {"agent_0": "aa", "agent_1": "b"}


def count(first, second):
    """Reward the characters of both."""
    return [float(len(a) + len(b)) for a, b in zip(first, second, strict=True)]


def feedback(prompt, agent_completions, num_agents):
    return [f"{prompt} | {i} said {agent_completions[i]!r}" for i in range(num_agents)]


def make(dataset=ROWS, reward_func=count, transition=feedback, **kwargs):
    return TextEnv(dataset, reward_func, transition=transition, **kwargs)


def rows_of(env, num_episodes, **kwargs):
    """Reset repeatedly, with `kwargs` for the first, and return the rows visited."""
    rows = []
    for _ in range(num_episodes):
        _, infos = env.reset(**kwargs)
        rows.append(infos["agent_0"]["row"])
        kwargs = {}
    return rows


# --- reset and step --------------------------------------------------------------------------


def test_two_turns_in_full():
    env = make(num_turns=2)
    assert env.possible_agents == ["agent_0", "agent_1"]
    assert env.agents == []
    observations, infos = env.reset(seed=0)
    assert observations == {"agent_0": "prompt 0", "agent_1": "prompt 0"}
    assert infos == {name: {"row": 0, "turn": 0, "acts": True} for name in env.agents}
    assert env.step(BOTH) == (
        {"agent_0": "prompt 0 | 0 said 'aa'", "agent_1": "prompt 0 | 1 said 'b'"},
        {"agent_0": 3.0, "agent_1": 3.0},
        {"agent_0": False, "agent_1": False},
        {"agent_0": False, "agent_1": False},
        {
            n: {"row": 0, "turn": 1, "acts": True, "turn_reward": 3.0, "turns_credited": 1}
            for n in env.agents
        },
    )
    assert env.agents == ["agent_0", "agent_1"]
    observations, rewards, terminations, truncations, infos = env.step(BOTH)
    assert env.agents == []
    assert set(observations) == {"agent_0", "agent_1"}
    assert rewards == {"agent_0": 3.0, "agent_1": 3.0}
    assert terminations == {"agent_0": True, "agent_1": True}
    assert truncations == {"agent_0": False, "agent_1": False}
    assert infos["agent_1"]["turn"] == 2


def test_reset_gives_each_agent_the_prompt_of_its_formatter():
    formatters = [lambda row: f"Write: {row['prompt']}", lambda row: f"Check: {row['answer']}"]
    observations, _ = make(formatters=formatters).reset(options={"row": 3})
    assert observations == {"agent_0": "Write: prompt 3", "agent_1": "Check: 3"}
    observations, _ = make(formatters=formatters[0]).reset()
    assert set(observations.values()) == {"Write: prompt 0"}


def test_agents_have_names_and_any_number():
    env = TextEnv(ROWS, lambda one: [1.0] * len(one), num_agents=1)
    env.reset()
    assert env.step({"agent_0": "text"})[1] == {"agent_0": 1.0}
    env = TextEnv(
        ROWS,
        lambda *texts: [float(len(texts))] * len(texts[0]),
        num_agents=3,
        agent_names=["poet", "critic", "editor"],
    )
    env.reset()
    assert env.step(dict.fromkeys(env.agents, ""))[1] == dict.fromkeys(env.possible_agents, 3.0)


def test_spaces_are_those_of_texts_one_for_each_agent():
    env = make()
    spaces = [env.observation_space("agent_0"), env.action_space("agent_0")]
    spaces += [env.observation_space("agent_1"), env.action_space("agent_1")]
    assert all(type(space) is TextSpace for space in spaces)
    assert len(set(map(id, spaces))) == 4
    assert env.action_space("agent_0") is spaces[1]
    for space in (env.action_space, env.observation_space):
        with pytest.raises(KeyError, match="agent_2"):
            space("agent_2")


def test_step_needs_a_running_episode():
    env = make()
    with pytest.raises(error.ResetNeeded, match="before reset"):
        env.step(BOTH)
    env.reset()
    env.step(BOTH)
    with pytest.raises(error.ResetNeeded, match="after its end"):
        env.step(BOTH)
    env.reset()
    env.step(BOTH)


@pytest.mark.parametrize(
    ("actions", "exception", "sentence"),
    [
        ({"agent_0": "a"}, ValueError, r"\['agent_1'\] missing"),
        ({}, ValueError, r"\['agent_0', 'agent_1'\] missing"),
        ({**BOTH, "agent_2": "c"}, ValueError, r"\['agent_2'\] unknown"),
        ({"agent_0": "a", "agent_7": "c"}, ValueError, r"'agent_1'\] missing and \['agent_7'\]"),
        (None, TypeError, "a mapping of one action per agent, got None"),
        (["a", "b"], TypeError, "a mapping of one action per agent"),
        ({**BOTH, "agent_1": None}, TypeError, "agent_1, got None of type NoneType"),
        ({**BOTH, "agent_0": 17}, TypeError, "agent_0, got 17 of type int"),
        ({**BOTH, "agent_0": b"aa"}, TypeError, "agent_0, got b'aa' of type bytes"),
        ({**BOTH, "agent_1": ["b"]}, TypeError, "agent_1, got .* of type list"),
        ({**BOTH, "agent_1": "b\ud800"}, ValueError, "agent_1, got .*lone surrogate"),
    ],
)
def test_bad_actions_name_the_agent_and_change_nothing(actions, exception, sentence):
    calls = []
    env = make(reward_func=lambda a, b: calls.append(1) or [1.0] * len(a), num_turns=2)
    env.reset(seed=0)
    before = env.get_state()
    with pytest.raises(exception, match=sentence):
        env.step(actions)
    assert env.get_state() == before
    assert not calls
    env.step(BOTH)


@pytest.mark.parametrize("text", ["", "\n\n", "👩🏽\u200d🚀 é", "x" * 100_000, "\0"])
def test_any_text_is_an_action_and_reaches_the_next_prompt_verbatim(text):
    env = make(num_turns=2, transition=lambda prompt, agent_completions, num_agents: [text] * 2)
    env.reset()
    observations, rewards, *_ = env.step({"agent_0": text, "agent_1": text})
    assert observations == {"agent_0": text, "agent_1": text}
    assert rewards["agent_0"] == 2.0 * len(text)
    assert env.step({"agent_0": text, "agent_1": ""})[2]["agent_0"] is True


def test_returned_objects_are_fresh():
    env = make(num_turns=2)
    _, first = env.reset()
    *_, second = env.step(BOTH)
    first["agent_0"]["turn"] = second["agent_0"]["row"] = "changed"
    second.clear()
    *_, third = env.step(BOTH)
    assert third["agent_0"] == {
        "row": 0,
        "turn": 2,
        "acts": True,
        "turn_reward": 3.0,
        "turns_credited": 1,
    }
    assert third["agent_1"] is not third["agent_0"]


def test_render_is_the_transcript(capsys):
    env = make(num_turns=2, render_mode="ansi")
    env.reset()
    env.step(BOTH)
    text = env.render()
    assert "agent_1 sees\n    | prompt 0\n  agent_1 says\n    | b\n  agent_1 earns 3" in text
    env = make(render_mode="human")
    env.reset()
    env.step(BOTH)
    assert "earns 3" in capsys.readouterr().out
    assert env.render() is None


def test_state_is_the_global_view():
    env = make(num_turns=2)
    env.reset()
    env.step(BOTH)
    state = env.state()
    assert isinstance(state, np.ndarray)
    assert state.shape == (2,)
    assert "aa" in state[0]
    assert "prompt 0 | 0 said 'aa'" in state[0]


# --- which row comes next --------------------------------------------------------------------


def test_rows_come_in_order_and_start_again():
    assert rows_of(make(), 7) == [0, 1, 2, 3, 4, 0, 1]


def test_a_seed_starts_the_order_again():
    env = make()
    rows_of(env, 3)
    assert rows_of(env, 2, seed=1) == [0, 1]


def test_shuffle_visits_each_row_once_per_pass_in_new_orders():
    env = make(shuffle=True, dataset=[{"prompt": str(i)} for i in range(20)])
    rows = rows_of(env, 60, seed=0)
    passes = [rows[:20], rows[20:40], rows[40:]]
    assert all(sorted(one) == list(range(20)) for one in passes)
    assert passes[0] != passes[1] != passes[2] != list(range(20))


def test_seeds_decide_the_shuffled_order():
    one, other = make(shuffle=True), make(shuffle=True)
    rows = rows_of(one, 12, seed=3)
    assert rows_of(other, 12, seed=3) == rows
    assert rows_of(one, 12, seed=3) == rows
    assert any(rows_of(other, 12, seed=seed) != rows for seed in (4, 5))


def test_only_the_envs_own_generator_is_used():
    random.seed(0)
    np.random.seed(0)
    before = random.getstate(), np.random.get_state()[1].tolist()
    rows_of(make(shuffle=True), 12, seed=3)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_options_pick_a_row_and_leave_the_order_alone():
    for shuffle in (False, True):
        env, other = make(shuffle=shuffle), make(shuffle=shuffle)
        expected = rows_of(other, 4, seed=9)
        rows = rows_of(env, 2, seed=9)
        for row in (4, np.int64(2), 0):
            assert rows_of(env, 1, options={"row": row}) == [row]
        _, infos = env.reset(options={"row": np.int64(2)})
        assert type(infos["agent_0"]["row"]) is int
        assert rows + rows_of(env, 2) == expected


@pytest.mark.parametrize("row", [5, -1, 10**9])
def test_a_row_outside_the_dataset(row):
    with pytest.raises(IndexError, match=rf"options\['row'\] from 0 to 4, got {row}"):
        make().reset(options={"row": row})

    with pytest.raises(IndexError, match=rf"Expected row from 0 to 4, got {row}"):
        make().initial_state(row)


@pytest.mark.parametrize("row", [1.5, "1", [0], True])
def test_a_row_that_is_no_index(row):
    with pytest.raises(TypeError, match=r"integer as options\['row'\]"):
        make().reset(options={"row": row})
    with pytest.raises(TypeError, match="integer as row, got"):
        make().initial_state(row)


def test_initial_state_takes_numpy_integers_and_keeps_pythons():
    assert type(make().initial_state(np.int64(3)).row) is int


def test_a_refused_row_leaves_the_order_alone():
    env = make()
    rows_of(env, 2)
    with pytest.raises(IndexError):
        env.reset(seed=0, options={"row": 99})
    assert rows_of(env, 1) == [2]


def test_options_are_a_mapping():
    with pytest.raises(TypeError, match=r"a mapping .* as options, got \[1\]"):
        make().reset(options=[1])


def test_unknown_options_do_not_raise():
    _, infos = make().reset(seed=0, options={"colour": "red"})
    assert infos["agent_0"]["row"] == 0


def test_any_indexable_of_mappings_is_a_dataset():
    class Squares:
        def __len__(self):
            return 1000

        def __getitem__(self, index):
            return {"prompt": f"square of {index}"}

    observations, _ = make(dataset=Squares()).reset(options={"row": 999})
    assert observations["agent_0"] == "square of 999"


# --- snapshots -------------------------------------------------------------------------------


def test_a_snapshot_replays_and_pickles():
    env = make(num_turns=3)
    env.reset(seed=0)
    states, results = [], []
    for text in ("a", "bb", "ccc"):
        states.append(env.get_state())
        results.append(env.step({"agent_0": text, "agent_1": ""}))
    for i in (2, 0, 1, 0, 2):
        env.set_state(pickle.loads(pickle.dumps(states[i])))
        assert env.agents == env.possible_agents
        assert env.step({"agent_0": ("a", "bb", "ccc")[i], "agent_1": ""}) == results[i]


def test_a_snapshot_of_the_end_is_an_end():
    env = make()
    env.reset()
    env.step(BOTH)
    ended = env.get_state()
    env.reset()
    env.set_state(ended)
    assert env.agents == []
    with pytest.raises(error.ResetNeeded):
        env.step(BOTH)


def test_a_snapshot_is_small_and_cannot_be_changed():
    env = make(dataset=[{"prompt": "p", "big": "x" * 10**6}], num_turns=2)
    env.reset(seed=0)
    env.step(BOTH)
    state = env.get_state()
    assert len(pickle.dumps(state)) < 2000
    with pytest.raises(AttributeError):
        state.row = 1
    assert hash(state.observations) == hash(env.get_state().observations)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("seed", [0, None])
def test_a_snapshot_holds_the_order_of_rows(shuffle, seed):
    env = make(shuffle=shuffle)
    env.reset(seed=seed, options={"row": 0})
    for _ in range(7):
        state, ahead = env.get_state(), rows_of(env, 12)
        env.set_state(state)
        assert rows_of(env, 12) == ahead
        env.set_state(state)
        env.reset()


@pytest.mark.parametrize("seed", [0, None])
def test_clones_go_on_alike_and_apart(seed):
    env = make(shuffle=True, num_turns=2)
    env.reset(seed=seed, options={"row": 0})
    env.step(BOTH)
    twin, other = env.clone(), env.clone()
    ahead = rows_of(twin, 12)
    assert env.agents == ["agent_0", "agent_1"]
    result = env.step({"agent_0": "x", "agent_1": "yy"})
    assert other.step({"agent_0": "x", "agent_1": "yy"}) == result
    assert rows_of(env, 12) == ahead == rows_of(other, 12)


def test_a_seed_gives_a_clone_a_stream_of_its_own():
    env = make(shuffle=True)
    env.reset(seed=0)
    seeded = [rows_of(env.clone(seed=seed), 30) for seed in (1, 1, 2)]
    assert seeded[0] == seeded[1] != seeded[2]
    state = env.get_state()
    twin = env.clone()
    twin.set_state(state, seed=1)
    assert rows_of(twin, 30) == seeded[0]


def test_clones_share_data_and_functions_but_not_what_they_sample():
    env = make()
    twin = env.clone()
    assert type(twin) is TextEnv
    assert twin.dataset is env.dataset
    env.reset()
    assert env.clone().agents is not env.agents
    env.action_space("agent_0").seed(0)
    twin = env.clone()
    ahead = [env.action_space("agent_0").sample() for _ in range(5)]
    assert [twin.action_space("agent_0").sample() for _ in range(5)] == ahead


@pytest.mark.parametrize("state", [None, {}])
def test_set_state_takes_only_states(state):
    env = make()
    env.reset()
    with pytest.raises(TypeError, match=r"a state that get_state\(\) returned, got"):
        env.set_state(state)
    env.step(BOTH)


def stopped(**kwargs):
    """Return the state in which an episode stands that was played to the turn before its last."""
    env = make(**kwargs)
    env.reset(options={"row": env.num_rows - 1})
    for _ in range(env.num_turns - 1):
        env.step(dict.fromkeys(env.agents, ""))
    return env.get_state()


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (
            stopped(num_agents=1, reward_func=lambda only: [0.0]),
            r"2 agents, 2 turns, 5 rows; got one of 1 agents, running after 0 turns, on row 4",
        ),
        (stopped(num_turns=3), "got one of 2 agents, running after 2 turns, on row 4"),
        (stopped(dataset=ROWS * 2), "got one of 2 agents, running after 0 turns, on row 9"),
    ],
)
def test_a_state_of_another_env_is_refused_and_loses_nothing(state, sentence):
    env = make(num_turns=2)
    env.reset(seed=0)
    before = env.get_state()
    with pytest.raises(ValueError, match=sentence):
        env.set_state(state)
    with pytest.raises(ValueError, match=sentence):
        env.step_batch([before, state], [BOTH, BOTH])
    assert env.get_state() == before
    env.step(BOTH)


def test_a_refused_seed_leaves_the_episode_alone():
    env = make(num_turns=2)
    env.reset(seed=0)
    start = env.get_state()
    env.step(BOTH)
    before = env.get_state()
    with pytest.raises(error.Error, match="greater or equal to zero"):
        env.set_state(start, seed=-1)
    assert env.get_state() == before


def test_there_is_nothing_to_snapshot_before_reset():
    with pytest.raises(error.ResetNeeded, match="reset"):
        make().get_state()
    assert rows_of(make().clone(), 2) == [0, 1]


# --- many at once ----------------------------------------------------------------------------


def test_step_batch_equals_step_with_one_call_of_the_reward_function():
    calls = []

    def reward(first, second, *, turn, prompts):
        calls.append(len(first))
        return [
            len(a) - len(b) + t + len(p)
            for a, b, t, p in zip(first, second, turn, prompts, strict=True)
        ]

    env = make(reward_func=reward, num_turns=3, early_termination_threshold=20.0)
    states, actions, expected = [], [], []
    for row in range(5):
        env.reset(options={"row": row})
        for turn in range(2):
            said = {"agent_0": "x" * (row * 4), "agent_1": "y" * turn}
            states.append(env.get_state())
            actions.append(said)
            expected.append((env.step(said), env.get_state()))
            if not env.agents:
                break
    calls.clear()
    env.reset(seed=0)
    before = env.get_state()
    results = env.step_batch(states, actions)
    assert calls == [len(states)]
    assert env.get_state() == before
    for result, (step, state) in zip(results, expected, strict=True):
        assert step == (
            result.observations,
            result.rewards,
            result.terminations,
            result.truncations,
            result.infos,
        )
        assert result.state == state
    assert any(state.ended for _, state in expected)


def test_step_batch_refuses_what_does_not_fit():
    env = make()
    env.reset()
    state = env.get_state()
    env.step(BOTH)
    with pytest.raises(ValueError, match="2 states, 1 joint actions"):
        env.step_batch([state, state], [BOTH])
    with pytest.raises(ValueError, match="1 joint actions and 2 groups"):
        env.step_batch([state], [BOTH], [0, 1])
    with pytest.raises(ValueError, match="not ended"):
        env.step_batch([env.get_state()], [BOTH])
    with pytest.raises(ValueError, match=r"\['agent_1'\] missing"):
        env.step_batch([state], [{"agent_0": "a"}])
    with pytest.raises(TypeError, match="a list of states, got TextState"):
        env.step_batch(state, [BOTH])
    with pytest.raises(TypeError, match=r"a list of joint actions, got {'agent_0'"):
        env.step_batch([state], BOTH)
    with pytest.raises(TypeError, match="a list of groups, got 0"):
        env.step_batch([state], [BOTH], 0)
    with pytest.raises(TypeError, match="got a ResetResult; pass its `state`"):
        env.step_batch(env.reset_batch([0]), [BOTH])
    for rows in (3, None, "01", (row for row in (0, 1))):
        with pytest.raises(TypeError, match="a list of rows, got"):
            env.reset_batch(rows)
    with pytest.raises(TypeError, match="a list of seeds, got 5"):
        env.reset_batch([0], seeds=5)
    assert env.step_batch([], []) == []


def test_reprs_name_the_task():
    assert repr(make()) == "<TextEnv text_env>"
    assert repr(envs.make("story-length-ratio-v0")) == "<TextEnv story-length-ratio-v0>"


# --- what cannot be built --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "exception", "sentence"),
    [
        ({"dataset": []}, ValueError, "at least one row in the dataset"),
        ({"dataset": [{"text": "a"}]}, ValueError, r"'prompt' in row 0 .* got \['text'\]"),
        ({"dataset": [{"prompt": "a"}, {"p": 1}]}, ValueError, r"'prompt' in row 1 .* \['p'\]"),
        ({"dataset": ["a"]}, TypeError, "mappings as dataset rows.* got 'a' as row 0"),
        ({"formatters": [str]}, ValueError, "one formatter, or 2, one per agent; got 1"),
        ({"formatters": [str, "x"]}, TypeError, "callables as formatters, got 'x'"),
        ({"num_agents": 0}, ValueError, "num_agents of at least 1, got 0"),
        ({"agent_names": ["a"]}, ValueError, r"2 different agent_names, got \['a'\]"),
        ({"agent_names": ["a", "a"]}, ValueError, "2 different agent_names"),
        ({"agent_names": ["a", "b", "c"]}, ValueError, "num_agents is how many"),
        ({"agent_names": ["a", ""]}, TypeError, "non-empty strings as agent_names"),
        ({"formatters": lambda: ""}, TypeError, r"one row as formatters, got .*parameters \(\)"),
        ({"formatters": [str, lambda a, b: a]}, TypeError, r"one row .*parameters \(a, b\)"),
        ({"reward_processor": lambda r, s: r}, TypeError, r"one reward .*parameters \(r, s\)"),
        ({"reward_processor": lambda: 1.0}, TypeError, r"one reward .*parameters \(\)"),
        ({"num_turns": 0}, ValueError, "num_turns of at least 1, got 0"),
        ({"num_turns": 2, "transition": None}, ValueError, "transition for num_turns=2, got None"),
        ({"early_termination": "never"}, ValueError, "'group' or 'branch', got 'never'"),
        ({"dataset": (row for row in ROWS)}, TypeError, r"got a generator; list\(\.\.\.\) it"),
        ({"dataset": map(dict, ROWS)}, TypeError, r"indexable dataset .* got a map; list"),
        ({"dataset": None}, TypeError, "indexable dataset .* got None"),
        ({"dataset": {"prompt": ["a"]}}, TypeError, r"got a dict with .*Dataset\.from_dict"),
        ({"formatters": {"agent_0": str}}, ValueError, r"formatters for .* got .* \['agent_0'\]"),
        ({"formatters": {"agent_0": str, "agent_1": 1}}, TypeError, "formatters, got 1"),
        ({"formatters": "ab"}, TypeError, "a list of 2, one per agent; got 'ab'"),
        ({"formatters": 5}, TypeError, "a list of 2, one per agent; got 5"),
        ({"num_agents": 2.0}, TypeError, "integer as num_agents, got 2.0"),
        ({"num_agents": True}, TypeError, "integer as num_agents, got True"),
        ({"agent_names": "ab"}, TypeError, "list of strings as agent_names, got 'ab'"),
        ({"agent_names": [0, 1]}, TypeError, r"strings as agent_names, got \[0, 1\]"),
        ({"agent_names": {"a", "b"}}, TypeError, "list of strings as agent_names"),
        ({"num_turns": 2.0}, TypeError, "integer as num_turns, got 2.0"),
        ({"num_turns": "2"}, TypeError, "integer as num_turns, got '2'"),
        ({"num_turns": True}, TypeError, "integer as num_turns, got True"),
        ({"early_termination_threshold": float("nan")}, ValueError, "_threshold, got NaN"),
        ({"early_termination_threshold": "1"}, TypeError, "number as early_.*, got '1'"),
        ({"reward_processor": 2.0}, TypeError, "function of one reward as reward_pro.* got 2.0"),
        ({"shuffle": "no"}, TypeError, "True or False as shuffle, got 'no'"),
        ({"render_mode": "rgb_array"}, ValueError, "None as render_mode, got 'rgb_array'"),
    ],
)
def test_wrong_arguments_are_sentences(kwargs, exception, sentence):
    with pytest.raises(exception, match=sentence):
        make(**kwargs)


def test_formatters_by_agent_name():
    formatters = {"agent_1": lambda row: "second", "agent_0": lambda row: "first"}
    observations, _ = make(formatters=formatters).reset()
    assert observations == {"agent_0": "first", "agent_1": "second"}


def test_numpy_integers_are_counts():
    env = make(num_turns=np.int64(2), num_agents=np.int32(2))
    assert type(env.num_turns) is int


def test_prompts_must_be_texts_that_utf_8_can_encode():
    env = make(formatters={"agent_0": lambda row: "a", "agent_1": lambda row: "\ud800"})
    with pytest.raises(ValueError, match=r"prompt of agent_1 for row 2, .*lone surrogate"):
        env.initial_state(2)


def test_prompts_must_be_strings():
    with pytest.raises(TypeError, match="prompt of row 0, got 3 of type int; pass formatters="):
        make(dataset=[{"prompt": 3}])
    with pytest.raises(TypeError, match="prompt of agent_0 for row 0, got 3 of type int"):
        make(formatters=lambda row: 3).reset()


def test_a_row_that_lacks_a_column_is_found_when_the_env_is_built():
    rows = [{"prompt": "a", "word": "x"}, {"prompt": "b"}]
    with pytest.raises(ValueError, match=r"row 1 without \['word'\]"):
        TextEnv(rows, lambda first, second, word: [0.0] * len(first))
