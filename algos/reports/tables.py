"""Evaluations as tables: Markdown, and a picture of it."""

import re
from collections.abc import Sequence
from pathlib import Path

from motet.algos.evaluation import Evaluation
from motet.algos.evaluations.intervals import Estimate
from motet.algos.evaluations.summary import changes
from motet.algos.reports.drawing import TEXT_SIZE, new_figure, save_figure
from motet.envs.transcript import visible

_PLAIN = {
    "reward_mean": "reward, all turns",
    "return_mean": "return",
    "final_reward_mean": "reward, last turn played",
    "episode_length_mean": "turns of an episode",
    "frac_ended_early": "episodes ended early",
    "completion_length_mean": "tokens of a completion",
    "frac_cut": "completions cut",
}
# Equal to the reward where episodes have one turn.
_OF_SEVERAL_TURNS = ("reward_mean", "return_mean", "final_reward_mean", "episode_length_mean")

# What Markdown would read in a cell: of brackets, which intervals have, those of links alone, and
# of underscores, which agents' names have, those beside a word.
_SPECIAL = re.compile(r"[\\`*<>|&~]|\](?=[(\[:])|(?<![^\W_])_|_(?![^\W_])")

_PAIRED = "Changes are paired by row."

Cells = list[list[str]]


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown whose cells show as they are; line breaks become spaces."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines) + "\n"


def evaluation_table(evaluation: Evaluation) -> str:
    """Return an evaluation's means with their intervals, in Markdown."""
    shown = _shown_names(evaluation)
    rows = [[_label(evaluation, name), _value(evaluation, name)] for name in shown]
    return f"{markdown_table(['', 'mean'], rows)}\n{_note(evaluation)}\n"


def before_after_table(before: Evaluation, after: Evaluation) -> str:
    """Return the means of two evaluations of the same rows, and their changes, in Markdown.

    Args:
        before: before training, say.
        after: after it.
    """
    header, *rows = before_after_cells(before, after)
    return f"{markdown_table(header, rows)}\n{_note(after)} {_PAIRED}\n"


def plot_before_after(before: Evaluation, after: Evaluation, output: str | Path) -> Path:
    """Draw `before_after_table` as a picture.

    Args:
        before: before training, say.
        after: after it.
        output: the picture, whose name ends in .png, .svg or .pdf.

    Returns:
        The picture's path.

    Raises:
        ImportError: where matplotlib is not installed, with what to type.
    """
    header, *rows = before_after_cells(before, after)
    widths = [max(len(line[k]) for line in (header, *rows)) for k in range(len(header))]
    figure = new_figure(0.085 * sum(widths) + 1.2, 0.34 * (len(rows) + 1) + 0.75)
    from matplotlib.transforms import Bbox  # noqa: PLC0415  # an extra, which is there by now

    axes = figure.subplots()
    axes.set_axis_off()
    table = axes.table(
        cellText=rows,
        colLabels=header,
        colWidths=[(width + 3) / (sum(widths) + 3 * len(widths)) for width in widths],
        cellLoc="right",
        bbox=Bbox.unit(),
    )
    table.auto_set_font_size(False)
    table.set_fontsize(TEXT_SIZE)
    for (line, column), cell in table.get_celld().items():
        cell.visible_edges = "B"
        cell.set_edgecolor("#B0B0B0")
        cell.set_text_props(parse_math=False)  # a dollar sign in an agent's name is one
        if column == 0:
            cell.set_text_props(ha="left")
        if line == 0:
            cell.set_text_props(weight="bold", ha="left" if column == 0 else "right")
            cell.set_edgecolor("black")
    axes.annotate(
        f"{_note(after)} {_PAIRED}",
        xy=(0, 0),
        xycoords="axes fraction",
        xytext=(0, -6),
        textcoords="offset points",
        verticalalignment="top",
        fontsize=TEXT_SIZE - 1.5,
    )
    return save_figure(figure, output)


def before_after_cells(before: Evaluation, after: Evaluation) -> Cells:
    """Return the cells of `before_after_table`, the header first."""
    changed = changes(before.rollout, after.rollout)
    names = [name for name in _shown_names(before, after) if name in before.metrics]
    header = ["", "before", "after", "change"]
    return [header] + [
        [
            _label(after, name),
            _value(before, name),
            _value(after, name),
            _change(before, after, name, changed.get(name)),
        ]
        for name in names
    ]


def _shown_names(*evaluations: Evaluation) -> list[str]:
    last = evaluations[-1]
    several = any(len(each.rollout.levels) > 1 for each in evaluations)
    return [
        name
        for name in last.metrics
        if not name.startswith("num_") and (several or name not in _OF_SEVERAL_TURNS)
    ]


def _label(evaluation: Evaluation, name: str) -> str:
    if name in _PLAIN:
        return _PLAIN[name]
    place, _, what = name.partition("/")
    if place == "return_mean":
        return f"return of {what}"
    if len(evaluation.rollout.levels) == 1:
        return "reward"
    return f"reward, turn {place.removeprefix('turn_')}"


def _value(evaluation: Evaluation, name: str) -> str:
    return _shown(Estimate(evaluation.metrics[name], evaluation.intervals.get(name)), name)


def _change(before: Evaluation, after: Evaluation, name: str, change: Estimate | None) -> str:
    plain = Estimate(after.metrics[name] - before.metrics[name], None)
    return _shown(plain if change is None else change, name, sign="+")


def _shown(estimate: Estimate, name: str, *, sign: str = "") -> str:
    digits = 1 if "length" in name else 3
    text = f"{estimate.value:{sign}.{digits}f}"
    if estimate.interval is None:
        return text
    low, high = estimate.interval
    return f"{text} [{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]"


def _note(evaluation: Evaluation) -> str:
    episodes = evaluation.episodes
    num_rows = len({each.row for each in episodes})
    counts = f"{len(episodes)} episode{'s' * (len(episodes) != 1)} of {num_rows} row"
    if num_rows == 1:
        return f"Means over {counts}, which has no interval."
    return f"Means over {counts}s; in brackets 95 % intervals over rows."


def _cell(text: str) -> str:
    line = visible(text).replace("\r", " ").replace("\n", " ")
    return _SPECIAL.sub(r"\\\g<0>", line)
