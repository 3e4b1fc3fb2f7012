"""A headless Chromium, offline, and a run to look at.

Every test fails on any error in the browser's console and on any request that a page makes.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from viewer_pages import Opened
from viewer_runs import drawn_rollout, write_run

from motet import envs
from motet.agents import GenerationConfig, pocket
from motet.algos import Rollout, collect_rollouts
from motet.algos.viewer import write_view

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")  # not longer: an event loop runs in this thread meanwhile
def browser() -> Iterator[Any]:
    """A headless Chromium with a user's folder of its own, or a skip where none is installed."""
    playwright_api = pytest.importorskip("playwright.sync_api", reason="no playwright")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no Chromium to test the page in: none of {', '.join(NAMES)} is installed")
    with playwright_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    opened: list[Opened] = []

    def opening(path: Path, before: str | None = None, **options: Any) -> Any:
        each = Opened(browser, path, **options)
        opened.append(each)
        if before is not None:
            each.page.add_init_script(before)
        return each.go()

    yield opening
    for each in opened:
        each.context.close()
    assert [problem for each in opened for problem in each.problems] == []


@pytest.fixture(scope="session")
def real_team() -> Rollout:
    env = envs.make("story-length-ratio-v0", num_turns=2)
    settings = GenerationConfig(max_new_tokens=48)
    team = {name: pocket(generation=settings) for name in env.possible_agents}
    return collect_rollouts(env, team, [3, 1], num_generations=2, joint_mode="cross", seed=0)


@pytest.fixture(scope="session")
def run_page(tmp_path_factory: pytest.TempPathFactory, real_team: Rollout) -> Path:
    """A run with a rollout of a real team, drawn ones, and an evaluation."""
    folder = tmp_path_factory.mktemp("viewer") / "run"
    rollouts = {
        1: real_team,
        10: drawn_rollout(1, num_generations=3, rows=(2,)),
        20: drawn_rollout(2, num_generations=3, rows=(5,), per_token=True),
    }
    return write_view(write_run(folder, rollouts, {0: drawn_rollout(4, num_generations=1)}))


@pytest.fixture(scope="session")
def walked_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that one page after the other is written to."""
    return tmp_path_factory.mktemp("walked") / "page.html"
