"""`motet bench` measures, in seconds, and says of what."""

import json
from pathlib import Path

import pytest
from cli_runs import motet

from motet import envs
from motet.algos.cli.bench import steps_per_second


def test_it_measures_each_width(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ("--widths", "4", "8", "--max-new-tokens", "4", "--seconds", "0.05")
    assert motet("bench", *words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["width"] for each in found["rates"]] == [4, 8]
    assert all(each["sampled"] > 0 and each["trained"] > 0 for each in found["rates"])
    assert found["env_steps_per_second"] > 0
    assert found["parameters"] == 865_536
    assert motet("bench", *words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("model pocket, parameters 865536, device cpu")
    assert [line.split()[0] for line in lines[1:]] == ["width", "4", "8", "story-length-ratio-v0"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--widths", "6"], "multiples of 4, got 6"),
        (["--widths"], "at least one width"),
        (["--seconds", "0"], "seconds above 0"),
        (["--model", "random"], "Expected a language model to measure, got 'random'"),
        (["--max-new-tokens", "0"], "max_new_tokens"),
        (["--env", "story"], "not found"),
        (["--num-threads", "0"], "Expected num_threads of at least 1, got 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert motet("bench", *words) == 2
    assert told in capsys.readouterr().err


def test_steps_are_joint_actions_of_whole_episodes() -> None:
    env = envs.make("story-length-ratio-v0", num_turns=3)
    taken = []
    step = env.step
    env.step = lambda actions: taken.append(actions) or step(actions)  # type: ignore[func-returns-value]
    rate = steps_per_second(env, 0.02)
    assert rate > 0
    assert len(taken) % 60 == 0  # 20 episodes of 3 turns at a time
