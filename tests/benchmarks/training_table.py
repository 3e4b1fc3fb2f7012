"""The table of `make bench`: seconds per prompt, tokens per second, memory, ratios, floors."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from machine_rates import Rates
from training_floor import generation_floor_s, update_floor_s
from training_work import NUM_AGENTS, Measured, Work

# What a run took, or why it did not run.
Outcome = Measured | str

_HEADER = (
    f"{'':<22}{'prompts':>8}{'steps':>7} | {'seconds per prompt':^25} | {'tokens/s':^15} |"
    f"{'memory':>8} | {'times motet':^15} | {'% of the floor':^20}\n"
    f"{'side':<22}{'':>8}{'/agent':>7} | {'generate':>9}{'update':>8}{'total':>8} |"
    f" {'generate':>8}{'update':>7} |{'MiB':>8} | {'at once':>7}{'1 by 1':>8} |"
    f" {'generate':>8}{'update':>7}{'all':>5}"
)


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


def print_table(
    rows: Sequence[tuple[str, Work, Sequence[Outcome]]], rates: Sequence[Rates]
) -> None:
    """Print the rows of one number of turns.

    Args:
        rows: name, work and outcomes of each side.
        rates: of the machine, at several times of the run; medians count.
    """
    if not rows:
        return
    work = rows[0][1]
    machine = _median_rates(rates)
    print(
        f"\n{work.num_turns} turn(s), G={work.num_generations}, {work.max_new_tokens} new tokens, "
        f"{NUM_AGENTS} agents, {(machine.body_parameters + machine.head_parameters) / 1e6:.1f} "
        f"million weights each; products {machine.gemm_flops / 1e9:.0f} GFLOP/s, copies "
        f"{machine.copy_bytes / 1e9:.1f} GB/s"
    )
    print(_HEADER)
    made = {name: _row(name, work, outcomes, machine) for name, work, outcomes in rows}
    whole, single = (made.get(f"motet, {how}") for how in ("all at once", "one by one"))
    for name, row in made.items():
        if isinstance(row, str):
            print(f"{name:<22}  not measured: {row}")
        else:
            print(_line(row, whole, single))


def _row(name: str, work: Work, outcomes: Sequence[Outcome], rates: Rates) -> Row | str:
    runs = [outcome for outcome in outcomes if isinstance(outcome, Measured)]
    if len(runs) < len(outcomes):
        return next(outcome for outcome in outcomes if isinstance(outcome, str))
    share = NUM_AGENTS / runs[0].num_agents / len(work.prompts)  # of one prompt, for all agents

    def median(values: Sequence[float]) -> float:
        return share * statistics.median(values)

    return Row(
        name=name,
        work=work,
        generation_s=median([run.generation_s for run in runs]),
        update_s=median([run.update_s for run in runs]),
        total_s=median([run.generation_s + run.update_s for run in runs]),
        tokens=share * runs[0].new_tokens,
        num_optimizer_steps=runs[0].num_optimizer_steps,
        peak_memory_mib=statistics.median(run.peak_memory_mib for run in runs),
        generation_floor_s=median([generation_floor_s(work, run, rates) for run in runs]),
        update_floor_s=median([update_floor_s(run, rates) for run in runs]),
    )


def _line(row: Row, whole: Row | str | None, single: Row | str | None) -> str:
    ratios = [
        f"{row.total_s / other.total_s:.2f}" if isinstance(other, Row) else "-"
        for other in (whole, single)
    ]
    floor_s = row.generation_floor_s + row.update_floor_s
    return (
        f"{row.name:<22}{len(row.work.prompts):>8}{row.num_optimizer_steps:>7.1f} |"
        f" {row.generation_s:>9.2f}{row.update_s:>8.2f}{row.total_s:>8.2f} |"
        f" {row.tokens / row.generation_s:>8.0f}{row.tokens / row.update_s:>7.0f} |"
        f"{row.peak_memory_mib:>8.0f} | {ratios[0]:>7}{ratios[1]:>8} |"
        f" {row.generation_floor_s / row.generation_s:>8.0%}"
        f"{row.update_floor_s / row.update_s:>7.0%}{floor_s / row.total_s:>5.0%}"
    )


def _median_rates(rates: Sequence[Rates]) -> Rates:
    return Rates(
        statistics.median(each.gemm_flops for each in rates),
        statistics.median(each.copy_bytes for each in rates),
        rates[0].body_parameters,
        rates[0].head_parameters,
    )
