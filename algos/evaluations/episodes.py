"""The episodes of an evaluation, one by one: to count, to compare and to read."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.agents import Completion
from motet.algos.rollouts.rollout import Node, Rollout


@dataclass(frozen=True, slots=True)
class Episode:
    """One way through a row, from the first turn to the last that was played.

    Attributes:
        row: dataset row; for envs without a dataset, the seed of its reset.
        sample: which episode of the row it is, 0 for the first.
        nodes: by turn, with one joint action each.
    """

    row: int
    sample: int
    nodes: tuple[Node, ...]

    @property
    def rewards(self) -> tuple[float, ...]:
        """The team's reward of each turn: the mean over its agents."""
        return tuple(sum(own[0] for own in n.rewards.values()) / len(n.rewards) for n in self.nodes)

    @property
    def team_return(self) -> float:
        """Sum of the team's rewards."""
        return sum(self.rewards)

    @property
    def returns(self) -> dict[str, float]:
        """Sum of each agent's own rewards."""
        totals: dict[str, float] = {}
        for node in self.nodes:
            for name, own in node.rewards.items():
                totals[name] = totals.get(name, 0.0) + own[0]
        return totals

    @property
    def written(self) -> list[Completion]:
        """What models wrote and the episode played; scripted agents write no tokens."""
        groups = (group for node in self.nodes for group in node.completions.values())
        return [group[0] for group in groups if group[0].completion_ids]

    def transcript(self) -> dict[str, Any]:
        """Return the episode as plain values: texts and rewards, and no token ids."""
        return {
            "row": self.row,
            "sample": self.sample,
            "return": self.team_return,
            "returns": self.returns,
            "turns": [_turn(node) for node in self.nodes],
        }


def episodes_of(rollout: Rollout) -> list[Episode]:
    """Return the episodes of an evaluation, in the order in which they began.

    Raises:
        ValueError: where a node has several joint actions, as trees of a training run do.
    """
    for node in rollout.nodes():
        if len(node.joint_actions) != 1:
            raise ValueError(
                f"Expected the rollout of an evaluation, with one joint action at each node, got "
                f"{len(node.joint_actions)} at row {node.row}, turn {node.turn}."
            )
    samples: Counter[int] = Counter()
    episodes = []
    for first in rollout.levels[0] if rollout.levels else ():
        episodes.append(Episode(first.row, samples[first.row], tuple(_chain(rollout, first))))
        samples[first.row] += 1
    return episodes


def save_transcripts(rollout: Rollout, path: str | Path) -> None:
    """Write one JSON object per episode of an evaluation, to read.

    Each has `row`, `sample`, `return` (the team's), `returns` (by agent) and `turns`, a list with
    `turn`, `prompts`, `completions`, `rewards` and `finish_reasons`, by agent each, and `drafts`
    where there are any. `Rollout.save` keeps what learners and viewers need.

    Args:
        rollout: of an evaluation.
        path: the file; its folder is made where it is missing.

    Raises:
        ValueError: as `episodes_of`.
    """
    lines = [json.dumps(each.transcript(), ensure_ascii=False) for each in episodes_of(rollout)]
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    # half a surrogate pair, which UTF-8 has no bytes for, is written as JSON escapes it
    with Path(path).open("w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(line + "\n" for line in lines)


def _chain(rollout: Rollout, node: Node) -> Iterator[Node]:
    yield node
    for level in rollout.levels[1:]:
        child = node.children[0]
        if child is None:
            return
        node = level[child]
        yield node


def _turn(node: Node) -> dict[str, Any]:
    turn: dict[str, Any] = {
        "turn": node.turn,
        "prompts": dict(node.observations),
        "completions": {name: group[0].text for name, group in node.completions.items()},
        "rewards": {name: own[0] for name, own in node.rewards.items()},
        "finish_reasons": {name: own[0].finish_reason for name, own in node.completions.items()},
    }
    if any(node.drafts.values()):
        turn["drafts"] = {name: [each.text for each in own] for name, own in node.drafts.items()}
    return turn
