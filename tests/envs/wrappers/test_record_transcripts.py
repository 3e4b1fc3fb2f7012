"""RecordTranscripts: what is in the file, and that it comes back exactly."""

import json
import pickle
import subprocess
import sys

import pytest
from good_env import Good
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from paid_env import paid, paid_env, said

from motet.envs import TextEnv
from motet.envs.transcript import Message, Transcript
from motet.envs.wrappers import PromptTemplate, RecordTranscripts, TimeLimit, load_transcripts


def echo_env(**kwargs):
    """Two turns; the next prompt of each agent is what it said."""
    return TextEnv(
        [{"prompt": "p"}],
        lambda first, second: [1.0] * len(first),
        transition=lambda prompt, agent_completions: list(agent_completions),
        num_turns=2,
        **kwargs,
    )


def test_a_line_for_each_finished_episode(tmp_path):
    path = tmp_path / "new" / "folders" / "episodes.jsonl"
    env = RecordTranscripts(paid_env(num_turns=2), path)
    assert path.read_bytes() == b""
    paid(env, (1, 2))  # left before its end
    paid(env, (3, 4), (5, 0.1))
    (line,) = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(line) == {
        "env": "text_env",
        "row": 0,
        "turns": [
            [
                {
                    "agent": "agent_0",
                    "observation": "p",
                    "action": "3",
                    "reward": 3.0,
                    "acts": True,
                },
                {
                    "agent": "agent_1",
                    "observation": "p",
                    "action": "4",
                    "reward": 4.0,
                    "acts": True,
                },
            ],
            [
                {
                    "agent": "agent_0",
                    "observation": "p after 1: 3",
                    "action": "5",
                    "reward": 5.0,
                    "acts": True,
                },
                {
                    "agent": "agent_1",
                    "observation": "p after 1: 4",
                    "action": "0.1",
                    "reward": 0.1,
                    "acts": True,
                },
            ],
        ],
        "endings": [["agent_0", "terminated"], ["agent_1", "terminated"]],
    }


def test_what_is_loaded_is_what_was_recorded(tmp_path):
    env = RecordTranscripts(paid_env(num_turns=1), str(tmp_path / "a.jsonl"))
    paid(env, (1, 2))
    env.reset()
    env.step(said(-1, 0))
    first, second = load_transcripts(tmp_path / "a.jsonl")
    ends = (("agent_0", "terminated"), ("agent_1", "terminated"))
    turn = (Message("agent_0", "p", "1", 1.0), Message("agent_1", "p", "2", 2.0))
    assert first == Transcript("text_env", 0, (turn,), ends)
    assert (second.row, second.turns[0][0].observation, second.turns[0][0].reward) == (1, "q", -1.0)
    assert "agent_1 earns 2" in str(first)


def test_agents_that_leave_early_and_envs_without_rows(tmp_path):
    env = RecordTranscripts(TimeLimit(Good(num_turns=4), 3), tmp_path / "a.jsonl")
    env.reset(seed=0)
    while env.agents:
        env.step(dict.fromkeys(env.agents, "x"))
    (transcript,) = load_transcripts(env.path)
    assert (transcript.env, transcript.row) == ("good_v0", None)
    assert [[m.agent for m in turn] for turn in transcript.turns] == [["ann", "bob"]] * 3
    assert dict(transcript.endings) == {"bob": "terminated", "ann": "truncated"}
    env = RecordTranscripts(Good(), tmp_path / "b.jsonl")
    env.reset(seed=0)
    while env.agents:
        env.step(dict.fromkeys(env.agents, "x"))
    (transcript,) = load_transcripts(env.path)
    assert [len(turn) for turn in transcript.turns] == [2, 2, 1]
    assert transcript.endings == (("bob", "terminated"), ("ann", "terminated"))
    assert transcript.turns[1][0].observation.startswith("ann 1 2 ")


def test_the_place_in_the_stack_decides_what_is_recorded(tmp_path):
    inside = PromptTemplate(RecordTranscripts(paid_env(1), tmp_path / "in"), "<{observation}>")
    outside = RecordTranscripts(PromptTemplate(paid_env(1), "<{observation}>"), tmp_path / "out")
    for env in (inside, outside):
        paid(env, (1, 1))
    seen = [load_transcripts(tmp_path / name)[0].turns[0][0].observation for name in ("in", "out")]
    assert seen == ["p", "<p>"]


def test_agents_whose_turn_it_is_not_are_marked(tmp_path):
    env = RecordTranscripts(echo_env(acting=[["agent_0"], ["agent_1"]]), tmp_path / "a.jsonl")
    env.reset()
    env.step(said("a", "ignored"))
    env.step(said("ignored", "b"))
    (transcript,) = load_transcripts(env.path)
    assert [[m.acts for m in turn] for turn in transcript.turns] == [[True, False], [False, True]]


CONTROLS = "".join(map(chr, range(32))) + "\x7f\x80\x85\x9b\u2028\u2029\ufeff\ufffe\\\"'\\ud800"


@pytest.mark.parametrize("text", ["", "\n\r\n\r", CONTROLS, "👩🏽\u200d🚀 é世🎵", "\\n", "\\ud800"])
def test_texts_come_back_exactly(tmp_path, text):
    env = RecordTranscripts(echo_env(), tmp_path / "a.jsonl")
    for _ in range(2):
        env.reset()
        env.step(said(text, "x"))
        env.step(said("x", text))
    for transcript in load_transcripts(env.path):
        assert transcript.turns[0][0].action == text
        assert transcript.turns[1][0].observation == text
        assert transcript.turns[1][1].action == text
    assert env.path.read_bytes().count(b"\n") == 2


@given(text=st.text())
def test_any_text_comes_back(tmp_path_factory, text):
    env = RecordTranscripts(Good(1), tmp_path_factory.mktemp("any") / "a.jsonl")
    env.reset()
    env.step({"ann": text, "bob": ""})
    assert load_transcripts(env.path)[0].turns[0][0].action == text


def test_a_lone_surrogate_comes_back_where_an_env_takes_it(tmp_path):
    env = RecordTranscripts(Good(1), tmp_path / "a.jsonl")
    env.reset()
    env.step({"ann": "a\ud800b", "bob": "\udfff"})
    assert env.path.read_text(encoding="utf-8").count("\\ud") == 2
    assert [m.action for m in load_transcripts(env.path)[0].turns[0]] == ["a\ud800b", "\udfff"]


def test_clones_batches_and_other_envs_share_a_file(tmp_path):
    env = RecordTranscripts(paid_env(num_turns=2), tmp_path / "a.jsonl")
    env.reset(seed=0)
    env.step(said(1, 0))
    state, twin = pickle.loads(pickle.dumps(env.get_state())), env.clone()
    env.step(said(2, 0))
    twin.step(said(3, 0))
    env.step_batch([state] * 3, [said(4, 0), said(5, 0), said(6, 0)])
    other = RecordTranscripts(paid_env(num_turns=1), tmp_path / "a.jsonl")
    paid(other, (7, 0))
    transcripts = load_transcripts(env.path)
    assert [t.turns[-1][0].reward for t in transcripts] == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert all(t.turns[0][0].reward == 1.0 for t in transcripts[:5])


WRITER = """
import sys
from motet.envs import TextEnv
from motet.envs.wrappers import RecordTranscripts
env = TextEnv([{"prompt": "p"}], lambda text: [0.0], num_agents=1)
env = RecordTranscripts(env, sys.argv[1])
for _ in range(100):
    env.reset()
    env.step({"agent_0": sys.argv[2] * 20_000})
"""


def test_processes_share_a_file(tmp_path):
    path = tmp_path / "a.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, letter]) for letter in ("é", "世")
    ]
    assert [writer.wait() for writer in writers] == [0, 0]
    actions = [transcript.turns[0][0].action for transcript in load_transcripts(path)]
    assert sorted(actions) == ["é" * 20_000] * 100 + ["世" * 20_000] * 100


def test_a_relative_path_is_meant_where_the_env_was_built(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = RecordTranscripts(paid_env(1), "a.jsonl")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    paid(env, (1, 1))
    assert len(load_transcripts(tmp_path / "a.jsonl")) == 1


def test_paths_that_cannot_be_written_to_raise_when_the_env_is_built(tmp_path):
    with pytest.raises(IsADirectoryError, match=f"file to append transcripts to, .*{tmp_path}"):
        RecordTranscripts(paid_env(), tmp_path)
    (tmp_path / "file").write_text("text")
    with pytest.raises(OSError, match="a file to append transcripts to"):
        RecordTranscripts(paid_env(), tmp_path / "file" / "a.jsonl")
    with pytest.raises(TypeError, match="a path as path, got 3"):
        RecordTranscripts(paid_env(), 3)


def test_a_file_of_something_else_is_named_with_its_line(tmp_path):
    env = RecordTranscripts(paid_env(1), tmp_path / "a.jsonl")
    paid(env, (1, 1))
    for line in (b'{"env": "x"', b"{}", b"[]", b'{"turns": [[{"colour": 1}]], "endings": []}', b""):
        (tmp_path / "b.jsonl").write_bytes(env.path.read_bytes() + line + b"\n")
        with pytest.raises(ValueError, match=r"a transcript in line 2 of .*b\.jsonl, got b"):
            load_transcripts(tmp_path / "b.jsonl")
    with pytest.raises(FileNotFoundError):
        load_transcripts(tmp_path / "c.jsonl")


def test_only_texts_are_recorded(tmp_path):
    class Numbers(Good):
        def action_space(self, agent):
            return spaces.Discrete(3)

        def step(self, actions):
            return super().step({agent: "x" * action for agent, action in actions.items()})

    env = RecordTranscripts(Numbers(), tmp_path / "a.jsonl")
    env.reset()
    with pytest.raises(TypeError, match="a text as the action of ann, got 1 of type int; wrap"):
        env.step({"ann": 1, "bob": 2})
