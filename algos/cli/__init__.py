"""The command line: `motet`, or `python -m motet.algos`; one command a file."""

from motet.algos.cli.main import main

__all__ = ["main"]
