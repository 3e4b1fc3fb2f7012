"""How good a team is, without training it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from motet.algos.metrics import team_rewards
from motet.algos.rollouts.best_branch import best_chains
from motet.algos.rollouts.collect import ParallelTextEnv, collect_rollouts
from motet.algos.rollouts.joint_policy import Team, greedy_team
from motet.algos.rollouts.rollout import Rollout
from motet.algos.streaming import stream_of
from motet.envs.simulator import text_env_of


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Results of `evaluate`.

    Attributes:
        metrics: `reward_mean` (over all turns played), `return_mean` (sum over an episode's
            turns, then the mean), `final_reward_mean` (each episode's last turn), and
            `turn_k/reward_mean` over the episodes that reached turn k. Rewards are the team's:
            the mean over its agents. `num_completions` and `num_tokens` are what it cost: all that
            was written, drafts and rejected samples included.
        rollout: every episode, a chain of nodes with one joint action each.
    """

    metrics: dict[str, float]
    rollout: Rollout


def evaluate(
    env: ParallelTextEnv,
    agents: Team,
    rows: Sequence[int] | None = None,
    *,
    num_samples: int = 1,
    best_of: int = 1,
    do_sample: bool = True,
    seed: int = 0,
) -> Evaluation:
    """Play whole episodes and average their rewards.

    Episodes are those of the env: one that it ends early, for having met the goal, has no later
    turns, in evaluation as in training.

    Args:
        env: as for `collect_rollouts`.
        agents: agent by name, or a `JointPolicy`.
        rows: dataset rows (default: all, unless they are a stream), or seeds for an env without a
            dataset.
        num_samples: episodes per row, in each of which random wrappers draw anew; of a seed s,
            those of the seeds s * num_samples onwards.
        best_of: joint completions that are tried in each turn, of which the one that the turn pays
            most for is played. It looks at the rewards, which no team can: an upper bound for what
            these agents can say, not a policy.
        do_sample: False takes the most likely tokens instead of sampling.
        seed: makes the result reproducible.

    Raises:
        ValueError: where `rows` is missing for an env without a dataset or with a stream, a number
            is below 1, or the best is asked for of completions that are all the same.
    """
    inner = text_env_of(env)
    if rows is None:
        if inner is None:
            raise ValueError(
                "Expected rows=, the seeds of the episodes, for an env without a dataset; got None."
            )
        if stream_of(env) is not None:
            raise ValueError(
                "Expected rows=, such as range(100), for an env with a stream, whose length is "
                "unknown; got None."
            )
        rows = range(len(inner.dataset))
    for name, number in (("num_samples", num_samples), ("best_of", best_of)):
        if number < 1:
            raise ValueError(f"Expected {name} of at least 1, got {number}.")
    if best_of > 1 and not do_sample:
        raise ValueError(
            f"Expected do_sample=True with best_of={best_of}, got False: the most likely "
            "completions are the same each time."
        )
    if not do_sample:
        agents = greedy_team(agents)
    # without rows, the samples of one seed must not share the env's noise
    repeated = [
        row if inner is not None else row * num_samples + sample
        for row in rows
        for sample in range(num_samples)
    ]
    rollout = best_chains(
        collect_rollouts(env, agents, repeated, num_generations=best_of, branches="best", seed=seed)
    )
    return Evaluation(_metrics(rollout), rollout)


def _metrics(rollout: Rollout) -> dict[str, float]:
    rewards = team_rewards(rollout)
    turns = [[own[0] for own in level] for level in rewards]
    final = [
        own[0]
        for level, level_rewards in zip(rollout.levels, rewards, strict=True)
        for node, own in zip(level, level_rewards, strict=True)
        if node.ended[0]
    ]
    return {
        "reward_mean": float(np.mean([reward for level in turns for reward in level])),
        "return_mean": sum(map(sum, turns)) / len(rollout.levels[0]),
        "final_reward_mean": float(np.mean(final)),
        **{
            f"turn_{k}/reward_mean": float(np.mean(level)) for k, level in enumerate(turns, start=1)
        },
        "num_completions": float(rollout.num_completions),
        "num_tokens": float(rollout.num_tokens),
    }
