"""What a token costs as rollouts get wider: more prompts, generations, turns or agents.

One of the four varies at a time; the others stay at 2 prompts, G=4, one turn and two agents with
weights of their own. Every turn has the same prompt, so that it is the number of sequences that
grows and not their length. Each row makes about as many tokens in all, in more rollouts where they
are narrow, in a process of its own, in turns with the others. Seconds are medians.

Time per token falls, or grows, from one row to the next where no repetition of the one is as slow,
or as fast, as any of the other; anything else is noise.

The last table is about `history="append"`, where an agent's context is the whole conversation: how
many tokens the update computes, and how many it would if no completion shared its context with
another. There the turns have their feedback, of some 60 tokens, and completions at most 32 tokens:
the longer completions are beside prompts, the less there is to share, 2.7 times at G=4, T=3 where
prompts are nothing.

    make bench-scaling                                     # the embedded model; 15 minutes
    make bench-scaling ARGS="--model smollm2 --repeats 3"  # the better part of an hour
"""

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from training_runner import (
    MODELS,
    Case,
    Runner,
    add_common_arguments,
    alternately,
    model_folder,
    print_about,
    write_json,
)
from training_targets import Target, print_targets
from training_work import Measured, Work

from motet.envs.story_length_ratio import PROMPTS

FACTORS = {"prompts": (1, 2, 4, 10), "G": (2, 4, 8), "T": (1, 2, 3), "N": (1, 2, 4)}
BASE = {"prompts": 2, "G": 4, "T": 1, "N": 2}
# New tokens of a completion, and about how many a row makes in all.
SIZES = {"pocket": (64, 16_384), "smollm2": (16, 2_048)}
TURNS_WITH_HISTORY = (2, 3)
MOST_TOKENS_WITH_HISTORY = 32
PACKING_GOAL = 4.0

Direction = Literal["falls", "grows", "as before"]


@dataclass(frozen=True, slots=True)
class Point:
    """One row of a table.

    Attributes:
        factor: what varies.
        value: of it.
        case: the work.
    """

    factor: str
    value: int
    case: Case


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds per new token in each repetition, over all agents."""

    generation: tuple[float, ...]
    update: tuple[float, ...]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and return the exit status."""
    args = parse(argv)
    about = print_about(args)
    begun = time.perf_counter()
    model = model_folder(args.model)
    new_tokens, budget = SIZES[args.model]
    new_tokens, budget = args.max_new_tokens or new_tokens, args.tokens or budget
    points = points_of(model, new_tokens, budget)
    with_history = history_points(model, new_tokens, budget)
    cases = list(dict.fromkeys(point.case for point in (*points, *with_history)))
    runner = Runner(None, args.num_threads)
    results = dict(zip(cases, alternately(cases, args.repeats, runner.train), strict=True))
    for factor in FACTORS:
        print_factor([point for point in points if point.factor == factor], results)
    grown = [line for factor in FACTORS for line in growth(factor, points, results)]
    print("\n" + "\n".join(grown or ["Time per token never grows with width."]))
    print_history(with_history, results)
    target = packing_target(with_history, results)
    print_targets([target])
    print(f"\nIt took {(time.perf_counter() - begun) / 60:.1f} minutes.")
    rows = [as_row(point, results[point.case]) for point in (*points, *with_history)]
    packing = {**asdict(target), "met": target.met}
    write_json(args.json, {**about, "rows": rows, "grows": grown, "target": packing})
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what a token costs by width.")
    parser.add_argument("--model", choices=MODELS, default="pocket")
    parser.add_argument("--max-new-tokens", type=int, help="tokens of a completion")
    parser.add_argument("--tokens", type=int, help="about how many tokens a row makes in all")
    add_common_arguments(parser, repeats=5, threads=1)
    args = parser.parse_args(argv)
    for name in ("max_new_tokens", "tokens"):
        value = getattr(args, name)
        if value is not None and value < 2:
            parser.error(f"Expected {name} of at least 2, got {value}.")
    return args


def work_of(model: str, new_tokens: int, budget: int, **factors: int) -> Work:
    """Return as many rollouts of one width as make about `budget` tokens."""
    width = {**BASE, **factors}
    one = Work(
        model=model,
        prompts=PROMPTS[: width["prompts"]],
        prompts_at_once=width["prompts"],
        num_turns=width["T"],
        num_generations=width["G"],
        max_new_tokens=new_tokens,
        num_agents=width["N"],
        same_prompts=True,
    )
    rollouts = max(1, round(budget / (one.num_agents * one.num_new_tokens)))
    prompts = itertools.islice(itertools.cycle(PROMPTS), rollouts * width["prompts"])
    return replace(one, prompts=tuple(prompts))


def points_of(model: str, new_tokens: int, budget: int) -> list[Point]:
    """Return the rows of all tables of width."""
    return [
        Point(factor, value, Case("motet", work_of(model, new_tokens, budget, **{factor: value})))
        for factor, values in FACTORS.items()
        for value in values
    ]


def history_points(model: str, new_tokens: int, budget: int) -> list[Point]:
    """Return the rows without and with `history="append"`."""
    short = min(new_tokens, MOST_TOKENS_WITH_HISTORY)
    works = [
        replace(work_of(model, short, budget, T=turns), same_prompts=False)
        for turns in TURNS_WITH_HISTORY
    ]
    return [
        Point(f"history {work.history}", work.num_turns, Case("motet", work))
        for plain in works
        for work in (plain, replace(plain, history="append"))
    ]


def cost_of(runs: Sequence[Measured | str]) -> Cost | str:
    """Return what a new token took, or why a run did not end."""
    for run in runs:
        if isinstance(run, str):
            return run
    done = [run for run in runs if isinstance(run, Measured)]
    return Cost(
        generation=tuple(1e6 * run.generation_s / run.new_tokens for run in done),
        update=tuple(1e6 * run.update_s / run.new_tokens for run in done),
    )


def direction(narrow: Sequence[float], wide: Sequence[float]) -> Direction:
    """Say whether times fall or grow from one row to the next: where their ranges are apart."""
    if max(wide) < min(narrow):
        return "falls"
    return "grows" if min(wide) > max(narrow) else "as before"


def growth(
    factor: str,
    points: Sequence[Point],
    results: dict[Case, list[Measured | str]],
) -> list[str]:
    """Return a sentence for each step of a factor at which time per token grows."""
    lines = []
    own = [point for point in points if point.factor == factor]
    for narrow, wide in itertools.pairwise(own):
        costs = cost_of(results[narrow.case]), cost_of(results[wide.case])
        if isinstance(costs[0], str) or isinstance(costs[1], str):
            lines.append(f"Not measured: {factor} from {narrow.value} to {wide.value}.")
            continue
        for part in ("generation", "update"):
            before, after = (getattr(cost, part) for cost in costs)
            if direction(before, after) == "grows":
                lines.append(
                    f"Time per token of the {part} grows from {statistics.median(before):.0f} to "
                    f"{statistics.median(after):.0f} microseconds as {factor} goes from "
                    f"{narrow.value} to {wide.value}."
                )
    return lines


def print_factor(points: Sequence[Point], results: dict[Case, list[Measured | str]]) -> None:
    """Print the table of one factor."""
    factor = points[0].factor
    others = ", ".join(f"{name}={value}" for name, value in BASE.items() if name != factor)
    print(f"\n{factor} ({others})")
    print(f"{'':>8}{'rows':>6} | {'µs per generated token':^34} | {'µs per trained token':^34}")
    before: Cost | None = None
    for point in points:
        cost = cost_of(results[point.case])
        if isinstance(cost, str):
            print(f"{point.value:>8}  not measured: {cost}")
            continue
        work = point.case.work
        rows = work.rows_at_once(work.num_turns)
        parts = " | ".join(_part(name, cost, before) for name in ("generation", "update"))
        print(f"{point.value:>8}{rows:>6} | {parts}")
        before = cost


def _part(name: str, cost: Cost, before: Cost | None) -> str:
    values = getattr(cost, name)
    says = "" if before is None else direction(getattr(before, name), values)
    low_high = f"{min(values):.0f} - {max(values):.0f}"
    return f"{statistics.median(values):>8.0f}{low_high:>15}{says:>11}"


def print_history(points: Sequence[Point], results: dict[Case, list[Measured | str]]) -> None:
    """Print how many tokens the update computes without and with the whole conversation."""
    print(
        f"\n{'history':<9}{'T':>3} | {'µs per token':^20} | {'tokens of the update':^30}\n"
        f"{'':<12} | {'generated':>10}{'trained':>10} |"
        f" {'computed':>10}{'unshared':>10}{'ratio':>10}"
    )
    for point in points:
        runs = results[point.case]
        cost, first = cost_of(runs), runs[0]
        head = f"{point.case.work.history:<9}{point.value:>3}"
        if isinstance(cost, str) or isinstance(first, str):
            print(f"{head} | not measured: {cost}")
            continue
        computed, unshared = first.tokens_computed, first.unshared_tokens
        print(
            f"{head} | {statistics.median(cost.generation):>10.0f}"
            f"{statistics.median(cost.update):>10.0f} | {computed:>10.0f}{unshared:>10}"
            f"{unshared / computed:>10.2f}"
        )


def packing_target(points: Sequence[Point], results: dict[Case, list[Measured | str]]) -> Target:
    """Compare the tokens of the update with and without sharing, in the deepest tree."""
    deepest = max(
        (point for point in points if point.case.work.history == "append"),
        key=lambda point: point.value,
    )
    work, run = deepest.case.work, results[deepest.case][0]
    name = f"fewer tokens where trees are packed, G={work.num_generations}, T={work.num_turns}"
    if isinstance(run, str):
        return Target(name, PACKING_GOAL, None, "x")
    return Target(name, PACKING_GOAL, run.unshared_tokens / run.tokens_computed, "x")


def as_row(point: Point, runs: Sequence[Measured | str]) -> dict[str, Any]:
    return {
        "factor": point.factor,
        "value": point.value,
        "work": asdict(point.case.work),
        "runs": [run if isinstance(run, str) else asdict(run) for run in runs],
    }


if __name__ == "__main__":
    sys.exit(main())
