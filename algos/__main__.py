"""`python -m motet.algos`: the command line where the script `motet` is not on the path."""

import sys

from motet.algos.cli import main

if __name__ == "__main__":
    sys.exit(main())
