"""How many agent-steps per second envs make, and how long their snapshots take.

An agent-step is one action of one agent; the count includes the resets of whole episodes. Actions
are fixed texts of 124 and 320 characters, so nothing but the envs is measured. All cases alternate
in one run and one thread, and what counts is processor time. A case's value is the median over its
repetitions, with the quartiles as its spread.

Peers that cannot be imported say so in their rows: `make bench-env` installs them into an
environment of their own, `.venv-bench`. `peer_cases` says why each comparison is fair or not.

Goals: 20,000 agent-steps per second by `step`, 50,000 in batches; `clone()` in less than 20
microseconds, at any size of the dataset. With `--check` a missed goal ends in exit status 1.

Run it with:
    make bench-env
    make bench-env ARGS="--check --json out/bench_env.json"
"""

import argparse
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import motet_cases
import peer_cases
from measure import Case, Measured, measure

PACKAGES = ("motet", "gymnasium", "numpy", "pettingzoo", "textarena", "pygame")
# Clones of envs over large and small datasets may differ by this much before it counts as growth.
CLONE_GROWTH = 1.5


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and return the exit status."""
    args = parse(argv)
    about = describe_run()
    print_about(about, args)
    begun = time.perf_counter(), time.process_time()
    results = measure(all_cases(), repeats=args.repeats, sample_s=args.sample_s)
    about["core_share"] = (time.process_time() - begun[1]) / (time.perf_counter() - begun[0])
    print(
        f"core       ours for {about['core_share']:.0%} of the time; less than 95% is no quiet run"
    )
    print_tables(results)
    missed = missed_targets(results)
    print("\n" + "\n".join(missed or ["All goals are met."]))
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(as_json(about, args, results, missed), encoding="utf-8")
    return 1 if args.check and missed else 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the speed of envs and their snapshots.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to FILE")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a goal is missed")
    parser.add_argument("--repeats", type=int, default=9, help="samples of each case")
    parser.add_argument("--sample-s", type=float, default=0.1, help="length of one, in seconds")
    args = parser.parse_args(argv)
    if args.repeats < 3:
        parser.error(f"Expected --repeats of at least 3, got {args.repeats}.")
    if args.sample_s <= 0:
        parser.error(f"Expected --sample-s above 0, got {args.sample_s}.")
    return args


def all_cases() -> list[Case]:
    """Return all cases, by section."""
    steps = motet_cases.step_cases() + peer_cases.step_cases()
    return (
        sorted(steps, key=lambda case: case.section)
        + motet_cases.snapshot_cases()
        + peer_cases.snapshot_cases()
    )


def describe_run() -> dict[str, Any]:
    """Return where this runs, on what, and by which command."""
    return {
        "machine": {
            "cpu": cpu_model(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
        },
        "python": platform.python_version(),
        "packages": {name: version_of(name) for name in PACKAGES},
        "command": shlex.join(["python", *sys.argv]),
    }


def cpu_model() -> str:
    """Return what the kernel calls the processor, or else its architecture."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def missed_targets(results: Sequence[Measured]) -> list[str]:
    """Return one sentence for each goal that is missed."""
    missed = [
        f"Missed: {result.case.name} ({result.case.section}): {got(result)}, with a goal of "
        f"{result.case.target:,}."
        for result in results
        if result.misses_target
    ]
    medians = {result.case.name: result.median for result in results if result.values}
    for turns in (0, motet_cases.HISTORY_TURNS):
        sizes = motet_cases.DATASET_SIZES
        times = [medians[motet_cases.clone_name(size, turns)] for size in sizes]
        if max(times) > CLONE_GROWTH * min(times):
            shown = ", ".join(f"{time:.1f}" for time in times)
            missed.append(
                f"Missed: clone after {turns} turns takes {shown} microseconds at {sizes} rows, "
                "instead of the same at each."
            )
    return missed


def got(result: Measured) -> str:
    if result.missing is not None:
        return f"not measured: {result.missing}"
    return f"{result.median:,.{places(result)}f}"


def places(result: Measured) -> int:
    return 2 if result.case.unit == "µs" and result.median < 1000 else 0


def print_about(about: dict[str, Any], args: argparse.Namespace) -> None:
    machine = about["machine"]
    print(f"machine    {machine['cpu']}, {machine['cores']} cores, {machine['system']}")
    packages = ", ".join(
        f"{name} {version or 'missing'}" for name, version in about["packages"].items()
    )
    print(f"python     {about['python']}; {packages}")
    print(f"command    {about['command']}")
    print(f"samples    {args.repeats} of {args.sample_s} s for each case, in alternation")


def print_tables(results: Sequence[Measured]) -> None:
    section = None
    for result in results:
        case = result.case
        if case.section != section:
            section = case.section
            print(f"\n{section:<70}{'median':>10}{'quartiles':>20}{'goal':>11}")
        if result.missing is not None:
            print(f"  {case.name:<68}{got(result)}")
            continue
        low, high = (f"{value:,.{places(result)}f}" for value in result.quartiles)
        sign = "<" if case.unit == "µs" else ">="
        goal = "" if case.target is None else f"{sign} {case.target:,}"
        print(f"  {case.name:<68}{got(result):>10}{f'{low} - {high}':>20}{goal:>11}".rstrip())


def as_json(
    about: dict[str, Any],
    args: argparse.Namespace,
    results: Sequence[Measured],
    missed: Sequence[str],
) -> str:
    rows = []
    for result in results:
        case = result.case
        row: dict[str, Any] = {"section": case.section, "name": case.name, "unit": case.unit}
        if result.missing is None:
            row |= {
                "median": result.median,
                "quartiles": result.quartiles,
                "values": result.values,
                "target": case.target,
            }
        else:
            row |= {"missing": result.missing}
        rows.append(row)
    settings = {"repeats": args.repeats, "sample_s": args.sample_s}
    whole = {**about, "settings": settings, "results": rows, "missed": list(missed)}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
