"""`motet view RUN`: write a run as one HTML page, and open it if asked to."""

import webbrowser
from pathlib import Path

from motet.algos.cli.flags import Flag, parsed
from motet.algos.cli.mistakes import UsageError, as_mistakes
from motet.algos.cli.paths import check_file
from motet.algos.cli.positional import positional
from motet.algos.cli.settings_file import FILE_NAME
from motet.algos.cli.show import console

COMMAND = "motet view"
ABOUT = (
    "Write a run as one HTML page: its curves, and every rollout as a tree to walk through. RUN is "
    "the folder of a run, or a file of rollouts."
)
FLAGS = [
    Flag("output", str | None, None, "the page; None for view.html in the folder"),
    Flag("open", bool, False, "open it in the browser"),
    Flag("max_rollouts", int | None, None, "at most so many rollouts and as many evaluations, the "
         "first and the last among them; None for all that were saved"),
]  # fmt: skip


def run(words: list[str]) -> None:
    """Run `motet view RUN ...`."""
    place, rest = positional(words, FLAGS)
    said = parsed(f"{COMMAND} RUN", {"page": FLAGS}, rest, ABOUT)["page"]
    if place is None:
        raise UsageError(f"Expected the folder of a run, as in `{COMMAND} runs/...`, got none.")
    _check_run(Path(place))
    if said.get("output") is not None:
        check_file(said["output"], "--output")
    from motet.algos.viewer import write_view  # noqa: PLC0415  # after the help and what is wrong

    with as_mistakes(), console().status("Writing the page"):  # seconds where rollouts are many
        page = write_view(place, said.get("output"), max_rollouts=said.get("max_rollouts"))
    console().print(f"Page: {page}")
    if said.get("open"):
        webbrowser.open(Path(page).resolve().as_uri())


_OF_A_RUN = (FILE_NAME, "metrics.jsonl", "rollouts", "evaluations")


def _check_run(place: Path) -> None:
    """Raise where a folder has nothing that a run writes: its page would be empty."""
    if not place.is_dir() or any((place / name).exists() for name in _OF_A_RUN):
        return
    above = any((place.resolve().parent / name).exists() for name in _OF_A_RUN)
    hint = f" Did you mean {place.parent}?" if above else ""
    raise UsageError(
        f"Expected the folder of a run, with {FILE_NAME}, metrics.jsonl or rollouts, got {place}."
        f"{hint}"
    )
