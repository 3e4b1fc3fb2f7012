"""Loggers and the progress bar."""

import csv
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from paid_env import paid_env
from rich.console import Console
from tiny import letter_agent, matching_env

from motet import algos
from motet.agents import FixedAgent, ReplayAgent
from motet.algos import ConsoleLogger, CSVLogger, JSONLLogger, MAGRPOConfig, SB3Config
from motet.algos.fixed.fixed_config import ScriptedConfig
from motet.algos.rollouts.collect import collect_rollouts
from motet.algos.tracking.logger import Loggers
from motet.algos.tracking.opening import open_loggers
from motet.algos.tracking.progress_bar import ProgressBar
from motet.algos.tracking.run_ids import FILE_NAME
from motet.algos.tracking.run_settings import run_settings
from motet.algos.tracking.samples import sample_table
from motet.algos.tracking.trackers import TRACKERS, TrackedRun, Tracker

METRICS = {"turn_1/reward_mean": 0.25, "train/loss": 1.5, "eval/reward_mean": 0.5}


def test_jsonl_has_a_line_per_entry_and_keeps_earlier_runs(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "metrics.jsonl"
    for run in (1, 2, 3):
        logger = JSONLLogger(path)
        logger.log(METRICS, run)
        logger.log(METRICS, 10 * run)
        logger.close()
    for name, run in (("metrics", 3), ("metrics-1", 1), ("metrics-2", 2)):
        lines = path.with_stem(name).read_text().splitlines()
        assert [json.loads(line) for line in lines] == [
            {"step": run, **METRICS},
            {"step": 10 * run, **METRICS},
        ]


def test_the_console_shows_rewards_on_one_line_and_nothing_for_nothing() -> None:
    out = io.StringIO()
    logger = ConsoleLogger(Console(file=out, width=20))
    logger.log(METRICS, 7)
    logger.log({}, 8)
    own = ("turn_1/reward_mean/a", "turn_1/reward_std", "eval/turn_1/reward_mean/a", "eval/std")
    logger.log(dict.fromkeys(own, 1.0), 9)
    assert out.getvalue() == "step      7  turn_1/reward_mean 0.250  eval/reward_mean 0.500\n"


def test_several_loggers_are_one(tmp_path: Path) -> None:
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    loggers = Loggers([JSONLLogger(path) for path in paths])
    loggers.log(METRICS, 1)
    loggers.close()
    assert paths[0].read_text() == paths[1].read_text() != ""


def test_the_bar_shows_reward_and_tokens_per_second() -> None:
    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=True)
    with ProgressBar(3, console, visible=True) as bar:
        bar.advance(0.4567, 1234.5)
    assert "reward 0.457" in out.getvalue()
    assert "1,234 tokens/s" in out.getvalue()
    hidden = io.StringIO()
    with ProgressBar(3, Console(file=hidden), visible=False) as bar:
        bar.advance(0.1, 1.0)
    assert hidden.getvalue() == ""


# --- CSV ------------------------------------------------------------------------------------------


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def test_csv_columns_appear_as_metrics_do(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "metrics.csv"
    logger = CSVLogger(path)
    assert path.read_text() == "step\n"
    logger.log({"eval/a": 0.1}, 0)
    assert table(path) == [{"step": "0", "eval/a": "0.1"}]
    logger.log({'odd, "name"': 1e-9, "eval/a": 2.0}, 5)
    logger.log({}, 5)
    logger.log({"b": 3.0}, 6)
    names = ("step", "eval/a", 'odd, "name"', "b")
    rows = [
        ("0", "0.1", "", ""),
        ("5", "2.0", "1e-09", ""),
        ("5", "", "", ""),
        ("6", "", "", "3.0"),
    ]
    assert table(path) == [dict(zip(names, row, strict=True)) for row in rows]
    logger.close()
    assert [each.name for each in path.parent.iterdir()] == ["metrics.csv"]


def test_csv_goes_on_after_a_step_and_keeps_earlier_runs(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    first = CSVLogger(path, after=7)  # there is nothing to go on from yet
    for step in (1, 2, 2, 3):
        first.log({"a": float(step)}, step)
    first.close()
    with path.open("a") as file:
        file.write("2,4")  # a row that was cut short
    second = CSVLogger(path, after=2)
    second.log({"b": 0.5}, 3)
    second.close()
    assert [tuple(row.values()) for row in table(path)] == [
        ("1", "1.0", ""),
        ("2", "2.0", ""),
        ("2", "2.0", ""),
        ("3", "", "0.5"),
    ]
    assert path.with_stem("metrics-1").read_text() == "step,a\n1,1.0\n2,2.0\n2,2.0\n3,3.0\n2,4"
    CSVLogger(path).close()
    assert table(path) == []
    assert len(table(path.with_stem("metrics-2"))) == 4


# --- several loggers, and what they are given -----------------------------------------------------


class Noted:
    """A logger that notes all that it is given, and perhaps cannot be closed."""

    def __init__(self, *, closes: bool = True) -> None:
        self.notes: list[Any] = []
        self._closes = closes

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.notes.append((step, dict(metrics)))

    def log_table(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int
    ) -> None:
        self.notes.append((step, name, columns, rows))

    def log_config(self, config: Mapping[str, Any]) -> None:
        self.notes.append(dict(config))

    def close(self) -> None:
        self.notes.append("closed")
        if not self._closes:
            raise OSError("disk full")


def test_tables_and_settings_go_to_those_that_take_them(tmp_path: Path) -> None:
    noted = Noted()
    loggers = Loggers([JSONLLogger(tmp_path / "a.jsonl"), Loggers([noted])])
    loggers.log_config({"seed": 1})
    loggers.log({"a": 1.0}, 2)
    loggers.log_table("t", ["x"], [["y"]], 3)
    loggers.close()
    assert noted.notes == [{"seed": 1}, (2, {"a": 1.0}), (3, "t", ["x"], [["y"]]), "closed"]
    assert (tmp_path / "a.jsonl").read_text() == '{"step": 2, "a": 1.0}\n'


def test_all_are_closed_where_one_cannot_be() -> None:
    noted = [Noted(), Noted(closes=False), Noted()]
    with pytest.raises(OSError, match="disk full"):
        Loggers(noted).close()
    assert [each.notes for each in noted] == [["closed"]] * 3


def test_what_is_open_is_closed_where_the_next_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted, given = Noted(), list[TrackedRun]()

    def first(run: TrackedRun) -> Noted:
        given.append(run)
        return noted

    def second(run: TrackedRun) -> Noted:
        raise ConnectionError("no server")

    monkeypatch.setitem(TRACKERS, "mine", Tracker(first))
    monkeypatch.setitem(TRACKERS, "theirs", Tracker(second))
    config = MAGRPOConfig(report_to=["mine", "theirs"], output_dir=str(tmp_path))
    with pytest.raises(ConnectionError, match="no server"):
        open_loggers(config)
    assert noted.notes == ["closed"]
    assert given == [TrackedRun(config)]


def test_the_settings_are_flat_and_name_versions() -> None:
    settings = run_settings(
        algos.MARLHFConfig(kl_coef=0.5, seed=7, report_to="wandb", train_batch_size=None), "marlhf"
    )
    assert settings["learner"] == "marlhf"
    assert settings["seed"] == 7
    assert settings["train_batch_size"] is None
    assert settings["report_to"] == "('wandb',)"
    assert settings["version.torch"] == __import__("torch").__version__
    assert all(value is None or isinstance(value, str | int | float) for value in settings.values())


def test_settings_in_settings_and_functions_have_names() -> None:
    @dataclass
    class Inner:
        rate: float = 0.5
        sizes: tuple[int, ...] = (1, 2)

    @dataclass
    class Outer:
        baseline: Any = algos.group_mean
        inner: Inner = field(default_factory=Inner)

    settings = run_settings(Outer(), "mine")
    assert {name: settings[name] for name in settings if not name.startswith("version.")} == {
        "learner": "mine",
        "baseline": "group_mean",
        "inner.rate": 0.5,
        "inner.sizes": "(1, 2)",
    }


# --- choosing by name -----------------------------------------------------------------------------

CONFIGS = [MAGRPOConfig, SB3Config, ScriptedConfig]


@pytest.mark.parametrize("make", CONFIGS)
@pytest.mark.parametrize(
    ("given", "names"),
    [
        ((), ()),
        ("wandb", ("wandb",)),
        (["mlflow", "trackio"], ("mlflow", "trackio")),
        ("none", ()),
        (["none"], ()),
    ],
)
def test_report_to_takes_a_name_or_several(
    make: Callable[..., Any], given: Any, names: tuple[str, ...]
) -> None:
    config = make(report_to=given)
    assert config.report_to == names
    assert (config.project, config.run_name) == ("motet", None)


@pytest.mark.parametrize("make", CONFIGS)
@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"report_to": "tensorbord"}, ValueError, "'tensorbord'; did you mean 'tensorboard'"),
        ({"report_to": "WandB"}, ValueError, "'WandB'; did you mean 'wandb'"),
        (
            {"report_to": "comet"},
            ValueError,
            "csv, tensorboard, .*, mlflow, got 'comet'",
        ),
        ({"report_to": ["none", "wandb"]}, ValueError, "got 'none'"),
        ({"report_to": ["wandb", "wandb"]}, ValueError, "each name once"),
        ({"report_to": "csv"}, ValueError, "output_dir with report_to='csv', got None"),
        ({"report_to": ["wandb", "tensorboard"]}, ValueError, "output_dir with .*'tensorboard'"),
        ({"report_to": 3}, TypeError, "list of names as report_to, got 3"),
        ({"report_to": [3]}, TypeError, "list of names"),
        ({"project": None}, TypeError, "project to be str"),
        ({"run_name": 3}, TypeError, "run_name to be str"),
    ],
)
def test_what_cannot_be_chosen_says_so(
    make: Callable[..., Any], settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        make(**settings)


def build_magrpo(**settings: Any) -> Any:
    return algos.make("magrpo", matching_env(), letters(), MAGRPOConfig(**settings))


def build_sb3(**settings: Any) -> Any:
    return algos.make("sb3-ppo", matching_env(), None, SB3Config(candidates=["a", "b"], **settings))


def build_fixed(**settings: Any) -> Any:
    return algos.make("scripted", matching_env(), scripts(), ScriptedConfig(**settings))


def letters() -> dict[str, Any]:
    return {name: letter_agent(i) for i, name in enumerate(("agent_0", "agent_1"))}


def scripts() -> dict[str, Any]:
    return {name: FixedAgent("a") for name in ("agent_0", "agent_1")}


@pytest.mark.parametrize("build", [build_magrpo, build_sb3, build_fixed])
@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("tensorboard", "tensorboard"),
        ("wandb", "trackers"),
        ("trackio", "trackers"),
        ("mlflow", "mlflow"),
    ],
)
def test_a_missing_library_is_refused_when_the_trainer_is_built(
    build: Callable[..., Any],
    name: str,
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    words = rf'Expected {name} for .*; pip install "motet\[{extra}\]"\.'
    with pytest.raises(ImportError, match=words):
        build(report_to=name, output_dir=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_options_of_wandb_turn_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match="Expected wandb"):
        algos.make("magrpo", matching_env(), letters(), wandb_config={})
    build_magrpo()  # asks for nothing, and misses nothing


def test_ids_of_runs_are_not_those_of_another_file(tmp_path: Path) -> None:
    for text in ('{"wandb": 3}', "[]", '{"wandb": "x"'):
        (tmp_path / FILE_NAME).write_text(text)
        with pytest.raises(ValueError, match=f"ids of runs by tracker in .*{FILE_NAME}"):
            open_loggers(MAGRPOConfig(output_dir=str(tmp_path)), after=3)
    open_loggers(MAGRPOConfig(output_dir=str(tmp_path))).close()  # a new run forgets them
    assert not (tmp_path / FILE_NAME).exists()


# --- samples --------------------------------------------------------------------------------------


def test_samples_are_episodes_in_order() -> None:
    """Two rows of three turns; what an agent says is what it earns, and the prompts repeat it."""
    said = {"agent_0": ["1", "2", "3", "4", "5", "6"], "agent_1": ["0", "0", "2", "1", "1", "1"]}
    # level by level: turn 1 of both rows, then turn 2, then turn 3
    team = {name: ReplayAgent(texts) for name, texts in said.items()}
    rollout = collect_rollouts(paid_env(), team, [0, 1], num_generations=1, seed=0)
    columns, rows = sample_table(rollout)
    assert columns == [
        "row",
        "turn",
        "agent_0 prompt",
        "agent_0 completion",
        "agent_1 prompt",
        "agent_1 completion",
        "reward",
    ]
    assert rows == [
        [0, 1, "p", "1", "p", "0", 0.5],
        [0, 2, "p after 1: 1", "3", "p after 1: 0", "2", 2.5],
        [0, 3, "p after 2: 3", "5", "p after 2: 2", "1", 3.0],
        [1, 1, "q", "2", "q", "0", 1.0],
        [1, 2, "q after 1: 2", "4", "q after 1: 0", "1", 2.5],
        [1, 3, "q after 2: 4", "6", "q after 2: 1", "1", 3.5],
    ]
    assert sample_table(rollout, 4) == (columns, rows[:4])
    with pytest.raises(ValueError, match="limit of at least 1, got 0"):
        sample_table(rollout, 0)


def test_samples_show_every_branch_and_who_did_not_act() -> None:
    from asymmetric_envs import describe_and_guess

    env = describe_and_guess()
    team = {name: FixedAgent(f"words of {name}") for name in env.possible_agents}
    rollout = collect_rollouts(env, team, [0], num_generations=2, seed=0)
    columns, rows = sample_table(rollout)
    table = [dict(zip(columns, row, strict=True)) for row in rows]
    assert [row["turn"] for row in table] == [1, 2, 2, 1, 2, 2]
    for row in table:
        acting = ("speaker", "listener")[int(row["turn"]) - 1]
        for name in env.possible_agents:
            expected = f"words of {name}" if name == acting else ""
            assert row[f"{name} completion"] == expected


# --- a run that goes on ---------------------------------------------------------------------------


def test_a_run_goes_on_in_the_files_and_may_report_elsewhere(tmp_path: Path) -> None:
    def trainer(**settings: Any) -> Any:
        config = MAGRPOConfig(
            num_generations=4,
            agent_learning_rate=0.02,
            checkpoint_interval=1,
            output_dir=str(tmp_path),
            progress_bar=False,
            **settings,
        )
        return algos.make(
            "magrpo", matching_env(), letters(), config, eval_env=matching_env(), loggers=[noted]
        )

    noted = Noted()
    trainer(report_to="csv", num_train_epochs=1).train()
    assert set(noted.notes[0]) > {"learner", "seed", "version.torch"}
    assert noted.notes[0]["learner"] == "MAGRPOTrainer"
    tables = [note for note in noted.notes if len(note) == 4 and isinstance(note, tuple)]
    assert [note[1] for note in tables] == ["eval/samples"] * 2
    assert "closed" not in noted.notes  # it is its owner's to close
    before = table(tmp_path / "metrics.csv")
    changed = {"report_to": ["csv"], "project": "other", "run_name": "longer"}
    trainer(num_train_epochs=2, **changed).train(resume_from=tmp_path)
    after = table(tmp_path / "metrics.csv")
    entries = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [filled(row) for row in after] == [
        {name: str(value) for name, value in entry.items()} for entry in entries
    ]
    assert [filled(row) for row in after[: len(before)]] == [filled(row) for row in before]
    assert len(after) > len(before)


def filled(row: Mapping[str, str]) -> dict[str, str]:
    return {name: cell for name, cell in row.items() if cell}


# --- trackers that fail ---------------------------------------------------------------------------


class InTheWay(algos.Callback):
    """Put a folder where the CSV logger writes before it puts a file in place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_train_begin(self, trainer: Any) -> None:
        (self._folder / "metrics.csv.part").mkdir()


@pytest.mark.parametrize("learner", ["magrpo", "sb3-ppo", "scripted"])
def test_a_run_goes_on_without_a_tracker_that_fails(learner: str, tmp_path: Path) -> None:
    common = {"output_dir": str(tmp_path), "report_to": "csv", "progress_bar": False}
    saving = {"checkpoint_interval": 1, "logging_steps": 1, **common}
    settings = {
        "magrpo": lambda: (letters(), MAGRPOConfig(num_generations=4, **saving)),
        "sb3-ppo": lambda: (
            None,
            SB3Config(
                candidates=["a", "b"],
                num_envs=1,
                n_steps=8,
                batch_size=8,
                total_timesteps=16,
                **saving,
            ),
        ),
        "scripted": lambda: (scripts(), ScriptedConfig(**common)),
    }
    team, config = settings[learner]()
    trainer = algos.make(
        learner,
        matching_env(),
        team,
        config,
        eval_env=matching_env(),
        callbacks=[InTheWay(tmp_path)],
    )
    with pytest.warns(UserWarning, match="Logging to csv failed") as warned:
        trainer.train()
    assert sum("Logging to csv" in str(each.message) for each in warned) == 1
    assert (tmp_path / "metrics.csv").read_text() == "step\n"
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    assert sum("eval/return_mean" in entry for entry in entries) == 1 + (learner != "scripted")
    if learner != "scripted":
        assert entries[-1]["step"] == trainer.num_env_steps > 0
        assert any((tmp_path / "checkpoints").iterdir())


class Failing(Noted):
    """A tracker that cannot close, or raises what is no failure of a tracker."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        if "wrong" in metrics:
            raise KeyError("wrong")
        super().log(metrics, step)


def test_only_failures_of_a_tracker_are_forgiven(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Failing(closes=False)
    monkeypatch.setitem(TRACKERS, "mine", Tracker(lambda run: tracker))
    opened = open_loggers(MAGRPOConfig(report_to="mine"))
    opened.log({"a": 1.0}, 1)
    with pytest.raises(KeyError, match="wrong"):
        opened.log({"wrong": 1.0}, 2)
    with pytest.warns(UserWarning, match=r"mine failed, .* OSError\('disk full'\)"):
        opened.close()  # a trained team is not lost where its tracker cannot end
    assert tracker.notes == [(1, {"a": 1.0}), "closed"]
