"""What agents over one base cost: memory beside full copies, and decoding in one batch and apart.

Adapters are of rank 16 in all linear layers, except where a row says attention, which is the query
and value projections alone. Memory is that of weights and of AdamW's state after each policy was
updated once, in a process for each row; "resident" is what the system says, less what libraries
take. Decoding is timed in one thread, in seconds of processor time, in turns, medians; no
completion ends before its last token, so that all rows run to the end.

    make bench-adapters                                # the embedded model: a minute
    make bench-adapters ARGS="--model smollm2"         # a quarter of an hour, 5 GB
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from adapter_memory import Held
from training_runner import (
    MODELS,
    add_common_arguments,
    model_folder,
    print_about,
    write_json,
)

TEAMS = (1, 2, 4, 8)
MOST_COPIES = {"pocket": 8, "smollm2": 2}
NEW_TOKENS = {"pocket": 64, "smollm2": 32}
DECODED = (2, 4)
ROWS = (4, 16, 32, 64)
TARGETS = {"all linear layers": "all-linear", "attention": ["q_proj", "v_proj"]}
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Decoded:
    """Seconds of one way to sample some agents, and of the other.

    Attributes:
        targets: which layers have adapters.
        num_agents: N.
        rows: completions of each agent.
        apart: seconds of each repetition, agent by agent.
        mixed: seconds of each repetition, in one batch.
    """

    targets: str
    num_agents: int
    rows: int
    apart: tuple[float, ...]
    mixed: tuple[float, ...]

    @property
    def gain(self) -> float:
        """How many times as fast one batch is."""
        return median(self.apart) / median(self.mixed)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and return the exit status."""
    args = parse(argv)
    about = print_about(args)
    folder = model_folder(args.model)
    print(f"\n{'':>12}{'N':>4}{'weights':>12}{'AdamW':>12}{'resident':>12}   MiB")
    held = {}
    for kind in ("adapters", "copies"):
        for num_agents in TEAMS:
            if kind == "copies" and num_agents > MOST_COPIES[args.model]:
                continue
            found = weighed(folder, kind, num_agents)
            held[kind, num_agents] = found
            parts = (found.weights, found.optimizer, found.resident)
            print(f"{kind:>12}{num_agents:>4}" + "".join(f"{p / _MIB:>12.1f}" for p in parts))
    print("\n" + share_of_base(held))
    rows = decoded(folder, NEW_TOKENS[args.model], args.repeats, args.num_threads)
    write_json(
        args.json,
        {
            **about,
            "memory": [
                {"kind": kind, "num_agents": n, **asdict(each)} for (kind, n), each in held.items()
            ],
            "decoding": [asdict(row) for row in rows],
        },
    )
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what agents over one base cost.")
    parser.add_argument("--model", choices=MODELS, default="pocket")
    add_common_arguments(parser, repeats=5, threads=1)
    return parser.parse_args(argv)


def weighed(folder: str, kind: str, num_agents: int) -> Held:
    """Weigh a team in a process of its own."""
    script = Path(__file__).with_name("adapter_memory.py")
    told = [sys.executable, str(script), folder, kind, str(num_agents)]
    printed = subprocess.run(told, stdout=subprocess.PIPE, text=True, check=True).stdout
    return Held(**json.loads(printed.splitlines()[-1]))


def share_of_base(held: dict[tuple[str, int], Held]) -> str:
    """Say what one more agent costs: adapter and its optimizer, in parts of a full copy's."""
    first, last = min(TEAMS), max(TEAMS)
    more = (held["adapters", last].total - held["adapters", first].total) / (last - first)
    copy = held["copies", first].total
    return (
        f"One more agent takes {more / _MIB:.1f} MiB as an adapter and {copy / _MIB:.1f} as a "
        f"copy: {more / copy:.1%}."
    )


def decoded(
    folder: str,
    new_tokens: int,
    repeats: int,
    num_threads: int,
    rows_each: Sequence[int] = ROWS,
) -> list[Decoded]:
    """Time teams sampled apart and in one batch, print and return the rows."""
    import torch  # not in the process that starts others

    torch.set_num_threads(num_threads)
    print(f"\n{'layers':<20}{'N':>3}{'rows each':>11}{'apart':>9}{'mixed':>9}{'gain':>7}   seconds")
    results = []
    for name, targets in TARGETS.items():
        agents = _agents(folder, targets, new_tokens)
        for num_agents in DECODED:
            for rows in rows_each:
                apart, mixed = _timed(agents[:num_agents], rows, repeats)
                row = Decoded(name, num_agents, rows, apart, mixed)
                results.append(row)
                print(
                    f"{name:<20}{num_agents:>3}{rows:>11}{median(apart):>9.3f}"
                    f"{median(mixed):>9.3f}{row.gain:>7.2f}",
                    flush=True,
                )
    return results


def _agents(folder: str, targets: Any, new_tokens: int) -> list[Any]:
    """Return agents with adapters that are not zero."""
    import torch
    from peft import LoraConfig

    from motet.agents import GenerationConfig, LMAgent
    from motet.agents.adapters import adapter_parameters

    long = GenerationConfig(max_new_tokens=new_tokens)
    base = LMAgent.from_pretrained(folder, generation=long, device="cpu", seed=0)
    base.model.generation_config.eos_token_id = base.model.config.vocab_size  # never drawn
    lora = LoraConfig(r=16, lora_alpha=32, target_modules=targets)
    agents = [base.with_adapter(f"a{i}", lora) for i in range(max(DECODED))]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for agent in agents:
            for weight in adapter_parameters(agent.model, agent.adapter):
                weight.add_(0.02 * torch.randn(weight.shape, generator=generator))
    return agents


def _timed(
    agents: Sequence[Any], rows: int, repeats: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the seconds of sampling apart and in one batch, in turns."""
    from motet.agents.side_by_side import Request, act_all

    prompt = "Write a story about a cat and a dog in the rain."
    asked = [Request(agent, [prompt], i) for i, agent in enumerate(agents)]
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(repeats):
        for mixed, taken in seconds.items():
            begun = time.process_time()
            act_all(asked, rows, pays=lambda *_, mixed=mixed: mixed)
            taken.append(time.process_time() - begun)
    return tuple(seconds[False]), tuple(seconds[True])


if __name__ == "__main__":
    sys.exit(main())
