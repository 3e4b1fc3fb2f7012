"""`make compare`: its statistics by hand, equal budgets, files and report."""

import argparse
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import compare_learners
import numpy as np
import pytest
from compare_learners import is_there, load_results, path_of, planned, run_all
from comparison_chains import ChainsTrainer, episode_groups, register_chains
from comparison_report import cost, write_report
from comparison_rows import BUDGET, LEARNERS, NUM_ROWS, TASKS, Learner
from comparison_run import CountedAgent, Curve, Point, RunResult, RunWork, do, make_writer
from comparison_statistics import bootstrap, first_reached, interquartile_mean
from tiny import letter_agent, matching_env

from motet import algos, envs
from motet.algos import registration

# --- statistics -------------------------------------------------------------------------------

# 5 runs of 4 tasks, and what rliable 1.2.0 makes of them: `metrics.aggregate_iqm`, and
# `library.get_interval_estimates` with 20,000 draws.
RUNS = [
    [0.64, 0.27, 0.04, 0.02],
    [0.81, 0.91, 0.61, 0.73],
    [0.54, 0.94, 0.82, 0.00],
    [0.86, 0.03, 0.73, 0.18],
    [0.86, 0.54, 0.30, 0.42],
]
BY_TASK = [list(column) for column in zip(*RUNS, strict=True)]


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([3.0], 3.0),
        ([1.0, 2.0, 6.0], 3.0),  # a quarter of three is none
        ([9.0, 2.0, 1.0, 3.0], 2.5),  # 2 and 3
        ([0.0, 0.5, 0.6, 0.7, 9.0], 0.6),  # one at each end, not one and a quarter
        ([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 4.5),  # 3 to 6
    ],
)
def test_interquartile_mean(values, mean):
    assert interquartile_mean(np.array(values)) == pytest.approx(mean)


def test_interquartile_mean_is_over_the_last_axis():
    values = np.array([[9.0, 2.0, 1.0, 3.0], [0.0, 0.0, 1.0, 1.0]])
    assert interquartile_mean(values).tolist() == [2.5, 0.5]


def test_the_bootstrap_agrees_with_rliable():
    whole = bootstrap(BY_TASK, num_samples=20_000)
    assert whole.value == pytest.approx(0.559)
    assert (whole.low, whole.high) == (
        pytest.approx(0.366, abs=0.01),
        pytest.approx(0.717, abs=0.01),
    )
    first = bootstrap(BY_TASK[:1], num_samples=20_000)
    assert (first.value, first.low, first.high) == (
        pytest.approx(0.77),
        pytest.approx(0.57333, abs=1e-3),
        pytest.approx(0.86),
    )
    means = [bootstrap([runs]).value for runs in BY_TASK]
    assert means == pytest.approx([0.77, 0.5733333, 0.5466667, 0.2066667])


def test_the_bootstrap_draws_each_task_from_its_own_runs():
    # 4 runs of 0 and 4 of 1: the middle half is two of each, whatever is drawn within the tasks
    estimate = bootstrap([[0.0] * 4, [1.0] * 4])
    assert (estimate.value, estimate.low, estimate.high) == (0.5, 0.5, 0.5)
    mixed = bootstrap([[0.0] * 4 + [1.0] * 4])
    assert mixed.low < 0.5 < mixed.high


def test_the_bootstrap_is_seeded_and_takes_other_statistics():
    assert bootstrap(BY_TASK) == bootstrap(BY_TASK) != bootstrap(BY_TASK, seed=1)
    assert bootstrap([[1.0, 2.0, 6.0]], lambda x: x.max(axis=-1)).value == 6.0


@pytest.mark.parametrize("scores", [[], [[]], [[0.5], []], [[0.5, float("nan")]]])
def test_the_bootstrap_refuses(scores):
    with pytest.raises(ValueError, match="Expected"):
        bootstrap(scores)


@pytest.mark.parametrize(
    ("rewards", "x"),
    [
        ([0.1, 0.5, 1.0], 180.0),  # 4/5 of the way from 100 to 200
        ([0.9, 0.1, 0.1], 0.0),
        ([0.1, 0.9, 0.2], 100.0),
        ([0.1, 0.2, 0.89], None),
    ],
)
def test_first_reached(rewards, x):
    reached = first_reached([0.0, 100.0, 200.0], rewards, 0.9)
    assert reached is None if x is None else reached == pytest.approx(x)


# --- budgets ----------------------------------------------------------------------------------

TREES_AND_CHAINS = [
    (name, turns)
    for name, entry in LEARNERS.items()
    if entry.spending in ("trees", "chains")
    for turns in entry.num_turns
]


@pytest.mark.parametrize(("name", "num_turns"), TREES_AND_CHAINS)
def test_every_learner_samples_as_many_completions(name, num_turns):
    entry = LEARNERS[name]
    epochs = entry.num_epochs(num_turns, BUDGET)
    assert epochs * NUM_ROWS * entry.completions_per_row(num_turns) == BUDGET
    assert NUM_ROWS % entry.rows_per_rollout[num_turns] == 0


@pytest.mark.parametrize(
    ("given", "num_turns", "completions"),
    [
        ({}, 1, 16),  # 2 agents, 8 each
        ({}, 2, 40),  # 2 (4 + 4 * 4)
        ({"joint_mode": "cross", "num_generations": {1: 8, 2: 2}}, 1, 16),
        ({"joint_mode": "cross", "num_generations": {1: 8, 2: 2}}, 2, 20),  # 2 (2 + 4 * 2)
        ({"greedy": True, "num_generations": {1: 7, 2: 2}}, 1, 16),  # 2 (7 + 1)
        ({"greedy": True, "num_generations": {1: 7, 2: 2}}, 2, 20),  # 2 (2 + 2 + 2 (2 + 1))
        ({"spending": "chains", "num_generations": {2: 10}}, 2, 40),  # 2 * 10 * 2
    ],
)
def test_completions_per_row(given, num_turns, completions):
    entry = Learner(algorithm="magrpo", family="MAGRPO", **given)
    assert entry.completions_per_row(num_turns) == completions


def test_a_budget_that_is_no_whole_number_of_passes_is_refused():
    with pytest.raises(ValueError, match="multiple of 160 completions, a pass of magrpo"):
        LEARNERS["magrpo"].num_epochs(1, 240)


@pytest.fixture
def own_registry(monkeypatch):
    """Leave the registry of learners as it is for the other tests."""
    monkeypatch.setattr(registration, "registry", dict(registration.registry))
    register_chains()


@pytest.mark.usefixtures("own_registry")
def test_every_registered_learner_takes_its_settings():
    checked = 0
    for entry in LEARNERS.values():
        if entry.algorithm not in registration.registry:
            continue
        config_class = registration.spec(entry.algorithm).config_class
        for task in TASKS.values():
            if task.num_turns in entry.num_turns:
                config_class(**entry.config(task, BUDGET, seed=3))
                checked += 1
    assert checked > 0


# --- chains -----------------------------------------------------------------------------------


def test_chains_are_grouped_by_agent_row_and_turn():
    env = matching_env(num_turns=2)
    team = {name: letter_agent() for name in env.possible_agents}
    trainer = ChainsTrainer(
        env, team, algos.MAGRPOConfig(num_generations=3, advantage_normalization=False)
    )
    rollout = trainer.collect([0])
    assert [len(level) for level in rollout.levels] == [3, 3]
    groups = {
        (group.agent, group.turn): group for group in episode_groups(rollout, 1.0, normalize=False)
    }
    for agent in env.possible_agents:
        rewards = [[node.rewards[agent][0] for node in level] for level in rollout.levels]
        for turn, credits in ((1, np.sum(rewards, axis=0)), (2, np.array(rewards[1]))):
            expected = credits - credits.mean()
            if not expected.any():
                assert (agent, turn) not in groups
                continue
            assert groups[agent, turn].advantages == pytest.approx(expected.tolist())
            said = tuple(node.completions[agent][0] for node in rollout.levels[turn - 1])
            assert groups[agent, turn].completions == said


# --- runs and their files ---------------------------------------------------------------------


def result_of(learner: str, task: str, seed: int, rewards: list[float], **fields: Any) -> RunResult:
    """A made-up run with evenly spaced evaluations, a second for each 100 completions."""
    work = RunWork(learner=learner, task=task, seed=seed, budget=BUDGET)
    step = BUDGET / (len(rewards) - 1)
    points = [
        Point(int(k * step) // 2, int(k * step), int(k * step) * 50, k * step / 100, reward)
        for k, reward in enumerate(rewards)
    ]
    return RunResult(**{"settings": work.settings, "points": points, "wall_s": 30.0, **fields})


def test_a_run_file_loads_as_it_was_saved(tmp_path):
    made = result_of("magrpo", "names", 3, [0.1, 0.2, 0.9], texts=[{"agent_0": ["é\n"]}])
    work = RunWork(learner="magrpo", task="names", seed=3, budget=BUDGET)
    path = path_of(tmp_path, work)
    made.save(path)
    assert RunResult.load(path) == made
    assert [each.name for each in path.parent.iterdir()] == ["magrpo--3.json"]
    found = load_results(tmp_path, tmp_path / "docs")
    assert found == [made]
    assert is_there(found, work)
    assert not is_there([], work)
    assert not is_there(found, replace(work, budget=2 * BUDGET)), "another budget, another run"
    assert not is_there(found, replace(work, seed=4))


def test_reported_runs_are_known_without_their_files(tmp_path):
    old, other = (result_of("magrpo", "names", seed, [0.1, 0.2, 0.9]) for seed in (0, 1))
    write_report([old, other], tmp_path / "docs")
    assert load_results(tmp_path, tmp_path / "docs") == [old, other]
    new = result_of("magrpo", "names", 1, [0.1, 0.8, 0.9], texts=[{"agent_0": ["é"]}])
    new.save(path_of(tmp_path, RunWork(learner="magrpo", task="names", seed=1, budget=BUDGET)))
    assert load_results(tmp_path, tmp_path / "docs") == [old, new]


def test_rows_have_files_of_their_own():
    works = [RunWork(learner=name, task="names", seed=0, budget=BUDGET) for name in LEARNERS]
    assert len({path_of(Path(), work).name.lower() for work in works}) == len(LEARNERS)


@pytest.mark.usefixtures("own_registry")
def test_what_is_planned(monkeypatch, capsys):
    rows = {
        **LEARNERS,
        "magrpo, unheard of": Learner(algorithm="magrpo-unheard-of", family="MAGRPO"),
    }
    monkeypatch.setattr(compare_learners, "LEARNERS", rows)
    only = ["magrpo", "magrpo, unheard of", "magrpo, chains"]
    args = compare_learners.parse(["--seeds", "0", "1", "--tasks", "names", "budget"])
    args.only = only
    works = planned(args)
    assert [(work.seed, work.task, work.learner) for work in works] == [
        (seed, task, learner)
        for seed in (0, 1)
        for task, learners in (("names", only[:1]), ("budget", [only[0], only[2]]))
        for learner in learners
    ]
    assert "no learner 'magrpo-unheard-of' is registered" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "match"),
    [
        (["--only", "magrpoo"], "Expected --only among magrpo, .*got magrpoo"),
        (["--tasks", "names", "tea"], "Expected --tasks among length-1, .*got tea"),
        (["--jobs", "0"], "Expected --jobs of at least 1, got 0"),
    ],
)
def test_the_command_line_refuses(argv, match, capsys):
    with pytest.raises(SystemExit):
        compare_learners.parse(argv)
    assert re.search(match, capsys.readouterr().err)


def test_a_run_that_fails_is_told_and_leaves_no_file(tmp_path, monkeypatch, capsys):
    script = tmp_path / "comparison_run.py"
    script.write_text("raise ValueError('Expected tea.')")
    monkeypatch.setattr(compare_learners, "HERE", tmp_path)
    work = RunWork(learner="magrpo", task="names", seed=0, budget=BUDGET)
    assert run_all(argparse.Namespace(out=tmp_path / "out", jobs=1), [work]) == 1
    printed = capsys.readouterr().out
    assert "failed     magrpo on names, seed 0: exit status 1: ValueError: Expected tea." in printed
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("own_registry")
def test_a_small_run_counts_what_it_samples(monkeypatch):
    monkeypatch.setattr("comparison_run.SAMPLING", {"max_new_tokens": 4, "temperature": 0.7})
    before = CountedAgent.num_completions
    result = do(
        RunWork(learner="magrpo", task="length-2", seed=0, budget=400, num_points=2, num_samples=1)
    )
    assert [point.completions for point in result.points] == [0, 200, 400]
    assert [point.env_steps for point in result.points] == [0, 100, 200]  # all of two agents
    assert result.points[-1].tokens <= 4 * 400
    # evaluations: 10 rows, 2 agents, 2 turns; ours at three points, the last with three samples,
    # and the trainer's own before and after
    assert CountedAgent.num_completions - before == 400 + 40 * (1 + 1 + 3 + 1 + 1)
    assert all(0 <= point.reward <= 1 for point in result.points)
    assert result.points[1].seconds < result.points[2].seconds
    assert len(result.texts) == 3
    assert all(len(said) == 2 for texts in result.texts for said in texts.values())
    assert json.loads(json.dumps(asdict(result)))["settings"]["config"]["num_generations"] == 4


def test_evaluations_are_no_training():
    curve = Curve(RunWork(learner="magrpo", task="length-1", seed=0, budget=64, num_points=2))
    env = envs.make("story-length-ratio-v0")
    writer = make_writer().with_generation(max_new_tokens=1)

    class Watched:
        def evaluate(self, num_samples):
            team = dict.fromkeys(env.possible_agents, writer)
            return algos.evaluate(env, team, num_samples=num_samples)

    curve.watch(Watched())
    for step in (1, 2, 3, 4):
        writer.act(["Rain"], 16)
        curve.log({"rollout/reward_mean": 0.0}, step)
        writer.act(["Rain"], 5)
        curve.log({"eval/reward_mean": 0.0}, step)
    curve.evaluate(times=3)
    assert [(point.env_steps, point.completions) for point in curve.points] == [
        (0, 0),
        (2, 32),
        (4, 64),
    ]


# --- the report -------------------------------------------------------------------------------


def made_up_results() -> list[RunResult]:
    machine = {"cpu": "A CPU"}
    results = []
    for seed in range(5):
        for task in TASKS:
            good = [0.1, 0.5, 1.0 if seed else 0.8]
            results.append(result_of("magrpo", task, seed, good, machine=machine, commit="abc"))
        flat = [0.4, 0.4]
        results.append(result_of("frozen", "names", seed, flat, machine=machine, commit="abc"))
    return results


def test_the_report_shows_the_numbers(tmp_path):
    write_report(made_up_results(), tmp_path)
    page = (tmp_path / "learners.md").read_text(encoding="utf-8")
    # 20 runs, four of them 0.8: the middle ten are all 1; of a task, the middle three of five
    assert "| `magrpo` | 1.00 (" in page
    rewards = next(line for line in page.splitlines() if line.startswith("| `magrpo` | 1.00"))
    assert rewards.count("| 1.00 (") == 5
    assert "| `frozen` | | | | 0.40 | |" in page, "no mean over tasks it is not run on"
    # from 0.5 at 800 to 1 at 1600: 0.9 at 1440 completions and 14.4 s, of four of five
    assert "| `magrpo` | 1,440, 14 s, 4/5 | 1,440, 14 s, 4/5 |" in page
    costs = page[page.index("## Until") : page.index("## Settings")]
    assert "`frozen`" not in costs, "a team that is not trained does not reach anything by training"
    assert "1,600 completions" in page
    assert "Machine: A CPU," in page
    assert "Commits: abc." in page
    for name in ("learners-completions.png", "learners-env-steps.png", "learners-seconds.png"):
        assert (tmp_path / name).stat().st_size > 10_000
        assert f"]({name})" in page


def test_the_report_keeps_what_is_written_by_hand(tmp_path):
    write_report(made_up_results(), tmp_path)
    page = tmp_path / "learners.md"
    page.write_text(page.read_text() + "\nTrees are better.\n")
    write_report(made_up_results()[:5], tmp_path)
    assert page.read_text().endswith("## What it shows\n\nTrees are better.\n")
    assert page.read_text().count("## What it shows") == 1


def test_the_report_refuses(tmp_path):
    with pytest.raises(ValueError, match="at least one run to report, got none"):
        write_report([], tmp_path)
    other = made_up_results()[0]
    other = replace(other, settings={**other.settings, "budget": 99})
    with pytest.raises(ValueError, match=r"runs of one budget, got \[99, 1600\]"):
        write_report([*made_up_results(), other], tmp_path)


def test_a_goal_that_is_never_reached_has_no_cost():
    assert cost([result_of("magrpo", "names", 0, [0.1, 0.5, 0.89])]) == "0/1"
