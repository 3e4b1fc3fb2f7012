"""Tab completion for shells, by tyro: `motet --tyro-print-completion bash`."""

from collections.abc import Sequence
from typing import Annotated, Any, Union

import tyro

from motet.algos.cli import bench, eval, plan, play, tables, view
from motet.algos.cli.flags import Flag, command_type
from motet.algos.cli.main import COMMANDS
from motet.algos.registration import spec


def run(words: Sequence[str]) -> None:
    """Print or write the completion of all commands; `motet train` has the flags of magrpo.

    Args:
        words: tyro's own flag, and the shell.
    """
    groups: dict[str, dict[str, list[Flag]]] = {
        "train": plan.flag_groups(None, spec("magrpo")),
        "eval": {"evaluation": [*eval.EVAL_FLAGS, *eval.SAMPLING_FLAGS]},
        "view": {"page": view.FLAGS},
        "play": {"play": play.PLAY_FLAGS},
        "envs": {"output": [tables.JSON]},
        "algos": {"output": [tables.JSON]},
        "bench": {"bench": bench.FLAGS},
    }
    commands = [
        Annotated[
            command_type(groups[name]),
            tyro.conf.subcommand(name, prefix_name=False, description=about),
        ]
        for name, (_, _, about) in COMMANDS.items()
    ]
    whole: Any = Union[tuple(commands)]  # noqa: UP007  # of a list
    tyro.cli(whole, prog="motet", args=words)
