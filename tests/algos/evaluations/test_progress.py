"""The bar of an evaluation: alone, in a run, and switched off."""

import io
import re

import pytest
from rich.console import Console
from tiny import letter_agent, matching_env

from motet import algos
from motet.agents import FixedAgent
from motet.algos import evaluate
from motet.algos.evaluations.progress import episode_bar
from motet.algos.tracking.progress_bar import ProgressBar
from motet.envs import TextEnv

NAMES = ("agent_0", "agent_1")


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100)


def shown(console: Console) -> str:
    """What was written, without colours and cursor movements."""
    assert isinstance(console.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())


def test_it_counts_episodes_as_they_end() -> None:
    console = terminal()
    with episode_bar(8, visible=True, console=console) as on_turn:
        assert on_turn is not None
        on_turn(1, 6)
        on_turn(2, 0)
    text = shown(console)
    assert "evaluating, turn 2" in text
    assert "8/8 episodes" in text
    assert console.file.getvalue().endswith("\x1b[2K")  # the line is taken away


def test_it_is_told_of_every_turn() -> None:
    env = TextEnv(
        [{"prompt": "p", "pays": pays} for pays in (1.0, 0.5, 0.5)],
        lambda a, b, pays: list(pays),
        transition=lambda prompt: [prompt, prompt],
        num_turns=3,
        early_termination_threshold=0.9,
    )
    told: list[tuple[int, int]] = []
    algos.collect_rollouts(
        env,
        dict.fromkeys(NAMES, FixedAgent("x")),
        [0, 1, 2],
        num_generations=1,
        on_turn=lambda turn, num_live: told.append((turn, num_live)),
    )
    assert told == [(1, 2), (2, 2), (3, 0)]


def test_in_a_run_it_is_a_line_of_the_runs_own_display() -> None:
    console, apart = terminal(), terminal()
    with ProgressBar(5, console, visible=True) as bar:
        assert ProgressBar.running() is bar
        bar.advance(0.5, 1234)
        with episode_bar(4, visible=True, console=apart) as on_turn:
            assert on_turn is not None
            on_turn(1, 3)
    assert ProgressBar.running() is None
    text = shown(console)
    assert "reward 0.500  1,234 tokens/s" in text
    assert "evaluating" in text
    assert "episodes, turn 1" in text
    assert shown(apart) == ""
    assert "evaluating" not in text.splitlines()[-1]


def test_a_bar_that_is_switched_off_stays_off() -> None:
    console, apart = terminal(), terminal()
    with (
        ProgressBar(5, console, visible=False),
        episode_bar(4, visible=True, console=apart) as on_turn,
    ):
        assert on_turn is not None
        on_turn(1, 0)
    with episode_bar(4, visible=False, console=apart) as on_turn:
        assert on_turn is None
    assert shown(console) + shown(apart) == ""


def test_an_error_takes_the_line_away() -> None:
    console = terminal()
    with ProgressBar(5, console, visible=True) as bar:
        with pytest.raises(KeyboardInterrupt), bar.episodes(3):
            raise KeyboardInterrupt
        assert len(bar._progress.tasks) == 1


def test_calls_show_a_bar_where_they_are_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def watched(num_episodes: int, *, visible: bool) -> object:
        asked.append(visible)
        return episode_bar(num_episodes, visible=False)

    monkeypatch.setattr("motet.algos.evaluation.episode_bar", watched)
    team = {name: letter_agent(i) for i, name in enumerate(NAMES)}
    evaluate(matching_env(), team)
    evaluate(matching_env(), team, progress_bar=True)
    for visible in (True, False):
        for name in ("magrpo", "frozen"):
            config = algos.spec(name).config_class(progress_bar=visible)
            algos.make(name, matching_env(), team, config).evaluate()
    assert asked == [False, True, True, True, False, False]
