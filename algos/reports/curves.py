"""How rewards have changed over a run, as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from motet.algos.reports.drawing import (
    COLOURS,
    MARKERS,
    TEXT_SIZE,
    label_axes,
    new_figure,
    save_figure,
)
from motet.algos.reports.metrics_log import MetricsLog, Point, XAxis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABELS: dict[XAxis, str] = {
    "env_steps": "env steps (joint completions rewarded)",
    "optimizer_steps": "optimizer steps",
    "seconds": "seconds",
}

# From so many points on a curve is drawn as a moving mean over a twentieth of them.
_MANY = 60

_BLACK = len(COLOURS)  # the place of a colour that no turn but the seventh has


def plot_metrics(
    run: str | Path,
    output: str | Path | None = None,
    *,
    x: XAxis = "env_steps",
    title: str | None = None,
) -> Path:
    """Draw the rewards of a run: while training, and on held-out rows with their intervals.

    Rewards are drawn turn by turn; of a task with several turns a second panel has the returns. A
    training curve of 60 entries and more is pale, with its moving mean over it.

    Args:
        run: the run's folder, or its `metrics.jsonl`.
        output: the picture, whose name ends in .png, .svg or .pdf; None for `reward.png` in the
            folder.
        x: what to count the run by: "env_steps", "optimizer_steps" or "seconds".
        title: of the picture; None for none.

    Returns:
        The picture's path.

    Raises:
        ImportError: where matplotlib is not installed, with what to type.
        FileNotFoundError: where there is no log.
        ValueError: where the log has no rewards, or does not count by `x`.
    """
    log = MetricsLog.read(run)
    turns = _num_turns(log)
    if turns == 0:
        raise ValueError(f"Expected rewards of turns in the log of {run}, got {log.names}.")
    with_returns = turns > 1
    figure = new_figure(11 if with_returns else 7, 4.2)
    if title is not None:
        figure.suptitle(title, fontsize=TEXT_SIZE + 3, parse_math=False)
    panels = figure.subplots(1, 2 if with_returns else 1, squeeze=False)[0]
    _draw_rewards(panels[0], log, turns, x)
    if with_returns:
        _draw_returns(panels[1], log, x)
    folder = Path(run) if Path(run).is_dir() else Path(run).parent
    return save_figure(figure, folder / "reward.png" if output is None else output)


def _num_turns(log: MetricsLog) -> int:
    names = set(log.names)
    turn = 0
    while {f"turn_{turn + 1}/reward_mean", f"eval/turn_{turn + 1}/reward_mean"} & names:
        turn += 1
    return turn


def _draw_rewards(axes: "Axes", log: MetricsLog, turns: int, x: XAxis) -> None:
    for turn in range(1, turns + 1):
        of_turn = f", turn {turn}" if turns > 1 else ""
        _draw_training(axes, log.curve(f"turn_{turn}/reward_mean", x), turn, f"training{of_turn}")
        held_out = log.curve(f"eval/turn_{turn}/reward_mean", x)
        place = turn if turns > 1 else _BLACK
        _draw_held_out(axes, held_out, place, f"held-out{of_turn}")
        _draw_band(axes, log, f"eval/turn_{turn}/reward_mean", x, place, 0.2 / (turns + 1))
    label_axes(axes, title="Reward", x=_LABELS[x], y="mean reward")
    _finish(axes)


def _draw_returns(axes: "Axes", log: MetricsLog, x: XAxis) -> None:
    # in colours that the first turns do not have
    _draw_training(axes, log.curve("turn_1/expected_return", x), 3, "training")
    _draw_held_out(axes, log.curve("eval/return_mean", x), _BLACK, "held-out")
    _draw_band(axes, log, "eval/return_mean", x, _BLACK, 0.1)
    label_axes(axes, title="Return of an episode", x=_LABELS[x], y="mean return")
    _finish(axes)


def _draw_training(axes: "Axes", points: Sequence[Point], place: int, label: str) -> None:
    if not points:
        return
    xs, ys = [p.x for p in points], [p.y for p in points]
    colour = COLOURS[(place - 1) % len(COLOURS)]
    if len(points) < _MANY:
        axes.plot(xs, ys, color=colour, linewidth=1.6, label=label)
        return
    axes.plot(xs, ys, color=colour, linewidth=0.8, alpha=0.3)
    axes.plot(xs, _moving_mean(ys, len(ys) // 20), color=colour, linewidth=2, label=label)


def _draw_held_out(axes: "Axes", points: Sequence[Point], place: int, label: str) -> None:
    if not points:
        return
    axes.plot(
        [p.x for p in points],
        [p.y for p in points],
        color=COLOURS[(place - 1) % len(COLOURS)],
        linestyle="--",
        linewidth=1.2,
        marker=MARKERS[(place - 1) % len(MARKERS)],
        markersize=5,
        label=label,
    )


def _draw_band(
    axes: "Axes", log: MetricsLog, name: str, x: XAxis, place: int, alpha: float
) -> None:
    low, high = log.curve(f"{name}_low", x), log.curve(f"{name}_high", x)
    if not low:  # one row has no interval
        return
    axes.fill_between(
        [p.x for p in low],
        [p.y for p in low],
        [p.y for p in high],
        color=COLOURS[(place - 1) % len(COLOURS)],
        alpha=alpha,
        linewidth=0,
    )


def _moving_mean(values: Sequence[float], width: int) -> list[float]:
    """Return the mean of what is around each value, of fewer at the ends."""
    sums = np.cumsum([0.0, *values])
    starts = np.maximum(np.arange(len(values)) - width // 2, 0)
    ends = np.minimum(np.arange(len(values)) + width // 2 + 1, len(values))
    means: list[float] = ((sums[ends] - sums[starts]) / (ends - starts)).tolist()
    return means


def _finish(axes: "Axes") -> None:
    """Show the range of rewards from 0 to 1 as a whole, and put the legend where it is free."""
    shown = [value for line in axes.get_lines() for value in np.asarray(line.get_ydata())]
    if shown and min(shown) >= 0 and max(shown) <= 1:
        axes.set_ylim(-0.02, 1.02)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=TEXT_SIZE - 1, loc="best", framealpha=0.85)
