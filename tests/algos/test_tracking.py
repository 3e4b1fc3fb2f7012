"""Loggers and the progress bar."""

import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from motet.algos import ConsoleLogger, JSONLLogger, WandbLogger
from motet.algos.tracking.logger import Loggers
from motet.algos.tracking.progress_bar import ProgressBar

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


def test_wandb_writes_an_offline_run(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    logger = WandbLogger(project="motet-tests", mode="offline", dir=str(tmp_path))
    logger.log(METRICS, 1)
    logger.close()
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


def test_a_missing_wandb_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=r'pip install "motet\[trackers\]"'):
        WandbLogger()
