"""How long training takes in Motet, CoMLRL and TRL: the same work, side by side.

Two agents with weights of their own answer the instructions of `story-length-ratio-v0`: at one turn
G=8 completions of 128 tokens, at two turns G=4 completions of 64 tokens, of which each is answered.
`training_work` says what is equal. Every side runs in a process of its own, one after the other,
in turns where there are several repetitions; times are medians.

| side    | what it is                                                                           |
|---------|--------------------------------------------------------------------------------------|
| motet   | with all prompts of a rollout at once, as one would use it; one by one, as the peers |
|         | go; and as many at once as TRL                                                       |
| comlrl  | 1.4.3, its MAGRPOTrainer, which takes prompts one by one                             |
| trl     | 1.16.0, its GRPOTrainer, at one turn, one by one and all at once: it trains one      |
|         | policy, and its seconds count twice, once for each agent; its memory is that of one  |

A peer's time is proportional to its prompts, so it runs few of them and is compared per prompt;
with the pocket model CoMLRL runs twice as many as well, which shows how far that holds. Generation
includes rewards and the env. Tokens are new tokens per second of generation, and of the update.
`training_floor` defines the floor; the rates that it comes from are measured before and after each
run and stand in its row, for a machine that is shared is not equally fast for all: compare sides
where these agree. A side that does not run says why in its row.

    make bench                           # SmolLM2-135M-Instruct; 20 to 40 minutes on 2 cores
    make bench ARGS="--model pocket"     # the embedded model of a million weights; minutes
    make bench ARGS="--turns 1 --sides motet trl --json out/bench.json"
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench_env import describe_run
from machine_rates import Rates, mean_rates
from training_table import Outcome, Run, print_table
from training_work import Measured, Work

from motet.envs.story_length_ratio import PROMPTS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Turns: completions and new tokens.
SETTINGS = {1: (8, 128), 2: (4, 64)}
# Of Motet, by model and turns.
NUM_PROMPTS = {"pocket": {1: 10, 2: 4}, "smollm2": {1: 10, 2: 4}}
NUM_PEER_PROMPTS = {
    "pocket": {"motet": 4, "comlrl": 2, "trl": 4},
    "smollm2": {"motet": 2, "comlrl": 1, "trl": 2},
}
SIDES = ("motet", "comlrl", "trl")


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table: a side and its work."""

    side: str
    name: str
    work: Work


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and return the exit status."""
    args = parse(argv)
    about = describe_run()
    about["commit"] = commit()
    begun = time.perf_counter()
    print_about(about, args)
    model = model_folder(args.model)
    runner = Runner(args)
    results: list[dict[str, Any]] = []
    for turns in args.turns:
        cases = cases_of(args, model, turns)
        runs: list[list[Run]] = [[] for _ in cases]
        before = runner.rates(model)
        for repetition in range(args.repeats):
            for case, of_case in zip(cases, runs, strict=True):
                outcome = runner.run(case, repetition)
                after = runner.rates(model)
                of_case.append(Run(outcome, mean_rates(before, after)))
                before = after
        rows = list(zip(cases, runs, strict=True))
        print_table([(case.name, case.work, of_case) for case, of_case in rows])
        results += [as_json(case, of_case) for case, of_case in rows]
    print(f"\nIt took {(time.perf_counter() - begun) / 60:.1f} minutes.")
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        whole = {**about, "num_threads": args.num_threads, "results": results}
        args.json.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure training beside CoMLRL and TRL.")
    parser.add_argument("--model", choices=tuple(NUM_PROMPTS), default="smollm2")
    parser.add_argument("--turns", type=int, nargs="+", choices=tuple(SETTINGS), default=[1, 2])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--prompts", type=int, help="prompts of Motet's rollout, at most 10")
    parser.add_argument("--peer-prompts", type=int, help="prompts of all others, at most 10")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each side")
    parser.add_argument("--num-threads", type=int, default=2, help="threads of every side")
    parser.add_argument(
        "--peers-python",
        type=Path,
        default=ROOT / ".venv-bench-peers" / "bin" / "python",
        help="Python of the environment that has the peers",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to FILE")
    args = parser.parse_args(argv)
    for name in ("prompts", "peer_prompts"):
        value = getattr(args, name)
        if value is not None and not 1 <= value <= len(PROMPTS):
            parser.error(f"Expected {name} from 1 to {len(PROMPTS)}, got {value}.")
    if args.repeats < 1 or args.num_threads < 1:
        parser.error("Expected --repeats and --num-threads of at least 1.")
    return args


def cases_of(args: argparse.Namespace, model: Path, turns: int) -> list[Case]:
    """Return the rows for one number of turns."""
    generations, new_tokens = SETTINGS[turns]

    def case(side: str, count: int, at_once: int) -> Case:
        work = Work(
            model=str(model),
            prompts=PROMPTS[:count],
            prompts_at_once=at_once,
            num_turns=turns,
            num_generations=generations,
            max_new_tokens=new_tokens,
        )
        how = f"{count} one by one" if at_once == 1 else f"{count} at once"
        return Case(side, f"{side}, {how}", work)

    width = args.prompts or NUM_PROMPTS[args.model][turns]
    few = {side: args.peer_prompts or NUM_PEER_PROMPTS[args.model][side] for side in SIDES}
    cases = [
        case("motet", width, width),
        case("motet", few["motet"], 1),
        case("comlrl", few["comlrl"], 1),
    ]
    if args.model == "pocket":
        cases.append(case("comlrl", min(2 * few["comlrl"], len(PROMPTS)), 1))
    if turns == 1:
        cases += [
            case("trl", few["trl"], 1),
            case("trl", few["trl"], few["trl"]),
            case("motet", few["trl"], few["trl"]),  # as wide as TRL
        ]
    distinct = {case.name: case for case in cases}
    return [case for case in distinct.values() if case.side in args.sides]


class Runner:
    """Runs sides in processes of their own, with one setting of threads for all."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._peers_python = str(args.peers_python.absolute())  # sides run elsewhere
        threads = str(args.num_threads)
        self._environment = {
            **os.environ,
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "CUDA_VISIBLE_DEVICES": "",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "WANDB_MODE": "disabled",
        }

    def rates(self, model: Path) -> Rates:
        """Measure the machine."""
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "rates.json"
            command = [sys.executable, str(HERE / "machine_rates.py"), str(model), str(target)]
            subprocess.run(command, env=self._environment, check=True, stderr=subprocess.PIPE)
            rates = Rates(**json.loads(target.read_text(encoding="utf-8")))
        print(
            f"machine    products {rates.gemm_flops / 1e9:.0f} GFLOP/s, "
            f"copies {rates.copy_bytes / 1e9:.1f} GB/s, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        return rates

    def run(self, case: Case, repetition: int) -> Outcome:
        """Run one side once; return what it took, or why it did not run."""
        python = sys.executable if case.side == "motet" else self._peers_python
        if not Path(python).exists():
            return f"{python} is missing; `make bench` makes it"
        fields: Mapping[str, Any] = {**asdict(case.work), "seed": repetition}
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "work.json", Path(folder) / "measured.json"
            source.write_text(json.dumps(fields), encoding="utf-8")
            side = HERE / f"{case.side}_training.py"
            ended = subprocess.run(
                [python, str(side), str(source), str(target)],
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
            measured = Measured(**json.loads(target.read_text(encoding="utf-8")))
        took = time.perf_counter() - begun
        turns = case.work.num_turns
        print(
            f"ran        {case.name}, {turns} turn(s), {took:.0f} s: {measured.versions}",
            flush=True,
        )
        return measured


def model_folder(name: str) -> Path:
    """Return the folder with the model; SmolLM2 is fetched where it is not there yet.

    Another process looks: Linux counts what this one held when it starts a side into the side's
    peak of memory, so that it must not load torch.
    """
    code = "from motet.agents.embedded import pocket_path; print(pocket_path())"
    told = ["-c", code] if name == "pocket" else [str(ROOT / "examples" / "smollm2.py")]
    found = subprocess.run([sys.executable, *told], stdout=subprocess.PIPE, text=True, check=True)
    return Path(found.stdout.strip().splitlines()[-1])


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


def print_about(about: Mapping[str, Any], args: argparse.Namespace) -> None:
    machine = about["machine"]
    print(f"machine    {machine['cpu']}, {machine['cores']} cores, {machine['system']}")
    print(f"command    {about['command']}, commit {about['commit']}")
    print(f"threads    {args.num_threads} for every side; {args.repeats} run(s) of each")


def as_json(case: Case, runs: Sequence[Run]) -> dict[str, Any]:
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


if __name__ == "__main__":
    sys.exit(main())
