"""Peak memory of this process, on the host and on its GPUs."""

import sys
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")


def memory_metrics() -> dict[str, float]:
    """Return the peaks so far, in GiB, and begin those of GPUs anew.

    Returns:
        `memory/rss_gib`, the most of the host's memory that the process has held since it began
        (left out on Windows, where the standard library cannot tell); and where CUDA is in use
        `memory/allocated_gib` and `memory/reserved_gib`, the most that tensors took, and that torch
        held, since the last call, on the GPU where it was most.
    """
    peak = _peak_resident_bytes()
    metrics = {} if peak is None else {"memory/rss_gib": peak / 2**30}
    # asking would start it; the function has no annotations
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        devices = range(torch.cuda.device_count())
        allocated = max(torch.cuda.max_memory_allocated(device) for device in devices)
        reserved = max(torch.cuda.max_memory_reserved(device) for device in devices)
        metrics |= {
            "memory/allocated_gib": allocated / 2**30,
            "memory/reserved_gib": reserved / 2**30,
        }
        for device in devices:
            torch.cuda.reset_peak_memory_stats(device)
    return metrics


def _peak_resident_bytes() -> int | None:
    # Linux's getrusage begins with what the process had that started this one
    lines = _STATUS.read_text().splitlines() if _STATUS.exists() else []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return None
    import resource  # noqa: PLC0415  # Windows has none

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
