"""The main metrics as lines on the console."""

import re

from rich.console import Console

from motet.algos.tracking.logger import Metrics

# Rewards and returns, with nothing after them: of the team, not of an agent, nor ends of intervals.
_SHOWN = re.compile(r"(eval/|turn_\d+/|eval/turn_\d+/)\w*(reward_mean|return_mean|expected_return)")


class ConsoleLogger:
    """Print the main metrics as lines, above the progress bar where there is one.

    Args:
        console: rich console to print to; default: standard output.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()

    def log(self, metrics: Metrics, step: int) -> None:
        """Print one line: rewards and returns of the team; the rest is left to other loggers."""
        shown = [f"{name} {value:.3f}" for name, value in metrics.items() if _SHOWN.fullmatch(name)]
        if shown:
            line = f"step {step:>6}  " + "  ".join(shown)
            self.console.print(line, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Do nothing."""
