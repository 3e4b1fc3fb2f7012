"""The word of a command that belongs to no flag is found wherever it stands."""

import pytest

from motet.algos.cli.flags import Flag
from motet.algos.cli.positional import positional

FLAGS = [
    Flag("open", bool, False),
    Flag("output", str | None, None),
    Flag("rows", tuple[str, ...], None),
    Flag("seed", int, 0),
]


@pytest.mark.parametrize(
    ("words", "found", "rest"),
    [
        ("RUN", "RUN", ""),
        ("RUN --open --seed 3", "RUN", "--open --seed 3"),
        ("--open RUN", "RUN", "--open"),
        ("--open True RUN", "RUN", "--open True"),
        ("--no-open RUN --seed 3", "RUN", "--no-open --seed 3"),
        ("--seed -3 RUN", "RUN", "--seed -3"),
        ("--seed=3 RUN other", "RUN", "--seed=3 other"),
        ("--output page.html RUN", "RUN", "--output page.html"),
        ("--rows 1 2 --seed 3 RUN", "RUN", "--rows 1 2 --seed 3"),
        ("--rows 1 2 RUN", None, "--rows 1 2 RUN"),
        ("--unknown 3 RUN", "RUN", "--unknown 3"),
        ("--help RUN", "RUN", "--help"),
        ("--open", None, "--open"),
        ("", None, ""),
    ],
)
def test_it_is_the_first_that_is_no_flag_and_no_value(
    words: str, found: str | None, rest: str
) -> None:
    assert positional(words.split(), FLAGS) == (found, rest.split())
