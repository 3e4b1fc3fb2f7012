"""What `make bench` is to reach, and whether it did."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from training_table import Row, times_as_fast


@dataclass(frozen=True, slots=True)
class Target:
    """One goal.

    Attributes:
        name: what is measured.
        goal: what it has to reach, or to stay below.
        measured: what it came to; None where a row that it needs is missing.
        unit: "x" (times as fast), "%" (of the floor, as a share of 1) or "MiB".
        at_most: whether less is better.
    """

    name: str
    goal: float | None
    measured: float | None
    unit: str
    at_most: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None where either number is missing."""
        if self.goal is None or self.measured is None:
            return None
        return self.measured < self.goal if self.at_most else self.measured >= self.goal

    def shown(self, value: float | None) -> str:
        """Return a number with the target's unit."""
        if value is None:
            return "-"
        return {"x": f"{value:.2f}x", "%": f"{value:.0%}", "MiB": f"{value:,.0f} MiB"}[self.unit]


def training_targets(rows: Sequence[Row]) -> list[Target]:
    """Return all targets of training, from the rows of all numbers of turns.

    Args:
        rows: those that were measured.
    """
    return [
        *(_speed(rows, turns) for turns in (1, 2)),
        _faster(rows, "CoMLRL, two turns, LoRA", 8, 2, _lora),
        _faster(rows, "CoMLRL, two turns, half without spread", 8, 2, _half),
        _against_trl(rows),
        *(_memory(rows, turns, side) for turns, side in ((1, "comlrl"), (1, "trl"), (2, "comlrl"))),
        *(_floor(rows, turns, part) for part in ("update", "generation") for turns in (1, 2)),
    ]


def print_targets(targets: Sequence[Target]) -> None:
    """Print a line for each target."""
    print(f"\n{'target':<58}{'goal':>14}{'measured':>14}")
    for target in targets:
        sign = "<" if target.at_most else ">="
        goal = "-" if target.goal is None else f"{sign} {target.shown(target.goal)}"
        verdict = {True: "met", False: "missed", None: "not measured"}[target.met]
        print(f"{target.name:<58}{goal:>14}{target.shown(target.measured):>14}  {verdict}")


def widest(rows: Sequence[Row], turns: int, has: Callable[[Row], bool]) -> Row | None:
    """Return Motet's row with the most prompts at once among those that a test holds for."""
    ours = [row for row in rows if row.side == "motet" and row.work.num_turns == turns]
    return max(filter(has, ours), key=lambda row: row.work.prompts_at_once, default=None)


def _plain(row: Row) -> bool:
    return row.plain and not row.work.one_policy


def _one_policy(row: Row) -> bool:
    return row.plain and row.work.one_policy


def _lora(row: Row) -> bool:
    return row.work.lora and not row.work.bf16


def _half(row: Row) -> bool:
    return row.work.half_without_spread and not row.work.bf16


def _words(turns: int) -> str:
    return {1: "one turn", 2: "two turns"}[turns]


def _speed(rows: Sequence[Row], turns: int) -> Target:
    return _faster(rows, f"CoMLRL, {_words(turns)}", 5, turns, _plain)


def _faster(
    rows: Sequence[Row], name: str, goal: float, turns: int, has: Callable[[Row], bool]
) -> Target:
    row = widest(rows, turns, has)
    measured = None if row is None else times_as_fast(row, "comlrl", rows)
    return Target(f"times as fast as {name}", goal, measured, "x")


def _against_trl(rows: Sequence[Row]) -> Target:
    """Compare with TRL where both train one policy and have the same prompts at once."""
    theirs = [row for row in rows if row.side == "trl" and row.plain]
    peer = max(theirs, key=lambda row: row.work.prompts_at_once, default=None)
    at_once = None if peer is None else peer.work.prompts_at_once
    row = widest(rows, 1, lambda row: _one_policy(row) and row.work.prompts_at_once == at_once)
    measured = None if row is None or peer is None else peer.total_s / row.total_s
    name = f"times as fast as TRL, one policy, {at_once or 2} prompts at once"
    return Target(name, 1.5, measured, "x")


def _memory(rows: Sequence[Row], turns: int, side: str) -> Target:
    """Compare with a peer that holds as many policies: CoMLRL holds all, TRL one."""
    row = widest(rows, turns, _plain if side == "comlrl" else _one_policy)
    theirs = [
        other.peak_memory_mib
        for other in rows
        if other.side == side and other.work.num_turns == turns and other.plain
    ]
    whose = {"comlrl": f"CoMLRL's, {_words(turns)}", "trl": "TRL's, one policy"}[side]
    name = f"peak memory below {whose}"
    measured = None if row is None else row.peak_memory_mib
    return Target(name, min(theirs, default=None), measured, "MiB", at_most=True)


def _floor(rows: Sequence[Row], turns: int, part: str) -> Target:
    row = widest(rows, turns, _plain)
    name, goal = f"share of the floor, {part}, {_words(turns)}", 0.7 if part == "update" else 0.5
    if row is None:
        return Target(name, goal, None, "%")
    if part == "update":
        return Target(name, goal, row.update_floor_s / row.update_s, "%")
    return Target(name, goal, row.generation_floor_s / row.generation_s, "%")
