"""A run on one page of Markdown: how it was run, what it reached, what the team wrote."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from motet.algos.evaluation import Evaluation
from motet.algos.evaluations.episodes import Episode
from motet.algos.reports.curves import plot_metrics
from motet.algos.reports.drawing import MISSING, has_matplotlib
from motet.algos.reports.metrics_log import FILE_NAME, MetricsLog
from motet.algos.reports.tables import before_after_table, evaluation_table, plot_before_after
from motet.algos.rollouts.rollout import Rollout
from motet.algos.run_folder import EVALUATIONS
from motet.envs.transcript import visible

SETTINGS_FILE = "run.yaml"
REPORT_FILE = "report.md"

# Characters of a text that are shown, so that a page of transcripts stays one.
_MAX_TEXT = 1200


@dataclass(frozen=True, slots=True)
class _Held:
    """Evaluations that a run has left, the first and the last; both are one where there is one."""

    before: Evaluation
    after: Evaluation
    numbers: tuple[str, str]


def write_report(
    run_dir: str | Path, *, command: str | None = None, num_transcripts: int = 2
) -> Path:
    """Write `report.md` into a run's folder, with its pictures.

    It has the command, the settings (`run.yaml`, where there is one), means with intervals before
    and after training, reward curves, and episodes before and after, of the same rows. What the run
    has not left is left out. Without matplotlib the page has no pictures, and says why.

    Args:
        run_dir: the `output_dir` of a run.
        command: what started it.
        num_transcripts: rows to show an episode of, the first ones.

    Returns:
        The page's path.

    Raises:
        FileNotFoundError: where there is neither a log nor an evaluation in the folder.
    """
    folder = Path(run_dir)
    held = _read_evaluations(folder)
    has_log = (folder / FILE_NAME).is_file()
    if held is None and not has_log:
        raise FileNotFoundError(
            f"Expected the folder of a run, with {FILE_NAME} or {EVALUATIONS}/ in it, got "
            f"{run_dir}."
        )
    parts = [f"# {_inline(folder.resolve().name)}"]
    if command is not None:
        parts += ["## Command", _fenced(command, "bash")]
    if (folder / SETTINGS_FILE).is_file():
        settings = (folder / SETTINGS_FILE).read_text(encoding="utf-8")
        parts += ["## Settings", _fenced(settings.rstrip("\n"), "yaml")]
    if held is not None:
        parts += _results(folder, held)
    if has_log:
        parts += _curves(folder)
    if held is not None:
        parts += _transcripts(held, num_transcripts)
    page = folder / REPORT_FILE
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return page


def _read_evaluations(folder: Path) -> _Held | None:
    files = sorted(
        (each for each in (folder / EVALUATIONS).glob("*.jsonl") if each.stem.isdecimal()),
        key=lambda each: int(each.stem),
    )
    if not files:
        return None
    first, last = files[0], files[-1]
    before = Evaluation.of(Rollout.load(first))
    after = before if first == last else Evaluation.of(Rollout.load(last))
    return _Held(before, after, (str(int(first.stem)), str(int(last.stem))))


def _results(folder: Path, held: _Held) -> Iterator[str]:
    yield "## Held-out rows"
    if held.before is held.after:
        yield evaluation_table(held.after).rstrip("\n")
        return
    yield f"Before is at {held.numbers[0]}, after at {held.numbers[1]}, as `{EVALUATIONS}/` counts."
    yield before_after_table(held.before, held.after).rstrip("\n")
    if has_matplotlib():
        picture = plot_before_after(held.before, held.after, folder / "before_after.png")
        yield f"![the table as a picture]({picture.name})"


def _curves(folder: Path) -> Iterator[str]:
    names = MetricsLog.read(folder).names
    if not any(re.fullmatch(r"(eval/)?turn_1/reward_mean", name) for name in names):
        return
    yield "## Curves"
    if not has_matplotlib():
        yield f"There are none: {MISSING[0].lower()}{MISSING[1:]}"
        return
    yield f"![rewards by env steps]({plot_metrics(folder).name})"


def _transcripts(held: _Held, limit: int) -> Iterator[str]:
    before = {each.row: each for each in reversed(held.before.episodes)}
    after = {each.row: each for each in reversed(held.after.episodes)}
    rows = [row for row in dict.fromkeys(e.row for e in held.after.episodes) if row in before]
    if not rows[:limit]:
        return
    yield "## Transcripts"
    for row in rows[:limit]:
        if held.before is held.after:
            yield from _episode(f"Row {row}", after[row])
        else:
            yield from _episode(f"Row {row}, before", before[row])
            yield from _episode(f"Row {row}, after", after[row])


def _episode(heading: str, episode: Episode) -> Iterator[str]:
    yield f"### {heading}: return {episode.team_return:.3f}"
    for node, reward in zip(episode.nodes, episode.rewards, strict=True):
        yield f"Turn {node.turn}, reward {reward:.3f}"
        for name, group in node.completions.items():
            cut = ", cut" if group[0].finish_reason == "length" else ""
            yield f"{_inline(name)} reads"
            yield _fenced(_shortened(node.observations[name]))
            yield f"and writes{cut}"
            yield _fenced(_shortened(group[0].text))


def _shortened(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}... ({len(text):,} characters)"


def _fenced(text: str, language: str = "text") -> str:
    """Return a code block that no text can end: its fence is longer than any in the text."""
    longest = max((len(ticks) for ticks in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{visible(text)}\n{fence}"


def _inline(name: str) -> str:
    """Return a name that is nothing but text in Markdown, and stays on its line."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", visible(name).replace("\n", " "))
