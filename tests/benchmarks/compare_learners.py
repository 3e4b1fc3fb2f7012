"""Train the learners on four tasks from five seeds, and report what they reach.

Every run samples as many completions as every other while training (`comparison_rows.py` says how
the learners spend them, and with which settings), and is evaluated on held-out rows at even
distances. A run is a process of its own with one thread; two run at a time. Each leaves a file in
out/compare/, and the report puts all of them into docs/learners.jsonl; what is in either with the
same settings is not run again, so that the comparison can be interrupted and gone on with.

    make compare                                              # all of it, then the report
    make compare ARGS="--only magrpo marloo --tasks names --seeds 0 1"
    make compare ARGS="--report"                              # docs/learners.md from what is there
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, replace
from pathlib import Path

from bench_env import describe_run
from comparison_chains import register_chains
from comparison_report import reported, write_report
from comparison_rows import BUDGET, LEARNERS, TASKS
from comparison_run import RunResult, RunWork
from training_runner import HERE, ROOT, commit

from motet.algos import registration

OUT = ROOT / "out" / "compare"
DOCS = ROOT / "docs"
GUESSED_S = 40.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing, write the report, and return the exit status."""
    args = parse(argv)
    failed = 0
    if not args.report:
        register_chains()
        works = planned(args)
        known = load_results(args.out, args.docs)
        missing = [work for work in works if not is_there(known, work)]
        print_plan(args, known, len(works), missing)
        failed = run_all(args, missing)
    write_report(load_results(args.out, args.docs), args.docs)
    return 1 if failed else 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare the learners.")
    parser.add_argument("--only", nargs="+", metavar="LEARNER", help="rows to run; default: all")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="tasks to run; default: all")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--budget", type=int, default=BUDGET, help="completions of each run")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, of one core each")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the runs' files")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the report")
    parser.add_argument("--report", action="store_true", help="run nothing, write the report")
    args = parser.parse_args(argv)
    for given, known, what in ((args.only, LEARNERS, "--only"), (args.tasks, TASKS, "--tasks")):
        unknown = [name for name in given or () if name not in known]
        if unknown:
            parser.error(f"Expected {what} among {', '.join(known)}; got {', '.join(unknown)}.")
    for name in ("budget", "jobs"):
        if getattr(args, name) < 1:
            parser.error(f"Expected --{name} of at least 1, got {getattr(args, name)}.")
    return args


def planned(args: argparse.Namespace) -> list[RunWork]:
    """Return the runs that are asked for, all learners from one seed before the next seed."""
    learners = []
    for name in args.only or LEARNERS:
        algorithm = LEARNERS[name].algorithm
        if algorithm in registration.registry:
            learners.append(name)
        else:
            print(f"skipped    {name}: no learner {algorithm!r} is registered")
    return [
        RunWork(learner=learner, task=task, seed=seed, budget=args.budget)
        for seed in args.seeds
        for task in args.tasks or TASKS
        for learner in learners
        if TASKS[task].num_turns in LEARNERS[learner].num_turns
    ]


def path_of(out: Path, work: RunWork) -> Path:
    """Return the file of a run."""
    learner = work.learner.replace(", ", "-").replace(" ", "-")
    return out / work.task / f"{learner}--{work.seed}.json"


def is_there(known: Sequence[RunResult], work: RunWork) -> bool:
    """Whether a run with the same settings is done."""
    return any(result.settings == work.settings for result in known)


def load_results(out: Path, docs: Path) -> list[RunResult]:
    """Return all runs that there are, of tasks and learners that are still compared.

    Args:
        out: folder of the runs' files, which take the place of reported ones.
        docs: folder of the report.
    """
    results = [*reported(docs), *map(RunResult.load, sorted(out.glob("*/*.json")))]
    newest = {
        (result.settings["task"], result.settings["learner"], result.settings["seed"]): result
        for result in results
        if result.settings["learner"] in LEARNERS and result.settings["task"] in TASKS
    }
    return [newest[place] for place in sorted(newest)]


def print_plan(
    args: argparse.Namespace, known: Sequence[RunResult], total: int, missing: Sequence[RunWork]
) -> None:
    each = statistics.fmean(result.wall_s for result in known) if known else GUESSED_S
    minutes = len(missing) * each / args.jobs / 60
    print(f"runs       {len(missing)} of {total} to do, {args.jobs} at a time")
    print(f"estimate   {minutes:.0f} minutes, at {each:.0f} s for a run", flush=True)


def run_all(args: argparse.Namespace, works: Sequence[RunWork]) -> int:
    """Run what is missing; return how many failed."""
    about = describe_run()
    failed = 0
    begun = time.perf_counter()
    with ThreadPoolExecutor(args.jobs) as pool:
        futures = {pool.submit(run, work): work for work in works}
        for number, future in enumerate(as_completed(futures), start=1):
            work, outcome = futures[future], future.result()
            left = (time.perf_counter() - begun) / number * (len(works) - number) / 60
            where = f"{work.learner} on {work.task}, seed {work.seed}"
            if isinstance(outcome, str):
                failed += 1
                print(f"failed     {where}: {outcome}", flush=True)
                continue
            result = replace(outcome, commit=commit(), machine=about["machine"])
            result.save(path_of(args.out, work))
            last = result.points[-1]
            print(
                f"ran        {where}: {last.reward:.3f} after {last.completions} completions, "
                f"{last.seconds:.0f} s of training, {result.wall_s:.0f} s in all; "
                f"{left:.0f} minutes left",
                flush=True,
            )
    return failed


def run(work: RunWork) -> RunResult | str:
    """Do one run in a process of its own; return what came of it, or why nothing did."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "work.json", Path(folder) / "result.json"
        source.write_text(json.dumps(asdict(work)), encoding="utf-8")
        ended = subprocess.run(
            [sys.executable, str(HERE / "comparison_run.py"), str(source), str(target)],
            env=environment,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if ended.returncode or not target.exists():
            lines = ended.stderr.strip().splitlines()
            return f"exit status {ended.returncode}: {lines[-1] if lines else 'no message'}"
        return RunResult.load(target)


if __name__ == "__main__":
    sys.exit(main())
