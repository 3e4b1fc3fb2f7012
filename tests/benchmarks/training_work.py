"""The work that all trainers of `make bench` do, and what is kept of it. Standard library only.

A side is a file that is run in a process of its own, `python SIDE.py WORK.json MEASURED.json`: its
libraries and its peak of memory are its own, and no side slows down another.
"""

import gc
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

NUM_AGENTS = 2
WEIGHT_DECAY = 0.01  # torch's default for AdamW, which CoMLRL has no setting for
_WARM_UP_TOKENS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one side does: sample trees from prompts, and train two agents on them.

    All sample from the whole distribution at temperature 1 (no top-k, no top-p), exactly
    `max_new_tokens` tokens of each completion, from the same weights in float32, and train all
    weights with AdamW, without clipping of gradients.

    Attributes:
        model: folder with model and tokenizer.
        prompts: the tasks; raw text without a chat template.
        prompts_at_once: how many of them are handed over together, to be sampled side by side and
            trained on in the same update.
        num_turns: T.
        num_generations: G, completions per agent and node; all of them go on to the next turn.
        max_new_tokens: tokens of a completion.
        learning_rate: AdamW's.
        seed: of sampling.
    """

    model: str
    prompts: tuple[str, ...]
    prompts_at_once: int
    num_turns: int
    num_generations: int
    max_new_tokens: int
    learning_rate: float = 5e-6
    seed: int = 0

    @property
    def nodes_per_prompt(self) -> int:
        """Nodes of one tree: each has one prompt and G completions of each agent."""
        return sum(self.num_generations**turn for turn in range(self.num_turns))

    @property
    def num_new_tokens(self) -> int:
        """Tokens that one agent samples in all."""
        completions = self.nodes_per_prompt * self.num_generations
        return len(self.prompts) * completions * self.max_new_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the work took, all prompts together.

    Attributes:
        generation_s: seconds of sampling, with rewards and the env.
        update_s: seconds of loss, backward pass and optimizer.
        num_agents: agents that took part; where it is one, two would take twice as long.
        new_tokens: tokens sampled, over all these agents.
        prompt_tokens: tokens of the prompts of all nodes, each counted once for each agent.
        num_optimizer_steps: steps of each agent.
        peak_memory_mib: most memory that the process held.
        versions: of the libraries.
    """

    generation_s: float
    update_s: float
    num_agents: int
    new_tokens: int
    prompt_tokens: int
    num_optimizer_steps: float
    peak_memory_mib: float
    versions: str


class Clock:
    """Seconds spent in blocks of code."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Add the time of a block."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - begun


def run_side(do: Callable[[Work], Measured]) -> None:
    """Do the work of the file named first on the command line; write into the second.

    A first, small piece of work is not counted: it loads what is loaded late, and warms up threads.

    Raises:
        RuntimeError: where the side did other work than it was given.
    """
    source, target = (Path(argument) for argument in sys.argv[1:])
    work = read_work(source)
    do(
        replace(
            work,
            prompts=work.prompts[:1],
            prompts_at_once=1,
            num_turns=1,
            num_generations=2,
            max_new_tokens=_WARM_UP_TOKENS,
        )
    )
    gc.collect()  # trainers refer to themselves; their optimizers must not count twice
    measured = do(work)
    expected = measured.num_agents * work.num_new_tokens
    if measured.new_tokens != expected:
        raise RuntimeError(f"Expected {expected} new tokens, got {measured.new_tokens}.")
    target.write_text(json.dumps(asdict(measured)), encoding="utf-8")


def read_work(path: Path) -> Work:
    fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Work(**{**fields, "prompts": tuple(fields["prompts"])})


def peak_memory_mib() -> float:
    """Return the most memory that this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10  # bytes there, KiB on Linux


def versions_of(*names: str) -> str:
    return ", ".join(f"{name} {metadata.version(name)}" for name in names)
