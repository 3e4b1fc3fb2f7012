"""What became of each joint action, as far as a rollout tells."""

from motet.algos.rollouts.rollout import Node, Rollout

GOES_ON = 0
LAST_TURN = 1  # the last turn of the task, whose number of turns is known
DEEPEST_TURN = 2  # the last turn that any branch reached; the task's number of turns is unknown
ENDED_EARLY = 3  # before the last turn, or before a branch that went on
CREDITED_EARLY = 4  # the same, and its reward counts for the turns that it did not need
NOT_FOLLOWED = 5  # the episode did not end; only the best joint action of the node went on
MISSING = 6  # it went on, and the file ends before the node that it led to


def fates(rollout: Rollout, num_turns: int | None = None) -> list[list[list[int]]]:
    """Return one of the constants of this module for each joint action, by level and node: (J,).

    Args:
        rollout: the trees; children that a cut file lacks are `MISSING`.
        num_turns: turns of the task, where they are known.
    """
    depth = len(rollout.levels)
    return [
        [
            [_fate(node, index, size, depth, num_turns) for index in range(len(node.children))]
            for node in level
        ]
        for level, size in zip(rollout.levels, sizes_below(rollout), strict=True)
    ]


def sizes_below(rollout: Rollout) -> list[int]:
    """Return for each level how many nodes the next one has: a cut file has fewer than children."""
    return [len(level) for level in (*rollout.levels[1:], ())][: len(rollout.levels)]


def _fate(node: Node, index: int, size: int, depth: int, num_turns: int | None) -> int:
    child = node.children[index]
    if child is not None:
        return GOES_ON if child < size else MISSING
    if not node.ended[index]:
        return NOT_FOLLOWED
    if node.turns_credited[index] > 1:
        return CREDITED_EARLY
    if node.turn < (depth if num_turns is None else num_turns):
        return ENDED_EARLY
    return DEEPEST_TURN if num_turns is None else LAST_TURN
