"""`motet train`: a run, the same run from its file, and a run that goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_runs import SHORT, TASK, motet, process, train, weights
from wandb_files import own_wandb

from motet import algos


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two turns, with a checkpoint after each of its two rollouts."""
    folder = tmp_path_factory.mktemp("first") / "run"
    return train(
        folder, "--num-turns", "2", "--checkpoint-interval", "1", "--save-total-limit", "None"
    )


def settings(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((folder / "run.yaml").read_text())
    return found


def metrics(folder: Path) -> list[dict[str, float]]:
    """The log without times, which no two runs share."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [
        {name: value for name, value in json.loads(line).items() if not timed(name)}
        for line in lines
    ]


def timed(name: str) -> bool:
    return name.startswith("time/") or "memory" in name


def test_a_run_leaves_all_that_came_of_it(run: Path) -> None:
    assert {
        "run.yaml",
        "metrics.jsonl",
        "models",
        "checkpoints",
        "rollouts",
        "evaluations",
        "report.md",
    } <= {path.name for path in run.iterdir()}
    saved = settings(run)
    assert saved["env"] == {"id": TASK, "kwargs": {"num_turns": 2}}
    assert saved["algo"] == "magrpo"
    assert saved["config"]["agent_learning_rate"] == 1e-3
    assert saved["agents"]["agent_1"]["model"] == "pocket"
    assert saved["versions"]["torch"]
    assert saved["commands"][0].startswith(f"motet train {TASK} --max-new-tokens 4")
    assert any("eval/reward_mean" in entry for entry in metrics(run))
    loaded = algos.MAGRPOConfig(
        **{k: tuple(v) if isinstance(v, list) else v for k, v in saved["config"].items()},
        output_dir=str(run),
    )
    assert loaded.num_generations == 2


def test_it_says_what_it_did_and_what_to_type_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert motet("train", TASK, *SHORT) == 0
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith(f"{TASK}-magrpo-")
    printed = capsys.readouterr().out
    assert "magrpo on story-length-ratio-v0, 2 agents with pocket each; split=eval." in printed
    for said in (
        f"Run: {folder}",
        f"Models: {folder}/models",
        f"Report: {folder}/report.md",
        f"motet view {folder}",
    ):
        assert said in printed


@pytest.mark.parametrize("source", ["folder", "file"])
def test_the_file_of_a_run_runs_it_again_to_the_bit(run: Path, source: str, tmp_path: Path) -> None:
    given = run if source == "folder" else run / "run.yaml"
    assert motet("train", "--config", given, "--output-dir", tmp_path / "again") == 0
    assert weights(tmp_path / "again") == weights(run)
    assert metrics(tmp_path / "again") == metrics(run)
    again, first = settings(tmp_path / "again"), settings(run)
    assert {**again, "commands": None} == {**first, "commands": None}


def test_flags_win_over_the_file(run: Path, tmp_path: Path) -> None:
    words = ("--config", run, "--seed", "7", "--num-turns", "1", "--model", "agent_1=text:No")
    assert motet("train", *words, "--output-dir", tmp_path / "other") == 0
    saved = settings(tmp_path / "other")
    assert saved["config"] == {**settings(run)["config"], "seed": 7}
    assert saved["env"]["kwargs"] == {"num_turns": 1}
    assert saved["agents"]["agent_1"]["model"] == "text:No"
    assert [path.name for path in (tmp_path / "other" / "models").iterdir()] == ["agent_0"]
    assert weights(tmp_path / "other") != weights(run)


def test_a_run_goes_on_and_ends_as_a_longer_one(run: Path, tmp_path: Path) -> None:
    longer = train(tmp_path / "longer", "--num-turns", "2", "--num-train-epochs", "2")
    short = train(tmp_path / "short", "--num-turns", "2", "--checkpoint-interval", "1")
    assert motet("train", "--resume", short, "--num-train-epochs", "2") == 0
    assert weights(short) == weights(longer) != weights(run)
    saved = settings(short)
    assert saved["config"]["num_train_epochs"] == 2
    assert len(saved["commands"]) == 2


def test_a_run_goes_on_from_a_checkpoint_that_is_named(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    subprocess.run(["cp", "-r", run, copy], check=True)
    assert motet("train", "--resume-from", copy / "checkpoints" / "000001") == 0
    assert weights(copy) == weights(run)


def killed_after_first_checkpoint(folder: Path, *words: str) -> None:
    command = [sys.executable, "-m", "motet.algos", "train", TASK, *SHORT, *words]
    with subprocess.Popen(
        [*command, "--output-dir", str(folder)], stdout=subprocess.DEVNULL, env={**os.environ}
    ) as process:
        deadline = time.monotonic() + 240
        while not list(folder.glob("checkpoints/0*/trainer_state.pt")):
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)


def test_a_run_that_was_killed_goes_on_to_the_bit(tmp_path: Path) -> None:
    words = ("--num-turns", "2", "--num-train-epochs", "4", "--checkpoint-interval", "1")
    whole = train(tmp_path / "whole", *words)
    killed_after_first_checkpoint(tmp_path / "killed", *words)
    assert not (tmp_path / "killed" / "models").exists()
    assert motet("eval", tmp_path / "killed") == 2  # it has no models yet
    assert motet("train", "--resume", tmp_path / "killed") == 0
    assert weights(tmp_path / "killed") == weights(whole)
    assert metrics(tmp_path / "killed") == metrics(whole)


# --- teams and tasks ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said", "models"),
    [
        (["--share"], "2 agents that share pocket", {"agent_0", "agent_1"}),
        (["--lora-r", "2"], "2 agents with pocket each", {"agent_0", "agent_1"}),
        (["--frozen", "agent_0"], "2 agents with pocket each", {"agent_0", "agent_1"}),
        (["--model", "agent_0=random"], "agent_0: random, agent_1: pocket", {"agent_1"}),
        (["--algo", "ippo", "--num-iterations", "1"], "ippo on", {"agent_0", "agent_1"}),
        (["--eval-split", "0.2"], "2 of 10 rows held out", {"agent_0", "agent_1"}),
        (["--eval-split", "none"], "no held-out rows", {"agent_0", "agent_1"}),
        (["--split", "eval"], "no held-out rows", {"agent_0", "agent_1"}),
    ],
)
def test_teams_and_held_out_rows(
    words: list[str],
    said: str,
    models: set[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = train(tmp_path / "run", *words)
    assert said in capsys.readouterr().out
    assert {path.name for path in (folder / "models").iterdir()} - {"critic"} == models
    assert motet("train", "--config", folder, "--output-dir", tmp_path / "again") == 0
    assert weights(tmp_path / "again") == weights(folder)


def test_adapters_are_what_is_saved_of_them(tmp_path: Path) -> None:
    folder = train(tmp_path / "run", "--lora-r", "2", "agent_1=4")
    ranks = [
        json.loads((folder / "models" / name / "adapter_config.json").read_text())["r"]
        for name in ("agent_0", "agent_1")
    ]
    assert ranks == [2, 4]


def test_own_rows_are_trained_on_and_held_out(tmp_path: Path) -> None:
    for name in ("train", "other"):
        rows = [json.dumps({"question": f"{name} {number}:"}) for number in range(3)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    words = ["--dataset", tmp_path / "train.jsonl", "--column-mapping", "question=prompt"]
    folder = train(tmp_path / "run", *words, "--eval-split", tmp_path / "other.jsonl")
    seen = algos.Rollout.load(folder / "rollouts" / "000001.jsonl")
    assert {node.observations["agent_0"] for node in seen.nodes()} == {
        "train 0:", "train 1:", "train 2:"
    }  # fmt: skip
    seen = algos.Rollout.load(folder / "evaluations" / "000000.jsonl")
    assert {node.observations["agent_0"] for node in seen.nodes()} == {"other 0:"}


@pytest.mark.parametrize(
    ("algo", "words"),
    [
        ("frozen", ["--max-new-tokens", "3"]),
        ("random", ["--texts", "one", "three"]),
        ("scripted", ["--model", "agent_0=text:A", "agent_1=text:BBB"]),
        ("best-of-n", ["--num-generations", "2", "--max-new-tokens", "3"]),
    ],
)
def test_teams_that_are_not_trained_are_evaluated(
    algo: str, words: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    command = ("train", TASK, "--algo", algo, "--eval-num-samples", "2", "--output-dir", folder)
    assert motet(*command, *words) == 0
    (entry,) = metrics(folder)
    assert 0 <= entry["eval/reward_mean"] <= 1
    assert (algo != "scripted") or entry["eval/reward_mean"] == 1.0


def test_learners_of_choices_are_trained_and_played(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    words = ("--algo", "sb3-ppo", "--candidates", "a", "aaa", "--total-timesteps", "64",
             "--num-envs", "2", "--n-steps", "8", "--batch-size", "16")  # fmt: skip
    assert motet("train", TASK, *words, "--output-dir", folder) == 0
    assert {path.name for path in (folder / "models").iterdir()} == {"agent_0", "agent_1"}
    assert motet("eval", folder, "--num-samples", "2") == 0


def test_ways_to_ask_are_played_with_the_agents_that_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    words = ("--algo", "sb3-ppo", "--strategies", "{prompt}", "Briefly. {prompt}",
             "--generation", "max_new_tokens=3", "--total-timesteps", "16", "--num-envs", "2",
             "--n-steps", "4", "--batch-size", "8", "--eval-num-samples", "1")  # fmt: skip
    assert motet("train", TASK, *words, "--output-dir", folder) == 0
    capsys.readouterr()
    assert motet("eval", folder, "--rows", "0", "--json") == 0
    few = json.loads(capsys.readouterr().out)["metrics"]["num_tokens"]
    assert 2 <= few <= 6
    assert motet("eval", folder, "--rows", "0", "--json", "--max-new-tokens", "30") == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["num_tokens"] > 6


def test_weights_and_biases_are_written_into_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    with own_wandb():
        folder = train(
            Path("run"), "--wandb", "--wandb-project", "songs", "--wandb-entity", "choir"
        )
    (written,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    assert written.stat().st_size > 0
    assert b"songs" in written.read_bytes()
    assert settings(folder)["wandb"] == {"project": "songs", "entity": "choir"}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_who_is_not_logged_in_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    # wandb reads its settings once in a process
    ended = process("train", TASK, *SHORT, "--wandb", "--output-dir", "run", cwd=tmp_path)
    assert ended.returncode == 2
    assert "motet: Expected a login at Weights & Biases, got: " in ended.stderr
    assert "WANDB_MODE=offline" in ended.stderr
    assert not (tmp_path / "run" / "run.yaml").exists()


def test_trackers_are_chosen_by_name(tmp_path: Path) -> None:
    folder = train(tmp_path / "run", "--report-to", "csv")
    assert (folder / "metrics.csv").read_text().startswith("step,")
    assert settings(folder)["config"]["report_to"] == ["csv"]
    assert settings(folder)["config"]["run_name"] is None


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--algo", "magrpo"], "Expected the id of a task"),
        ([TASK, "extra"], "got 'extra', which belongs to none"),
        ([TASK, "--num-turns", "0"], "Expected num_turns of at least 1"),
        ([TASK, "--num-threads", "0"], "Expected num_threads of at least 1, got 0"),
        ([TASK, "--output-dir", "/dev/null/run"], "/dev/null is a file"),
        ([TASK, "--output-dir", "/dev/null"], "Expected a folder as --output-dir"),
        ([TASK, "--config"], "Expected a value after --config, got none"),
        (["--resume", "--seed", "1"], "Expected a value after --resume, got none"),
        ([TASK, "--algo", "rae", "--strategies", "a"], "see `motet algos rae`"),
        ([TASK, "--strategies", "a"], "Expected a setting of magrpo, got --strategies, which sb3-"),
        ([TASK, "--algo", "centralised-magrpo"], "--share on the command line"),
        ([TASK, "--share", "--frozen", "agent_0"], "Expected the same settings for all agents"),
        ([TASK, "--eval-split", "evl"], "Did you mean eval?"),
        ([TASK, "--eval-split", "20"], "20"),
        ([TASK, "--no-wandb", "--wandb-project", "x"], "Expected --wandb with --wandb-project"),
        ([TASK, "--num-rollouts", "3"], "Expected num_train_epochs for an env with a dataset"),
        ([TASK, "--dataset", "nowhere.jsonl"], "nowhere.jsonl"),
        ([TASK, "--report-to", "wandbb"], "did you mean 'wandb'"),
        ([TASK, "--algo", "sb3-ppo"], "candidates"),
        ([TASK, "--algo", "marlhf", "--config.algo", "magpro"], "Did you mean 'magrpo'"),
        (["nowhere.module:task-v0"], "No module named 'nowhere'"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_written(
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert motet("train", *words) == 2
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_runs_are_not_mixed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (run / "run.yaml").read_bytes()
    assert motet("train", TASK, *SHORT, "--output-dir", run) == 2
    assert f"motet train --resume {run}" in capsys.readouterr().err
    assert motet("train", "--resume", run, "--config", run) == 2
    assert "Expected --resume or --config, got both" in capsys.readouterr().err
    assert motet("train", "--resume", run, "--num-generations", "3") == 2
    assert "num_generations=2 there and 3 here" in capsys.readouterr().err
    assert motet("train", "--resume", run, "--num-turns", "1") == 2
    assert "num_turns: 2 there, 1 here" in capsys.readouterr().err
    assert (run / "run.yaml").read_bytes() == before


def test_a_run_without_a_checkpoint_says_how_to_have_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train(tmp_path / "run")
    assert motet("train", "--resume", folder) == 2
    assert "--checkpoint-interval 1" in capsys.readouterr().err
    assert motet("train", TASK, *SHORT, "--output-dir", folder) == 2
    told = capsys.readouterr().err
    assert "it has no checkpoint to go on from" in told
    assert "--resume" not in told


def test_a_run_goes_on_in_its_own_folder(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert motet("train", "--resume", run, "--output-dir", tmp_path / "other") == 2
    assert "Expected no --output-dir with --resume" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_an_interrupt_without_a_checkpoint_says_how_to_have_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(algos.MAGRPOTrainer, "update", interrupted)
    folder = tmp_path / "run"
    assert motet("train", TASK, *SHORT, "--output-dir", folder) == 130
    told = capsys.readouterr().err
    assert f"There is no checkpoint in {folder} to go on from; --checkpoint-interval" in told
    assert (folder / "run.yaml").is_file()
