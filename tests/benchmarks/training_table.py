"""The table of `make bench`: seconds per prompt, tokens per second, memory, ratios, floors."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from machine_rates import Rates
from training_floor import generation_floor_s, update_floor_s
from training_work import NUM_AGENTS, Measured, Work

# What a run took, or why it did not run.
Outcome = Measured | str

_HEADER = (
    f"{'':<30}{'steps':>7} | {'seconds per prompt':^25} | {'tokens/s':^15} |"
    f"{'memory':>8} | {'times motet':^15} | {'% of the floor':^20} |{'machine':^14}\n"
    f"{'side, prompts':<30}{'/agent':>7} | {'generate':>9}{'update':>8}{'total':>8} |"
    f" {'generate':>8}{'update':>7} |{'MiB':>8} | {'widest':>7}{'1 by 1':>8} |"
    f" {'generate':>8}{'update':>7}{'all':>5} |{'GFLOP/s':>8}{'GB/s':>6}"
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a side, and how fast the machine was then."""

    outcome: Outcome
    rates: Rates


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of a side: seconds of two agents per prompt, and shares of the floor."""

    name: str
    work: Work
    generation_s: float
    update_s: float
    total_s: float
    tokens: float
    num_optimizer_steps: float
    peak_memory_mib: float
    generation_floor_s: float
    update_floor_s: float
    gemm_flops: float
    copy_bytes: float

    @property
    def one_by_one(self) -> bool:
        """Whether prompts came one by one."""
        return self.work.prompts_at_once == 1


def print_table(rows: Sequence[tuple[str, Work, Sequence[Run]]]) -> None:
    """Print the rows of one number of turns.

    Args:
        rows: name, work and runs of each side.
    """
    if not rows:
        return
    work, rates = rows[0][1], rows[0][2][0].rates
    print(
        f"\n{work.num_turns} turn(s), G={work.num_generations}, {work.max_new_tokens} new tokens, "
        f"{NUM_AGENTS} agents, {(rates.body_parameters + rates.head_parameters) / 1e6:.1f} "
        "million weights each"
    )
    print(_HEADER)
    made = {name: _row(name, work, runs) for name, work, runs in rows}
    ours = [made[name] for name in made if name.startswith("motet")]  # the widest comes first
    whole = ours[0] if ours else None
    single = next((row for row in ours if isinstance(row, Row) and row.one_by_one), None)
    for name, row in made.items():
        if isinstance(row, str):
            print(f"{name:<30}  not measured: {row}")
        else:
            print(_line(row, whole, single))


def _row(name: str, work: Work, runs: Sequence[Run]) -> Row | str:
    for run in runs:
        if isinstance(run.outcome, str):
            return run.outcome
    done = [(run.outcome, run.rates) for run in runs if isinstance(run.outcome, Measured)]
    first = done[0][0]
    share = NUM_AGENTS / first.num_agents / len(work.prompts)  # of one prompt, for all agents

    def median(values: Iterable[float]) -> float:
        return share * statistics.median(values)

    return Row(
        name=name,
        work=work,
        generation_s=median(measured.generation_s for measured, _ in done),
        update_s=median(measured.update_s for measured, _ in done),
        total_s=median(measured.generation_s + measured.update_s for measured, _ in done),
        tokens=share * first.new_tokens,
        num_optimizer_steps=first.num_optimizer_steps,
        peak_memory_mib=statistics.median(measured.peak_memory_mib for measured, _ in done),
        generation_floor_s=median(generation_floor_s(work, *each) for each in done),
        update_floor_s=median(update_floor_s(*each) for each in done),
        gemm_flops=statistics.median(rates.gemm_flops for _, rates in done),
        copy_bytes=statistics.median(rates.copy_bytes for _, rates in done),
    )


def _line(row: Row, whole: Row | str | None, single: Row | str | None) -> str:
    ratios = [
        f"{row.total_s / other.total_s:.2f}" if isinstance(other, Row) else "-"
        for other in (whole, single)
    ]
    floor_s = row.generation_floor_s + row.update_floor_s
    return (
        f"{row.name:<30}{row.num_optimizer_steps:>7.1f} |"
        f" {row.generation_s:>9.2f}{row.update_s:>8.2f}{row.total_s:>8.2f} |"
        f" {row.tokens / row.generation_s:>8.0f}{row.tokens / row.update_s:>7.0f} |"
        f"{row.peak_memory_mib:>8.0f} | {ratios[0]:>7}{ratios[1]:>8} |"
        f" {row.generation_floor_s / row.generation_s:>8.0%}"
        f"{row.update_floor_s / row.update_s:>7.0%}{floor_s / row.total_s:>5.0%} |"
        f"{row.gemm_flops / 1e9:>8.0f}{row.copy_bytes / 1e9:>6.1f}"
    )
