"""What a team wrote, as a table to read."""

from collections.abc import Iterator

from motet.algos.evaluation import Evaluation
from motet.algos.rollouts.rollout import Node, Rollout
from motet.algos.tracking.logger import Cell, Logger, Metrics, TableLogger


def log_evaluation(
    logger: Logger, evaluation: Evaluation, step: int, further: Metrics | None = None
) -> None:
    """Log what an evaluation came to, and its first samples where the logger takes tables.

    Args:
        logger: gets `eval/...` metrics and the table `eval/samples`.
        evaluation: of a team.
        step: env steps.
        further: metrics of the same entry.
    """
    logger.log({**evaluation.logged(), **(further or {})}, step)
    if isinstance(logger, TableLogger):
        logger.log_table("eval/samples", *sample_table(evaluation.rollout), step)


def sample_table(rollout: Rollout, limit: int = 10) -> tuple[list[str], list[list[Cell]]]:
    """Return the first samples of a rollout, each episode's turns one after the other.

    Args:
        rollout: an evaluation's, or one that was trained on.
        limit: most rows.

    Returns:
        Columns: row, turn, prompt and completion of each agent, reward (the mean over agents).
        Rows: one for each joint action; what an agent did not write is empty.

    Raises:
        ValueError: where the limit is below 1.
    """
    if limit < 1:
        raise ValueError(f"Expected a limit of at least 1, got {limit}.")
    texts = [f"{agent} {what}" for agent in rollout.agents for what in ("prompt", "completion")]
    rows: list[list[Cell]] = []
    for root in range(len(rollout.levels[0]) if rollout.levels else 0):
        for node, joint in _walk(rollout, 0, root):
            if len(rows) == limit:
                break
            rows.append(_cells(rollout, node, joint))
    return ["row", "turn", *texts, "reward"], rows


def _walk(rollout: Rollout, depth: int, index: int) -> Iterator[tuple[Node, int]]:
    """Iterate over a tree's joint actions, each followed by those of its child."""
    node = rollout.levels[depth][index]
    for joint, child in enumerate(node.children):
        yield node, joint
        if child is not None:
            yield from _walk(rollout, depth + 1, child)


def _cells(rollout: Rollout, node: Node, joint: int) -> list[Cell]:
    texts: list[Cell] = []
    for agent in rollout.agents:
        texts.append(node.observations.get(agent, ""))
        written = node.completions.get(agent)
        texts.append("" if written is None else written[node.choices(agent)[joint]].text)
    paid = [rewards[joint] for rewards in node.rewards.values()]
    return [node.row, node.turn, *texts, sum(paid) / len(paid)]
