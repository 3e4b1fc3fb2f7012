"""The comparison of `make bench` on one CUDA GPU, in under five minutes.

The same work as `bench_peers`, wider: 20 prompts and G=16 at one turn, 8 prompts at two, which CPUs
would take an hour for. Motet runs in float32 and in bfloat16, TRL likewise, CoMLRL in float32 with
two prompts, one by one. Memory is the most that torch held on the GPU; clocks wait for it. The
floor comes from the GPU's own rates of float32 products and of copying. Targets are for two cores
and are left out. Where there is no GPU, it says so and ends with exit status 1.

    make bench-gpu
    make bench-gpu ARGS="--model pocket --json out/bench_gpu.json"
"""

import argparse
import sys
from collections.abc import Sequence

from bench_peers import SIDES, compare
from training_runner import (
    MODELS,
    Case,
    add_common_arguments,
    add_peers_argument,
    model_folder,
    print_about,
)
from training_work import Work

from motet.envs.story_length_ratio import EVAL_PROMPTS, PROMPTS

# Turns: completions, new tokens, prompts of Motet and TRL.
SETTINGS = {1: (16, 128, 20), 2: (4, 64, 8)}
NUM_COMLRL_PROMPTS = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and return the exit status."""
    args = parse(argv)
    gpu = gpu_name()
    if gpu is None:
        print("Expected a CUDA GPU, got none that torch can use; `make bench` measures on the CPU.")
        return 1
    if args.check_gpu:
        return 0
    about = {**print_about(args), "gpu": gpu}
    print(f"gpu        {gpu}")
    model = model_folder(args.model)
    compare(args, about, [cases_of(args.sides, model, turns) for turns in SETTINGS], "cuda")
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure training on a GPU, beside peers.")
    parser.add_argument("--model", choices=MODELS, default="smollm2")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--check-gpu", action="store_true", help="only see whether there is one")
    add_common_arguments(parser, repeats=1, threads=2)
    add_peers_argument(parser)
    return parser.parse_args(argv)


def gpu_name() -> str | None:
    """Return what the first GPU is called, None where there is none."""
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else None


def cases_of(sides: Sequence[str], model: str, turns: int) -> list[Case]:
    """Return the rows for one number of turns."""
    generations, new_tokens, width = SETTINGS[turns]

    def case(side: str, count: int, at_once: int, *, bf16: bool = False) -> Case:
        work = Work(
            model=model,
            prompts=(*PROMPTS, *EVAL_PROMPTS)[:count],
            prompts_at_once=at_once,
            num_turns=turns,
            num_generations=generations,
            max_new_tokens=new_tokens,
            bf16=bf16,
            device="cuda",
        )
        return Case(side, work)

    cases = [case("motet", width, width), case("motet", width, width, bf16=True)]
    if turns == 1:
        cases += [case("trl", width, width), case("trl", width, width, bf16=True)]
    cases.append(case("comlrl", NUM_COMLRL_PROMPTS, 1))
    return [case for case in cases if case.side in sides]


if __name__ == "__main__":
    sys.exit(main())
