"""Logs read and drawn: what is in them is in the picture, and nothing else is touched."""

import json
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest
from tiny import matching_env

from motet import algos
from motet.agents import FixedAgent
from motet.algos import MetricsLog, plot_metrics
from motet.algos.reports import curves, drawing
from motet.algos.reports.metrics_log import Point


def write_log(folder: Path, entries: list[dict[str, float]], tail: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(entry) + "\n" for entry in entries)
    (folder / "metrics.jsonl").write_text(lines + tail, encoding="utf-8")
    return folder


ENTRIES = [
    {"step": 0, "eval/turn_1/reward_mean": 0.25},
    {"step": 8, "turn_1/reward_mean": 0.5, "time/elapsed_seconds": 3.5, "time/optimizer_steps": 2},
    {"step": 16, "turn_1/reward_mean": 0.75, "time/elapsed_seconds": 6, "time/optimizer_steps": 4},
    {"step": 16, "eval/turn_1/reward_mean": 1.0},
]


def test_every_entry_has_a_place_on_every_axis(tmp_path: Path) -> None:
    log = MetricsLog.read(write_log(tmp_path, ENTRIES, '{"step": 24, "turn_1/rew'))
    assert log == MetricsLog.read(tmp_path / "metrics.jsonl")
    assert log.curve("turn_1/reward_mean") == [Point(8, 0.5), Point(16, 0.75)]
    assert log.curve("turn_1/reward_mean", "seconds") == [Point(3.5, 0.5), Point(6, 0.75)]
    held_out = "eval/turn_1/reward_mean"
    assert log.curve(held_out) == [Point(0, 0.25), Point(16, 1)]
    assert log.curve(held_out, "optimizer_steps") == [Point(0, 0.25), Point(4, 1)]
    assert log.curve("no such metric") == []


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"folder of a run with metrics\.jsonl"):
        MetricsLog.read(tmp_path)
    with pytest.raises(ValueError, match="a JSON object in line 2 of"):
        MetricsLog.read(write_log(tmp_path / "a", ENTRIES[:1], "no JSON\n"))
    with pytest.raises(ValueError, match="a JSON object in line 1 of"):
        MetricsLog.read(write_log(tmp_path / "b", [], "[1]\n"))
    plain = write_log(tmp_path / "c", [{"step": 1, "turn_1/reward_mean": 0.5}])
    with pytest.raises(ValueError, match="time/elapsed_seconds in the log for the axis 'seconds'"):
        plot_metrics(plain, x="seconds")
    with pytest.raises(ValueError, match="an axis of"):
        MetricsLog.read(plain).curve("turn_1/reward_mean", "minutes")
    with pytest.raises(ValueError, match=r"rewards of turns in the log .* got \['step', 'loss'\]"):
        plot_metrics(write_log(tmp_path / "d", [{"step": 1, "loss": 2.0}]))


@pytest.mark.parametrize("x", ["env_steps", "optimizer_steps", "seconds"])
def test_a_picture_is_drawn_beside_the_log(tmp_path: Path, x: curves.XAxis) -> None:
    path = plot_metrics(write_log(tmp_path / "run", ENTRIES), x=x, title="50 $ a \\turn")
    assert path == tmp_path / "run" / "reward.png"
    height, width, _ = matplotlib.image.imread(path).shape
    assert (width, height) == (1050, 630)  # 7 by 4.2 inches
    drawn = plot_metrics(tmp_path / "run" / "metrics.jsonl", tmp_path / "new" / "curve.svg", x=x)
    assert "<svg" in drawn.read_text(encoding="utf-8")


def panels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: list[dict]) -> list:
    """Draw a log and return the axes of its picture."""
    figures = []

    def kept(width: float, height: float) -> object:
        figures.append(drawing.new_figure(width, height))
        return figures[-1]

    monkeypatch.setattr(curves, "new_figure", kept)
    plot_metrics(write_log(tmp_path, entries))
    return figures[0].axes


def test_lines_and_bands_are_what_was_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("eval/turn_1/reward_mean", "eval/turn_2/reward_mean", "eval/return_mean")
    entries = [
        {"step": step, **{f"{name}{end}": step + k for k, name in enumerate(names)}}
        | {f"{name}_low": step - 1 for name in names}
        | {f"{name}_high": step + 3 for name in names}
        for step, end in ((0, ""), (10, ""))
    ]
    trained = {"turn_1/reward_mean": 4, "turn_2/reward_mean": 5, "turn_1/expected_return": 9}
    entries.insert(1, {"step": 5, **trained})
    reward, returns = panels(tmp_path, monkeypatch, entries)
    lines = {line.get_label(): line.get_xydata().tolist() for line in reward.get_lines()}
    assert lines == {
        "training, turn 1": [[5, 4]],
        "training, turn 2": [[5, 5]],
        "held-out, turn 1": [[0, 0], [10, 10]],
        "held-out, turn 2": [[0, 1], [10, 11]],
    }
    assert len(reward.collections) == 2
    band = reward.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (-1, 13)
    assert [line.get_xydata().tolist() for line in returns.get_lines()] == [
        [[5, 9]],
        [[0, 2], [10, 12]],
    ]
    colours = [line.get_color() for line in reward.get_lines()]
    assert colours[0] == colours[1] != colours[2] == colours[3]  # by turn


def test_long_curves_have_a_moving_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [{"step": k, "turn_1/reward_mean": float(k % 2)} for k in range(60)]
    (axes,) = panels(tmp_path, monkeypatch, entries)
    raw, smooth = (line.get_ydata() for line in axes.get_lines())
    assert list(raw) == [0, 1] * 30
    # of three values, at the ends of two
    assert smooth[:3] == pytest.approx([1 / 2, 1 / 3, 2 / 3])
    assert smooth[-1] == pytest.approx(1 / 2)
    assert axes.get_ylim() == (-0.02, 1.02)


def test_pyplot_is_left_alone(tmp_path: Path) -> None:
    write_log(tmp_path, ENTRIES)
    code = """
import sys
import matplotlib
from motet.algos import plot_metrics

def settings():  # to ask for the backend loads pyplot
    return {name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"}

before = settings()
plot_metrics(sys.argv[1])
assert settings() == before
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_without_matplotlib_it_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'matplotlib for pictures; pip install "motet\[plots\]"'):
        plot_metrics(write_log(tmp_path, ENTRIES))


def test_a_fixed_team_has_a_place_on_every_axis(tmp_path: Path) -> None:
    team = dict.fromkeys(("agent_0", "agent_1"), FixedAgent("a"))
    config = algos.ScriptedConfig(output_dir=str(tmp_path))
    algos.make("scripted", matching_env(), team, config).train()
    (entry,) = MetricsLog.read(tmp_path).entries
    for axis in ("env_steps", "optimizer_steps"):
        assert MetricsLog.read(tmp_path).curve("eval/return_mean", axis) == [
            Point(0.0, entry["eval/return_mean"])
        ]
    (point,) = MetricsLog.read(tmp_path).curve("eval/return_mean", "seconds")
    assert 0 < point.x < 60
