"""What a page says of a run: its settings, and what of its folder is missing, cut or broken."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from tiny import letter_agent, matching_env
from viewer_pages import read_page
from viewer_runs import drawn_rollout, one_turn, write_run

from motet import algos
from motet.algos.viewer import fates as fate
from motet.algos.viewer import write_view
from motet.algos.viewer.rollout_files import evenly_chosen, whole_lines
from motet.algos.viewer.settings import settings_of


def test_a_run_is_written_beside_its_files(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", {1: drawn_rollout(0), 10: drawn_rollout(1)}, {0: one_turn(["a"])}
    )
    path = write_view(run)
    assert path == run / "view.html"
    data = read_page(path.read_text(encoding="utf-8"))
    assert data["notices"] == []
    assert [(each["kind"], each["number"]) for each in data["rollouts"]] == [
        ("training", 1),
        ("training", 10),
        ("evaluation", 0),
    ]
    assert dict(data["facts"]) == {
        "Task": "story-length-ratio-v0",
        "Learner": "magrpo",
        "Seed": "7",
        "Motet": "0.1.0",
        "Torch": "2.12.0",
    }
    assert data["num_turns"] == 2
    assert data["written"]
    first = data["rollouts"][0]["nodes"]
    below = first[first[0]["next"][0]]["return"]["all"]
    mean = sum(below) / len(below)
    assert first[0]["return"]["all"][0] == pytest.approx(
        first[0]["paid"]["all"][0] + 0.5 * mean,
        rel=1e-4,  # the discount of run.yaml
    )
    assert write_view(run, tmp_path / "elsewhere" / "page.html").is_file()


def test_an_empty_folder_has_a_page_that_says_so(tmp_path: Path) -> None:
    data = read_page(write_view(tmp_path).read_text(encoding="utf-8"))
    assert data["rollouts"] == []
    assert [notice.split(",")[0] for notice in data["notices"]] == [
        "There is no run.yaml",
        "There is no metrics.jsonl",
        "No rollouts were saved yet: there is no file in rollouts/.",
        "No evaluations were saved yet: there is no file in evaluations/.",
    ]


def test_what_is_cut_or_broken_is_left_out_with_a_sentence(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", {1: drawn_rollout(0), 2: drawn_rollout(1), 3: drawn_rollout(2)}
    )
    cut = run / "rollouts" / "000001.jsonl"
    cut.write_text(cut.read_text()[:-200])
    (run / "rollouts" / "000002.jsonl").write_text("")
    broken = run / "rollouts" / "000003.jsonl"
    header, _, *rest = broken.read_text().splitlines()
    broken.write_text("\n".join([header, "{no json", *rest]) + "\n")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('["no entry"]\n{"step": 9, "turn_1/rew')
    (run / "run.yaml").write_text("a: [1\nb: }")
    data = read_page(write_view(run).read_text(encoding="utf-8"))
    assert [each["number"] for each in data["rollouts"]] == [1]
    notices = "\n".join(data["notices"])
    for part in (
        "run.yaml is no YAML",
        "Line 63 of metrics.jsonl is no entry",
        "The last line of metrics.jsonl is cut",
        "rollouts/000001.jsonl ends early",
        "rollouts/000002.jsonl is left out. Expected a rollout",
        "rollouts/000003.jsonl is left out. Expected a line of JSON, got '{no json' in line 2",
    ):
        assert part in notices
    (kept,) = data["rollouts"]
    assert kept["cut"]
    assert all("return" not in node for node in kept["nodes"])
    ends = [end for node in kept["nodes"] for end in node["end"]]
    assert ends.count(fate.MISSING) == 1
    assert len(data["metrics"]["step"]) == 62


@pytest.mark.parametrize("length", [0, 1, 20, 400])
def test_a_rollout_cut_anywhere_is_shown_or_refused(tmp_path: Path, length: int) -> None:
    run = write_run(tmp_path / "run", {1: drawn_rollout(0)})
    path = run / "rollouts" / "000001.jsonl"
    path.write_text(path.read_text()[:length])
    data = read_page(write_view(run).read_text(encoding="utf-8"))
    assert len(data["notices"]) == 2  # of the rollout, and of the missing evaluations
    with pytest.raises(ValueError, match="whole line") if length < 400 else nullcontext():
        write_view(path)


def test_a_file_without_a_last_line_break_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}')
    assert whole_lines(path) == (['{"step": 1}', '{"step": 2}'], False)
    path.write_text('{"step": 1}\n{"ste')
    assert whole_lines(path) == (['{"step": 1}'], True)
    path.write_text("")
    assert whole_lines(path) == ([], False)


def test_a_file_that_is_no_rollout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n')
    with pytest.raises(ValueError, match=r"Expected a file that Rollout\.save .* other\.jsonl"):
        write_view(path)
    with pytest.raises(FileNotFoundError, match="Expected the folder of a run"):
        write_view(tmp_path / "nothing")


def test_so_many_rollouts_as_asked_for(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {k: one_turn([str(k)]) for k in range(1, 12)})
    data = read_page(write_view(run, max_rollouts=3).read_text(encoding="utf-8"))
    assert [each["number"] for each in data["rollouts"]] == [1, 6, 11]
    assert "3 of the 11 files in rollouts/ are shown." in data["notices"]
    with pytest.raises(ValueError, match="max_rollouts of at least 1, got 0"):
        write_view(run, max_rollouts=0)


def test_evenly_spaced_with_both_ends() -> None:
    files = [(k, Path(f"{k}.jsonl")) for k in range(10)]
    assert [number for number, _ in evenly_chosen(files, 4)] == [0, 3, 6, 9]
    assert [number for number, _ in evenly_chosen(files, 1)] == [9]
    assert evenly_chosen(files, 10) == files
    assert evenly_chosen(files, None) == files


def test_settings_are_found_wherever_they_are() -> None:
    settings = settings_of(
        {
            "env": {"id": "some-task-v0", "kwargs": {"num_turns": 3}},
            "learner": {"algo": "ippo", "config": {"seed": 1, "discount": 0.9}},
            "agents": {"agent_0": {"model": "a"}, "agent_1": {"model": "b"}, "x": {"model": "a"}},
        }
    )
    assert dict(settings.facts) == {
        "Task": "some-task-v0",
        "Learner": "ippo",
        "Model": "a, b",
        "Seed": "1",
    }
    assert (settings.num_turns, settings.discount) == (3, 0.9)
    assert settings_of({"num_turns": "two", "discount": True}).num_turns is None
    assert settings_of({"discount": True}).discount is None


@pytest.mark.parametrize("learner", ["magrpo", "ippo"])
def test_a_learners_own_run_has_advantages_by_token(tmp_path: Path, learner: str) -> None:
    env = matching_env()
    team = {name: letter_agent(seed) for seed, name in enumerate(env.possible_agents)}
    config = algos.spec(learner).config_class(
        **({"num_generations": 4} if learner == "magrpo" else {}),
        num_train_epochs=2,
        rollout_batch_size=2,
        max_new_tokens=1,
        rollout_logging_steps=2,
        progress_bar=False,
        output_dir=str(tmp_path),
    )
    algos.make(learner, env, team, config, eval_env=matching_env()).train()
    data = read_page(write_view(tmp_path).read_text(encoding="utf-8"))
    assert data["notices"] == ["There is no run.yaml, so task, learner and settings are unknown."]
    kinds = [(each["kind"], each["number"]) for each in data["rollouts"]]
    assert kinds == [
        *(("training", number) for number in (1, 2, 4)),
        *(("evaluation", number) for number in (0, 4)),
    ]
    training = [
        one
        for each in data["rollouts"][:3]
        for node in each["nodes"]
        for group in node["said"]
        for one in group
    ]
    trained = [one["advantage"] for one in training if one.get("advantage") is not None]
    assert trained
    assert len(set(map(str, trained))) > 1
    for one in training:
        assert len(one["tokens"]) == one["length"]
        assert sum(one["tokens"]) == len(data["texts"][one["text"]])
    assert "turn_1/reward_mean" in data["metrics"]["columns"]
    assert max(data["metrics"]["columns"]["time/optimizer_steps"]) > 0


@pytest.mark.parametrize(
    "line",
    [
        '{"step": NaN}',
        '{"step": 1e400}',
        f'{{"step": 1{"0" * 400}}}',
        '{"step": true}',
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_entry_is_left_out(line: str, tmp_path: Path) -> None:
    huge = f'{{"step": 2, "a": 1{"0" * 400}, "b": 0.5}}'
    (tmp_path / "metrics.jsonl").write_text(f"{line}\n{huge}\n")
    data = read_page(write_view(tmp_path).read_text(encoding="utf-8"))
    assert data["metrics"] == {"step": [2], "columns": {"b": [0.5]}}
    assert any(
        notice.startswith("Line 1 of metrics.jsonl is no entry") for notice in data["notices"]
    )


@pytest.mark.parametrize(
    ("text", "discount"),
    [
        ("inner: &inner\n  itself: *inner\n  discount: 0.5\n", 0.5),
        ("discount: .nan\n", None),
        (f"discount: 1{'0' * 400}\n", None),
        ("{" * 3000, None),
        (
            "a0: &a0 {discount: 0.5}\n"
            + "".join(f"a{i}: &a{i} {{p: *a{i - 1}, q: *a{i - 1}}}\n" for i in range(1, 60)),
            0.5,
        ),
    ],
)
def test_settings_that_repeat_themselves_or_are_no_numbers_end(
    text: str, discount: float | None, tmp_path: Path
) -> None:
    (tmp_path / "run.yaml").write_text(text)
    assert read_page(write_view(tmp_path).read_text(encoding="utf-8"))["discount"] == discount
