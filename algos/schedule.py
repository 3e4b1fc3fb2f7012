"""Which rows a run takes, and in what order."""

from collections.abc import Iterator

import numpy as np

from motet.algos.config import TrainerConfig
from motet.algos.rollouts.collect import ParallelTextEnv
from motet.algos.streaming import checked_limit, first_rows, stream_of
from motet.envs.simulator import text_env_of


def check_schedule(
    env: ParallelTextEnv, eval_env: ParallelTextEnv | None, config: TrainerConfig
) -> None:
    """Raise where the config counts in what the env does not have.

    Raises:
        ValueError: for epochs of an env without rows of known number, rollouts of one with them, or
            an evaluation without limit on a stream.
    """
    has_rows, streams = text_env_of(env) is not None, stream_of(env) is not None
    kind = "an env with a dataset" if has_rows else "an env without a dataset"
    if streams:
        kind = "an env with a stream, whose length is unknown"
    by_epochs = has_rows and not streams
    ignored = "num_rollouts" if by_epochs else "num_train_epochs"
    used = "num_train_epochs" if by_epochs else "num_rollouts"
    if getattr(config, ignored) is not None:
        raise ValueError(f"Expected {used} for {kind}, got {ignored}={getattr(config, ignored)}.")
    if stream_of(eval_env) is not None:
        checked_limit(config.eval_num_samples)


def row_schedule(
    env: ParallelTextEnv, config: TrainerConfig, rng: np.random.Generator
) -> Iterator[list[int]]:
    """Yield the rows of each rollout.

    Args:
        env: with a dataset, whose rows come in a new order each epoch; with a stream, whose rows
            come in its order, counted beyond its end; or with neither, for which these are seeds.
        config: how many and how wide.
        rng: draws orders and seeds.
    """
    width = config.rollout_batch_size
    inner = text_env_of(env)
    if stream_of(env) is not None:
        for index in range(config.num_rollouts or 100):
            yield list(range(index * width, (index + 1) * width))
        return
    if inner is None:
        for _ in range(config.num_rollouts or 100):
            yield rng.integers(2**31, size=width).tolist()
        return
    for _ in range(config.num_train_epochs or 1):
        order = rng.permutation(len(inner.dataset)).tolist()
        for start in range(0, len(order), width):
            yield order[start : start + width]


def eval_rows(env: ParallelTextEnv, limit: int | None) -> list[int]:
    """Return the rows to evaluate on: the first ones, or all; of an env without rows, seeds.

    Args:
        env: what to evaluate on.
        limit: most rows; None for all, or 16 seeds.
    """
    stream = stream_of(env)
    if stream is not None:
        return first_rows(stream, limit)
    inner = text_env_of(env)
    if inner is not None:
        return list(range(len(inner.dataset)))[:limit]
    return list(range(limit or 16))
