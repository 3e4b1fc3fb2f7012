"""PickOfK: what a learner without a language model sees, and what its picks become."""

import math
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest
from good_env import Good
from gymnasium import error, spaces
from tiny import tiny_agent

from motet.agents import FixedAgent, RandomAgent
from motet.envs import TextBatch, TextEnv, check_env, make
from motet.envs.wrappers import HashingEncoder, PickOfK, TimeLimit

LENGTHS = ["x" * 10 * (i + 1) for i in range(8)]
ROWS = [{"prompt": f"prompt {i}"} for i in range(4)]
AGENTS = ["agent_0", "agent_1"]


def lengths(first, second):
    """Reward each agent its own number of characters."""
    return {"agent_0": [float(len(x)) for x in first], "agent_1": [float(len(x)) for x in second]}


def task(num_turns=1, **kwargs):
    parts = {"transition": lambda prompt, agent_completions: list(agent_completions)}
    return TextEnv(ROWS, lengths, num_turns=num_turns, **{**parts, **kwargs})


class Counting:
    """An agent that records what it was asked."""

    def __init__(self, agent):
        self.agent = agent
        self.calls = []

    def act(self, observations, num_generations=1, *, seed=None):
        self.calls.append((list(observations), num_generations, seed))
        return self.agent.act(observations, num_generations, seed=seed)


class Letters:
    """An encoder that can be checked by eye: shares of `a` and of `b`."""

    size = 2

    def __init__(self):
        self.calls = []

    def __call__(self, texts):
        self.calls.append(list(texts))
        return np.array([[x.count("a"), x.count("b")] for x in texts]) / np.array(
            [[max(1, len(x))] for x in texts]
        )


def noisy_writer():
    """Write one of a thousand texts."""
    return RandomAgent([f"text {i}" for i in range(1000)])


# --- the encoder -----------------------------------------------------------------------------


def test_words_are_counted_in_hashed_places_with_hashed_signs():
    # crc32 of to, be, or, not: 3616002756, 734694925, 498562439, 134610293. Its lowest bit is the
    # sign, the rest modulo 8 the place: +2 at 2 (to), -2 at 6 (be), -1 at 3 (or), -1 at 2 (not).
    expected = np.array([0, 0, 2 - 1, -1, 0, 0, -2, 0]) / math.sqrt(6)
    (features,) = HashingEncoder(8, num_characters=0)(["to be or not to be"])
    np.testing.assert_allclose(features, expected, rtol=1e-6)
    (features,) = HashingEncoder(8, num_characters=0)(["To BE\nor  not to be"])
    np.testing.assert_allclose(features, expected, rtol=1e-6)


def test_features_are_the_same_in_every_process():
    code = (
        "from motet.envs.wrappers import HashingEncoder\n"
        "print(HashingEncoder(8)(['Grüße, 世界 🚀', 'to be']).tolist())"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {f"{HashingEncoder(8)(['Grüße, 世界 🚀', 'to be']).tolist()}\n"}
    # recorded once: a change of these numbers changes what every trained policy sees
    golden = [-0.105218, 0.0, 0.376889, -0.166453, -0.631306, 0.0, -0.64856, 0.0]
    (features,) = HashingEncoder(8)(["to be or not to be"])
    np.testing.assert_allclose(features, golden, atol=1e-6)


def test_features_are_unit_vectors_of_float32_for_any_text():
    texts = ["word", "\ud800", "e\u0301", "👩🏽\u200d🚀🎵", "漢字" * 50, "\n.\n", "A", "0" * 999]
    features = HashingEncoder()(["", " \n", *texts])
    assert features.dtype == np.float32
    assert features.shape == (10, 64)
    assert np.abs(features).max() <= 1
    np.testing.assert_allclose(np.linalg.norm(features[2:], axis=1), 1, rtol=1e-5)
    assert not features[0].any()
    assert HashingEncoder()([]).shape == (0, 64)


def test_texts_that_share_words_or_characters_are_near():
    def likeness(first, second):
        one, other = HashingEncoder(512)([first, second])
        return float(one @ other)

    tale = "Write a tale of a dragon"
    assert likeness(tale, "Write a tale of a robot") > 0.5 > likeness(tale, "Explain the tides")
    assert likeness("写一个关于龙的故事", "写一个关于机器人的故事") > 0.3
    assert likeness("写一个关于龙的故事", "今天天气很好") < 0.2


def test_a_long_text_is_fast():
    texts = ["word " * 20_000, "x" * 100_000, " ".join(map(str, range(17_000)))]
    start = time.process_time()  # whatever else the machine does
    HashingEncoder()(texts)
    assert time.process_time() - start < 2


def test_the_encoder_refuses_what_is_no_list_of_texts():
    with pytest.raises(TypeError, match=r"pass \[text\]"):
        HashingEncoder()("text")
    with pytest.raises(ValueError, match="size of at least 1"):
        HashingEncoder(0)
    with pytest.raises(ValueError, match="num_characters of at least 1"):
        HashingEncoder(num_characters=-1)


# --- what is seen and played -----------------------------------------------------------------


def test_the_layout_of_an_observation():
    env = PickOfK(task(num_turns=2), ["ab", "aaab" * 3], encoder=Letters())
    observations, _ = env.reset(seed=0)
    length = math.log10(1 + len("prompt 0")) / 6
    expected = [0, 0, length, 1, 0, 1, 0, 0]
    np.testing.assert_allclose(observations["agent_0"], expected, rtol=1e-6)
    observations = env.step({"agent_0": 0, "agent_1": 1})[0]
    length = math.log10(1 + 12) / 6
    expected = [0.75, 0.25, length, 0, 1, 1, 1 / 2, 12 / 13]
    np.testing.assert_allclose(observations["agent_1"], expected, rtol=1e-6)
    assert observations["agent_1"].dtype == np.float32
    observations = env.step({"agent_0": 0, "agent_1": 1})[0]  # the end: no prompt, nobody acts
    np.testing.assert_allclose(observations["agent_0"], [0, 0, 0, 1, 0, 0, 2 / 3, 2 / 3], rtol=1e-6)


def test_candidates_that_vary_are_part_of_the_observation():
    env = PickOfK(task(), lambda seen, agent: ["a", "abbb"], k=3, encoder=Letters())
    observations, _ = env.reset(seed=0)
    one, four = math.log10(2) / 6, math.log10(5) / 6
    candidates = [1, 0, one, 0.25, 0.75, four, 0, 0, 0]
    np.testing.assert_allclose(observations["agent_0"][-9:], candidates, rtol=1e-6)
    assert observations["agent_0"].shape == (8 + 9,)


def test_a_pick_becomes_a_text_that_infos_tell():
    env = PickOfK(make("story-length-ratio-v0"), LENGTHS)
    _, infos = env.reset(seed=0)
    assert "text" not in infos["agent_0"]
    assert env.choices("agent_0") == tuple(LENGTHS)
    _, rewards, _, _, infos = env.step({"agent_0": np.array(1), "agent_1": np.uint8(4)})
    assert [infos[agent]["text"] for agent in AGENTS] == [LENGTHS[1], LENGTHS[4]]
    assert rewards == {"agent_0": 1.0, "agent_1": 1.0}
    assert env.choices("agent_0") == ()


def test_agents_can_have_candidates_of_their_own():
    env = PickOfK(task(), {"agent_0": ["a", "b", "c"], "agent_1": ["yes"]})
    _, infos = env.reset()
    assert env.action_space("agent_1") == spaces.Discrete(3)
    assert infos["agent_0"]["action_mask"].tolist() == [1, 1, 1]
    assert infos["agent_1"]["action_mask"].tolist() == [1, 0, 0]
    assert env.step({"agent_0": 2, "agent_1": 0})[4]["agent_0"]["text"] == "c"


def test_a_function_writes_candidates_of_what_an_agent_sees():
    env = PickOfK(task(num_turns=2), lambda seen, agent: [agent, f"{seen}!"], k=2)
    env.reset(seed=0)
    assert env.choices("agent_1") == ("agent_1", "prompt 0!")
    env.step({"agent_0": 0, "agent_1": 1})
    assert env.choices("agent_1") == ("agent_1", "prompt 0!!")


def test_a_frozen_agent_writes_the_candidates_of_all_agents_in_one_call():
    writer = Counting(noisy_writer())
    env = PickOfK(task(num_turns=2), writer, k=4)
    env.reset(seed=0)
    assert [(asked, number) for asked, number, _ in writer.calls] == [(["prompt 0"] * 2, 4)]
    first, second = env.choices("agent_0"), env.choices("agent_1")
    assert first != second, "each agent's are its own"
    infos = env.step({"agent_0": 3, "agent_1": 0})[4]
    assert [infos[agent]["text"] for agent in AGENTS] == [first[3], second[0]]
    assert [len(asked) for asked, _, _ in writer.calls] == [2, 2]
    assert env.choices("agent_0") != first


def test_a_strategy_puts_the_prompt_and_the_writer_answers():
    writer = Counting(FixedAgent(lambda prompt: f"<{prompt}>"))
    env = PickOfK(task(num_turns=2), strategies=["{prompt} {briefly}", str.upper], writer=writer)
    env.reset(seed=0)
    assert env.choices("agent_0") == ("prompt 0 {briefly}", "PROMPT 0")
    assert not writer.calls
    infos = env.step({"agent_0": 0, "agent_1": 1})[4]
    assert infos["agent_0"]["text"] == "<prompt 0 {briefly}>"
    assert infos["agent_1"]["text"] == "<PROMPT 0>"
    assert env.choices("agent_1") == ("<PROMPT 0> {briefly}", "<PROMPT 0>")
    assert len(writer.calls) == 1


def test_a_real_language_model_writes():
    env = PickOfK(task(), strategies=["{prompt}", "{prompt} again"], writer=tiny_agent())
    played = []
    for _ in range(2):
        env.reset(seed=3)
        infos = env.step({"agent_0": 1, "agent_1": 1})[4]
        played.append([infos[agent]["text"] for agent in AGENTS])
    assert played[0] == played[1]
    assert played[0][0] != played[0][1]


# --- masks and turns -------------------------------------------------------------------------


def test_fewer_candidates_are_masked_and_a_masked_pick_changes_nothing():
    env = PickOfK(task(), lambda seen, agent: ["a", "b"][: 1 + (agent == "agent_1")], k=3)
    _, infos = env.reset(seed=0)
    for masks in (
        {a: infos[a]["action_mask"] for a in AGENTS},
        env.action_masks(),
    ):
        assert {a: mask.tolist() for a, mask in masks.items()} == {
            "agent_0": [1, 0, 0],
            "agent_1": [1, 1, 0],
        }
        assert {mask.dtype for mask in masks.values()} == {np.dtype(np.int8)}
    before = env.get_state()
    with pytest.raises(ValueError, match="from 0 to 1 as the action of agent_1, got 2; infos"):
        env.step({"agent_0": 0, "agent_1": 2})
    assert env.get_state() == before
    infos = env.step({"agent_0": 0, "agent_1": 1})[4]
    assert infos["agent_1"]["action_mask"].tolist() == [1, 0, 0], "after the end"
    assert env.action_masks() == {}


def test_an_agent_whose_turn_it_is_not_picks_in_vain():
    writer = Counting(FixedAgent("word"))
    env = PickOfK(task(2, acting=[["agent_0"], ["agent_1"]]), writer, k=2)
    observations, infos = env.reset(seed=0)
    assert infos["agent_1"]["acts"] is False
    assert infos["agent_1"]["action_mask"].tolist() == [1, 0]
    assert env.choices("agent_1") == ()
    acts = 64 + 1 + 2
    assert (observations["agent_0"][acts], observations["agent_1"][acts]) == (1, 0)
    _, rewards, _, _, infos = env.step({"agent_0": 1, "agent_1": 1})
    assert rewards == {"agent_0": 4.0, "agent_1": 0.0}
    assert infos["agent_1"]["text"] == ""
    assert env.choices("agent_1") == ("word", "word")
    assert [len(asked) for asked, _, _ in writer.calls] == [1, 1]


def test_nothing_is_written_for_an_agent_whose_turn_it_is_not():
    writer = Counting(FixedAgent("word"))
    env = task(2, acting=[["agent_0"], ["agent_1"]])
    env = PickOfK(env, strategies=["{prompt}", "again {prompt}"], writer=writer)
    env.reset(seed=0)
    infos = env.step({"agent_0": 0, "agent_1": 1})[4]
    assert [infos[agent]["text"] for agent in AGENTS] == ["word", ""]
    env.step({"agent_0": 1, "agent_1": 1})
    assert [asked for asked, _, _ in writer.calls] == [["prompt 0"], ["again "]]


def test_agents_that_leave_early_choose_no_more():
    env = PickOfK(Good(), ["a", "b"])
    env.reset(seed=0)
    while "bob" in env.agents:
        _, _, _, _, infos = env.step(dict.fromkeys(env.agents, 1))
    assert infos["bob"]["action_mask"].tolist() == [1, 0]
    assert list(env.action_masks()) == env.agents == ["ann"]
    with pytest.raises(ValueError, match=r"one pick for each of \['ann'\], got .*'bob'\] unknown"):
        env.step({"ann": 0, "bob": 0})


def test_an_agent_that_is_cut_sees_the_turn_that_does_not_come_and_chooses_no_more():
    env = PickOfK(TimeLimit(task(2), 1), lambda seen, agent: [agent, "b"][: len(seen)], k=2)
    uncut = PickOfK(task(2), lambda seen, agent: [agent, "b"][: len(seen)], k=2)
    for one in (env, uncut):
        one.reset(seed=0)
    observations, _, _, truncations, infos = env.step({"agent_0": 1, "agent_1": 0})
    expected = uncut.step({"agent_0": 1, "agent_1": 0})
    assert truncations == dict.fromkeys(AGENTS, True)
    for agent in AGENTS:
        np.testing.assert_array_equal(observations[agent], expected[0][agent])
        np.testing.assert_array_equal(
            infos[agent]["action_mask"], expected[4][agent]["action_mask"]
        )
    assert infos["agent_0"]["action_mask"].tolist() == [1, 0]
    assert env.choices("agent_0") == ()
    assert env.action_masks() == {}


# --- the contract ----------------------------------------------------------------------------

FORMS = {
    "list": lambda: PickOfK(make("story-length-ratio-v0", num_turns=2), LENGTHS),
    "function": lambda: PickOfK(
        make("story-length-ratio-v0", num_turns=2), lambda seen, agent: [seen, agent], k=2
    ),
    "writer": lambda: PickOfK(
        make("story-length-ratio-v0", num_turns=2, shuffle=True), noisy_writer(), k=3
    ),
    "strategies": lambda: PickOfK(
        make("story-length-ratio-v0", num_turns=2),
        strategies=["{prompt}", "{prompt} again"],
        writer=noisy_writer(),
    ),
    "model": lambda: PickOfK(make("story-length-ratio-v0"), tiny_agent(), k=2),
    "leaving": lambda: PickOfK(Good(), noisy_writer(), k=2),
    "in turns": lambda: PickOfK(task(2, acting=[["agent_1"], ["agent_0"]]), LENGTHS),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_passes_check_env(form):
    check_env(FORMS[form], seeds=[0] if form == "model" else (0, 1, 2))


@pytest.mark.parametrize("form", sorted(set(FORMS) - {"leaving"}))
def test_states_pickle_and_come_back(form):
    env = FORMS[form]()
    env.reset(seed=0)
    state = pickle.loads(pickle.dumps(env.get_state()))
    first = env.step(dict.fromkeys(AGENTS, 1))
    twin = env.clone()
    twin.set_state(state)
    assert twin.action_masks().keys() == set(AGENTS)
    second = twin.step(dict.fromkeys(AGENTS, 1))
    assert [info["text"] for info in first[4].values()] == [i["text"] for i in second[4].values()]


def test_a_seed_gives_a_branch_texts_of_its_own_from_the_next_turn():
    env = PickOfK(task(num_turns=2), noisy_writer(), k=3)
    env.reset(seed=0)
    state = env.get_state()
    later = []
    for seed in (None, None, 5, 5, 6):
        env.set_state(state, seed=seed)
        assert env.choices("agent_0") == state.memory.offered["agent_0"]
        env.step(dict.fromkeys(AGENTS, 0))
        later.append(env.choices("agent_0"))
    assert later[0] == later[1]
    assert later[2] == later[3]
    assert len({later[0], later[2], later[4]}) == 3


def test_a_clone_samples_picks_on_its_own():
    env = PickOfK(task(), LENGTHS)
    env.action_space("agent_0").seed(0)
    env.reset()
    twin = env.clone()
    drawn = [twin.action_space("agent_0").sample() for _ in range(9)]
    assert [env.action_space("agent_0").sample() for _ in range(9)] == drawn
    assert twin.observation_space("agent_0") is not env.observation_space("agent_0")


def test_a_batch_asks_writer_and_encoder_once_and_equals_single_steps():
    writer = Counting(FixedAgent(lambda prompt: f"{prompt} and so on"))
    encoder = Letters()
    env = PickOfK(task(2), strategies=["{prompt}", "b {prompt}"], writer=writer, encoder=encoder)
    picks = [{"agent_0": i % 2, "agent_1": i // 2} for i in range(4)]
    batch = TextBatch(env)
    seen = batch.reset(rows=range(4))
    asked = len(writer.calls), len(encoder.calls)
    results = batch.step(picks)
    assert (len(writer.calls), len(encoder.calls)) == (asked[0] + 1, asked[1] + 1)
    assert asked == (0, 1)
    for i, (result, joint) in enumerate(zip(results, picks, strict=True)):
        single = env.clone()
        first, _ = single.reset(options={"row": i})
        after = single.step(joint)
        for agent in AGENTS:
            np.testing.assert_array_equal(first[agent], seen[i][agent])
            np.testing.assert_array_equal(after[0][agent], result.observations[agent])
            assert after[1][agent] == result.rewards[agent]
            assert after[4][agent]["text"] == result.infos[agent]["text"]


def test_an_encoder_is_not_asked_about_nothing():
    encoder = Letters()
    batch = TextBatch(PickOfK(task(), LENGTHS, encoder=encoder))
    batch.reset(rows=[0, 1])
    batch.step([dict.fromkeys(AGENTS, 0)] * 2)
    encoder.calls.clear()
    assert batch.step([None, None]) == [None, None]
    assert encoder.calls == []


def test_siblings_that_pick_alike_play_the_same_text():
    writer = Counting(noisy_writer())
    env = PickOfK(task(), strategies=["{prompt}", "again {prompt}"], writer=writer)
    batch = TextBatch(env)
    batch.reset(rows=[0], seeds=[3])
    joint = [dict.fromkeys(AGENTS, pick) for pick in (1, 0, 1)]
    texts = [result.infos["agent_0"]["text"] for result in batch.expand(0, joint)]
    assert texts[0] == texts[2] != texts[1]
    assert [len(asked) for asked, _, _ in writer.calls] == [4], "two picks of two agents"


# --- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("pick", [-1, 8, 1.0, "x" * 20, None, True, np.array([1]), [0]])
def test_a_bad_pick_names_its_agent(pick):
    env = PickOfK(task(), LENGTHS)
    env.reset()
    with pytest.raises(ValueError, match="integer from 0 to 7 as the action of agent_1, got"):
        env.step({"agent_0": 0, "agent_1": pick})
    with pytest.raises(TypeError, match="a mapping of one pick per agent"):
        env.step([0, 0])
    with pytest.raises(ValueError, match=r"\['agent_1'\] missing"):
        env.step({"agent_0": 0})


class Odd:
    def __init__(self, answers):
        self.answers = answers

    def act(self, observations, num_generations=1, *, seed=None):
        return self.answers


@pytest.mark.parametrize(
    ("arguments", "exception", "sentence"),
    [
        ({}, ValueError, "either candidates or strategies, got neither"),
        ({"candidates": ["a"], "strategies": ["{prompt}"]}, ValueError, "got both"),
        ({"strategies": ["{prompt}"]}, ValueError, "strategies and writer together"),
        ({"candidates": ["a"], "writer": FixedAgent("a")}, ValueError, "together"),
        ({"strategies": ["{prompt}"], "writer": len}, TypeError, r"an agent with act\(\)"),
        ({"candidates": "abc"}, TypeError, "a list as the candidates of agent_0, got 'abc'"),
        ({"candidates": []}, ValueError, "at least one of the candidates"),
        ({"candidates": [1]}, TypeError, "strings as candidates of agent_0, got 1"),
        ({"candidates": ["\ud800"]}, ValueError, "candidates of agent_0 in TextSpace"),
        ({"candidates": {"agent_0": ["a"]}}, ValueError, r"candidates for \['agent_0', 'agent_1"),
        ({"candidates": ["a", "b"], "k": 1}, ValueError, "k of at least 2"),
        ({"candidates": ["a"], "k": 1.5}, TypeError, "an integer as k"),
        ({"candidates": lambda seen, agent: ["a"]}, ValueError, "Expected k, .* a function"),
        ({"candidates": FixedAgent("a")}, ValueError, "Expected k, .* an agent writes"),
        ({"strategies": ["a"], "writer": FixedAgent("a")}, ValueError, r"\{prompt\} in each"),
        ({"strategies": [3], "writer": FixedAgent("a")}, TypeError, "templates or functions"),
        ({"candidates": ["a"], "encoder": len}, TypeError, "has a size, got <built-in"),
    ],
)
def test_arguments_that_cannot_be_meant(arguments, exception, sentence):
    with pytest.raises(exception, match=sentence):
        PickOfK(task(), **arguments)


@pytest.mark.parametrize(
    ("candidates", "exception", "sentence"),
    [
        (lambda seen, agent: "ab", TypeError, "a list of texts as the candidates of agent_0"),
        (lambda seen, agent: [], ValueError, "1 to 2 candidates for agent_0, got 0"),
        (lambda seen, agent: ["a"] * 3, ValueError, "1 to 2 candidates for agent_0, got 3"),
        (lambda seen, agent: ["a", None], TypeError, "strings as candidates of agent_0, got None"),
        (Odd([]), ValueError, "answers to 2 prompts from the writer, got 0"),
        (Odd([["a", "b"], ["c", "d"]]), TypeError, "answers with a text from the writer"),
        (Odd([FixedAgent("a").act([""])[0]] * 2), ValueError, "2 answers to a prompt.* got 1"),
    ],
)
def test_candidates_that_cannot_be_chosen_from(candidates, exception, sentence):
    with pytest.raises(exception, match=sentence):
        PickOfK(task(), candidates, k=2).reset()


def test_what_an_encoder_must_return():
    class Wrong(Letters):
        def __call__(self, texts):
            return self.value

    encoder = Wrong()
    env = PickOfK(task(), LENGTHS, encoder=encoder)
    for value, sentence in (
        (np.zeros((1, 3)), r"shape \(1, 2\) from the encoder, got \(1, 3\)"),
        (np.full((1, 2), 1.5), r"features in \[-1, 1\] from the encoder"),
        (np.full((1, 2), np.nan), r"features in \[-1, 1\].* for 'prompt"),
    ):
        encoder.value = value
        with pytest.raises(ValueError, match=sentence):
            env.reset()


def test_it_needs_texts_an_episode_and_a_known_agent():
    env = PickOfK(task(), LENGTHS)
    with pytest.raises(TypeError, match="observations and actions are texts, got Box"):
        PickOfK(env, LENGTHS)
    with pytest.raises(error.ResetNeeded):
        env.action_masks()
    with pytest.raises(error.ResetNeeded):
        env.step(dict.fromkeys(AGENTS, 0))
    for method in (env.action_space, env.observation_space):
        with pytest.raises(KeyError, match="agent_9"):
            method("agent_9")
    with pytest.raises(TypeError, match="a string from a strategy of agent_0, got 8"):
        PickOfK(task(), strategies=[len], writer=FixedAgent("")).reset()
