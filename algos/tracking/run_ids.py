"""Which run of each tracker a run folder belongs to: what a run that goes on finds it by."""

import json
from collections.abc import Mapping
from pathlib import Path

from motet.algos.earlier import put_in_place

FILE_NAME = "tracking.json"


def earlier_run_ids(output_dir: str | Path, *, goes_on: bool) -> dict[str, str]:
    """Return the id of the run by tracker; none where the folder has no such file.

    Args:
        output_dir: folder of the run.
        goes_on: False for a new run, which forgets those of an earlier one.

    Raises:
        ValueError: where the file is another one.
    """
    path = Path(output_dir) / FILE_NAME
    if not goes_on:
        path.unlink(missing_ok=True)
    if not path.exists():
        return {}
    try:
        ids = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError:
        ids = None
    if not isinstance(ids, dict) or not all(isinstance(each, str) for each in ids.values()):
        raise ValueError(
            f"Expected ids of runs by tracker in {path}, got something else; delete it to begin "
            "new runs there."
        )
    return ids


def write_run_ids(output_dir: str | Path, ids: Mapping[str, str]) -> None:
    """Write what `earlier_run_ids` reads; a write that is cut short leaves what was there."""
    path = Path(output_dir) / FILE_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    put_in_place(path, [json.dumps(dict(ids), indent=1) + "\n"])
