"""How far a run is, with its newest reward and speed."""

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class ProgressBar:
    """A bar with the newest reward and tokens per second; used as a context.

    Args:
        total: number of rollouts.
        console: the console that lines are printed to as well.
        visible: False shows nothing.
        unit: what the speed is of.
    """

    def __init__(
        self, total: int, console: Console, *, visible: bool, unit: str = "tokens/s"
    ) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=18),  # all of it fits into 80 columns
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn(f"reward {{task.fields[reward]}}  {{task.fields[speed]}} {unit}"),
            console=console,
            disable=not visible,
        )
        self._task = self._progress.add_task("training", total=total, reward="-", speed="-")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def advance_to(self, done: int) -> None:
        """Show that some rollouts were done before."""
        self._progress.update(self._task, completed=done)

    def advance(self, reward: float, speed: float, *, by: int = 1) -> None:
        """Move on, by one rollout where nothing else is counted."""
        self._progress.update(self._task, advance=by, reward=f"{reward:.3f}", speed=f"{speed:,.0f}")
