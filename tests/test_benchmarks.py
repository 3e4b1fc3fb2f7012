"""The benchmarks are run by hand; here their arithmetic, their command lines and a small run."""

import re
import subprocess
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import adapter_memory
import bench_adapters
import bench_env
import bench_gpu
import bench_learning
import bench_peers
import bench_scaling
import pytest
from adapter_memory import Held
from bench_learning import Time, learning_target, time_of
from bench_scaling import (
    BASE,
    FACTORS,
    cost_of,
    direction,
    growth,
    history_points,
    packing_target,
    points_of,
    work_of,
)
from learning_work import Learned, first_reached
from machine_rates import Rates
from motet_training import do
from training_floor import generation_floor_s, update_floor_s
from training_runner import Case, Runner, alternately
from training_table import Row, Run, print_table, summarise, times_as_fast
from training_targets import Target, print_targets, training_targets
from training_task import reward_of
from training_work import Measured, Work, refuse

from motet.agents import LMAgent
from motet.agents.embedded import pocket_path
from motet.envs.story_length_ratio import PROMPTS

ROOT = Path(__file__).resolve().parents[1]
PARSERS = [
    module.parse
    for module in (
        bench_env,
        bench_peers,
        bench_learning,
        bench_scaling,
        bench_adapters,
        bench_gpu,
    )
]
RATES = Rates(gemm_flops=1e9, copy_bytes=4e8, body_parameters=900, head_parameters=100)
WORK = Work(
    model="m",
    prompts=("a", "b"),
    prompts_at_once=2,
    num_turns=1,
    num_generations=4,
    max_new_tokens=11,
)
MEASURED = Measured(
    generation_s=2.0,
    update_s=4.0,
    num_agents=2,
    new_tokens=176,
    prompt_tokens=20,
    num_optimizer_steps=1.0,
    peak_memory_mib=100.0,
    versions="",
)


def row_of(side: str, total_s: float, memory: float = 100.0, **work: object) -> Row:
    """A row of one prompt's seconds, a quarter of it generation, and floors of half of each."""
    done = replace(WORK, **{"prompts_at_once": 1, **work})
    row = summarise("row", side, done, [Run(MEASURED, RATES)])
    assert isinstance(row, Row)
    return replace(
        row,
        generation_s=total_s / 4,
        update_s=total_s * 3 / 4,
        total_s=total_s,
        peak_memory_mib=memory,
        generation_floor_s=total_s / 8,
        update_floor_s=total_s * 3 / 8,
    )


def targets_by_name(rows: list[Row]) -> dict[str, Target]:
    return {target.name: target for target in training_targets(rows)}


# --- floors and rows ------------------------------------------------------------------------------


def test_floors_are_those_of_the_formulas() -> None:
    # Ten steps of 8 rows: max(4 * 1000 / 4e8, 2 * 1000 * 8 / 1e9) = 16 µs each, for two agents, and
    # 2 * 900 * 20 / 1e9 = 36 µs of prompts.
    assert generation_floor_s(WORK, MEASURED, RATES) == pytest.approx(2 * 160e-6 + 36e-6)
    # 6 * (900 * (20 + 176) + 100 * 176) / 1e9
    assert update_floor_s(WORK, MEASURED, RATES) == pytest.approx(1164e-6)
    adapters = replace(WORK, lora=True)
    assert update_floor_s(adapters, MEASURED, RATES) == pytest.approx(1164e-6 * 2 / 3)
    shared = replace(MEASURED, tokens_computed=100)
    assert update_floor_s(WORK, shared, RATES) == pytest.approx(6 * (900 * 100 + 100 * 176) / 1e9)
    half = replace(WORK, half_without_spread=True)
    assert update_floor_s(half, MEASURED, RATES) == pytest.approx(1164e-6 / 2)


def test_a_row_holds_medians_per_prompt_and_the_spread() -> None:
    seconds = ((2.0, 4.0), (3.0, 9.0), (2.5, 5.5))
    runs = [
        Run(replace(MEASURED, generation_s=generation, update_s=update), RATES)
        for generation, update in seconds
    ]
    row = summarise("motet", "motet", WORK, runs)
    assert isinstance(row, Row)
    assert (row.generation_s, row.update_s, row.total_s) == (2.5 / 2, 5.5 / 2, 8.0 / 2)
    assert row.spread == (12.0 - 6.0) / 8.0
    assert row.tokens == 176 / 2
    single = summarise("motet", "motet", WORK, runs[:1])
    assert isinstance(single, Row)
    assert single.spread is None


def test_one_agents_seconds_count_twice() -> None:
    row = summarise("trl", "trl", WORK, [Run(replace(MEASURED, num_agents=1), RATES)])
    assert isinstance(row, Row)
    assert row.total_s == 2 * 6.0 / 2


def test_a_row_says_why_it_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    row = summarise("trl", "trl", WORK, [Run(MEASURED, RATES), Run("exit status 1: no", RATES)])
    assert row == "exit status 1: no"
    print_table([("trl, 2 at once", row), ("motet", row_of("motet", 8.0))])
    printed = capsys.readouterr().out
    assert re.search(r"^trl, 2 at once +not measured: exit status 1: no$", printed, re.M)
    assert "1 turn(s), G=4, 11 new tokens, 2 agents" in printed


# --- ratios and targets ---------------------------------------------------------------------------


def test_a_row_is_compared_with_the_fastest_row_of_the_same_work() -> None:
    ours = row_of("motet", 2.0)
    half = row_of("motet", 1.0, half_without_spread=True)
    rows = [
        ours,
        half,
        row_of("comlrl", 12.0),
        row_of("comlrl", 11.0),
        row_of("comlrl", 9.0, half_without_spread=True),
        row_of("comlrl", 1.0, num_turns=2),
        row_of("trl", 4.0),
        row_of("trl", 1.0, bf16=True),
    ]
    assert times_as_fast(ours, "comlrl", rows) == 5.5
    assert times_as_fast(half, "comlrl", rows) == 9.0
    assert times_as_fast(ours, "trl", rows) == 2.0
    assert times_as_fast(half, "trl", rows) is None
    in_bfloat16 = row_of("motet", 0.5, bf16=True)
    assert times_as_fast(in_bfloat16, "trl", rows) == 2.0
    assert times_as_fast(in_bfloat16, "comlrl", rows) == 22.0


def test_targets_come_from_the_rows() -> None:
    targets = targets_by_name(
        [
            row_of("motet", 2.0, memory=90.0, prompts_at_once=10),
            row_of("motet", 3.0, memory=60.0, prompts_at_once=2, one_policy=True),
            row_of("comlrl", 10.0, memory=100.0),
            row_of("trl", 6.0),
            row_of("trl", 4.2, memory=80.0, prompts_at_once=2),
            row_of("motet", 2.0, memory=100.0, num_turns=2),
            row_of("comlrl", 9.9, memory=100.0, num_turns=2),
            row_of("motet", 0.5, num_turns=2, lora=True, bf16=True),
            row_of("motet", 0.5, num_turns=2, half_without_spread=True, bf16=True),
            row_of("motet", 1.0, num_turns=2, lora=True),
            row_of("motet", 1.0, num_turns=2, half_without_spread=True),
            row_of("comlrl", 7.9, num_turns=2, half_without_spread=True),
        ]
    )
    seen = {name: (target.measured, target.met) for name, target in targets.items()}
    assert seen == {
        "times as fast as CoMLRL, one turn": (5.0, True),
        "times as fast as CoMLRL, two turns": (4.95, False),
        "times as fast as CoMLRL, two turns, LoRA": (9.9, True),
        "times as fast as CoMLRL, two turns, half without spread": (7.9, False),
        "times as fast as TRL, one policy, 2 prompts at once": (pytest.approx(1.4), False),
        "peak memory below CoMLRL's, one turn": (90.0, True),
        "peak memory below TRL's, one policy": (60.0, True),
        "peak memory below CoMLRL's, two turns": (100.0, False),
        "share of the floor, update, one turn": (0.5, False),
        "share of the floor, update, two turns": (0.5, False),
        "share of the floor, generation, one turn": (0.5, True),
        "share of the floor, generation, two turns": (0.5, True),
    }


def test_targets_without_their_rows_are_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    targets = training_targets([row_of("motet", 2.0)])
    shares = [target for target in targets if "one turn" in target.name and target.unit == "%"]
    assert [target.met for target in targets if target not in shares] == [None] * 10
    print_targets(targets)
    assert capsys.readouterr().out.count("not measured") == 10


# --- rows that are run ----------------------------------------------------------------------------


def test_rows_have_names_of_their_own_and_what_the_comparison_needs() -> None:
    args = bench_peers.parse([])
    names = {
        turns: [case.name for case in bench_peers.cases_of(args, "m", turns)] for turns in (1, 2)
    }
    assert names == {
        1: [
            "motet, 10 at once",
            "motet bf16, 10 at once",
            "motet, 2 one by one",
            "comlrl, 1 alone",
            "trl, 2 one by one",
            "trl, 2 at once",
            "motet one policy, 2 at once",
        ],
        2: [
            "motet, 4 at once",
            "motet bf16, 4 at once",
            "motet, 2 one by one",
            "comlrl, 1 alone",
            "motet LoRA, 4 at once",
            "motet LoRA bf16, 4 at once",
            "motet half, 4 at once",
            "motet bf16 half, 4 at once",
            "comlrl half, 2 one by one",
        ],
    }
    only = bench_peers.parse(["--targets"])
    rows = [case for turns in (1, 2) for case in bench_peers.cases_of(only, "m", turns)]
    assert [case.name for case in rows] == [
        *("motet, 10 at once", "comlrl, 1 alone"),
        *("trl, 2 at once", "motet one policy, 2 at once"),
        *("motet, 4 at once", "comlrl, 1 alone", "motet LoRA, 4 at once", "motet half, 4 at once"),
        "comlrl half, 2 one by one",
    ]
    some = bench_peers.parse(["--rows", "bf16|LoRA"])
    assert [case.name for case in bench_peers.cases_of(some, "m", 2)] == [
        "motet bf16, 4 at once",
        "motet LoRA, 4 at once",
        "motet LoRA bf16, 4 at once",
        "motet bf16 half, 4 at once",
    ]
    pocket = bench_peers.parse(["--model", "pocket", "--sides", "comlrl"])
    assert [case.name for case in bench_peers.cases_of(pocket, "m", 1)] == [
        "comlrl, 2 one by one",
        "comlrl, 4 one by one",
    ]


def test_crossed_completions_branch_more() -> None:
    work = replace(WORK, num_turns=2)
    assert (work.nodes_per_prompt, work.rows_at_once(1), work.rows_at_once(2)) == (5, 8, 32)
    crossed = replace(work, joint_mode="cross")
    assert crossed.nodes_per_prompt == 17
    assert (crossed.rows_at_once(1), crossed.rows_at_once(2)) == (8, 128)


def test_half_the_prompts_are_paid_alike() -> None:
    work = replace(WORK, prompts=("a", "b", "c", "d"), half_without_spread=True)
    assert work.share_with_spread == 0.5
    rows = [{"prompt": prompt} for prompt in "abcd"]
    rewards = reward_of(work)(["xx"] * 4, ["yyyy"] * 4, batch_items=rows)
    assert rewards == [1.0, 0.5, 1.0, 0.5]
    assert reward_of(WORK)(["xx"], ["yyyy"]) == [1.0]


def test_a_side_refuses_what_it_does_not_do() -> None:
    refuse(WORK, "lora", "history")
    with pytest.raises(RuntimeError, match="Expected lora=False, all that this side does"):
        refuse(replace(WORK, lora=True), "lora", "history")


def test_repetitions_go_there_and_back() -> None:
    seen: list[tuple[str, int]] = []

    def run(case: str, repetition: int) -> str:
        seen.append((case, repetition))
        return f"{case}{repetition}"

    assert alternately("ab", 3, run) == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]
    assert seen == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]


@pytest.mark.parametrize(
    "variant",
    [
        {"half_without_spread": True, "num_turns": 2},
        {"prompts_at_once": 1, "num_turns": 2},
        {"same_prompts": True, "num_turns": 2, "num_agents": 3},
        {"same_prompts": True, "num_agents": 1},
        {"one_policy": True},
        {"lora": True},
        {"bf16": True},
        {"joint_mode": "cross", "same_prompts": True, "num_generations": 2, "num_turns": 2},
    ],
)
def test_motet_does_the_work(variant: dict[str, Any]) -> None:
    work = replace(WORK, model=str(pocket_path()), prompts=PROMPTS[:2], **variant)
    measured = do(work)
    assert measured.num_agents == (1 if work.one_policy else work.num_agents)
    assert measured.new_tokens == measured.num_agents * work.num_new_tokens
    assert measured.generation_s > 0
    assert measured.update_s > 0
    steps = work.num_turns * len(work.prompts) if work.prompts_at_once == 1 else 1
    assert measured.num_optimizer_steps == steps
    nodes = measured.num_agents * work.nodes_per_prompt * len(work.prompts)
    prompt_length = measured.prompt_tokens / nodes
    unshared = nodes * work.num_generations * (prompt_length + work.max_new_tokens)
    assert measured.unshared_tokens == pytest.approx(unshared)
    trained = work.share_with_spread * (measured.new_tokens + measured.prompt_tokens)
    assert 0.7 * trained < measured.tokens_computed <= trained * 1.001


def test_a_side_runs_in_a_process_of_its_own() -> None:
    work = replace(WORK, model=str(pocket_path()), prompts=PROMPTS[:1], prompts_at_once=1)
    runner = Runner(Path("missing"), num_threads=1)
    measured = runner.train(Case("motet", work), 0)
    assert isinstance(measured, Measured)
    assert measured.new_tokens == 2 * work.num_new_tokens
    outcome = runner.start("no_such_script", "motet", {})
    assert isinstance(outcome, str)
    assert outcome.startswith("exit status 2: ")
    assert "no_such_script.py" in outcome


def test_a_peer_that_is_not_installed_is_named() -> None:
    outcome = Runner(Path("nowhere/python"), num_threads=1).train(Case("trl", WORK), 0)
    assert isinstance(outcome, str)
    assert re.search(r"nowhere/python is missing; `make bench` makes it$", outcome)


# --- time to learn --------------------------------------------------------------------------------


def test_the_goal_is_reached_by_the_mean_of_the_last_prompts() -> None:
    rewards = [0.0, 1.0, 0.8, 1.0, 1.0]
    assert first_reached(rewards, 0.9, 1) == 1
    assert first_reached(rewards, 0.9, 2) == 2
    assert first_reached(rewards, 0.9, 3) == 3
    assert first_reached(rewards, 0.9, 5) is None
    assert first_reached(rewards, 0.9, 6) is None
    learned = Learned(rewards, [1.0, 2.0, 3.0, 4.0, 5.0], [0.0, 1.0, 1.0, 2.0, 2.0])
    assert time_of(learned, 0.9, 2) == Time(3.0, 1.0, 3, reached=True)
    assert time_of(learned, 0.9, 5) == Time(5.0, 2.0, 5, reached=False)


def test_learning_is_compared_seed_by_seed() -> None:
    ours = [Time(seconds, 1.0, 1, reached=True) for seconds in (1.0, 2.0, 3.0)]
    theirs = [Time(seconds, 1.0, 1, reached=True) for seconds in (10.0, 8.0, 18.0)]
    target = learning_target("comlrl", ours, theirs)
    assert (target.measured, target.met) == (6.0, True)
    gave_up = replace(ours[2], reached=False)
    target = learning_target("comlrl", [*ours[:2], gave_up], theirs)
    assert (target.measured, target.met) == (4.0, False)
    assert learning_target("comlrl", ours, [None, *theirs[1:]]).met is None
    assert learning_target("comlrl", [None, *ours[1:]], theirs).met is None


# --- cost by width --------------------------------------------------------------------------------


def test_one_factor_varies_at_a_time_at_about_the_same_number_of_tokens() -> None:
    points = points_of("m", 16, 4096)
    assert [(point.factor, point.value) for point in points] == [
        (factor, value) for factor, values in FACTORS.items() for value in values
    ]
    same_as_base = [point for point in points if point.value == BASE[point.factor]]
    assert len({point.case for point in same_as_base}) == 1
    for point in points:
        work = point.case.work
        assert len(work.prompts) % work.prompts_at_once == 0
        tokens = work.num_agents * work.num_new_tokens
        assert 0.6 * 4096 <= tokens <= 1.4 * 4096
    assert work_of("m", 16, 1, prompts=10).prompts == work_of("m", 16, 1, prompts=10).prompts
    assert [point.case.work.history for point in history_points("m", 16, 1)] == [
        "none",
        "append",
    ] * 2


def test_time_falls_or_grows_only_where_ranges_are_apart() -> None:
    assert direction([3.0, 4.0], [1.0, 2.9]) == "falls"
    assert direction([3.0, 4.0], [4.1, 5.0]) == "grows"
    assert direction([3.0, 4.0], [4.0, 5.0]) == "as before"
    assert direction([3.0, 4.0], [1.0, 3.0]) == "as before"


def test_growth_is_said_in_a_sentence() -> None:
    points = [point for point in points_of("m", 16, 4096) if point.factor == "N"]
    seconds = {1: (1.0, 4.0), 2: (1.0, 2.0), 4: (1.5, 2.0)}
    results = {
        point.case: [
            replace(
                MEASURED, generation_s=seconds[point.value][0], update_s=seconds[point.value][1]
            )
        ]
        for point in points
    }
    assert cost_of(results[points[0].case]).update == (pytest.approx(1e6 * 4 / 176),)
    assert growth("N", points, results) == [
        "Time per token of the generation grows from 5682 to 8523 microseconds as N goes from 2 to "
        "4."
    ]
    results[points[2].case] = ["exit status 1: no"]
    assert growth("N", points, results) == ["Not measured: N from 2 to 4."]


def test_packing_is_judged_in_the_deepest_tree() -> None:
    points = history_points("m", 16, 4096)
    ratios = iter((1.0, 2.0, 3.0, 4.5))
    results: dict[Case, list[Measured | str]] = {
        point.case: [replace(MEASURED, tokens_computed=100.0, unshared_tokens=100 * next(ratios))]
        for point in points
    }
    target = packing_target(points, results)
    assert (target.measured, target.met) == (4.5, True)
    results[points[-1].case] = ["exit status 1: no"]
    assert packing_target(points, results).met is None


# --- command lines --------------------------------------------------------------------------------


@pytest.mark.parametrize("parse", PARSERS)
def test_each_shows_its_options(
    parse: Callable[[list[str]], Namespace], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert "--repeats" in printed
    assert "--json" in printed


@pytest.mark.parametrize(
    ("parse", "arguments", "message"),
    [
        (bench_peers.parse, ["--prompts", "11"], "Expected prompts from 1 to 10, got 11."),
        (bench_peers.parse, ["--repeats", "0"], "Expected at least 1, got 0."),
        (bench_peers.parse, ["--max-new-tokens", "1"], "of at least 2, got 1."),
        (bench_peers.parse, ["--rows", "("], "Expected a regular expression, got '(': missing ),"),
        (bench_peers.parse, ["--rows", "bf61"], "found in the name of a row, got bf61."),
        (
            bench_peers.parse,
            ["--turns", "2", "--sides", "trl"],
            "Expected --sides that take part at --turns 2, got trl.",
        ),
        (bench_learning.parse, ["--window", "0"], "Expected --window from 1 to"),
        (bench_learning.parse, ["--prompts-per-update", "3"], "of 1, 2, 5 or 10, got 3"),
        (bench_scaling.parse, ["--tokens", "0"], "Expected tokens of at least 2, got 0."),
    ],
)
def test_each_refuses_what_it_cannot_do(
    parse: Callable[[list[str]], Namespace],
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_without_a_gpu_one_sentence_and_a_status_say_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert bench_gpu.main([]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("Expected a CUDA GPU, got none")
    assert printed.count("\n") == 1


def test_the_gpu_runs_the_same_sides_on_its_device() -> None:
    cases = [
        case
        for turns in (1, 2)
        for case in bench_gpu.cases_of(("motet", "comlrl", "trl"), "m", turns)
    ]
    assert {case.work.device for case in cases} == {"cuda"}
    assert {case.side for case in cases} == {"motet", "comlrl", "trl"}
    assert len({(case.name, case.work.num_turns) for case in cases}) == len(cases)


def test_the_share_of_one_more_agent_is_between_the_smallest_and_the_largest_team() -> None:
    held = {
        ("adapters", 1): Held(100 * 2**20, 10 * 2**20, 0),
        ("adapters", 8): Held(114 * 2**20, 17 * 2**20, 0),
        ("copies", 1): Held(100 * 2**20, 200 * 2**20, 0),
    }
    # (131 - 110) / 7 = 3 of 300
    assert bench_adapters.share_of_base(held) == (
        "One more agent takes 3.0 MiB as an adapter and 300.0 as a copy: 1.0%."
    )


def test_teams_are_weighed_as_they_are() -> None:
    folder = str(pocket_path())
    adapters, copies = (adapter_memory.main(folder, kind, 2) for kind in ("adapters", "copies"))
    base = LMAgent.from_pretrained(folder, device="cpu").model
    own = sum(weight.numel() * 4 for weight in base.parameters())
    assert copies.weights == 2 * own
    # AdamW has two numbers for each weight, and a counter for each tensor
    assert copies.optimizer == pytest.approx(2 * copies.weights, rel=1e-3)
    trained = adapters.weights - own
    assert 0 < trained < own
    assert adapters.optimizer == pytest.approx(2 * trained, rel=1e-2)


def test_agents_are_timed_apart_and_mixed() -> None:
    (row, *others) = bench_adapters.decoded(str(pocket_path()), 2, 1, 1, rows_each=(2,))
    assert len(others) == 3
    assert (row.num_agents, row.rows, len(row.apart), len(row.mixed)) == (2, 2, 1, 1)
    assert row.gain > 0


def test_the_makefile_has_a_target_for_each() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    names = ("-env", "", "-learning", "-scaling", "-adapters", "-gpu")
    for name in (f"bench{ending}" for ending in names):
        assert re.search(rf"^{name}: .*## .+$", text, re.M), name
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "make bench-learning " in shown.stdout
