"""The table of `make bench`: seconds per prompt, tokens per second, memory, ratios, floors."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from machine_rates import Rates
from training_floor import generation_floor_s, update_floor_s
from training_work import Measured, Work

# What a run took, or why it did not run.
Outcome = Measured | str

_HEADER = (
    f"{'':<30}{'steps':>7} | {'seconds per prompt':^32} | {'tokens/s':^15} |"
    f"{'memory':>8} | {'times as fast as':^17} | {'% of the floor':^20} |{'machine':^14}\n"
    f"{'side, prompts':<30}{'/agent':>7} | {'generate':>9}{'update':>8}{'total':>8}{'spread':>7} |"
    f" {'generate':>8}{'update':>7} |{'MiB':>8} | {'comlrl':>8}{'trl':>9} |"
    f" {'generate':>8}{'update':>7}{'all':>5} |{'GFLOP/s':>8}{'GB/s':>6}"
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a side, and how fast the machine was then."""

    outcome: Outcome
    rates: Rates


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of a side: seconds of all agents per prompt, and shares of the floor.

    Attributes:
        name: what the row is called.
        side: "motet" or a peer.
        work: what was done.
        generation_s: seconds of sampling.
        update_s: seconds of training.
        total_s: seconds of both; the median of sums.
        spread: slowest less fastest run, as a share of the median; None where there is one run.
        tokens: new tokens.
        num_optimizer_steps: steps of each agent in a run.
        peak_memory_mib: of a run.
        generation_floor_s: least seconds of sampling.
        update_floor_s: least seconds of training.
        gemm_flops: rate of matrix products.
        copy_bytes: rate of copying.
    """

    name: str
    side: str
    work: Work
    generation_s: float
    update_s: float
    total_s: float
    spread: float | None
    tokens: float
    num_optimizer_steps: float
    peak_memory_mib: float
    generation_floor_s: float
    update_floor_s: float
    gemm_flops: float
    copy_bytes: float

    @property
    def plain(self) -> bool:
        """Whether all weights are trained, in float32, on groups that all have spread."""
        return not (self.work.lora or self.work.bf16 or self.work.half_without_spread)


def summarise(name: str, side: str, work: Work, runs: Sequence[Run]) -> Row | str:
    """Return the row of a side, or why one of its runs did not end."""
    for run in runs:
        if isinstance(run.outcome, str):
            return run.outcome
    done = [(run.outcome, run.rates) for run in runs if isinstance(run.outcome, Measured)]
    first = done[0][0]
    share = work.num_agents / first.num_agents / len(work.prompts)  # of one prompt, for all agents

    def median(values: Iterable[float]) -> float:
        return share * statistics.median(values)

    totals = [measured.total_s for measured, _ in done]
    return Row(
        name=name,
        side=side,
        work=work,
        generation_s=median(measured.generation_s for measured, _ in done),
        update_s=median(measured.update_s for measured, _ in done),
        total_s=median(totals),
        spread=(max(totals) - min(totals)) / statistics.median(totals) if len(done) > 1 else None,
        tokens=share * first.new_tokens,
        num_optimizer_steps=first.num_optimizer_steps,
        peak_memory_mib=statistics.median(measured.peak_memory_mib for measured, _ in done),
        generation_floor_s=median(generation_floor_s(work, *each) for each in done),
        update_floor_s=median(update_floor_s(work, *each) for each in done),
        gemm_flops=statistics.median(rates.gemm_flops for _, rates in done),
        copy_bytes=statistics.median(rates.copy_bytes for _, rates in done),
    )


def fastest_peer(row: Row, side: str, rows: Sequence[Row]) -> Row | None:
    """Return the fastest row of a peer that did the same work as the given row, prompt by prompt.

    CoMLRL trains all weights whatever the row trains, in float32, and it is given prompts that are
    paid alike where the row has them; TRL computes as the row does, where it was measured so.
    """
    peers = [
        other
        for other in rows
        if other.side == side
        and other.work.num_turns == row.work.num_turns
        and other.work.half_without_spread == row.work.half_without_spread
        and not (other.work.bf16 and not row.work.bf16)
    ]
    same = [other for other in peers if other.work.bf16 == row.work.bf16]
    return min(same or peers, key=lambda other: other.total_s, default=None)


def times_as_fast(row: Row, side: str, rows: Sequence[Row]) -> float | None:
    """Return how many times a peer's seconds are the row's, None where there is no such peer."""
    peer = fastest_peer(row, side, rows)
    return None if peer is None or peer is row else peer.total_s / row.total_s


def print_table(rows: Sequence[tuple[str, Row | str]]) -> None:
    """Print the rows of one number of turns.

    Args:
        rows: name and row of each side, or why it was not measured.
    """
    measured = [row for _, row in rows if isinstance(row, Row)]
    if measured:
        work = measured[0].work
        print(
            f"\n{work.num_turns} turn(s), G={work.num_generations}, {work.max_new_tokens} new "
            f"tokens, {work.num_agents} agents"
        )
    print(_HEADER)
    for name, row in rows:
        if isinstance(row, str):
            print(f"{name:<30}  not measured: {row}")
        else:
            print(_line(row, measured))


def _line(row: Row, rows: Sequence[Row]) -> str:
    ratios = [times_as_fast(row, side, rows) for side in ("comlrl", "trl")]
    comlrl, trl = ("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
    spread = "-" if row.spread is None else f"{row.spread:.0%}"
    floor_s = row.generation_floor_s + row.update_floor_s
    return (
        f"{row.name:<30}{row.num_optimizer_steps:>7.1f} |"
        f" {row.generation_s:>9.2f}{row.update_s:>8.2f}{row.total_s:>8.2f}{spread:>7} |"
        f" {row.tokens / row.generation_s:>8.0f}{row.tokens / row.update_s:>7.0f} |"
        f"{row.peak_memory_mib:>8.0f} | {comlrl:>8}{trl:>9} |"
        f" {row.generation_floor_s / row.generation_s:>8.0%}"
        f"{row.update_floor_s / row.update_s:>7.0%}{floor_s / row.total_s:>5.0%} |"
        f"{row.gemm_flops / 1e9:>8.0f}{row.copy_bytes / 1e9:>6.1f}"
    )
