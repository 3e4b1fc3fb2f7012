"""A team that acts together: what one agent writes may depend on what others wrote this turn.

Agents of a team answer at the same time and see nothing of each other's answers. A `JointPolicy`
is asked for all of them at once instead, and is free to let them read each other first.
`collect_rollouts` and `evaluate` take one in place of the dict of agents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self, runtime_checkable

from motet.agents import Agent, Completion
from motet.algos.rollouts.rollout import Node
from motet.algos.team import with_sampling


@dataclass(frozen=True, slots=True)
class JointAnswers:
    """What a team wrote at one node.

    Attributes:
        completions: (G,) answers by acting agent; the k-th of all agents belong together.
        drafts: by agent, what it wrote on the way and does not play. It counts as cost.
    """

    completions: dict[str, tuple[Completion, ...]]
    drafts: dict[str, tuple[Completion, ...]] = field(default_factory=dict)


@runtime_checkable
class JointPolicy(Protocol):
    """Anything that answers for a whole team.

    What it asks its agents at one time it should ask in one `act` for each distinct agent, over all
    nodes: `motet.algos.rollouts.asking.ask` does.
    """

    @property
    def agents(self) -> Mapping[str, Agent]:
        """Agent by name: whom it asks."""

    def with_agents(self, agents: Mapping[str, Agent]) -> Self:
        """Return the same policy over other agents of the same names."""

    def act_together(
        self,
        observations: Sequence[Mapping[str, str]],
        num_generations: int = 1,
        *,
        seed: int | None = None,
        contexts: Sequence[Mapping[str, Completion]] | None = None,
    ) -> list[JointAnswers]:
        """Answer for all agents that act, several times.

        Args:
            observations: (B,) prompts by agent, of those that act; nobody else answers.
            num_generations: G, joint answers to each.
            seed: makes the answers reproducible.
            contexts: (B,) by agent, the last completion that it played on the way there; None is
                the same as none.

        Returns:
            (B,) answers.
        """


Team = Mapping[str, Agent] | JointPolicy


def agents_of(team: Team) -> Mapping[str, Agent]:
    """Return the agents of a team, by name."""
    return team.agents if isinstance(team, JointPolicy) else team


def greedy_team(team: Team) -> Team:
    """Return the team with language models that take their most likely tokens."""
    agents = with_sampling(agents_of(team), do_sample=False)
    return team.with_agents(agents) if isinstance(team, JointPolicy) else agents


def with_drafts(nodes: Sequence[Node], answers: Sequence[JointAnswers]) -> tuple[Node, ...]:
    """Return (B,) nodes with the drafts of the answers that were given there."""
    return tuple(
        replace(node, drafts=each.drafts) if each.drafts else node
        for node, each in zip(nodes, answers, strict=True)
    )


def check_joint_answers(
    policy: JointPolicy,
    answers: object,
    observations: Sequence[Mapping[str, str]],
    num_generations: int,
) -> None:
    """Raise where a policy of somebody else's answers in another shape than it was asked for.

    Raises:
        TypeError: with what came.
    """
    shaped = (
        isinstance(answers, list)
        and len(answers) == len(observations)
        and all(
            isinstance(one, JointAnswers)
            and one.completions.keys() == seen.keys()
            and all(len(group) == num_generations for group in one.completions.values())
            for one, seen in zip(answers, observations, strict=True)
        )
    )
    if not shaped:
        raise TypeError(
            f"Expected {len(observations)} JointAnswers with {num_generations} completions of each "
            f"acting agent from {type(policy).__name__}.act_together, got {str(answers)[:200]}."
        )
