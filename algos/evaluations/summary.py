"""The numbers of an evaluation: means over its episodes, with intervals over rows."""

from collections.abc import Sequence

from motet.algos.evaluations.episodes import Episode, episodes_of
from motet.algos.evaluations.intervals import Estimate, Interval, mean_of_rows, share_of_rows
from motet.algos.rollouts.rollout import Rollout


def summarize(
    rollout: Rollout, *, num_turns: int | None = None
) -> tuple[dict[str, float], dict[str, Interval]]:
    """Return metrics, and intervals by the same names; see `Evaluation`.

    Args:
        rollout: of an evaluation.
        num_turns: most turns of an episode, where it is known; with several, those that ended
            before are counted.
    """
    episodes = episodes_of(rollout)
    estimates = _rewards(episodes) | _own_returns(episodes) | _lengths(episodes)
    if num_turns is not None and num_turns > 1:
        early = [float(len(each.nodes) < num_turns) for each in episodes]
        estimates["frac_ended_early"] = share_of_rows(early, _rows(episodes))
    metrics = {name: each.value for name, each in estimates.items()}
    metrics["num_completions"] = float(rollout.num_completions)
    metrics["num_tokens"] = float(rollout.num_tokens)
    intervals = {
        name: each.interval for name, each in estimates.items() if each.interval is not None
    }
    return metrics, intervals


def _rows(episodes: Sequence[Episode]) -> list[int]:
    return [each.row for each in episodes]


def _rewards(episodes: Sequence[Episode]) -> dict[str, Estimate]:
    rewards = [each.rewards for each in episodes]
    rows = _rows(episodes)
    estimates = {
        "reward_mean": mean_of_rows(
            [reward for own in rewards for reward in own],
            [row for row, own in zip(rows, rewards, strict=True) for _ in own],
        ),
        "return_mean": mean_of_rows([each.team_return for each in episodes], rows),
        "final_reward_mean": mean_of_rows([own[-1] for own in rewards], rows),
    }
    for turn in range(1, max(map(len, rewards)) + 1):
        reached = [
            (own[turn - 1], row) for own, row in zip(rewards, rows, strict=True) if len(own) >= turn
        ]
        values, own_rows = zip(*reached, strict=True)
        estimates[f"turn_{turn}/reward_mean"] = mean_of_rows(values, own_rows)
    return estimates


def _own_returns(episodes: Sequence[Episode]) -> dict[str, Estimate]:
    """Return each agent's mean return, where agents are paid differently."""
    returns = [each.returns for each in episodes]
    if all(len(set(own.values())) == 1 for own in returns):
        return {}
    rows = _rows(episodes)
    names = dict.fromkeys(name for own in returns for name in own)
    return {
        f"{name}/return_mean": mean_of_rows([own.get(name, 0.0) for own in returns], rows)
        for name in names
    }


def _lengths(episodes: Sequence[Episode]) -> dict[str, Estimate]:
    written = [
        (completion, episode.row)
        for episode in episodes
        for _, completion in episode.completions
        if completion.completion_ids  # scripted agents write no tokens
    ]
    rows = [row for _, row in written]
    lengths = [float(len(completion.completion_ids)) for completion, _ in written]
    cut = [float(completion.finish_reason == "length") for completion, _ in written]
    nothing = Estimate(0.0, None)
    return {
        "episode_length_mean": mean_of_rows(
            [float(len(each.nodes)) for each in episodes], _rows(episodes)
        ),
        "completion_length_mean": mean_of_rows(lengths, rows) if written else nothing,
        "frac_cut": share_of_rows(cut, rows) if written else nothing,
    }
