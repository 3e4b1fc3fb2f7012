"""`motet COMMAND ...`: finds the command, loads it alone, and says how it ended.

| exit status | meaning                                                                      |
|-------------|------------------------------------------------------------------------------|
| 0           | it did what it was asked                                                     |
| 1           | a bug, of Motet or of a task's own code, with its traceback                  |
| 2           | something in the command or in a file has to be changed; one sentence says it |
| 130         | interrupted with Ctrl-C                                                      |
"""

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from motet.algos.cli.mistakes import UsageError, suggestion

Run = Callable[[list[str]], None]

# Command: its module, the function in it, and what it does.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "train": ("train", "run", "train a team on a task"),
    "eval": ("eval", "run", "play a trained team, alone or against another"),
    "view": ("view", "run", "write a run as one HTML page to look at"),
    "play": ("play", "run", "take an agent's seat in the terminal"),
    "envs": ("tables", "run_envs", "list the tasks, or show one"),
    "algos": ("tables", "run_algos", "list the learners, or show one's settings"),
    "bench": ("bench", "run", "measure how fast this machine samples and trains"),
}

EXAMPLES = """\
motet train story-length-ratio-v0 --num-turns 2 --num-generations 4
motet view runs/...
motet COMMAND --help"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: the words after `motet`; None for those of the process.

    Returns:
        The exit status.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    with _plain_warnings():
        try:
            _dispatch(words)
        except UsageError as mistake:
            print(f"motet: {mistake}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("Interrupted.", file=sys.stderr)
            return 130
        except BrokenPipeError:  # a pager that was closed: nobody is there to be told
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except SystemExit as ended:  # of the parser, which has printed
            return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 2
    return 0


def _dispatch(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return
    if words[0] in ("-V", "--version"):
        print(f"motet {installed_version()}")
        return
    if words[0].replace("_", "-") in ("--tyro-print-completion", "--tyro-write-completion"):
        importlib.import_module("motet.algos.cli.completion").run(words)
        return
    if words[0] not in COMMANDS:
        raise UsageError(
            f"Expected a command, one of {', '.join(COMMANDS)}, got {words[0]!r}."
            f"{suggestion(words[0], COMMANDS)}"
        )
    module, function, _ = COMMANDS[words[0]]
    command: Run = vars(importlib.import_module(f"motet.algos.cli.{module}"))[function]
    command(words[1:])


def usage() -> str:
    """Return what `motet --help` prints."""
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {what}" for name, (_, _, what) in COMMANDS.items())
    examples = "\n".join(f"  {line}" for line in EXAMPLES.splitlines())
    return (
        "usage: motet COMMAND ...\n\n"
        "Teams of language models that learn to work together.\n\n"
        f"commands:\n{commands}\n\n"
        f"examples:\n{examples}\n\n"
        "Also --version, and --tyro-print-completion SHELL (bash, zsh, fish, tcsh).\n"
        "Exit status: 0 well, 1 a bug, 2 a mistake in the command or a file, 130 interrupted."
    )


def installed_version() -> str:
    """Return the version of Motet, "unknown" where it runs from a folder that is not installed."""
    try:
        return version("motet")
    except PackageNotFoundError:
        return "unknown"


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show warnings as a sentence, without the line of code that gave them."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_args, **_options: f"warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before
