"""How far an evaluation is: a bar of its own, or a line below that of the run around it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from motet.algos.tracking.progress_bar import ProgressBar

OnTurn = Callable[[int, int], None]


@contextmanager
def episode_bar(
    num_episodes: int, *, visible: bool, console: Console | None = None
) -> Iterator[OnTurn | None]:
    """Show how many episodes have ended while they are played.

    Where a run shows its own bar, or has switched it off, that decides, and the episodes are a
    line below it: two displays on one terminal would overwrite each other.

    Args:
        num_episodes: how many are played.
        visible: False shows nothing.
        console: rich console to show it on; default: standard output.

    Yields:
        What is to be called after each turn, with its number and how many episodes go on; None
        where nothing is shown.
    """
    running = ProgressBar.running()
    if not visible:
        yield None
    elif running is not None:
        with running.episodes(num_episodes) as on_turn:
            yield on_turn
    else:
        progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=18),
            MofNCompleteColumn(),
            TextColumn("episodes"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        with progress:
            task = progress.add_task("evaluating, turn 1", total=num_episodes)
            yield lambda turn, num_live: progress.update(
                task,
                completed=num_episodes - num_live,
                description=f"evaluating, turn {turn + bool(num_live)}",
            )
