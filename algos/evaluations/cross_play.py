"""Whether agents of one team play well with those of another.

A team that has learnt a convention of its own plays well with itself and badly with others: the
matrix of all pairings shows it (Hu et al. 2020, arXiv 2003.02979).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.agents import Agent
from motet.agents.agent import TeamAgent
from motet.algos.evaluation import Evaluation, evaluate
from motet.algos.rollouts.collect import ParallelTextEnv


@dataclass(frozen=True, slots=True)
class CrossPlay:
    """Results of `cross_play`.

    Attributes:
        teams: (K,) names of the teams.
        seat: the agent that the first team of a pairing plays; the second plays all others.
        evaluations: by pairing.
    """

    teams: tuple[str, ...]
    seat: str
    evaluations: dict[tuple[str, str], Evaluation]

    def matrix(self, metric: str = "return_mean") -> list[list[float]]:
        """Return (K, K) values of a metric; rows are the teams that play the seat.

        Args:
            metric: such as "return_mean", or of games whose agents are paid differently
                "return_mean/agent_0".

        Raises:
            KeyError: where an evaluation has no such metric.
        """
        return [
            [self.evaluations[row, column].metrics[metric] for column in self.teams]
            for row in self.teams
        ]


def cross_play(  # noqa: PLR0913  # as `evaluate`
    env: ParallelTextEnv,
    teams: Mapping[str, Mapping[str, Agent]],
    rows: Sequence[int] | None = None,
    *,
    seat: str | None = None,
    num_samples: int = 1,
    do_sample: bool = True,
    seed: int = 0,
    progress_bar: bool = False,
) -> CrossPlay:
    """Let one agent of each team play with the others of each team, on the same episodes.

    Args:
        env: as for `evaluate`.
        teams: by name, agent by name.
        rows: as for `evaluate`.
        seat: the agent that changes teams; None for the env's first.
        num_samples: episodes per row.
        do_sample: False takes the most likely tokens.
        seed: makes the result reproducible.
        progress_bar: show how many episodes have ended.

    Raises:
        TypeError: where a team's agents cannot be asked apart from each other.
        ValueError: where there is no team, or no such seat; and as `evaluate`.
    """
    names = list(env.possible_agents)
    chosen = names[0] if seat is None else seat
    if chosen not in names:
        raise ValueError(f"Expected seat to be one of {names}, got {seat!r}.")
    if not teams:
        raise ValueError("Expected teams by name, got none.")
    for name, team in teams.items():
        _check_apart(name, team, names)
    evaluations = {
        (row, column): evaluate(
            env,
            {**teams[column], chosen: teams[row][chosen]},
            rows,
            num_samples=num_samples,
            do_sample=do_sample,
            seed=seed,
            progress_bar=progress_bar,
        )
        for row in teams
        for column in teams
    }
    return CrossPlay(tuple(teams), chosen, evaluations)


def _check_apart(name: str, team: object, agents: Sequence[str]) -> None:
    if not isinstance(team, Mapping):
        raise TypeError(
            f"Expected a dict of agents by name as team {name!r}, whose agents can play with "
            f"others, got {type(team).__name__}."
        )
    if set(team) != set(agents):
        raise ValueError(f"Expected an agent for each of {agents} in team {name!r}, got {[*team]}.")
    for agent in team.values():
        if isinstance(agent, TeamAgent) and len(agent.names) > 1:
            raise TypeError(
                f"Expected agents that act for one each in team {name!r}, got one for "
                f"{list(agent.names)}, which can play with no others."
            )
