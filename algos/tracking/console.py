"""The main metrics as lines on the console."""

import re

from rich.console import Console

from motet.algos.tracking.logger import Metrics

_OF_TEAM = re.compile(r"eval/(turn_\d+/)?\w+|turn_\d+/\w+")  # with nothing after it: no agent


class ConsoleLogger:
    """Print the main metrics as lines, above the progress bar where there is one.

    Args:
        console: rich console to print to; default: standard output.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()

    def log(self, metrics: Metrics, step: int) -> None:
        """Print one line: rewards and returns of the team; the rest is left to other loggers."""
        shown = [
            f"{name} {value:.3f}"
            for name, value in metrics.items()
            if _OF_TEAM.fullmatch(name) and not name.startswith("eval/num_") and "std" not in name
        ]
        if shown:
            line = f"step {step:>6}  " + "  ".join(shown)
            self.console.print(line, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Do nothing."""
