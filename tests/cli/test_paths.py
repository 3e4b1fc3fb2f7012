"""What cannot be written to is told before anything is computed."""

import os
from pathlib import Path

import pytest

from motet.algos.cli.mistakes import UsageError, as_mistakes
from motet.algos.cli.paths import check_file, check_folder


def test_files_and_folders_that_can_be_made_pass_and_are_not_made(tmp_path: Path) -> None:
    check_file(tmp_path / "new" / "page.html", "--output")
    check_folder(tmp_path / "new" / "run", "--output-dir")
    check_file("page.html", "--output")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_nobody_may_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def writable(path: str | Path, mode: int) -> bool:
        """As for a user who is not root, whom the tests may run as."""
        return mode != os.W_OK or Path(path) != tmp_path

    monkeypatch.setattr(os, "access", writable)
    with pytest.raises(UsageError, match=r"write to as --output-dir, got .*new/run; .* read-only"):
        check_folder(tmp_path / "new" / "run", "--output-dir")


def test_what_the_system_says_of_a_path_is_a_mistake(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        told = f"Expected a path that can be used, got {path}: "
        with pytest.raises(UsageError, match=told), as_mistakes():
            path.read_text()
    with pytest.raises(OSError, match="of no path"), as_mistakes():
        raise OSError("of no path")
