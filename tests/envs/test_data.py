"""Where rows come from: lists, files, `datasets`, frames, renamed columns, and their errors."""

import json
import subprocess
import sys
from datetime import date

import pandas as pd
import pyarrow as pa
import pytest
from datasets import Dataset, DatasetDict
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from motet.envs import TextEnv, load_rows, train_eval_split
from motet.envs.data.row_files import FileRows

ROWS = [
    {"prompt": "Rain", "answer": 1},
    {"prompt": 'Sun, "moon"\nand stars 🎵', "answer": 2},
    {"prompt": "", "answer": 3},
]


def zeros(first, second):
    return [0.0] * len(first)


def about(first, second, answer):
    return [float(value) for value in answer]


def write_jsonl(path, rows=ROWS):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_json(path, rows=ROWS):
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=1), encoding="utf-8")


def write_csv(path, rows=ROWS):
    pd.DataFrame(rows).to_csv(path, index=False)


def write_parquet(path, rows=ROWS):
    parquet.write_table(pa.Table.from_pylist(rows), path)


WRITERS = {".jsonl": write_jsonl, ".json": write_json, ".csv": write_csv, ".parquet": write_parquet}


class Squares:
    """An indexable without a list behind it."""

    def __init__(self, rows):
        self._rows = rows

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, index):
        return self._rows[index]


# --- files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_file_is_read_whole_and_plays_as_its_list_does(tmp_path, suffix):
    path = tmp_path / f"rows{suffix.upper()}"
    WRITERS[suffix](path)
    assert load_rows(path) == load_rows(str(path)) == ROWS
    for dataset in (path, str(path)):
        env, expected = TextEnv(dataset, about), TextEnv(ROWS, about)
        assert env.num_rows == 3
        for _ in range(4):
            assert env.reset() == expected.reset()
            actions = dict.fromkeys(env.agents, "x")
            assert env.step(actions) == expected.step(actions)


def test_json_lines_keep_every_character_and_skip_blank_lines(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"prompt": "a\u2028b\x85c\x0cd"}, {"prompt": "é"}]
    first, second = (json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_bytes(f"\ufeff{first}\r\n\n  \n{second}".encode())
    assert load_rows(path) == rows
    assert load_rows(path).place(1) == f"row 1 (line 4 of {path})"


def test_csv_types_are_inferred_from_all_rows(tmp_path):
    path = tmp_path / "rows.csv"
    # 3 MB: text comes long after the first block of pyarrow's reader, which has numbers only
    path.write_text("prompt,answer\n" + "some text,1\n" * 250_000 + "other,one\n")
    rows = load_rows(path)
    assert len(rows) == 250_001
    assert rows[0]["answer"] == "1"
    assert rows[-1]["answer"] == "one"
    path.write_text('prompt,day,empty\n"x ""y""",2024-05-01,\n')
    assert load_rows(path) == [{"prompt": 'x "y"', "day": date(2024, 5, 1), "empty": None}]
    big = "line\n" * 500_000
    path.write_text(f'prompt,n\n"{big}",1\n"{big}",2\n')
    assert load_rows(path) == [{"prompt": big, "n": 1}, {"prompt": big, "n": 2}]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("r.txt", b"x", r"ends in \.jsonl, \.json, \.csv, \.parquet, got '.*r\.txt'; .*load_da"),
        ("r", b"x", r"ends in .*, got '.*r'"),
        ("r.jsonl", b"", r"at least one row in .*r\.jsonl, got an empty file"),
        ("r.jsonl", b"\n \n", "an empty file"),
        ("r.json", b" ", r"at least one row in .*r\.json, got an empty file"),
        ("r.json", b"[]", "an empty file"),
        ("r.csv", b"", r"at least one row in .*r\.csv, got an empty file"),
        ("r.csv", b"prompt\n", "an empty file"),
        ("r.parquet", b"", r"a Parquet file, got .*r\.parquet: .*0 bytes"),
        ("r.parquet", b"prompt", r"a Parquet file, got .*r\.parquet: "),
        ("r.jsonl", b'{"prompt": "a"}\n\n{"prompt"', r"line 3 of .*r\.jsonl, got {\"prompt\": E"),
        ("r.jsonl", b'{"prompt": "a"}\n["a"]\n', r'line 2 of .*r\.jsonl, got \["a"\]\.'),
        ("r.jsonl", b'[{"prompt": "a"}]', r"JSON object on line 1 of"),
        ("r.jsonl", b'{"prompt": "a"}\n{"prompt": "\xff"}', r"UTF-8 text in line 2 .* byte 0xff"),
        ("r.json", b'{"prompt": ["a"]}', r"array .*r\.json, got an object with the keys \['pro"),
        ("r.json", b'"text"', 'array of objects in .*, got "text"'),
        ("r.json", b'[{"prompt": "a"}, "b"]', "array .* got 'b' as its element 1"),
        ("r.json", b'[\n{"prompt": "a"},\n]', r"array .*r\.json, got on line \d: "),
        ("r.json", b'{"prompt": "a"}\n{"prompt": "b"}', r"on line 2: Extra data.*\.jsonl"),
        ("r.json", b"\xff", r"UTF-8 text in .*r\.json, got the byte 0xff at 0"),
        ("r.csv", b"prompt,n\na,1\nb,1,2\n", r"malformed file .*r\.csv .*Row #3: Expected 2 col"),
        ("r.csv", b"prompt,n\na\n", r"malformed file .*Row #2"),
        ("r.csv", b"prompt,prompt\na,b\n", r"different column names in .*\['prompt', 'prompt'\]"),
        ("r.csv", b"prompt\n\xff\n", "UTF-8 text in .*, got other bytes in the column 'prompt'"),
        ("r.csv", b'prompt\n"a\nb\nc\n', "every quote of .* to be closed, got one .* the text a"),
    ],
)
def test_files_that_cannot_be_read_are_sentences(tmp_path, name, content, sentence):
    path = tmp_path / name
    path.write_bytes(content)
    for read in (load_rows, lambda path: TextEnv(path, zeros)):
        with pytest.raises(ValueError, match=sentence):
            read(path)


def test_missing_files_are_sentences(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=rf"a file at {tmp_path}/none\.jsonl, got none"):
        load_rows("none.jsonl")
    (tmp_path / "rows.csv").mkdir()
    with pytest.raises(FileNotFoundError, match="got a folder"):
        TextEnv("rows.csv", zeros)


def test_a_missing_column_names_the_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a", "answer": 1}\n\n{"prompt": "b"}\n')
    with pytest.raises(ValueError, match=rf"row 1 \(line 3 of {path}\) without \['answer'\]"):
        TextEnv(path, about)
    path.write_text('\n{"question": "a"}\n')
    with pytest.raises(ValueError, match=r"'prompt' in row 0 \(line 2 of .* column_mapping="):
        TextEnv(path, zeros)
    path.write_text('{"question": "a"}\n{"quest": "b"}\n')
    with pytest.raises(ValueError, match=r"'prompt' in row 1 \(line 2 of .*got \['quest'\]"):
        TextEnv(path, zeros, column_mapping={"question": "prompt"})
    json_path = tmp_path / "rows.json"
    json_path.write_text('[{"prompt": "a"}, {}]')
    with pytest.raises(ValueError, match=rf"'prompt' in row 1 \({json_path}\)"):
        TextEnv(json_path, zeros)


def test_files_are_read_without_datasets_and_json_without_pyarrow(tmp_path):
    write_jsonl(tmp_path / "rows.jsonl")
    write_csv(tmp_path / "rows.csv")
    code = """
import sys
from motet.envs import TextEnv
env = TextEnv("rows.jsonl", lambda a, b: [0.0] * len(a))
env.reset()
assert not {"datasets", "pyarrow", "pandas", "torch"} & set(sys.modules)
TextEnv("rows.csv", lambda a, b: [0.0] * len(a))
assert "pyarrow" in sys.modules
assert not {"datasets", "torch"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


# --- missing columns and bad values, in memory and lazily -------------------------------------


def test_rows_in_memory_are_checked_when_the_env_is_built():
    rows = [{"prompt": "a", "answer": 1, "note": ""}, {"prompt": "b", "answer": 1}]
    for dataset in (rows, tuple(rows)):
        with pytest.raises(ValueError, match=r"columns .*got row 1 without \['note'\]"):
            TextEnv(dataset, zeros)


@pytest.mark.parametrize("missing", ["prompt", "answer", "note"])
def test_rows_read_lazily_are_checked_when_they_are_read(missing):
    rows = [dict.fromkeys(("prompt", "answer", "note"), "1") for _ in range(3)]
    env = TextEnv(Squares(rows), about)
    state = env.initial_state(2)
    del rows[2][missing]
    sentence = r"'prompt' in row 2" if missing == "prompt" else rf"row 2 without \['{missing}'\]"
    with pytest.raises(ValueError, match=sentence):
        env.reset(options={"row": 2})
    with pytest.raises(ValueError, match=sentence):
        env.step_batch([state], [{"agent_0": "", "agent_1": ""}])
    env.reset(options={"row": 1})
    env.step({"agent_0": "", "agent_1": ""})


def test_a_row_that_is_no_mapping_is_found_when_it_is_read():
    env = TextEnv(Squares([{"prompt": "a"}, "b"]), zeros)
    env.reset()
    with pytest.raises(TypeError, match=r"mappings as dataset rows.* got 'b' as row 1"):
        env.reset()


@pytest.mark.parametrize("value", [None, 3, ["a"], b"a"])
def test_prompts_that_are_no_strings_name_row_and_value(value):
    rows = [{"prompt": "a"}, {"prompt": value}]
    datasets = [Squares(rows)]
    if value is None:
        datasets.append(Dataset.from_list(rows))
    for dataset in datasets:
        env = TextEnv(dataset, zeros)
        with pytest.raises(TypeError) as caught:
            env.reset(options={"row": 1})
        assert f"prompt of agent_0 for row 1, got {value!r} of type" in str(caught.value)
    for dataset in (rows, tuple(rows)):
        with pytest.raises(TypeError) as caught:
            TextEnv(dataset, zeros)
        assert f"prompt of row 1, got {value!r} of type" in str(caught.value)
        TextEnv(dataset, zeros, formatters=lambda row: str(row["prompt"])).reset(options={"row": 1})


def test_a_prompt_that_is_no_string_names_the_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"q": "a"}\n\n{"q": null}\n')
    with pytest.raises(TypeError, match=r"prompt of row 1 \(line 3 of .*got None.*formatters="):
        TextEnv(path, zeros, column_mapping={"q": "prompt"})


# --- what else is a dataset, and what is not --------------------------------------------------


def test_a_dataset_of_datasets_stays_one():
    dataset = Dataset.from_list(ROWS)
    env = TextEnv(dataset, about)
    assert env.dataset is dataset
    assert env.num_rows == 3
    env.reset(options={"row": 1})
    assert env.step({"agent_0": "", "agent_1": ""})[1]["agent_0"] == 2.0


def test_each_row_is_read_once_for_all_its_branches():
    reads = []

    class Counting(Squares):
        def __getitem__(self, index):
            reads.append(index)
            return super().__getitem__(index)

    env = TextEnv(Counting(ROWS), about)
    states = [env.initial_state(row) for row in (2, 0)]
    reads.clear()
    both = {"agent_0": "", "agent_1": ""}
    results = env.step_batch([states[0]] * 4 + [states[1]] * 4, [both] * 8)
    assert [result.rewards["agent_0"] for result in results] == [3.0] * 4 + [1.0] * 4
    assert sorted(set(reads)) == [0, 2]
    assert len(reads) < 8


def test_frames_are_refused_with_the_way_to_their_rows():
    frame = pd.DataFrame(ROWS)
    with pytest.raises(TypeError, match=r"got a pandas DataFrame; .* df\.to_dict\(\"records\"\)"):
        TextEnv(frame, zeros)
    with pytest.raises(TypeError, match="pandas DataFrame"):
        train_eval_split(frame)
    TextEnv(frame.to_dict("records"), about)


def test_polars_frames_are_refused_too():
    polars = pytest.importorskip("polars")
    with pytest.raises(TypeError, match=r"got a polars DataFrame; pass its rows, df\.to_dicts\(\)"):
        TextEnv(polars.DataFrame(ROWS), zeros)


def test_splits_and_names_of_the_hub_are_refused_with_advice():
    with pytest.raises(TypeError, match=r"DatasetDict with the keys .* choose one split"):
        TextEnv(DatasetDict(train=Dataset.from_list(ROWS)), zeros)
    with pytest.raises(ValueError, match=r"got 'openai/gsm8k'; .* datasets\.load_dataset"):
        TextEnv("openai/gsm8k", zeros)


# --- column_mapping ---------------------------------------------------------------------------

QUESTIONS = [{"question": row["prompt"], "answer": row["answer"]} for row in ROWS]
MAPPING = {"question": "prompt"}


@pytest.mark.parametrize("kind", ["list", "tuple", "indexable", "datasets", "file"])
def test_columns_are_renamed_wherever_rows_come_from(tmp_path, kind):
    write_jsonl(tmp_path / "rows.jsonl", QUESTIONS)
    before = json.dumps(QUESTIONS)
    dataset = {
        "list": QUESTIONS,
        "tuple": tuple(QUESTIONS),
        "indexable": Squares(QUESTIONS),
        "datasets": Dataset.from_list(QUESTIONS),
        "file": tmp_path / "rows.jsonl",
    }[kind]
    env, expected = TextEnv(dataset, about, column_mapping=MAPPING), TextEnv(ROWS, about)
    assert env.num_rows == 3
    assert env.clone().dataset is env.dataset
    for _ in range(4):
        assert env.reset() == expected.reset()
        actions = dict.fromkeys(env.agents, "x")
        assert env.step(actions) == expected.step(actions)
    assert json.dumps(QUESTIONS) == before
    assert isinstance(env.dataset, Dataset) == (kind == "datasets")


def test_names_can_be_swapped():
    rows = [{"prompt": "p", "answer": "a"}]
    mapping = {"prompt": "answer", "answer": "prompt"}
    for dataset in (rows, Dataset.from_list(rows)):
        observations, _ = TextEnv(dataset, zeros, column_mapping=mapping).reset()
        assert observations["agent_0"] == "a"


@pytest.mark.parametrize(
    ("mapping", "exception", "sentence"),
    [
        ({"text": "prompt"}, ValueError, r"got \['text'\]; .* has \['question', 'answer'\]"),
        ({"question": "answer"}, ValueError, r"\['answer'\] more than once; .*'question', 'ans"),
        ({"question": "p", "answer": "p"}, ValueError, r"got \['p'\] more than once"),
        ({"answer": "prompt_"}, ValueError, r"'prompt' in row 0 .* got \['question', 'prompt_'\]"),
        ([("question", "prompt")], TypeError, "from old names to new ones, got"),
        ("prompt", TypeError, "from old names to new ones, got 'prompt'"),
        ({"question": 1}, TypeError, r"all of them strings, got \{'question': 1\}"),
    ],
)
def test_mappings_that_do_not_fit(mapping, exception, sentence):
    for dataset in (QUESTIONS, Squares(QUESTIONS), Dataset.from_list(QUESTIONS)):
        with pytest.raises(exception, match=sentence):
            TextEnv(dataset, zeros, column_mapping=mapping)


def test_a_collision_in_a_later_row_is_found():
    rows = [{"question": "a"}, {"question": "b", "prompt": "c"}]
    with pytest.raises(ValueError, match=r"columns \['question', 'prompt'\]"):
        TextEnv(rows, zeros, column_mapping=MAPPING)


# --- columns and the reward function's own names ----------------------------------------------


@pytest.mark.parametrize("name", ["prompts", "rows", "batch_items", "turn", "histories"])
def test_a_column_that_is_also_a_name_of_the_reward_function_is_refused(name):
    scope = {}
    exec(f"def reward(first, second, *, {name}): return [0.0] * len(first)", scope)
    rows = [{"prompt": "a", name: 1}]
    with pytest.raises(ValueError, match=rf"\['{name}'\], which reward_func .*'own_{name}'"):
        TextEnv(rows, scope["reward"])
    TextEnv(rows, zeros)
    TextEnv(rows, lambda *texts, **named: [0.0] * len(texts[0]))
    TextEnv(rows, scope["reward"], column_mapping={name: f"own_{name}"})
    TextEnv([{"prompt": "a"}], scope["reward"])


def test_completions_may_be_named_like_a_column():
    TextEnv([{"prompt": "a", "turn": 1}], lambda turn, second: [0.0] * len(turn))


# --- train_eval_split -------------------------------------------------------------------------


@given(
    num_rows=st.integers(2, 60),
    eval_size=st.one_of(st.integers(1, 59), st.floats(0.01, 0.99)),
    seed=st.integers(0, 3),
)
def test_a_split_loses_and_repeats_nothing(num_rows, eval_size, seed):
    rows = [{"prompt": str(i)} for i in range(num_rows)]
    expected = eval_size if isinstance(eval_size, int) else -int(-num_rows * eval_size // 1)
    if not 0 < expected < num_rows:
        with pytest.raises(ValueError, match="at least one row on both sides"):
            train_eval_split(rows, eval_size, seed=seed)
        return
    parts = train_eval_split(rows, eval_size, seed=seed)
    assert len(parts[1]) == expected
    train, held_out = ([int(row["prompt"]) for row in part] for part in parts)
    assert train == sorted(train)
    assert held_out == sorted(held_out)
    assert sorted(train + held_out) == list(range(num_rows))
    assert parts == train_eval_split(tuple(rows), eval_size, seed=seed)


def test_a_split_is_the_same_for_every_kind_of_dataset(tmp_path):
    rows = [{"prompt": str(i)} for i in range(30)]
    write_jsonl(tmp_path / "rows.jsonl", rows)
    expected = train_eval_split(rows, 7, seed=1)
    assert expected != train_eval_split(rows, 7, seed=2)
    assert expected != (rows[:-7], rows[-7:])
    for dataset, kind in (
        (tmp_path / "rows.jsonl", FileRows),
        (Dataset.from_list(rows), Dataset),
        (Squares(rows), object),
    ):
        parts = train_eval_split(dataset, 7, seed=1)
        assert all(isinstance(part, kind) for part in parts)
        assert tuple([dict(part[i]) for i in range(len(part))] for part in parts) == expected
        assert TextEnv(parts[1], zeros).num_rows == 7
    train, _ = train_eval_split(tmp_path / "rows.jsonl", 7, seed=1)
    assert train.place(5).endswith(f"(line {int(train[5]['prompt']) + 1} of {train.path})")


def test_the_default_holds_out_a_tenth():
    train, held_out = train_eval_split([{"prompt": str(i)} for i in range(50)])
    assert (len(train), len(held_out)) == (45, 5)


@pytest.mark.parametrize(
    ("eval_size", "exception", "sentence"),
    [
        (0, ValueError, "both sides, got eval_size=0 of 3 rows"),
        (3, ValueError, "both sides, got eval_size=3 of 3 rows"),
        (-1, ValueError, "both sides"),
        (0.9, ValueError, "both sides"),
        (0.0, ValueError, "between 0 and 1 as eval_size, or an integer, got 0.0"),
        (1.0, ValueError, "between 0 and 1"),
        (float("nan"), ValueError, "between 0 and 1"),
        (True, TypeError, "as eval_size, got True"),
        ("0.1", TypeError, "as eval_size, got '0.1'"),
    ],
)
def test_splits_that_cannot_be(eval_size, exception, sentence):
    with pytest.raises(exception, match=sentence):
        train_eval_split(ROWS, eval_size)


@pytest.mark.parametrize(
    ("seed", "exception", "sentence"),
    [
        (-1, ValueError, "seed of at least 0, got -1"),
        ("a", TypeError, "integer as seed, got 'a'"),
        (None, TypeError, "integer as seed, got None"),
        (True, TypeError, "integer as seed, got True"),
    ],
)
def test_seeds_of_a_split_that_cannot_be(seed, exception, sentence):
    with pytest.raises(exception, match=sentence):
        train_eval_split(ROWS, 1, seed=seed)


def test_what_is_no_path_is_not_read():
    for path in (None, 3, ROWS):
        with pytest.raises(TypeError, match="path of a file of rows, got"):
            load_rows(path)


def test_a_stream_is_not_split():
    stream = Dataset.from_list(ROWS).to_iterable_dataset()
    with pytest.raises(TypeError, match=r"got a stream; .*stream\.take\(n\), .*stream\.skip\(n\)"):
        train_eval_split(stream)
    with pytest.raises(ValueError, match="at least one row in the dataset"):
        train_eval_split([])
