"""Runs the sides of a benchmark, each in a process of its own, in turns and on one machine."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from bench_env import describe_run
from machine_rates import Rates, mean_rates
from training_table import Run
from training_work import Measured, Work

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODELS = ("pocket", "smollm2")

_Case = TypeVar("_Case")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Case:
    """One row of a table: a side and its work."""

    side: str
    work: Work

    @property
    def name(self) -> str:
        """What the row is called."""
        work, count = self.work, len(self.work.prompts)
        variants = {
            "LoRA": work.lora,
            "bf16": work.bf16,
            "half": work.half_without_spread,
            "one policy": work.one_policy,
        }
        what = " ".join([self.side, *(name for name, on in variants.items() if on)])
        at_once = work.prompts_at_once
        how = {1: "one by one", count: "at once"}.get(at_once, f"{at_once} at once")
        return f"{what}, {count} {how if count > 1 else 'alone'}"


class Runner:
    """Starts processes with one setting of threads and devices for all.

    Args:
        peers_python: Python of the environment that has the peers; None where none are run.
        num_threads: threads of every process.
        device: "cpu" hides all GPUs, "cuda" all but one.
    """

    def __init__(self, peers_python: Path | None, num_threads: int, device: str = "cpu") -> None:
        # sides run in another folder
        self._peers_python = "" if peers_python is None else str(peers_python.absolute())
        self._device = device
        self._rates: dict[str, Rates] = {}
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        self._environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(num_threads),
            "MKL_NUM_THREADS": str(num_threads),
            "CUDA_VISIBLE_DEVICES": "" if device == "cpu" else visible,
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "WANDB_MODE": "disabled",
        }

    def measure(self, case: Case, repetition: int) -> Run:
        """Run a side once, with the rates of the machine before and after."""
        model = case.work.model
        before = self._rates.get(model) or self._measured_rates(model)
        outcome = self.train(case, repetition)
        after = before if isinstance(outcome, str) else self._measured_rates(model)
        self._rates[model] = after
        return Run(outcome, mean_rates(before, after))

    def train(self, case: Case, repetition: int) -> Measured | str:
        """Run a side once; return what it took, or why it did not run."""
        begun = time.perf_counter()
        work = replace(case.work, seed=repetition)
        made = self.start(f"{case.side}_training", case.side, asdict(work))
        if isinstance(made, str):
            return made
        measured = Measured(**made)
        took = time.perf_counter() - begun
        turns = work.num_turns
        print(f"ran        {case.name}, {turns} turn(s), {took:.0f} s: {measured.versions}")
        sys.stdout.flush()
        return measured

    def start(self, script: str, side: str, fields: Mapping[str, Any]) -> dict[str, Any] | str:
        """Run a script of a side on what it reads; return what it wrote, or why it did not.

        Args:
            script: name of a file in this folder.
            side: "motet", or a peer, which has another Python.
            fields: what it reads.
        """
        python = sys.executable if side == "motet" else self._peers_python
        if not Path(python).exists():
            return f"{python} is missing; `make bench` makes it"
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "work.json", Path(folder) / "measured.json"
            source.write_text(json.dumps(fields), encoding="utf-8")
            ended = subprocess.run(
                [python, str(HERE / f"{script}.py"), str(source), str(target)],
                env=self._environment,
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
            if ended.returncode or not target.exists():
                lines = ended.stderr.strip().splitlines()
                return f"exit status {ended.returncode}: {lines[-1] if lines else 'no message'}"
            made: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
            return made

    def _measured_rates(self, model: str) -> Rates:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "rates.json"
            command = [sys.executable, str(HERE / "machine_rates.py"), model, self._device]
            subprocess.run(
                [*command, str(target)], env=self._environment, check=True, stderr=subprocess.PIPE
            )
            rates = Rates(**json.loads(target.read_text(encoding="utf-8")))
        print(
            f"machine    products {rates.gemm_flops / 1e9:.0f} GFLOP/s, "
            f"copies {rates.copy_bytes / 1e9:.1f} GB/s, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        return rates


def alternately(
    cases: Sequence[_Case], repeats: int, run: Callable[[_Case, int], _Result]
) -> list[list[_Result]]:
    """Run all cases again and again, there and back, so that a slow hour meets all alike.

    Args:
        cases: what to run.
        repeats: how often each.
        run: runs a case; gets the number of the repetition too.

    Returns:
        Results by case, in the order of the repetitions.
    """
    results: list[list[_Result]] = [[] for _ in cases]
    for repetition in range(repeats):
        order: Iterable[int] = range(len(cases))
        for i in reversed(list(order)) if repetition % 2 else order:
            results[i].append(run(cases[i], repetition))
    return results


def add_common_arguments(
    parser: argparse.ArgumentParser, *, repeats: int, threads: int | None
) -> None:
    """Add what all benchmarks of training take; no choice of threads where `threads` is None."""
    parser.add_argument("--repeats", type=_positive, default=repeats, help="runs of each")
    if threads is not None:
        parser.add_argument(
            "--num-threads", type=_positive, default=threads, help="threads of each process"
        )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to FILE")


def add_peers_argument(parser: argparse.ArgumentParser) -> None:
    """Add what benchmarks take that run peers."""
    parser.add_argument(
        "--peers-python",
        type=Path,
        default=ROOT / ".venv-bench-peers" / "bin" / "python",
        help="Python of the environment that has the peers",
    )


def model_folder(name: str) -> str:
    """Return the folder with the model; SmolLM2 is fetched where it is not there yet.

    Another process looks: Linux counts what this one held when it starts a side into the side's
    peak of memory, so that it must not load torch.
    """
    code = "from motet.agents.embedded import pocket_path; print(pocket_path())"
    told = ["-c", code] if name == "pocket" else [str(ROOT / "examples" / "smollm2.py")]
    found = subprocess.run([sys.executable, *told], stdout=subprocess.PIPE, text=True, check=True)
    return found.stdout.strip().splitlines()[-1]


def print_about(args: argparse.Namespace) -> dict[str, Any]:
    """Print where this runs, on what, and by which command; return the same."""
    about = {**describe_run(), "commit": commit(), "num_threads": args.num_threads}
    machine = about["machine"]
    print(f"machine    {machine['cpu']}, {machine['cores']} cores, {machine['system']}")
    print(f"command    {about['command']}, commit {about['commit']}")
    print(f"threads    {args.num_threads} for every side; {args.repeats} run(s) of each")
    return about


def write_json(path: Path | None, whole: Mapping[str, Any]) -> None:
    """Write the numbers where they are wanted."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


def as_json(case: Case, runs: Sequence[Run]) -> dict[str, Any]:
    """Return a row with the numbers of all its runs."""
    return {
        "name": case.name,
        "work": asdict(case.work),
        "runs": [
            {
                "rates": asdict(run.rates),
                "measured": None if isinstance(run.outcome, str) else asdict(run.outcome),
                "missing": run.outcome if isinstance(run.outcome, str) else None,
            }
            for run in runs
        ],
    }


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"Expected at least 1, got {number}.")
    return number


def commit() -> str:
    """Return the commit that is checked out, with a plus where files differ from it."""
    described = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"
