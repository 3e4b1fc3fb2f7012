"""How long training takes in Motet, CoMLRL and TRL: the same work, side by side.

Two agents with weights of their own answer the instructions of `story-length-ratio-v0`: at one turn
G=8 completions of 128 tokens, at two turns G=4 completions of 64 tokens, of which each is answered.
`training_work` says what is equal. Every side runs in a process of its own, one after the other,
there and back where there are several repetitions; numbers are medians, and the spread is that from
the fastest run to the slowest.

| side       | what it is                                                                        |
|------------|-----------------------------------------------------------------------------------|
| motet      | with all prompts of a rollout at once, as one would use it; and one by one, as    |
|            | the peers go                                                                      |
| motet bf16 | with all prompts at once in bfloat16, where the hardware has it                   |
| motet one  | at one turn, as TRL: one policy, whose seconds count twice, and as many prompts   |
| policy     | at once                                                                           |
| motet LoRA | at two turns, adapters of rank 16 on one base, one for each agent; bf16 as well   |
| motet half | at two turns, where every second prompt's completions all earn the same; bf16 too |
| comlrl     | 1.4.3, its MAGRPOTrainer, which takes prompts one by one and trains all weights:  |
|            | it has no LoRA; "half" is as above, and it trains on these groups all the same    |
| trl        | 1.16.0, its GRPOTrainer, at one turn, one by one and all at once: it trains one   |
|            | policy, and its seconds count twice, once for each agent; its memory is of one    |

A peer's time is proportional to its prompts, so it runs few of them and is compared per prompt;
with the pocket model CoMLRL runs twice as many as well, which shows how far that holds. Each row is
compared with the faster of a peer's rows. Generation includes rewards and the env. Tokens are new
tokens per second of generation, and of the update. `training_floor` defines the floor; the rates
that it comes from are measured before and after each run and stand in its row, for a machine that
is shared is not equally fast for all: compare sides where these agree. A side that does not run
says why in its row. Targets come last.

    make bench                           # SmolLM2-135M-Instruct; 20 to 40 minutes on 2 cores
    make bench ARGS="--model pocket"     # the embedded model of a million weights; minutes
    make bench ARGS="--repeats 3"        # three times as long, with medians and spreads
    make bench ARGS="--targets"          # only the rows that targets are about
    make bench ARGS="--turns 2 --rows 'bf16|comlrl'"
    make bench ARGS="--turns 1 --sides motet trl --json out/bench.json"
"""

import argparse
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from training_runner import (
    MODELS,
    Case,
    Runner,
    add_common_arguments,
    add_peers_argument,
    alternately,
    as_json,
    model_folder,
    print_about,
    write_json,
)
from training_table import Row, print_table, summarise
from training_targets import print_targets, training_targets
from training_work import Work

from motet.envs.story_length_ratio import PROMPTS

# Turns: completions and new tokens.
SETTINGS = {1: (8, 128), 2: (4, 64)}
# Of Motet, by turns.
NUM_PROMPTS = {1: 10, 2: 4}
NUM_PEER_PROMPTS = {
    "pocket": {"motet": 4, "comlrl": 2, "trl": 4},
    "smollm2": {"motet": 2, "comlrl": 1, "trl": 2},
}
SIDES = ("motet", "comlrl", "trl")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and return the exit status."""
    args = parse(argv)
    about = print_about(args)
    model = model_folder(args.model)
    compare(args, about, list(filter(None, (cases_of(args, model, turns) for turns in args.turns))))
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure training beside CoMLRL and TRL.")
    parser.add_argument("--model", choices=MODELS, default="smollm2")
    parser.add_argument("--turns", type=int, nargs="+", choices=tuple(SETTINGS), default=[1, 2])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--prompts", type=int, help="prompts of Motet's rollout, at most 10")
    parser.add_argument("--peer-prompts", type=int, help="prompts of all others, at most 10")
    parser.add_argument("--max-new-tokens", type=int, help="tokens of a completion, to try it out")
    parser.add_argument("--targets", action="store_true", help="only rows that have a target")
    parser.add_argument(
        "--rows", type=expression, default=".", help="only rows whose names hold this expression"
    )
    add_common_arguments(parser, repeats=1, threads=2)
    add_peers_argument(parser)
    args = parser.parse_args(argv)
    for name in ("prompts", "peer_prompts"):
        value = getattr(args, name)
        if value is not None and not 1 <= value <= len(PROMPTS):
            parser.error(f"Expected {name} from 1 to {len(PROMPTS)}, got {value}.")
    if args.max_new_tokens is not None and args.max_new_tokens < 2:
        parser.error(f"Expected --max-new-tokens of at least 2, got {args.max_new_tokens}.")
    names = [case.name for turns in args.turns for case in all_cases(args, "", turns)]
    if not names:
        sides, turns = (" ".join(map(str, each)) for each in (args.sides, args.turns))
        parser.error(f"Expected --sides that take part at --turns {turns}, got {sides}.")
    if not any(map(args.rows.search, names)):
        parser.error(f"Expected --rows to be found in the name of a row, got {args.rows.pattern}.")
    return args


def expression(text: str) -> re.Pattern[str]:
    """Return a regular expression that was typed."""
    try:
        return re.compile(text)
    except re.error as exc:
        message = f"Expected a regular expression, got {text!r}: {exc}."
        raise argparse.ArgumentTypeError(message) from exc


def cases_of(args: argparse.Namespace, model: str, turns: int) -> list[Case]:
    """Return the rows for one number of turns that were asked for."""
    return [case for case in all_cases(args, model, turns) if args.rows.search(case.name)]


def all_cases(args: argparse.Namespace, model: str, turns: int) -> list[Case]:
    """Return the rows for one number of turns, whatever they are called."""
    generations, new_tokens = SETTINGS[turns]

    def case(side: str, count: int, at_once: int, **variant: bool) -> Case:
        work = Work(
            model=model,
            prompts=PROMPTS[:count],
            prompts_at_once=at_once,
            num_turns=turns,
            num_generations=generations,
            max_new_tokens=args.max_new_tokens or new_tokens,
            **variant,
        )
        return Case(side, work)

    width = args.prompts or NUM_PROMPTS[turns]
    few = {side: args.peer_prompts or NUM_PEER_PROMPTS[args.model][side] for side in SIDES}
    cases = [
        case("motet", width, width),
        case("motet", width, width, bf16=True),
        case("motet", few["motet"], 1),
        case("comlrl", few["comlrl"], 1),
    ]
    if args.model == "pocket":
        cases.append(case("comlrl", min(2 * few["comlrl"], len(PROMPTS)), 1))
    if turns == 1:
        cases += [
            case("trl", few["trl"], 1),
            case("trl", few["trl"], few["trl"]),
            case("motet", few["trl"], few["trl"], one_policy=True),
        ]
    else:
        pairs = width + width % 2  # half of them are to be without spread
        cases += [
            case("motet", width, width, lora=True),
            case("motet", width, width, lora=True, bf16=True),
            case("motet", pairs, pairs, half_without_spread=True),
            case("motet", pairs, pairs, half_without_spread=True, bf16=True),
            case("comlrl", few["comlrl"] + few["comlrl"] % 2, 1, half_without_spread=True),
        ]
    distinct = {case.name: case for case in cases if not args.targets or has_target(case)}
    return [case for case in distinct.values() if case.side in args.sides]


def has_target(case: Case) -> bool:
    """Whether a target is about a row: Motet and TRL with all prompts at once, and CoMLRL."""
    at_once = case.work.prompts_at_once == len(case.work.prompts)
    return not case.work.bf16 and (case.side == "comlrl" or at_once)


def compare(
    args: argparse.Namespace,
    about: dict[str, Any],
    tables: Sequence[Sequence[Case]],
    device: str = "cpu",
) -> None:
    """Run all cases, print a table for each number of turns, and write JSON.

    Targets follow where it was the CPU: they are for two of its cores.
    """
    begun = time.perf_counter()
    runner = Runner(args.peers_python, args.num_threads, device)
    results: list[dict[str, Any]] = []
    measured: list[Row] = []
    for cases in tables:
        runs = alternately(cases, args.repeats, runner.measure)
        rows = [
            (case.name, summarise(case.name, case.side, case.work, of_case))
            for case, of_case in zip(cases, runs, strict=True)
        ]
        print_table(rows)
        measured += [row for _, row in rows if isinstance(row, Row)]
        results += [as_json(*each) for each in zip(cases, runs, strict=True)]
    targets = training_targets(measured) if device == "cpu" else []
    if targets:
        print_targets(targets)
    print(f"\nIt took {(time.perf_counter() - begun) / 60:.1f} minutes.")
    whole = {**about, "results": results}
    whole["targets"] = [{**asdict(target), "met": target.met} for target in targets]
    write_json(args.json, whole)


if __name__ == "__main__":
    sys.exit(main())
