"""Streams by index: exact whatever is read when, in bounded memory, on real streaming datasets."""

import json
import pickle

import pytest
from datasets import Dataset, IterableDataset, load_dataset
from hypothesis import given
from hypothesis import strategies as st

from motet.envs import StreamedRows, TextEnv

BOTH = {"agent_0": "", "agent_1": ""}
ROWS = [{"prompt": f"prompt {i}", "answer": i} for i in range(23)]


def generate():
    yield from ROWS


def from_generator(tmp_path):
    return IterableDataset.from_generator(generate)


def from_dataset(tmp_path):
    return Dataset.from_list(ROWS).to_iterable_dataset(num_shards=3)


def from_files(tmp_path):
    for name, rows in (("a", ROWS[:10]), ("b", ROWS[10:])):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    files = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    return load_dataset("json", data_files=files, split="train", streaming=True)


def in_epoch_two(stream):
    shuffled = stream.shuffle(seed=1, buffer_size=5)
    shuffled.set_epoch(2)
    return shuffled


SOURCES = [from_generator, from_dataset, from_files]
CHANGES = {
    "as it is": lambda stream: stream,
    "filtered": lambda stream: stream.filter(lambda row: row["answer"] % 3 != 1),
    "mapped": lambda stream: stream.map(lambda row: {"prompt": row["prompt"].upper()}),
    "shuffled": lambda stream: stream.shuffle(seed=1, buffer_size=5),
    "shuffled, in epoch two": in_epoch_two,
    "skipped and taken": lambda stream: stream.skip(3).take(12),
    "repeated": lambda stream: stream.repeat(2),
}


class Reopened:
    """A stream that counts how often it is begun and how many rows it gives."""

    def __init__(self, rows=ROWS):
        self.rows = rows
        self.begun = self.given = 0

    def __iter__(self):
        self.begun += 1
        for row in self.rows:
            self.given += 1
            yield row


def answers(first, second, answer):
    return [float(value) for value in answer]


# --- the view --------------------------------------------------------------------------------


@given(
    size=st.integers(0, 30),
    cache_size=st.integers(1, 12),
    indices=st.lists(st.integers(0, 35), max_size=40),
)
def test_any_order_of_reads_gives_what_a_list_gives(size, cache_size, indices):
    rows = [{"prompt": str(i)} for i in range(size)]
    view = StreamedRows(rows, cache_size=cache_size)
    for index in indices:
        if index < size:
            assert view[index] == rows[index]
        else:
            assert not view.has_row(index)
            assert len(view) == view.num_rows == size
            with pytest.raises(IndexError, match=rf"a row from 0 to {size - 1}, got {index}"):
                view[index]
        assert len(view._cache) <= cache_size
    assert list(view) == rows
    assert len(view) == size


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_streaming_datasets_are_exact(tmp_path, source, change):
    stream = change(source(tmp_path))
    expected = list(stream)
    assert len(expected) >= 12
    view = StreamedRows(stream, cache_size=4)
    order = [0, 9, 3, 11, 10, 1, 8, 0, 11]
    assert [view[index] for index in order] == [expected[index] for index in order]
    assert view.num_rows is None
    assert list(view) == expected
    assert len(view) == len(expected)
    assert [view[index] for index in order] == [expected[index] for index in order]


def test_the_length_is_unknown_until_the_end_was_seen():
    view = StreamedRows(Reopened(), cache_size=5)
    assert view[21] == ROWS[21]
    with pytest.raises(TypeError, match="a stream whose end was not seen yet"):
        len(view)
    with pytest.raises(IndexError, match=r"a row from 0, got -1"):
        view[-1]
    assert view.num_rows is None
    assert not view.has_row(23)
    assert len(view) == 23
    with pytest.raises(TypeError, match="an integer as the index of a row, got"):
        view["prompt"]


def test_reading_forwards_and_within_the_cache_begins_the_stream_once():
    stream = Reopened()
    view = StreamedRows(stream, cache_size=6)
    for index in range(len(ROWS)):
        for back in range(min(index, 5) + 1):
            assert view[index - back] == ROWS[index - back]
    assert (stream.begun, stream.given) == (1, 23)
    assert view[16] == ROWS[16]
    assert stream.begun == 2
    # went back to the start of a block, so that its other rows are at hand
    assert view[15] == ROWS[15]
    assert stream.begun == 2


def test_one_row_is_read_ahead_of_nothing():
    stream = Reopened()
    view = StreamedRows(stream)
    assert stream.begun == 0
    view[0]
    assert stream.given == 1


def test_an_endless_stream_is_no_problem():
    class Endless:
        def __iter__(self):
            return ({"prompt": str(i)} for i in range(10**12))

    env = TextEnv(StreamedRows(Endless(), cache_size=10), lambda a, b: [0.0] * len(a), shuffle=True)
    for _ in range(100):
        env.reset()
    assert env.num_rows is None


def test_a_stream_that_fails_once_goes_on_exactly():
    class Failing(Reopened):
        def __iter__(self):
            self.begun += 1
            for index, row in enumerate(self.rows):
                if index == 7 and self.begun == 1:
                    raise OSError("connection lost")
                yield row

    view = StreamedRows(Failing(), cache_size=4)
    with pytest.raises(OSError, match="connection lost"):
        view.has_row(9)
    assert view[6] == ROWS[6]
    assert list(view) == ROWS


def test_a_stream_that_shrinks_is_an_error():
    stream = Reopened()
    view = StreamedRows(stream, cache_size=2)
    assert view[20] == ROWS[20]
    stream.rows = ROWS[:9]
    with pytest.raises(ValueError, match=r"every iteration .* got no row 15 where .* at least 21"):
        view[15]


def test_views_pickle_without_the_open_stream():
    view = StreamedRows(Dataset.from_list(ROWS).to_iterable_dataset(), cache_size=4)
    assert view[9] == ROWS[9]
    twin = pickle.loads(pickle.dumps(view))
    assert [twin[index] for index in (10, 2)] == [ROWS[10], ROWS[2]]
    assert view[10] == ROWS[10]


@pytest.mark.parametrize("stream", [iter(ROWS), (row for row in ROWS), map(dict, ROWS), 5, None])
def test_what_can_be_gone_through_once_is_refused(stream):
    with pytest.raises(TypeError, match=r"iterated over again, .*from_generator"):
        StreamedRows(stream)


def test_cache_size_is_a_count():
    with pytest.raises(ValueError, match="cache_size of at least 1, got 0"):
        StreamedRows(ROWS, cache_size=0)
    with pytest.raises(TypeError, match="integer as cache_size, got '5'"):
        StreamedRows(ROWS, cache_size="5")
    assert StreamedRows(ROWS).cache_size == 10_000


# --- in an env -------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
def test_a_streaming_dataset_plays_as_its_list_does(tmp_path, source):
    env, expected = TextEnv(source(tmp_path), answers), TextEnv(ROWS, answers)
    assert env.num_rows is None
    for _ in range(50):
        assert env.reset() == expected.reset()
        assert env.step(BOTH) == expected.step(BOTH)
    assert env.num_rows == 23
    with pytest.raises(IndexError, match=r"options\['row'\] from 0 to 22, got 23"):
        env.reset(options={"row": 23})


def test_rows_of_a_stream_are_checked():
    env = TextEnv(from_dataset(None), answers)
    for row in (-1, 23, 10**6):
        with pytest.raises(IndexError, match=rf"Expected row from 0.*, got {row}"):
            env.initial_state(row)
    with pytest.raises(TypeError, match=r"integer as row, got 1\.0"):
        env.initial_state(1.0)
    with pytest.raises(ValueError, match="at least one row"):
        TextEnv(from_dataset(None).filter(lambda row: False), answers)
    with pytest.raises(TypeError, match=r"got a Reopened; .*stream with StreamedRows\(\.\.\.\)"):
        TextEnv(Reopened(), answers)
    ragged = StreamedRows([ROWS[0], {"prompt": "no answer"}, {"prompt": None, "answer": 2}])
    env = TextEnv(ragged, answers)
    with pytest.raises(ValueError, match=r"row 1 without \['answer'\]"):
        env.reset(options={"row": 1})
    with pytest.raises(TypeError, match="agent_0 for row 2, got None of type NoneType"):
        env.reset(options={"row": 2})


@pytest.mark.parametrize("shuffle", [False, True])
def test_snapshots_and_clones_share_a_stream_and_read_at_their_own_places(shuffle):
    stream = StreamedRows(from_generator(None), cache_size=4)
    env = TextEnv(stream, answers, shuffle=shuffle)
    assert env.dataset is stream
    env.reset(seed=0)
    states, ahead = [], []
    for _ in range(60):
        states.append(env.get_state())
        ahead.append(env.reset()[1]["agent_0"]["row"])
    clones = []
    for state in states[::20]:
        clone = env.clone()
        clone.set_state(pickle.loads(pickle.dumps(state)))
        assert clone.dataset is stream
        clones.append(clone)
    for step in range(20):
        for start, clone in zip((0, 20, 40), clones, strict=True):
            observations, infos = clone.reset()
            row = infos["agent_0"]["row"]
            assert row == ahead[start + step]
            assert observations["agent_0"] == f"prompt {row}"
            assert clone.step(BOTH)[1]["agent_0"] == float(row)


def test_a_shuffled_stream_visits_every_row_once_per_pass():
    env = TextEnv(StreamedRows(from_generator(None), cache_size=10), answers, shuffle=True)
    passes = []
    for seed in (0, None, None):
        rows = [env.reset(seed=seed)[1]["agent_0"]["row"]]
        rows += [env.reset()[1]["agent_0"]["row"] for _ in range(22)]
        assert sorted(rows) == list(range(23))
        passes.append(rows)
    assert passes[0] != passes[1] != passes[2] != list(range(23))


def test_a_batch_wider_than_the_cache_is_exact():
    stream = Reopened()
    env = TextEnv(StreamedRows(stream, cache_size=2), answers)
    states = [env.initial_state(row) for row in range(23)]
    order = [7, 22, 0, 7, 13]
    begun = stream.begun
    results = env.step_batch([states[row] for row in order], [BOTH] * 5)
    assert [result.rewards["agent_1"] for result in results] == [7.0, 22.0, 0.0, 7.0, 13.0]
    assert stream.begun - begun <= 2


@pytest.mark.parametrize("source", SOURCES)
def test_columns_of_a_stream_are_renamed_as_they_are_read(tmp_path, source):
    stream = source(tmp_path).rename_columns({"prompt": "question"})
    mapping = {"question": "prompt"}
    for dataset in (stream, StreamedRows(stream, cache_size=3)):
        env = TextEnv(dataset, answers, column_mapping=mapping)
        assert isinstance(env.dataset, StreamedRows)
        for row in (20, 4, 0, 22):
            observations, _ = env.reset(options={"row": row})
            assert observations["agent_1"] == f"prompt {row}"
            assert env.step(BOTH)[1]["agent_1"] == float(row)
    assert env.dataset.cache_size == 3
    with pytest.raises(ValueError, match=r"got \['text'\]; the dataset has \[.*'question'"):
        TextEnv(stream, answers, column_mapping={"text": "prompt"})
    late = StreamedRows([{"question": "a"}, {"text": "b"}, {"question": "c", "prompt": "d"}])
    env = TextEnv(late, lambda a, b: [0.0] * len(a), column_mapping=mapping)
    with pytest.raises(ValueError, match=r"'prompt' in row 1 of the dataset, got \['text'\]"):
        env.reset(options={"row": 1})
    with pytest.raises(ValueError, match=r"with the columns \['question', 'prompt'\]"):
        env.reset(options={"row": 2})
