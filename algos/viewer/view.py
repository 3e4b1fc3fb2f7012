"""From a run to its page: `write_view` for folders and files, `view_rollout` for notebooks."""

from collections.abc import Sequence
from pathlib import Path

from motet.algos.rollouts.rollout import Rollout
from motet.algos.viewer.page import Page, make_page
from motet.algos.viewer.page_data import page_data
from motet.algos.viewer.rollout_files import SavedRollout
from motet.algos.viewer.run_record import RunRecord, read_run
from motet.algos.viewer.settings import Settings


def write_view(
    run_dir: str | Path, output: str | Path | None = None, *, max_rollouts: int | None = None
) -> Path:
    """Write one self-contained HTML file that shows a run.

    Whatever part of the run is missing, cut short or still being written is left out, and the page
    says so.

    Args:
        run_dir: a run's folder, or one file that `Rollout.save` wrote.
        output: the file; default: `view.html` in the folder, or the rollout's name with `.html`.
        max_rollouts: at most so many rollouts and as many evaluations, the first and the last among
            them; None for all that were saved.

    Returns:
        Where it was written.

    Raises:
        FileNotFoundError: where there is no such folder or file.
        ValueError: where the file is no rollout, or `max_rollouts` is below 1.
    """
    source = Path(run_dir)
    if max_rollouts is not None and max_rollouts < 1:
        raise ValueError(f"Expected max_rollouts of at least 1, got {max_rollouts}.")
    record = read_run(source, max_rollouts=max_rollouts)
    if output is None:
        output = source / "view.html" if source.is_dir() else source.with_suffix(".html")
    path = Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(make_page(page_data(record)), encoding="utf-8")
    return path


def view_rollout(
    rollout: Rollout | Sequence[Rollout], *, discount: float = 1.0, num_turns: int | None = None
) -> Page:
    """Return the page of one rollout, or of several; a notebook shows it by itself.

    Args:
        rollout: the trees.
        discount: weight of the next turn in the returns.
        num_turns: turns of the task, which tells episodes that ended early from others; None where
            it is unknown.
    """
    rollouts = [rollout] if isinstance(rollout, Rollout) else list(rollout)
    saved = [
        SavedRollout("training", number, each) for number, each in enumerate(rollouts, start=1)
    ]
    settings = Settings(discount=discount, num_turns=num_turns)
    return make_page(page_data(RunRecord("rollout", saved=saved, settings=settings)))
