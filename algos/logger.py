"""Where metrics go: the console with a progress bar, JSONL, Weights & Biases.

All are off the learners' path: a learner calls `log` and `close` and knows nothing of files.
"""

import importlib.util
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Metrics = Mapping[str, float]


@runtime_checkable
class Logger(Protocol):
    """A destination of metrics."""

    def log(self, metrics: Metrics, step: int) -> None:
        """Record metrics at a number of env steps."""

    def close(self) -> None:
        """Flush and release what is held."""


class ConsoleLogger:
    """Print the main metrics as lines, above the progress bar where there is one.

    Args:
        console: rich console to print to; default: standard output.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()

    def log(self, metrics: Metrics, step: int) -> None:
        """Print one line; timings, counts and gradient norms are left to the other loggers."""
        shown = [
            f"{name} {value:.3f}"
            for name, value in metrics.items()
            if name.startswith(("turn_", "eval/"))
            and not name.startswith("eval/num_")
            and "std" not in name
        ]
        if shown:
            line = f"step {step:>6}  " + "  ".join(shown)
            self.console.print(line, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Do nothing."""


class JSONLLogger:
    """Write one JSON object per entry to a file, with the key `step`.

    A file of an earlier run keeps its lines: it is moved to the next free `name-1.jsonl`,
    `name-2.jsonl`, ...

    Args:
        path: the file; its folder is made where it is missing.
        after: goes on from an earlier run at this number of env steps: its entries up to there
            come first.
    """

    def __init__(self, path: str | Path, *, after: int | None = None) -> None:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        earlier: list[str] = []
        if path.exists():
            if after is not None:
                earlier = _lines_until(path, after)
            kept = (path.with_stem(f"{path.stem}-{n}") for n in itertools.count(1))
            path.rename(next(name for name in kept if not name.exists()))
        self._file = path.open("w", encoding="utf-8")
        self._file.writelines(earlier)

    def log(self, metrics: Metrics, step: int) -> None:
        """Write one line, at once."""
        self._file.write(json.dumps({"step": step, **metrics}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _lines_until(path: Path, step: int) -> list[str]:
    """Return the entries of a log up to a step; a last line that was cut short is none."""
    lines = [
        line for line in path.read_text(encoding="utf-8").splitlines(True) if line.endswith("\n")
    ]
    return [line for line in lines if json.loads(line)["step"] <= step]


def require_wandb() -> None:
    """Raise where wandb is not installed.

    Raises:
        ImportError: with what to type.
    """
    if importlib.util.find_spec("wandb") is None:
        raise ImportError(
            'Expected wandb for Weights & Biases logging; pip install "motet[trackers]".'
        )


class WandbLogger:
    """Send metrics to Weights & Biases. The package is imported here and nowhere else.

    Args:
        **options: passed on to `wandb.init`: project, entity, name, config, dir, ...

    Raises:
        ImportError: where wandb is not installed, with what to type.
    """

    def __init__(self, **options: Any) -> None:
        require_wandb()
        import wandb  # noqa: PLC0415  # only where it was asked for

        self._run = wandb.init(**options)

    def log(self, metrics: Metrics, step: int) -> None:
        """Send one entry."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


class Loggers:
    """Several loggers as one.

    Args:
        loggers: all of them.
    """

    def __init__(self, loggers: Sequence[Logger]) -> None:
        self._loggers = list(loggers)

    def log(self, metrics: Metrics, step: int) -> None:
        """Record in all of them."""
        for logger in self._loggers:
            logger.log(metrics, step)

    def close(self) -> None:
        """Close all of them."""
        for logger in self._loggers:
            logger.close()


def open_loggers(
    output_dir: str | Path | None,
    wandb_config: Mapping[str, Any] | None,
    *,
    after: int | None = None,
) -> Loggers:
    """Open what a run logs to by itself; the caller closes it.

    Args:
        output_dir: gets `metrics.jsonl`; None for none.
        wandb_config: options of `wandb.init`; None for no Weights & Biases.
        after: see `JSONLLogger`.
    """
    opened: list[Logger] = []
    if output_dir is not None:
        opened.append(JSONLLogger(Path(output_dir) / "metrics.jsonl", after=after))
    if wandb_config is not None:
        opened.append(WandbLogger(**wandb_config))
    return Loggers(opened)


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
