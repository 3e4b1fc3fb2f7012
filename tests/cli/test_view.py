"""`motet view` writes the page of a run, and opens it where it is asked to."""

from pathlib import Path

import pytest
from cli_runs import motet, train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("view") / "run")


def test_a_run_becomes_a_page(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert motet("view", run) == 0
    assert capsys.readouterr().out == f"Page: {run / 'view.html'}\n"
    page = (run / "view.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert page.rstrip().endswith("</html>")
    assert motet("view", run, "--output", tmp_path / "page.html", "--max-rollouts", "1") == 0
    assert (tmp_path / "page.html").stat().st_size < (run / "view.html").stat().st_size


def test_the_run_may_follow_the_flags(run: Path, tmp_path: Path) -> None:
    assert motet("view", "--output", tmp_path / "page.html", "--no-open", run) == 0
    assert (tmp_path / "page.html").is_file()


def test_a_folder_of_no_run_is_left_as_it_is(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert motet("view", tmp_path) == 2
    assert "Expected the folder of a run, with run.yaml" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert motet("view", run / "models") == 2
    assert f"Did you mean {run}?" in capsys.readouterr().err
    assert motet("view", run, "--output", tmp_path) == 2
    assert f"Expected a file as --output, got the folder {tmp_path}" in capsys.readouterr().err
    assert motet("view", run, "--output", run / "run.yaml" / "page.html") == 2
    assert "run.yaml is a file" in capsys.readouterr().err


def test_it_is_opened_where_it_is_asked_to(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert motet("view", run, "--open") == 0
    assert opened == [(run / "view.html").resolve().as_uri()]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "Expected the folder of a run, as in `motet view runs/...`"),
        (["nowhere"], "nowhere"),
        (["nowhere", "--max-rollouts", "0"], "max_rollouts"),
    ],
)
def test_what_there_is_nothing_to_see_of_is_told(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert motet("view", *words) == 2
    assert told in capsys.readouterr().err
