"""`motet eval`: the evaluation that training does, of any team, alone or against another."""

import json
from pathlib import Path
from typing import Any

import pytest
from cli_runs import TASK, motet, train

from motet import algos, envs
from motet.agents import GenerationConfig, pocket


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("eval") / "run", "--num-turns", "2", "--seed", "3")


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    capsys.readouterr()
    assert motet("eval", *words, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_it_is_what_evaluate_returns(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = envs.make(TASK, num_turns=2, split="eval")
    agents = {name: algos_agent(run / "models" / name) for name in env.possible_agents}
    expected = algos.evaluate(env, agents, [0, 1, 2], num_samples=2, seed=5)
    words = ("--rows", "0-2", "--num-samples", "2", "--seed", "5")
    found = printed(capsys, run, *words)
    assert found["metrics"] == expected.metrics
    assert {k: tuple(v) for k, v in found["intervals"].items()} == expected.intervals


def algos_agent(folder: Path) -> Any:
    from motet.agents import LMAgent

    return LMAgent.from_pretrained(folder, generation=GenerationConfig(max_new_tokens=4))


@pytest.mark.parametrize("rows", ["0-2", "0,1-2", "0 1 2"])
def test_rows_are_said_in_many_ways(
    rows: str, run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert motet("eval", run, "--rows", *rows.split(), "--output", tmp_path / "t.jsonl") == 0
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == [0, 1, 2]
    assert all(len(line["turns"]) == 2 for line in lines)
    said = capsys.readouterr().out
    assert "turn_2/reward_mean" in said
    assert "3 rows, 1 sampled episodes each" in said


def test_greedy_episodes_are_all_the_same(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = printed(capsys, run, "--rows", "0", "--greedy", "--seed", "1")
    assert printed(capsys, run, "--rows", "0", "--greedy", "--seed", "2") == first


def test_sampling_is_that_of_the_run_unless_told_otherwise(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = printed(capsys, run, "--rows", "0")["metrics"]["num_tokens"]
    assert 4 <= few <= 16  # 2 turns of 2 agents, at most 4 tokens each
    many = printed(capsys, run, "--rows", "0", "--max-new-tokens", "30")["metrics"]["num_tokens"]
    assert many > 16


@pytest.mark.parametrize("team", ["pocket", "models", "model"])
def test_a_team_need_not_be_of_a_run(
    team: str, run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pocket().save_pretrained(tmp_path / "own" / "agent_0")
    pocket().save_pretrained(tmp_path / "own" / "agent_1")
    source = {
        "pocket": "pocket", "models": tmp_path / "own", "model": tmp_path / "own" / "agent_1"
    }[team]  # fmt: skip
    words = ("--env", TASK, "--rows", "0", "--max-new-tokens", "4")
    found = printed(capsys, source, *words)
    if team == "model":  # one policy for all, as a name stands for
        assert found == printed(capsys, "pocket", *words)
    assert found["metrics"]["num_completions"] == 2


def test_two_teams_play_the_same_episodes(
    run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    same = printed(capsys, run, "--against", run)
    assert (same["wins"], same["losses"], same["win_rate"]) == (0, 0, 0.5)
    assert same["ties"] == 10
    other = printed(capsys, run, "--against", "pocket", "--num-samples", "2")
    assert other["wins"] + other["ties"] + other["losses"] == 20
    assert other["first"] != other["second"]
    assert other["second"]["num_tokens"] <= 20 * 2 * 2 * 4  # at most 4 a turn, as the run has it
    assert motet("eval", run, "--against", "pocket", "--rows", "0-3") == 0
    assert "win rate" in capsys.readouterr().out


@pytest.mark.parametrize("algo", ["discussion", "pipeline", "random", "best-of-n"])
def test_teams_that_were_not_trained_play_as_in_their_run(
    algo: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    sampling = () if algo == "random" else ("--max-new-tokens", "3", "--temperature", "0.5")
    words = (TASK, "--algo", algo, *sampling, "--eval-num-samples", "2", "--seed", "3")
    assert motet("train", *words, "--output-dir", folder) == 0
    entry = json.loads((folder / "metrics.jsonl").read_text())
    found = printed(capsys, folder, "--rows", "0", "1", "--seed", "3")["metrics"]
    logged = {f"eval/{name}": value for name, value in found.items()}
    assert set(logged) <= set(entry)
    same = {name: entry[name] for name in logged} == logged
    assert same == (algo != "best-of-n")  # whose choice by rewards no team has that plays alone
    drafts = {"discussion": 2}.get(algo, 1)
    if algo != "random":
        assert drafts * 4 <= found["num_tokens"] <= drafts * 4 * 3


def test_best_of_n_is_played_without_its_choice_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    words = (TASK, "--algo", "best-of-n", "--max-new-tokens", "3", "--eval-num-samples", "1")
    assert motet("train", *words, "--output-dir", folder) == 0
    with pytest.warns(UserWarning, match="best-of-n chooses by rewards"):
        assert motet("eval", folder, "--rows", "0") == 0


def test_one_policy_for_all_writes_for_all_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train(tmp_path / "run", "--algo", "centralised-magrpo", "--share")
    found = printed(capsys, folder, "--rows", "0")["metrics"]
    assert found["num_completions"] == 1
    assert found["num_tokens"] <= 4
    for words in ((folder, "--against", "pocket"), ("pocket", "--env", TASK, "--against", folder)):
        assert motet("eval", *words) == 2
        assert "whose one policy writes for all" in capsys.readouterr().err
    assert motet("play", TASK, "--team", folder) == 2
    assert "whose one policy writes for all" in capsys.readouterr().err


def test_a_member_can_be_another(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, run, "--rows", "0", "--model", "agent_1=text:")
    assert found["metrics"]["num_tokens"] <= 8


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "Expected a team, as in `motet eval runs/...`"),
        (["pocket"], "Expected --env with pocket, which is of no run"),
        (["pocket", "--env", "story"], "Environment story not found"),
        (["pocket", "--env", TASK, "--rows", "99"], "Expected rows from 0 to 9, got '99'"),
        (
            ["pocket", "--env", TASK, "--rows", "0-99999999999"],  # never one by one
            "Expected rows from 0 to 9, got '0-99999999999'",
        ),
        (["pocket", "--env", TASK, "--rows", "5-2"], "got '5-2', which are none"),
        (["pocket", "--env", TASK, "--output", "."], "Expected a file as --output"),
        (["--env", TASK, "--greedy", "pocket", "--rows", "a"], "got 'a'"),
        (["pocket", "--env", TASK, "--rows", "a"], "Expected rows such as 3 or 0-9, got 'a'"),
        (["pocket", "--env", TASK, "--num-samples", "0"], "Expected num_samples of at least 1"),
        (["nowhere/models", "--env", TASK], "Expected a model on the hub or in a folder"),
    ],
)
def test_what_is_wrong_is_told(
    words: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert motet("eval", *words) == 2
    assert told in capsys.readouterr().err


def test_a_team_that_lacks_an_agent_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pocket().save_pretrained(tmp_path / "team" / "writer")
    assert motet("eval", tmp_path / "team", "--env", TASK) == 2
    assert "got none of agent_0, agent_1" in capsys.readouterr().err
