"""The work that all trainers of `make bench` do, and what is kept of it.

A side is a file that is run in a process of its own, `python SIDE.py WORK.json MEASURED.json`: its
libraries and its peak of memory are its own, and no side slows down another. Of this file only the
standard library is loaded, except on a GPU.
"""

import gc
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

WEIGHT_DECAY = 0.01  # torch's default for AdamW, which CoMLRL has no setting for
_WARM_UP = {"num_turns": 1, "num_generations": 4, "max_new_tokens": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one side does: sample trees from prompts, and train agents on them.

    All sample from the whole distribution at temperature 1 (no top-k, no top-p), exactly
    `max_new_tokens` tokens of each completion, from the same weights in float32, and train with
    AdamW, without clipping of gradients. Unless told otherwise below, all weights are trained.

    Attributes:
        model: folder with model and tokenizer.
        prompts: the tasks; raw text without a chat template. Where turns go on, a feedback on the
            completions is the next prompt.
        prompts_at_once: how many of them are handed over together, to be sampled side by side and
            trained on in the same update.
        num_turns: T.
        num_generations: G, completions per agent and node.
        max_new_tokens: tokens of a completion.
        joint_mode: "aligned" rewards the agents' k-th completions together, "cross" all with all.
        num_agents: N, each with weights of its own.
        lora: train adapters of rank 16 on all linear layers of one base instead of all weights.
        bf16: compute in bfloat16 where autocast does; weights stay in float32.
        half_without_spread: pay every second prompt's completions all the same, so that there is
            nothing to learn from its groups.
        same_prompts: give each turn the prompt of the first instead of feedback, under another
            number, and a reward for any number of agents, so that nothing but the number of
            sequences varies.
        one_policy: train one agent's weights at one turn, as TRL does; its seconds count once for
            each agent.
        history: what an agent's context holds of earlier turns; see `LMAgent`.
        device: "cpu" or "cuda".
        learning_rate: AdamW's.
        seed: of sampling.
    """

    model: str
    prompts: tuple[str, ...]
    prompts_at_once: int
    num_turns: int
    num_generations: int
    max_new_tokens: int
    joint_mode: Literal["aligned", "cross"] = "aligned"
    num_agents: int = 2
    lora: bool = False
    bf16: bool = False
    half_without_spread: bool = False
    same_prompts: bool = False
    one_policy: bool = False
    history: Literal["none", "append"] = "none"
    device: Literal["cpu", "cuda"] = "cpu"
    learning_rate: float = 5e-6
    seed: int = 0

    @property
    def num_joint_actions(self) -> int:
        """J of each node, all of which go on to the next turn."""
        crossed = self.joint_mode == "cross"
        return self.num_generations ** (self.num_agents if crossed else 1)

    @property
    def nodes_per_prompt(self) -> int:
        """Nodes of one tree: each has one prompt and G completions of each agent."""
        return sum(self.num_joint_actions**turn for turn in range(self.num_turns))

    def rows_at_once(self, turn: int) -> int:
        """Completions of one agent that are sampled side by side in a turn, 1 for the first."""
        return self.prompts_at_once * self.num_joint_actions ** (turn - 1) * self.num_generations

    @property
    def num_new_tokens(self) -> int:
        """Tokens that one agent samples in all."""
        completions = self.nodes_per_prompt * self.num_generations
        return len(self.prompts) * completions * self.max_new_tokens

    @property
    def paid_alike(self) -> frozenset[str]:
        """Prompts whose completions all earn the same."""
        return frozenset(self.prompts[1::2] if self.half_without_spread else ())

    @property
    def share_with_spread(self) -> float:
        """Share of the prompts that there is something to learn from."""
        return 1 - len(self.paid_alike) / len(self.prompts)


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
        peak_memory_mib: most memory that the process held, on a GPU what torch held there.
        versions: of the libraries.
        tokens_computed: tokens of the update's forward pass; None of peers, which do not say.
        unshared_tokens: the same if no completion shared its prompt with another.
    """

    generation_s: float
    update_s: float
    num_agents: int
    new_tokens: int
    prompt_tokens: int
    num_optimizer_steps: float
    peak_memory_mib: float
    versions: str
    tokens_computed: float | None = None
    unshared_tokens: float | None = None

    @property
    def total_s(self) -> float:
        """Seconds of the whole work."""
        return self.generation_s + self.update_s


class Clock:
    """Seconds spent in blocks of code; a GPU is waited for at both ends of a block.

    Args:
        device: "cpu", or of a GPU.
        now: where the time comes from.
    """

    def __init__(self, device: str = "cpu", now: Callable[[], float] = time.perf_counter) -> None:
        self.seconds = 0.0
        self._device = device
        self._now = now

    @contextmanager
    def running(self) -> Iterator[None]:
        """Add the time of a block."""
        synchronize(self._device)
        begun = self._now()
        try:
            yield
        finally:
            synchronize(self._device)
            self.seconds += self._now() - begun


def synchronize(device: str) -> None:
    """Wait until a GPU has done what it was told to; a CPU always has."""
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


def run_side(do: Callable[[Work], Measured]) -> None:
    """Do the work of the file named first on the command line; write into the second.

    A first, small piece of work is not counted: it loads what is loaded late, and warms up threads.

    Raises:
        RuntimeError: where the side did other work than it was given.
    """
    source, target = (Path(argument) for argument in sys.argv[1:])
    work = work_from(json.loads(source.read_text(encoding="utf-8")))
    do(replace(work, prompts=work.prompts[:1], prompts_at_once=1, **_WARM_UP))
    gc.collect()  # trainers refer to themselves; their optimizers must not count twice
    reset_peak_memory(work.device)
    measured = do(work)
    expected = measured.num_agents * work.num_new_tokens
    if measured.new_tokens != expected:
        raise RuntimeError(f"Expected {expected} new tokens, got {measured.new_tokens}.")
    target.write_text(json.dumps(asdict(measured)), encoding="utf-8")


def refuse(work: Work, *names: str) -> None:
    """Raise where the work asks for what a side does not have.

    Args:
        work: what is asked for.
        *names: fields that the side knows their defaults of, and nothing else.

    Raises:
        RuntimeError: where one of them has another value.
    """
    for field in fields(work):
        value = getattr(work, field.name)
        if field.name in names and value != field.default:
            raise RuntimeError(
                f"Expected {field.name}={field.default}, all that this side does, got {value}."
            )


def work_from(fields: Mapping[str, Any]) -> Work:
    """Return the work that was written as JSON."""
    return Work(**{**fields, "prompts": tuple(fields["prompts"])})


def reset_peak_memory(device: str) -> None:
    """Forget the peak of a GPU; that of a process cannot be forgotten."""
    if device != "cpu":
        import torch

        torch.cuda.reset_peak_memory_stats()


def peak_memory_mib(device: str) -> float:
    """Return the most memory that this process has held so far, on a GPU what torch held there."""
    if device != "cpu":
        import torch

        return float(torch.cuda.max_memory_allocated()) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10  # bytes there, KiB on Linux


def versions_of(*names: str) -> str:
    return ", ".join(f"{name} {metadata.version(name)}" for name in names)
