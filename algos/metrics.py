"""What a rollout is summarised by, and what several are; the README has the glossary.

A metric is `<group>/<metric>` for the team, and `<group>/<metric>/<agent>` for one of its agents.
A log entry is of `logging_steps` rollouts, and says of their metrics (of those that have it)

| metric | in an entry |
|---|---|
| `train/learning_rate` | the last |
| `rollout/completion_length_max`, `memory/...` | the greatest |
| `rollout/completion_length_min` | the least |
| all others, a rollout's counts, deviations and shares among them | the mean |

and an agent's own like the team's. Steps and seconds so far are added to the entry as they are
then (`Trainer`). What agents earn is there by agent where it differs among them.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from motet.agents import Completion
from motet.algos.rollouts.rollout import Rollout
from motet.algos.updates.entropy import entropy_estimate

_LAST = ("train/learning_rate",)
_GREATEST = ("rollout/completion_length_max", "memory/")
_LEAST = ("rollout/completion_length_min",)
_EARNED = re.compile(r"(turn_\d+|rollout)/(reward_mean|reward_std|expected_return|return_std)/")


def team_rewards(rollout: Rollout) -> list[list[list[float]]]:
    """Return the mean over agents of each joint action's reward, by level and node: (J,)."""
    return [
        [np.mean([node.rewards[name] for name in node.rewards], axis=0).tolist() for node in level]
        for level in rollout.levels
    ]


def turn_metrics(
    rollout: Rollout, returns: Sequence[Sequence[Mapping[str, Tensor]]]
) -> dict[str, float]:
    """Return means and deviations of each turn's rewards and returns over its joint actions.

    `turn_k/reward_mean` and `turn_k/reward_std` are of the mean over agents, `turn_k/reward_mean/`
    and `turn_k/reward_std/` with an agent's name of its own; `turn_k/expected_return` and
    `turn_k/return_std` are the same of the returns from turn k on.

    Args:
        rollout: the trees.
        returns: (J,) returns by level, node and agent.
    """
    metrics = {}
    levels = zip(team_rewards(rollout), rollout.levels, returns, strict=True)
    for turn, (rewards, nodes, level) in enumerate(levels, start=1):
        paid = np.concatenate(rewards)
        metrics[f"turn_{turn}/reward_mean"] = float(np.mean(paid))
        metrics[f"turn_{turn}/expected_return"] = float(
            np.mean([float(own.mean()) for node in level for own in node.values()])
        )
        team = [np.mean([own.numpy() for own in node.values()], axis=0) for node in level]
        metrics[f"turn_{turn}/reward_std"] = float(np.std(paid))
        metrics[f"turn_{turn}/return_std"] = float(np.std(np.concatenate(team)))
        for name, own in _by_agent(node.rewards for node in nodes):
            metrics[f"turn_{turn}/reward_mean/{name}"] = float(np.mean(own))
            metrics[f"turn_{turn}/reward_std/{name}"] = float(np.std(own))
        for name, own in _by_agent(level):
            metrics[f"turn_{turn}/expected_return/{name}"] = float(np.mean(own))
            metrics[f"turn_{turn}/return_std/{name}"] = float(np.std(own))
    return metrics


def rollout_metrics(rollout: Rollout) -> dict[str, float]:
    """Return the `rollout/` metrics: rewards over all turns, lengths, completions cut, entropy.

    Scripted partners, who write no tokens, have no length and no entropy.
    """
    written: dict[str, list[Completion]] = defaultdict(list)
    every: list[Completion] = []
    for node in rollout.nodes():
        for name, group in node.completions.items():
            own = [completion for completion in group if completion.completion_ids]
            every += own
            if own:
                written[name] += own
    rewards = [reward for level in team_rewards(rollout) for own in level for reward in own]
    metrics = {
        "rollout/reward_mean": float(np.mean(rewards)),
        "rollout/reward_std": float(np.std(rewards)),
        **_text_metrics(every),
    }
    for name, paid in _by_agent(node.rewards for node in rollout.nodes()):
        metrics[f"rollout/reward_mean/{name}"] = float(np.mean(paid))
        metrics[f"rollout/reward_std/{name}"] = float(np.std(paid))
    for name, own in written.items() if len(written) > 1 else ():
        metrics |= {f"{metric}/{name}": value for metric, value in _text_metrics(own).items()}
    return metrics


def means(history: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return a log entry of what was collected since the last one; see the module for the rules.

    Args:
        history: of each metric its values, rollout by rollout.
    """
    alike = _earn_alike(history)
    return {
        name: _summary(name, values)
        for name, values in history.items()
        if not (alike and _EARNED.match(name))
    }


def _by_agent(
    nodes: Iterable[Mapping[str, Sequence[float] | Tensor]],
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield each agent's values at all nodes, where there are several agents."""
    found: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
    for node in nodes:
        for name, values in node.items():
            found[name].append(np.asarray(values, dtype=np.float64))
    if len(found) > 1:
        for name, parts in found.items():
            yield name, np.concatenate(parts)


def _text_metrics(completions: Sequence[Completion]) -> dict[str, float]:
    lengths = [len(completion.completion_ids) for completion in completions] or [0]
    cut = [completion.finish_reason == "length" for completion in completions] or [False]
    return {
        "rollout/completion_length_mean": float(np.mean(lengths)),
        "rollout/completion_length_min": float(min(lengths)),
        "rollout/completion_length_max": float(max(lengths)),
        "rollout/frac_cut": float(np.mean(cut)),
        "rollout/entropy_estimate": entropy_estimate(completions),
    }


def _earn_alike(history: Mapping[str, Sequence[float]]) -> bool:
    """Tell whether agents' own rewards and returns say no more than the team's."""
    seen: dict[str, set[tuple[float, ...]]] = defaultdict(set)
    for name, values in history.items():
        found = _EARNED.match(name)
        if found:
            seen[found[0]].add(tuple(values))
    return all(len(own) == 1 for own in seen.values())


def _summary(name: str, values: Sequence[float]) -> float:
    if name.startswith(_LAST):
        return values[-1]
    if name.startswith(_GREATEST):
        return max(values)
    if name.startswith(_LEAST):
        return min(values)
    return float(np.mean(values))
