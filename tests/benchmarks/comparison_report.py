"""The report of `make compare`: docs/learners.md, its two pictures, and the numbers behind them.

The numbers are docs/learners.jsonl, a line for each run. What stands below the heading "What it
shows" is written by hand, and kept.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from comparison_rows import LEARNERS, SAMPLING, TASKS, Family
from comparison_run import Point, RunResult
from comparison_statistics import Estimate, bootstrap, first_reached
from matplotlib.axes import Axes
from matplotlib.figure import Figure

GOAL = 0.9
KEPT_FROM = "## What it shows"
NUMBERS = "learners.jsonl"
COLOUR_MAPS: dict[Family, str] = {
    "MAGRPO": "Blues",
    "other baselines": "RdPu",
    "actor-critics": "Oranges",
    "preferences": "Greens",
    "stable-baselines3": "Purples",
    "not trained": "Greys",
}
DASHES = ("-", "--", "-.", ":")

Runs = dict[str, dict[str, list[RunResult]]]


def write_report(results: Sequence[RunResult], folder: Path) -> None:
    """Write the page and its pictures into a folder.

    Raises:
        ValueError: where there are no runs, or runs with different budgets.
    """
    if not results:
        raise ValueError("Expected at least one run to report, got none; run `make compare`.")
    budgets = {result.settings["budget"] for result in results}
    if len(budgets) > 1:
        raise ValueError(
            f"Expected runs of one budget, got {sorted(budgets)}; run them again with one --budget."
        )
    runs = by_learner(results)
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "learners.md"
    kept = ""
    if page.exists():
        _, heading, below = page.read_text(encoding="utf-8").partition(KEPT_FROM)
        kept = heading + below
    page.write_text(report(runs) + (kept or f"{KEPT_FROM}\n"), encoding="utf-8")
    numbers = "".join(result.to_line() + "\n" for result in results)
    (folder / NUMBERS).write_text(numbers, encoding="utf-8")
    save_picture(runs, folder / "learners-completions.png", COMPLETIONS)
    save_picture(runs, folder / "learners-env-steps.png", ENV_STEPS)
    save_picture(runs, folder / "learners-seconds.png", SECONDS)


def reported(folder: Path) -> list[RunResult]:
    """Return the runs that an earlier report in a folder is of."""
    path = folder / NUMBERS
    if not path.exists():
        return []
    return [RunResult.from_line(line) for line in path.read_text(encoding="utf-8").splitlines()]


def by_learner(results: Sequence[RunResult]) -> Runs:
    """Return the runs by learner and task, both in the order in which they are listed."""
    found: dict[tuple[str, str], list[RunResult]] = defaultdict(list)
    for result in results:
        found[result.settings["learner"], result.settings["task"]].append(result)
    runs: Runs = {}
    for learner in LEARNERS:
        tasks = {task: found[learner, task] for task in TASKS if (learner, task) in found}
        if tasks:
            runs[learner] = tasks
    return runs


# --- the page ---------------------------------------------------------------------------------


def report(runs: Runs) -> str:
    """Return the page up to what is written by hand."""
    everything = [run for tasks in runs.values() for own in tasks.values() for run in own]
    budget = everything[0].settings["budget"]
    seeds = sorted({run.settings["seed"] for run in everything})
    machines = sorted({run.machine.get("cpu", "unknown") for run in everything})
    commits = sorted({run.commit for run in everything})
    hours = sum(run.wall_s for run in everything) / 3600
    return "\n".join(
        [
            "# Learners compared",
            "",
            f"Two embedded models per team, {budget:,} completions sampled by each run while "
            "training (both agents and all turns together), seeds "
            f"{', '.join(map(str, seeds))}. Rewards are those of held-out rows, as a share of the "
            "best return; intervals hold 95 % of bootstrap draws of the seeds, task by task, "
            "where there are several "
            "([Agarwal et al. 2021](https://arxiv.org/abs/2108.13264)).",
            "",
            "```bash",
            "make compare",
            "```",
            "",
            f"Machine: {'; '.join(machines)}, one core for each run, {hours:.1f} hours of it in "
            f"all. Commits: {', '.join(commits)}. Every run's numbers are in "
            f"[{NUMBERS}]({NUMBERS}).",
            "",
            "## Reward after training",
            "",
            "Interquartile mean over seeds; over all tasks together only where a learner ran on "
            "all of them. Teams that are not trained write as they are: `best-of-n` is an oracle, "
            "which is shown the rewards of these very episodes and plays the best of several "
            "tries, and in `pipeline` and `discussion` agents read each other within the turn.",
            "",
            *reward_table(runs),
            "",
            f"## Until the reward is {GOAL}",
            "",
            "Median over the seeds that got there, of completions and of processor seconds "
            "(sampling and updates, no evaluations), and how many got there, of those that train.",
            "",
            *cost_table(runs),
            "",
            "![Reward by completions](learners-completions.png)",
            "",
            "![Reward by env steps](learners-env-steps.png)",
            "",
            "![Reward by processor time](learners-seconds.png)",
            "",
            "## Settings",
            "",
            f"All: {words(SAMPLING)}. `G` and rows per update are those of one and of two turns.",
            "",
            *settings_table(runs),
            "",
            "",
        ]
    )


def reward_table(runs: Runs) -> list[str]:
    """Return the lines of the table of final rewards."""
    tasks = [task for task in TASKS if any(task in own for own in runs.values())]
    lines = header(["learner", "all tasks", *(TASKS[task].title for task in tasks)])
    for learner, own in runs.items():
        whole = bootstrap([finals(own[task]) for task in own]) if len(own) == len(TASKS) else None
        cells = [bootstrap([finals(own[task])]) if task in own else None for task in tasks]
        lines.append(row([f"`{learner}`", *map(shown, [whole, *cells])]))
    return lines


def cost_table(runs: Runs) -> list[str]:
    """Return the lines of the table of what it takes to reach the goal."""
    tasks = [task for task in TASKS if any(task in own for own in runs.values())]
    lines = header(["learner", *(TASKS[task].title for task in tasks)])
    for learner, own in runs.items():
        if LEARNERS[learner].spending == "nothing":
            continue  # what such a team costs is paid at each answer, and not before
        cells = [cost(own[task]) if task in own else "" for task in tasks]
        lines.append(row([f"`{learner}`", *cells]))
    return lines


def settings_table(runs: Runs) -> list[str]:
    """Return the lines of the table of settings."""
    lines = header(["row", "learner", "G", "rows per update", "other settings"])
    for learner in runs:
        entry = LEARNERS[learner]
        spends = entry.spending in ("trees", "chains")
        sizes = [entry.num_generations, entry.rows_per_rollout] if spends else [{}, {}]
        settings = dict(entry.settings)
        if entry.joint_mode != "aligned":
            settings["joint_mode"] = entry.joint_mode
        cells = [", ".join(map(str, size.values())) for size in sizes]
        lines.append(row([f"`{learner}`", f"`{entry.algorithm}`", *cells, words(settings)]))
    return lines


def finals(own: Sequence[RunResult]) -> list[float]:
    """Return the rewards after training."""
    return [run.points[-1].reward for run in own]


def cost(own: Sequence[RunResult]) -> str:
    """Return completions and seconds to the goal, and how many runs reached it."""
    taken = []
    for run in own:
        rewards = [point.reward for point in run.points]
        reached = [
            first_reached([axis(point) for point in run.points], rewards, GOAL)
            for axis in (COMPLETIONS.value, SECONDS.value)
        ]
        if reached[0] is not None and reached[1] is not None:
            taken.append((reached[0], reached[1]))
    count = f"{len(taken)}/{len(own)}"
    if not taken:
        return count
    completions, seconds = (statistics.median(values) for values in zip(*taken, strict=True))
    return f"{completions:,.0f}, {seconds:.0f} s, {count}"


def shown(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    if estimate.low == estimate.high:  # one seed, or all alike
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} ({estimate.low:.2f}, {estimate.high:.2f})"


def words(settings: Mapping[str, object]) -> str:
    return ", ".join(f"`{name}={value!r}`" for name, value in settings.items())


def header(cells: Sequence[str]) -> list[str]:
    return [row(cells), row(["---"] * len(cells))]


def row(cells: Sequence[str]) -> str:
    return f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|"


# --- the pictures -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Axis:
    """What rewards are drawn against."""

    label: str
    value: Callable[[Point], float]


COMPLETIONS = Axis("completions sampled", lambda point: point.completions)
ENV_STEPS = Axis("env steps: joint completions rewarded", lambda point: point.env_steps)
SECONDS = Axis("processor seconds of training", lambda point: point.seconds)


def save_picture(runs: Runs, path: Path, axis: Axis) -> None:
    """Draw a panel for each task and save it."""
    tasks = [task for task in TASKS if any(task in own for own in runs.values())]
    columns = min(len(tasks), 2)
    lines = -(-len(tasks) // columns)
    figure, panels = plt.subplots(
        lines, columns, figsize=(5.2 * columns, 4.2 * lines), squeeze=False
    )
    for task, panel in zip(tasks, panels.flat, strict=False):
        draw(panel, {name: own[task] for name, own in runs.items() if task in own}, axis)
        panel.set(
            title=TASKS[task].title,
            xlabel=axis.label,
            ylabel="reward on held-out rows",
            ylim=(0, 1.02),
        )
        panel.grid(alpha=0.3)
    for panel in panels.flat[len(tasks) :]:
        panel.set_visible(False)
    add_legend(figure, runs)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)


def draw(panel: Axes, own: Mapping[str, Sequence[RunResult]], axis: Axis) -> None:
    """Draw the learners of one task: interquartile means, with bands of the bootstrap interval."""
    for learner, results in own.items():
        style = style_of(learner)
        xs, estimates = curve(results, axis)
        if LEARNERS[learner].spending == "nothing":
            panel.axhline(estimates[-1].value, alpha=0.8, **style)
            continue
        panel.plot(xs, [one.value for one in estimates], **style)
        low, high = [one.low for one in estimates], [one.high for one in estimates]
        panel.fill_between(xs, low, high, color=style["color"], alpha=0.06, linewidth=0)


def curve(results: Sequence[RunResult], axis: Axis) -> tuple[list[float], list[Estimate]]:
    """Return the means of the runs' places on the axis, and the estimates at each evaluation."""
    columns = list(zip(*(run.points for run in results), strict=True))
    xs = [float(np.mean([axis.value(point) for point in column])) for column in columns]
    return xs, [bootstrap([[point.reward for point in column]]) for column in columns]


def style_of(learner: str) -> dict[str, object]:
    """Return the line of a learner: the colour is its family's, its dashes change within it."""
    family = LEARNERS[learner].family
    members = [name for name, entry in LEARNERS.items() if entry.family == family]
    place = members.index(learner)
    shade = 0.45 + 0.5 * (place + 1) / len(members)
    return {
        "color": plt.get_cmap(COLOUR_MAPS[family])(shade),
        "linestyle": DASHES[place % len(DASHES)],
        "linewidth": 1.0 if family == "not trained" else 1.8,
    }


def add_legend(figure: Figure, runs: Runs) -> None:
    """List the learners at the right, family by family."""
    handles, labels = [], []
    for family in COLOUR_MAPS:
        members = [name for name in runs if LEARNERS[name].family == family]
        if members:
            handles.append(plt.Line2D([], [], linestyle="none"))
            labels.append(family)
        for name in members:
            handles.append(plt.Line2D([], [], **style_of(name)))
            labels.append(f"  {name}")
    figure.tight_layout()
    figure.legend(
        handles, labels, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, handlelength=3.2
    )
