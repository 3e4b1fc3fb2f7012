"""When branches end before the last turn, and what they are credited then.

The joint actions sampled from one state form a group. With plain sums of positive rewards, ending
at success makes success worth less than missing on purpose and succeeding later: learners find that
out. Judging branches one by one therefore credits a branch that stops early with its reward once
more for every turn that it did not need.
"""

from collections.abc import Sequence
from typing import Literal

EarlyTermination = Literal["group", "branch"]


def early_stops(
    rewards: Sequence[Sequence[float]],
    groups: Sequence[int],
    threshold: float | None,
    mode: EarlyTermination,
) -> list[bool]:
    """Return which joint actions end their episode early.

    Args:
        rewards: (J, N) rewards of the turn.
        groups: (J,) group of each joint action.
        threshold: what the mean reward must be strictly above; None ends nothing.
        mode: "group" judges the mean over the group, "branch" each joint action.

    Returns:
        (J,) whether each ends.
    """
    if threshold is None:
        return [False] * len(rewards)
    team = [sum(values) / len(values) for values in rewards]
    if mode == "branch":
        return [reward > threshold for reward in team]
    members: dict[int, list[float]] = {}
    for group, reward in zip(groups, team, strict=True):
        members.setdefault(group, []).append(reward)
    stops = {group: sum(own) / len(own) > threshold for group, own in members.items()}
    return [stops[group] for group in groups]


def turns_credited(turn: int, num_turns: int, *, stopped: bool, mode: EarlyTermination) -> int:
    """Return how many times a turn's reward counts.

    Args:
        turn: the turn just played, 1 for the first.
        num_turns: turns of an episode.
        stopped: whether it ended early.
        mode: as for `early_stops`.
    """
    return 1 + num_turns - turn if stopped and mode == "branch" else 1
