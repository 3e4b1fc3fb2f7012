"""The main metrics as lines on the console."""

from rich.console import Console

from motet.algos.tracking.logger import Metrics


class ConsoleLogger:
    """Print the main metrics as lines, above the progress bar where there is one.

    Args:
        console: rich console to print to; default: standard output.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()

    def log(self, metrics: Metrics, step: int) -> None:
        """Print one line; timings, counts, lengths and intervals are left to the other loggers."""
        shown = [
            f"{name} {value:.3f}"
            for name, value in metrics.items()
            if name.removeprefix("eval/").startswith(("turn_", "reward_", "return_", "final_"))
            and not name.endswith(("_low", "_high"))
            and "std" not in name
        ]
        if shown:
            line = f"step {step:>6}  " + "  ".join(shown)
            self.console.print(line, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Do nothing."""
