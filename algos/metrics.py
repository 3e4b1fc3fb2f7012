"""What a rollout is summarised by; the README has the glossary."""

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from motet.algos.rollouts.rollout import Rollout
from motet.algos.updates.entropy import entropy_estimate


def team_rewards(rollout: Rollout) -> list[list[list[float]]]:
    """Return the mean over agents of each joint action's reward, by level and node: (J,)."""
    return [
        [np.mean([node.rewards[name] for name in node.rewards], axis=0).tolist() for node in level]
        for level in rollout.levels
    ]


def turn_metrics(
    rollout: Rollout, returns: Sequence[Sequence[Mapping[str, Tensor]]]
) -> dict[str, float]:
    """Return `turn_k/reward_mean` and `turn_k/expected_return`.

    Args:
        rollout: the trees.
        returns: (J,) returns by level, node and agent.
    """
    metrics = {}
    levels = zip(team_rewards(rollout), returns, strict=True)
    for turn, (rewards, level) in enumerate(levels, start=1):
        metrics[f"turn_{turn}/reward_mean"] = float(np.mean(np.concatenate(rewards)))
        metrics[f"turn_{turn}/expected_return"] = float(
            np.mean([float(own.mean()) for node in level for own in node.values()])
        )
    return metrics


def rollout_metrics(rollout: Rollout) -> dict[str, float]:
    """Return the `rollout/` metrics: rewards over all turns, lengths, completions cut, entropy."""
    completions = [
        completion
        for node in rollout.nodes()
        for group in node.completions.values()
        for completion in group
        if completion.completion_ids  # scripted partners write no tokens
    ]
    lengths = [len(completion.completion_ids) for completion in completions] or [0]
    cut = [completion.finish_reason == "length" for completion in completions] or [False]
    rewards = [reward for level in team_rewards(rollout) for own in level for reward in own]
    return {
        "rollout/reward_mean": float(np.mean(rewards)),
        "rollout/completion_length_mean": float(np.mean(lengths)),
        "rollout/frac_cut": float(np.mean(cut)),
        "rollout/entropy_estimate": entropy_estimate(completions),
    }


def means(history: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Average what was collected since the last log entry."""
    return {name: float(np.mean(values)) for name, values in history.items()}
