"""How fast this machine multiplies and copies, and how large a model is: what floors come from.

Run by `make bench` in a process of its own, `python machine_rates.py MODEL DEVICE RATES.json`.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from training_work import synchronize

_SIDE = 2_048
_COPIED_BYTES = 2**28
_REPEATS = 9


@dataclass(frozen=True, slots=True)
class Rates:
    """What floors are computed from.

    Attributes:
        gemm_flops: floating-point operations per second of a product of two float32 matrices of
            2,048 rows and columns, two for each multiplication and addition.
        copy_bytes: bytes read plus bytes written per second while 256 MiB are copied.
        body_parameters: weights that every token goes through, the head and embeddings aside.
        head_parameters: weights of the output head.
    """

    gemm_flops: float
    copy_bytes: float
    body_parameters: int
    head_parameters: int


def measure_rates(model: str, device: str) -> Rates:
    """Return the medians of some repetitions, and the model's sizes."""
    import torch
    from transformers import AutoModelForCausalLM

    left, right, product = (torch.rand(_SIDE, _SIDE, device=device) for _ in range(3))
    source = torch.ones(_COPIED_BYTES // 4, device=device)
    target = torch.zeros_like(source)
    network = AutoModelForCausalLM.from_pretrained(model)
    head = network.get_output_embeddings().weight
    embeddings = network.get_input_embeddings().weight
    ends = {id(weight): weight.numel() for weight in (head, embeddings)}  # one where they are tied
    return Rates(
        gemm_flops=2 * _SIDE**3 / _seconds(lambda: torch.mm(left, right, out=product), device),
        copy_bytes=2 * _COPIED_BYTES / _seconds(lambda: target.copy_(source), device),
        body_parameters=network.num_parameters() - sum(ends.values()),
        head_parameters=head.numel(),
    )


def mean_rates(before: Rates, after: Rates) -> Rates:
    """Return the rates of a run, from those before and after it."""
    return replace(
        before,
        gemm_flops=(before.gemm_flops + after.gemm_flops) / 2,
        copy_bytes=(before.copy_bytes + after.copy_bytes) / 2,
    )


def _seconds(do: Callable[[], Any], device: str) -> float:
    do()
    times = []
    for _ in range(_REPEATS):
        synchronize(device)
        begun = time.perf_counter()
        do()
        synchronize(device)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


if __name__ == "__main__":
    made = measure_rates(model=sys.argv[1], device=sys.argv[2])
    Path(sys.argv[3]).write_text(json.dumps(asdict(made)), encoding="utf-8")
