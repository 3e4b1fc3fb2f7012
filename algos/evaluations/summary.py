"""The numbers of an evaluation: means over its episodes, with intervals over rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from motet.algos.evaluations.episodes import Episode, episodes_of
from motet.algos.evaluations.intervals import (
    Estimate,
    Interval,
    difference_of_rows,
    mean_of_rows,
    share_of_rows,
)
from motet.algos.rollouts.rollout import Rollout


@dataclass(frozen=True, slots=True)
class Sample:
    """What a metric is the mean of.

    Attributes:
        values: (K,) of episodes, turns or completions.
        rows: (K,) the row that each is of.
        is_share: whether values are 0 or 1.
    """

    values: tuple[float, ...]
    rows: tuple[int, ...]
    is_share: bool = False

    def estimate(self) -> Estimate:
        """Return the mean with its interval; 0 of nothing, as the other metrics have it."""
        if not self.values:
            return Estimate(0.0, None)
        return (share_of_rows if self.is_share else mean_of_rows)(self.values, self.rows)


def summarize(
    rollout: Rollout, *, num_turns: int | None = None
) -> tuple[dict[str, float], dict[str, Interval]]:
    """Return metrics, and intervals by the same names; see `Evaluation`.

    Args:
        rollout: of an evaluation.
        num_turns: most turns of an episode, where it is known; with several, those that ended
            before are counted.
    """
    estimates = {
        name: sample.estimate()
        for name, sample in samples_of(episodes_of(rollout), num_turns=num_turns).items()
    }
    metrics = {name: each.value for name, each in estimates.items()}
    metrics["num_completions"] = float(rollout.num_completions)
    metrics["num_tokens"] = float(rollout.num_tokens)
    intervals = {
        name: each.interval for name, each in estimates.items() if each.interval is not None
    }
    return metrics, intervals


def changes(before: Rollout, after: Rollout) -> dict[str, Estimate]:
    """Return how much higher each mean is after than before, paired by row.

    Args:
        before: of an evaluation.
        after: of another, of the same rows where the pairing is to help.
    """
    first, second = (samples_of(episodes_of(each)) for each in (before, after))
    return {
        name: difference_of_rows(
            (second[name].values, second[name].rows), (first[name].values, first[name].rows)
        )
        for name in first
        if name in second and first[name].values and second[name].values
    }


def samples_of(episodes: Sequence[Episode], *, num_turns: int | None = None) -> dict[str, Sample]:
    """Return what each metric is the mean of, by name; see `summarize`."""
    rewards = [each.rewards for each in episodes]
    samples = {
        "reward_mean": _sample(episodes, rewards),
        "return_mean": _sample(episodes, ([sum(own)] for own in rewards)),
        "final_reward_mean": _sample(episodes, (own[-1:] for own in rewards)),
    }
    for turn in range(max(map(len, rewards))):
        samples[f"turn_{turn + 1}/reward_mean"] = _sample(
            episodes, [own[turn : turn + 1] for own in rewards]
        )
    return samples | _own_returns(episodes) | _lengths(episodes, num_turns)


def _sample(
    episodes: Sequence[Episode], values: Iterable[Iterable[float]], *, is_share: bool = False
) -> Sample:
    """Join the values of each episode."""
    pairs = [
        (float(value), episode.row)
        for episode, own in zip(episodes, values, strict=True)
        for value in own
    ]
    return Sample(tuple(value for value, _ in pairs), tuple(row for _, row in pairs), is_share)


def _own_returns(episodes: Sequence[Episode]) -> dict[str, Sample]:
    """Return each agent's own returns, where agents are paid differently."""
    returns = [each.returns for each in episodes]
    if all(len(set(own.values())) == 1 for own in returns):
        return {}
    names = dict.fromkeys(name for own in returns for name in own)
    return {
        f"return_mean/{name}": _sample(episodes, [[own.get(name, 0.0)] for own in returns])
        for name in names
    }


def _lengths(episodes: Sequence[Episode], num_turns: int | None) -> dict[str, Sample]:
    written = [each.written for each in episodes]
    turns = [len(each.nodes) for each in episodes]
    samples = {
        "episode_length_mean": _sample(episodes, ([played] for played in turns)),
        "completion_length_mean": _sample(
            episodes, ([len(each.completion_ids) for each in own] for own in written)
        ),
        "frac_cut": _sample(
            episodes,
            ([each.finish_reason == "length" for each in own] for own in written),
            is_share=True,
        ),
    }
    if num_turns is not None and num_turns > 1:
        early = ([played < num_turns] for played in turns)
        samples["frac_ended_early"] = _sample(episodes, early, is_share=True)
    return samples
