"""How far a run is, with its newest reward and speed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
            TextColumn("{task.fields[note]}"),
            console=console,
            disable=not visible,
        )
        self._unit = unit
        self._task = self._progress.add_task("training", total=total, note=f"reward -  - {unit}")

    @staticmethod
    def running() -> "ProgressBar | None":
        """Return the bar whose context is open, which others have to show theirs in."""
        return _running.get()

    def __enter__(self) -> Self:
        self._progress.start()
        self._token = _running.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _running.reset(self._token)
        self._progress.stop()

    def advance_to(self, done: int) -> None:
        """Show that some rollouts were done before."""
        self._progress.update(self._task, completed=done)

    def advance(self, reward: float, speed: float, *, by: int = 1) -> None:
        """Move on, by one rollout where nothing else is counted."""
        note = f"reward {reward:.3f}  {speed:,.0f} {self._unit}"
        self._progress.update(self._task, advance=by, note=note)

    @contextmanager
    def episodes(self, total: int) -> Iterator[Callable[[int, int], None]]:
        """Show episodes of an evaluation in a line below, until the context ends.

        Args:
            total: how many are played.

        Yields:
            What is to be called after each turn, with its number and how many episodes go on.
        """
        task = self._progress.add_task("evaluating", total=total, note="episodes, turn 1")

        def on_turn(turn: int, num_live: int) -> None:
            note = f"episodes, turn {turn + bool(num_live)}"
            self._progress.update(task, completed=total - num_live, note=note)

        try:
            yield on_turn
        finally:
            self._progress.remove_task(task)


_running: ContextVar[ProgressBar | None] = ContextVar("running", default=None)
