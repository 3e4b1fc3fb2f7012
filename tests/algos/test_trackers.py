"""Trackers, each read back with its own library from what it wrote to disk."""

import html
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb_files
from tiny import letter_agent, matching_env

from motet import algos
from motet.algos import MAGRPOConfig, MLflowLogger, TensorBoardLogger, WandbLogger
from motet.algos.tracking.markdown import markdown_table
from motet.algos.tracking.run_ids import FILE_NAME
from motet.algos.tracking.trackers import TRACKERS
from motet.algos.tracking.until_failure import UntilFailure

COLUMNS = ["row", "agent_0 completion", "reward"]
HOSTILE = [
    "a | b\n\n- c",
    "<script>alert('x')</script> &amp; <b>",
    "**bold** _x_ `code` [link](http://x) ![i](y) ~~z~~ $m$",
    r"back\slash \| and \\",
    "# title\r\n1. one\n> quote",
    "مرحبا 🙂 \u202e reversed",
    "http://example.org/?a=1&b=2",
    "",
]
ROWS: list[list[Any]] = [[i, text, i / 2] for i, text in enumerate(HOSTILE)]


@pytest.fixture(autouse=True)
def nothing_leaves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Keep trackers in a folder: they are told to, and a proxy that is not there stops the rest."""
    told = {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path),
        "WANDB_SILENT": "true",
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "TRACKIO_DIR": str(tmp_path / "trackio"),
        "GRADIO_ANALYTICS_ENABLED": "False",
        "HF_HUB_OFFLINE": "1",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    yield told


def log_a_run(logger: Any) -> None:
    """Log settings, a rollout and an evaluation at the same step, a table, and a later rollout."""
    logger.log_config({"seed": 3, "clip_range": 0.2, "run_name": None, "bf16": True})
    logger.log({"train/loss": 1.5, "turn_1/reward_mean": 0.25}, 8)
    logger.log({"eval/reward_mean": 0.5}, 8)
    logger.log_table("eval/samples", COLUMNS, ROWS, 8)
    logger.log({"train/loss": 1.25}, 16)
    logger.close()


# --- TensorBoard ----------------------------------------------------------------------------------


def read_events(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0})
    events.Reload()
    return events


def points(events: Any, name: str) -> list[tuple[int, float]]:
    return [(each.step, each.value) for each in events.Scalars(name)]


def test_tensorboard_has_scalars_tables_and_settings(tmp_path: Path) -> None:
    begun = time.time()
    log_a_run(TensorBoardLogger(tmp_path / "tb"))
    events = read_events(tmp_path / "tb")
    assert points(events, "train/loss") == [(8, 1.5), (16, 1.25)]
    assert points(events, "turn_1/reward_mean") == [(8, 0.25)]
    assert points(events, "eval/reward_mean") == [(8, 0.5)]
    assert all(begun <= each.wall_time <= time.time() for each in events.Scalars("train/loss"))
    (text,) = events.Tensors("eval/samples/text_summary")
    assert text.step == 8
    assert text.tensor_proto.string_val[0].decode() == markdown_table(COLUMNS, ROWS)
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    plugin = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    hparams = HParamsPluginData.FromString(plugin).session_start_info.hparams
    assert hparams["seed"].number_value == 3
    assert hparams["bf16"].string_value == "True"
    assert hparams["run_name"].string_value == "None"


def test_tensorboard_forgets_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "tb"
    first = TensorBoardLogger(folder)
    for step in (1, 2, 2, 3, 4):
        first.log({"a": float(step)}, step)
    first.close()
    time.sleep(1.1)  # event files are read in the order of the seconds in their names
    second = TensorBoardLogger(folder, after=2)
    second.log({"a": 0.5}, 3)
    second.close()
    assert points(read_events(folder), "a") == [(1, 1.0), (2, 2.0), (2, 2.0), (3, 0.5)]
    TensorBoardLogger(folder).close()  # a new run keeps the earlier one beside
    assert points(read_events(tmp_path / "tb-1"), "a")[-1] == (3, 0.5)
    assert "a" not in read_events(folder).Tags()["scalars"]


def test_cells_of_a_markdown_table_show_as_they_were_written() -> None:
    from tensorboard.plugin_util import markdown_to_safe_html

    shown = markdown_to_safe_html(markdown_table(COLUMNS, ROWS))
    cells = re.findall(r"<t[hd]>(.*?)</t[hd]>", shown, re.DOTALL)
    texts = [html.unescape(re.sub(r"<br\s*/?>", "\n", cell)) for cell in cells]
    assert texts[:3] == COLUMNS
    by_row = [texts[i : i + 3] for i in range(3, len(texts), 3)]
    assert [row[1] for row in by_row] == ["\n".join(text.splitlines()) for text in HOSTILE]
    assert [row[2] for row in by_row] == [f"{i / 2:.4g}" for i in range(len(HOSTILE))]
    assert not re.search(r"<(?!/?(table|thead|tbody|tr|th|td|br)\b)", shown)


# --- Weights & Biases -----------------------------------------------------------------------------


@pytest.fixture(name="own_wandb")
def wandb_of_its_own(nothing_leaves: dict[str, str]) -> Iterator[None]:
    with wandb_files.own_wandb():
        yield


def wandb_files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("wandb/offline-run-*/*.wandb"))


@pytest.mark.usefixtures("own_wandb")
def test_wandb_has_every_entry_of_an_offline_run(tmp_path: Path) -> None:
    logger = WandbLogger(project="motet-tests", config={"mine": 1})
    log_a_run(logger)
    (file,) = wandb_files_in(tmp_path)
    assert logger.run_id in file.name
    entries = wandb_files.history(file)
    kept = [{k: v for k, v in each.items() if not k.startswith("_")} for each in entries]
    table = kept.pop(2)
    assert kept == [
        {"train/loss": 1.5, "turn_1/reward_mean": 0.25, "step": 8},
        {"eval/reward_mean": 0.5, "step": 8},
        {"train/loss": 1.25, "step": 16},
    ]
    assert table["step"] == 8
    samples = json.loads((file.parent / "files" / table["eval/samples.path"]).read_text())
    assert samples["columns"] == COLUMNS
    assert samples["data"] == ROWS
    assert wandb_files.axes(file)["*"] == "step"
    settings = wandb_files.settings(file)
    assert {name: settings[name] for name in ("mine", "seed", "clip_range", "run_name")} == {
        "mine": 1,
        "seed": 3,
        "clip_range": 0.2,
        "run_name": None,
    }


@pytest.mark.usefixtures("own_wandb")
def test_a_run_goes_on_in_the_same_run_of_wandb(tmp_path: Path) -> None:
    def trainer(**settings: Any) -> Any:
        config = MAGRPOConfig(
            num_generations=4,
            checkpoint_interval=1,
            output_dir="run",
            report_to=["wandb", "tensorboard"],
            project="motet-tests",
            run_name="a name",
            progress_bar=False,
            **settings,
        )
        team = {name: letter_agent(i) for i, name in enumerate(("agent_0", "agent_1"))}
        env = matching_env()
        return algos.make(
            "magrpo", env, team, config, eval_env=matching_env(), wandb_config={"tags": ["t"]}
        )

    trainer(num_train_epochs=1).train()
    time.sleep(1.1)  # folders of offline runs are named by the second
    trainer(num_train_epochs=2).train(resume_from="run")
    first, second = wandb_files_in(tmp_path)
    ids = json.loads(Path("run", FILE_NAME).read_text())
    assert first.name == second.name == f"run-{ids['wandb']}.wandb"
    logged = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    sent = [
        {name: value for name, value in entry.items() if not name.startswith("_")}
        for file in (first, second)
        for entry in wandb_files.history(file)
        if not any(name.startswith("eval/samples") for name in entry)
    ]
    assert sent == logged
    steps = [entry["step"] for entry in logged]
    assert len(set(steps)) < len(steps)  # evaluations are logged beside rollouts
    (run,) = [
        each.run for each in wandb_files.records(first) if each.WhichOneof("record_type") == "run"
    ]
    assert (run.project, run.display_name, list(run.tags)) == ("motet-tests", "a name", ["t"])
    assert wandb_files.settings(second)["num_train_epochs"] == 2
    events = read_events(Path("run/tensorboard"))
    curve = [
        (each["step"], each["turn_1/reward_mean"])
        for each in logged
        if "turn_1/reward_mean" in each
    ]
    assert points(events, "turn_1/reward_mean") == [(x, pytest.approx(y)) for x, y in curve]
    assert len(events.Tensors("eval/samples/text_summary")) == 3


@pytest.mark.usefixtures("own_wandb")
def test_a_run_of_wandb_that_was_begun_before_is_left_to_its_owner(tmp_path: Path) -> None:
    import wandb

    with wandb.init(project="a sweep") as run:
        logger = WandbLogger(project="motet-tests")
        assert logger.run_id == run.id
        logger.log({"train/loss": 1.5}, 8)
        logger.close()
        run.log({"mine": 1.0})
    (file,) = wandb_files_in(tmp_path)
    assert [each.get("mine", each.get("train/loss")) for each in wandb_files.history(file)] == [
        1.5,
        1.0,
    ]


# --- MLflow ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_mlflow_has_every_entry_and_goes_on() -> None:
    from mlflow import MlflowClient

    logger = MLflowLogger("an experiment", "a name")
    log_a_run(logger)
    again = MLflowLogger("an experiment", run_id=logger.run_id)
    again.log_config({"seed": 4, "new": "x"})  # MLflow's parameters never change
    again.log({"train/loss": 1.0}, 16)
    again.close()
    client = MlflowClient()
    experiment = client.get_experiment_by_name("an experiment")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_id == logger.run_id
    assert (run.info.run_name, run.info.status) == ("a name", "FINISHED")
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert sorted((each.step, each.value) for each in history) == [(8, 1.5), (16, 1.0), (16, 1.25)]
    assert all(abs(each.timestamp / 1000 - time.time()) < 600 for each in history)
    assert run.data.metrics["eval/reward_mean"] == 0.5
    expected = {"seed": "3", "clip_range": "0.2", "run_name": "None", "bf16": "True", "new": "x"}
    assert run.data.params == expected
    table = client.load_table(experiment.experiment_id, "eval/samples/000000008.json")
    assert table.to_dict("split")["columns"] == COLUMNS
    assert table.to_dict("split")["data"] == ROWS
    other = MLflowLogger("an experiment")  # the experiment is there already
    other.close()
    assert len(client.search_runs([experiment.experiment_id])) == 2


@pytest.mark.slow
def test_mlflow_takes_any_name_of_an_agent_and_any_number_of_metrics() -> None:
    from mlflow import MlflowClient

    logger = MLflowLogger("an experiment")
    odd = ("a@b", "агент 1", "", "..", "x" * 300, "v1.5")
    logger.log({f"eval/return_mean/{name}": i for i, name in enumerate(odd)}, 1)
    logger.log({f"m{i}": float(i) for i in range(1001)}, 2)
    logger.close()
    found = MlflowClient().get_run(logger.run_id).data.metrics
    names = ("a_b", "агент 1", "_", "_", "x" * (250 - len("eval/return_mean/")), "v1.5")
    values = (0, 1, 3, 3, 4, 5)
    for name, value in zip(names, values, strict=True):
        assert found[f"eval/return_mean/{name}"] == value
    assert len(found) == 1001 + len(set(names))


@pytest.mark.slow
def test_what_trackers_raise_is_known_of_them() -> None:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    assert MlflowException in TRACKERS["mlflow"].errors()
    assert all(OSError in tracker.errors() for tracker in TRACKERS.values())
    gone = MLflowLogger("an experiment")
    guarded = UntilFailure(gone, "mlflow", TRACKERS["mlflow"].errors())
    MlflowClient().delete_run(gone.run_id)
    with pytest.warns(UserWarning, match="Logging to mlflow failed"):
        guarded.log({"a": 1.0}, 1)
    guarded.log({"a": 1.0}, 2)
    guarded.close()


# --- Trackio --------------------------------------------------------------------------------------

TRACKIO = """
import json, sys
from motet.algos import TrackioLogger
first = TrackioLogger("motet-tests", name="a name")
COLUMNS, ROWS = json.loads(sys.argv[1])
{log_a_run}
log_a_run(first)
again = TrackioLogger("motet-tests", name=first.run_id, resume="allow")
again.log_config({{"seed": 3, "clip_range": 0.2, "run_name": None, "bf16": False}})
again.log({{"train/loss": 1.0}}, 16)
again.close()
"""


@pytest.mark.slow
def test_trackio_has_every_entry_and_goes_on(nothing_leaves: dict[str, str]) -> None:
    """In a process of its own: Trackio reads where to write when it is imported."""
    import inspect

    code = TRACKIO.format(log_a_run=inspect.getsource(log_a_run).replace("logger: Any", "logger"))
    code += """
import trackio
from trackio.sqlite_storage import SQLiteStorage
(run,) = trackio.Api().runs("motet-tests")
logs = SQLiteStorage.get_logs("motet-tests", run.name, run_id=run.id)
print("READ", json.dumps([run.name, run.config, logs]))
"""
    environment = {**os.environ, **nothing_leaves}
    command = [sys.executable, "-c", code, json.dumps([COLUMNS, ROWS])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = [each for each in done.stdout.splitlines() if each.startswith("READ ")]
    name, config, logs = json.loads(line.removeprefix("READ "))
    assert name == "a name"
    assert {key: config[key] for key in ("seed", "clip_range", "run_name", "bf16")} == {
        "seed": 3,
        "clip_range": 0.2,
        "run_name": None,
        "bf16": False,  # the newest
    }
    entries = [
        {key: each[key] for key in each if key not in ("timestamp", "log_id")} for each in logs
    ]
    table = entries.pop(2)
    assert entries == [
        {"train/loss": 1.5, "turn_1/reward_mean": 0.25, "step": 8},
        {"eval/reward_mean": 0.5, "step": 8},
        {"train/loss": 1.25, "step": 16},
        {"train/loss": 1.0, "step": 16},
    ]
    assert table["step"] == 8
    assert [list(row.values()) for row in table["eval/samples"]["_value"]] == ROWS
