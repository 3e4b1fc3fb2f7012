"""Which of two teams is better: both play the same episodes, each for itself.

Episodes are compared one with one: the k-th of a row by one team with the k-th by the other, which
has the same prompt and what wrappers draw. Rows that are hard for both then cancel out of the
difference, whose interval is narrower than those of the teams' own means (Miller 2024, arXiv
2411.00640, section 4.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from motet.algos.evaluation import Evaluation, evaluate
from motet.algos.evaluations.episodes import Episode
from motet.algos.evaluations.intervals import Interval, mean_of_rows, share_of_rows
from motet.algos.rollouts.collect import ParallelTextEnv
from motet.algos.rollouts.joint_policy import Team


@dataclass(frozen=True, slots=True)
class TeamComparison:
    """Results of `compare_teams`: of the first team against the second.

    What is compared is an episode's joint return: the sum over its turns of the mean reward over
    the agents. Intervals are of 95 %, over rows; one row has none.

    Attributes:
        wins: episodes in which the first team's return was higher.
        ties: episodes in which both were equal.
        losses: episodes in which it was lower.
        win_rate: share of wins, where a tie is half a win.
        win_rate_interval: its interval.
        difference: mean of the first team's return less the second's.
        difference_interval: its interval.
        first: evaluation of the first team.
        second: evaluation of the second team.
    """

    wins: int
    ties: int
    losses: int
    win_rate: float
    win_rate_interval: Interval | None
    difference: float
    difference_interval: Interval | None
    first: Evaluation
    second: Evaluation

    def __str__(self) -> str:
        rate, difference = _shown(self.win_rate_interval), _shown(self.difference_interval)
        return (
            f"{self.wins} wins, {self.ties} ties, {self.losses} losses: win rate "
            f"{self.win_rate:.3f}{rate}, mean difference in return {self.difference:+.3f}"
            f"{difference}."
        )


def compare_teams(  # noqa: PLR0913  # as `evaluate`
    env: ParallelTextEnv,
    first: Team,
    second: Team,
    rows: Sequence[int] | None = None,
    *,
    num_samples: int = 1,
    do_sample: bool = True,
    seed: int = 0,
    progress_bar: bool = False,
) -> TeamComparison:
    """Let two teams play the same episodes, and count who is paid more.

    Args:
        env: as for `evaluate`.
        first: agent by name, or a `JointPolicy`.
        second: as `first`.
        rows: as for `evaluate`.
        num_samples: episodes per row.
        do_sample: False takes the most likely tokens.
        seed: makes the result reproducible; both teams sample with it.
        progress_bar: show how many episodes have ended.

    Raises:
        ValueError: as `evaluate`.
    """
    evaluations = [
        evaluate(
            env,
            team,
            rows,
            num_samples=num_samples,
            do_sample=do_sample,
            seed=seed,
            progress_bar=progress_bar,
        )
        for team in (first, second)
    ]
    return compare_evaluations(*evaluations)


def compare_evaluations(first: Evaluation, second: Evaluation) -> TeamComparison:
    """Compare evaluations of the same episodes: of two teams, or of one before and after training.

    Args:
        first: of the team that is to win.
        second: of the same rows, with equally many episodes each.

    Raises:
        ValueError: where the episodes are others.
    """
    pairs = paired_episodes(first, second)
    rows = [one.row for one, _ in pairs]
    differences = [one.team_return - other.team_return for one, other in pairs]
    outcomes = [float(each > 0) + float(each == 0) / 2 for each in differences]
    win_rate, difference = share_of_rows(outcomes, rows), mean_of_rows(differences, rows)
    return TeamComparison(
        wins=outcomes.count(1.0),
        ties=outcomes.count(0.5),
        losses=outcomes.count(0.0),
        win_rate=win_rate.value,
        win_rate_interval=win_rate.interval,
        difference=difference.value,
        difference_interval=difference.interval,
        first=first,
        second=second,
    )


def paired_episodes(first: Evaluation, second: Evaluation) -> list[tuple[Episode, Episode]]:
    """Return the episodes of two evaluations, one with one.

    Raises:
        ValueError: where they are not of the same rows, with equally many of each.
    """
    own = {(each.row, each.sample): each for each in first.episodes}
    others = {(each.row, each.sample): each for each in second.episodes}
    apart = sorted(own.keys() ^ others.keys())
    if apart:
        row, sample = apart[0]
        raise ValueError(
            f"Expected evaluations of the same rows with equally many episodes each, got "
            f"{len(own)} and {len(others)} episodes, of which episode {sample} of row {row} is in "
            "one alone; evaluate both with the same rows and num_samples."
        )
    return [(episode, others[key]) for key, episode in own.items()]


def _shown(interval: Interval | None) -> str:
    return "" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]"
