"""Sample a team's trees, level by level.

Per turn there is one `act` for each distinct agent over all live nodes of all rows, and one call of
the env for all their joint actions: wide batches are where the speed of a language model is.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from motet.agents import Agent, Completion
from motet.agents.agent import CachingAgent, wants_contexts
from motet.algos.asking import Question, ask
from motet.algos.best_branch import only_best
from motet.algos.joint_policy import (
    JointAnswers,
    JointPolicy,
    Team,
    agents_of,
    check_joint_answers,
    with_drafts,
)
from motet.algos.rollout import Node, Rollout
from motet.algos.team import check_agent
from motet.envs.simulator import Simulator, make_simulator, step_siblings
from motet.envs.text_state import StepResult

JointMode = Literal["aligned", "cross"]
Branches = Literal["all", "best"]

# A tree has G^T leaves (aligned) or G^(N*T) (cross): beyond this many joint actions in one turn it
# is a mistake rather than a plan.
MAX_JOINT_ACTIONS = 1_000_000


class ParallelTextEnv(Protocol):
    """Any PettingZoo parallel env over strings that can be cloned."""

    agents: list[str]
    possible_agents: list[str]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        """Start an episode."""

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Play one turn."""

    def clone(self, *, seed: int | None = None) -> Any:
        """Return an independent env at the same point."""


@dataclass(frozen=True, slots=True)
class _Live:
    """A state that still runs: where it is, what each live agent sees, and what it said last."""

    row: int
    state: Any
    observations: dict[str, str]
    infos: Mapping[str, Mapping[str, Any]]
    said: Mapping[str, Completion] = field(default_factory=dict)

    @property
    def acting(self) -> list[str]:
        """Agents whose action counts this turn; the others' are ignored and sent empty."""
        return [name for name in self.observations if self.infos[name].get("acts", True)]


def collect_rollouts(
    env: ParallelTextEnv,
    agents: Team,
    rows: Sequence[int],
    *,
    num_generations: int,
    joint_mode: JointMode = "aligned",
    branches: Branches = "all",
    seed: int | None = None,
) -> Rollout:
    """Let a team act from each of several rows, with every branch going on to the next turn.

    Each agent gives `num_generations` (G) answers at every node. "aligned" joins the k-th answers
    of all agents (J = G joint actions per node), "cross" joins each answer with each of the others'
    (J = G^N). Every joint action that does not end its episode becomes a node of the next level,
    so that T turns have up to G^T or G^(N*T) leaves per row.

    An agent with `history="append"` goes on from what it said last on the branch; what it computes
    for that is kept for the time of the rollout, in which its weights must not change.

    The env's own episode is left alone: a `TextEnv`, bare or in `Wrapper`s, is stepped by states,
    any other env by clones (`motet.envs.simulator`).

    Args:
        env: a `TextEnv`, bare or wrapped, or any PettingZoo parallel env over strings with
            `clone()`.
        agents: agent by name. One object under several names shares its policy and its batch. Or a
            `JointPolicy`, whose k-th answers belong together.
        rows: dataset rows; for envs without a dataset, seeds of `reset`.
        num_generations: G.
        joint_mode: how answers are joined.
        branches: "best" goes on with the joint action of each node that the turn pays most for,
            and with no other (`motet.algos.best_branch`); each is judged by itself where episodes
            end early, since no other is played.
        seed: makes the rollout reproducible.

    Returns:
        The trees.

    Raises:
        ValueError: where the agents are not those of the env, a mode is unknown or asks a
            `JointPolicy` for more than it has, G is below 1, there are no rows, a reward is not
            finite, or one turn would have more than `MAX_JOINT_ACTIONS` joint actions.
        TypeError: where an agent is none, or answers in another shape than asked for.
    """
    _check(env, agents_of(agents), num_generations, joint_mode)
    _check_branches(agents, joint_mode, branches)
    if len(rows) == 0:
        raise ValueError("Expected at least one row to collect from, got none.")
    simulator = make_simulator(env)
    with ExitStack() as caches:
        for agent in {id(agent): agent for agent in agents_of(agents).values()}.values():
            if wants_contexts(agent) and isinstance(agent, CachingAgent):
                caches.enter_context(agent.keeping_caches())
        levels = _grown(simulator, agents, rows, num_generations, joint_mode, branches, seed)
    return Rollout(tuple(env.possible_agents), levels)


def _grown(
    simulator: Simulator,
    agents: Team,
    rows: Sequence[int],
    num_generations: int,
    joint_mode: JointMode,
    branches: Branches,
    seed: int | None,
) -> tuple[tuple[Node, ...], ...]:
    """Play turn after turn until every branch has ended; return the nodes by level."""
    seeds = np.random.SeedSequence(seed)
    live = _started(simulator, rows)
    levels: list[tuple[Node, ...]] = []
    while live:
        exponents = [len(node.acting) if joint_mode == "cross" else 1 for node in live]
        total = sum(num_generations**exponent for exponent in exponents)
        if total > MAX_JOINT_ACTIONS:
            raise ValueError(
                f"Expected at most {MAX_JOINT_ACTIONS} joint actions in a turn, got {total} at "
                f"turn {len(levels) + 1}; lower num_generations or the number of rows, or use "
                "joint_mode='aligned'."
            )
        answers = _answers(agents, live, num_generations, seeds.spawn(1)[0])
        completions = [each.completions for each in answers]
        joint = [_joint_actions(len(group), num_generations, joint_mode) for group in completions]
        results = step_siblings(
            simulator,
            [node.state for node in live],
            _actions(live, completions, joint),
            apart=branches == "best",
        )
        nodes, live = _level(live, completions, joint, results, turn=len(levels) + 1)
        if branches == "best":
            nodes, live = only_best(nodes, live)
        levels.append(with_drafts(nodes, answers))
    return tuple(levels)


def _check(
    env: ParallelTextEnv, agents: Mapping[str, Agent], num_generations: int, joint_mode: str
) -> None:
    if set(agents) != set(env.possible_agents):
        raise ValueError(
            f"Expected an agent for each of {list(env.possible_agents)}, got {list(agents)}."
        )
    for name, agent in agents.items():
        check_agent(name, agent)
    if num_generations < 1:
        raise ValueError(f"Expected num_generations of at least 1, got {num_generations}.")
    if joint_mode not in ("aligned", "cross"):
        raise ValueError(f"Expected joint_mode 'aligned' or 'cross', got {joint_mode!r}.")


def _check_branches(team: Team, joint_mode: str, branches: str) -> None:
    if branches not in ("all", "best"):
        raise ValueError(f"Expected branches 'all' or 'best', got {branches!r}.")
    if isinstance(team, JointPolicy) and joint_mode == "cross":
        raise ValueError(
            f"Expected joint_mode='aligned' for {type(team).__name__}, got 'cross': its agents "
            "have read each other's k-th answers, which fit no others."
        )


def _answers(
    team: Team,
    live: Sequence[_Live],
    num_generations: int,
    seeds: np.random.SeedSequence,
) -> list[JointAnswers]:
    """Ask the team for its answers at all live nodes, agent by agent or all together."""
    if not isinstance(team, JointPolicy):
        return [JointAnswers(group) for group in _act(team, live, num_generations, seeds)]
    seen = [{name: node.observations[name] for name in node.acting} for node in live]
    answers = team.act_together(
        seen,
        num_generations,
        seed=int(seeds.generate_state(1)[0]),
        contexts=[node.said for node in live],
    )
    check_joint_answers(team, answers, seen, num_generations)
    return answers


def _act(
    agents: Mapping[str, Agent],
    live: Sequence[_Live],
    num_generations: int,
    seeds: np.random.SeedSequence,
) -> list[dict[str, tuple[Completion, ...]]]:
    """Ask every distinct agent once for all its observations; return answers by live node."""
    questions = [
        Question(name, node.observations[name], node.said.get(name))
        for node in live
        for name in node.acting
    ]
    groups = iter(ask(agents, questions, num_generations, seeds))
    return [{name: next(groups) for name in node.acting} for node in live]


def _joint_actions(
    num_agents: int, num_generations: int, joint_mode: JointMode
) -> tuple[tuple[int, ...], ...]:
    generations = range(num_generations)
    if joint_mode == "aligned":
        return tuple((k,) * num_agents for k in generations)
    return tuple(itertools.product(generations, repeat=num_agents))


def _actions(
    live: Sequence[_Live],
    completions: Sequence[Mapping[str, tuple[Completion, ...]]],
    joint: Sequence[tuple[tuple[int, ...], ...]],
) -> list[list[dict[str, str]]]:
    return [
        [
            {
                **dict.fromkeys(node.observations, ""),
                **{
                    name: group[k].text
                    for (name, group), k in zip(answers.items(), picks, strict=True)
                },
            }
            for picks in choices
        ]
        for node, answers, choices in zip(live, completions, joint, strict=True)
    ]


def _started(simulator: Simulator, rows: Sequence[int]) -> list[_Live]:
    chosen = [int(row) for row in rows]
    if simulator.has_rows:
        results = simulator.start(chosen, _seeds_of_rows(chosen))
    else:
        results = simulator.start(seeds=chosen)
    return [
        _Live(row, result.state, result.observations, result.infos)
        for row, result in zip(chosen, results, strict=True)
    ]


def _seeds_of_rows(rows: Sequence[int]) -> list[int]:
    """Return the rows, as seeds of what wrappers draw; one that comes again has another seed."""
    seen: Counter[int] = Counter()
    seeds = []
    for row in rows:
        seeds.append(row + seen[row] * 2**32)
        seen[row] += 1
    return seeds


def _level(
    live: Sequence[_Live],
    completions: Sequence[dict[str, tuple[Completion, ...]]],
    joint: Sequence[tuple[tuple[int, ...], ...]],
    results: Sequence[Sequence[StepResult]],
    *,
    turn: int,
) -> tuple[tuple[Node, ...], list[_Live]]:
    """Make the nodes of one turn, and the states that go on to the next."""
    nodes: list[Node] = []
    following: list[_Live] = []
    for node, answers, choices, siblings in zip(live, completions, joint, results, strict=True):
        children: list[int | None] = []
        for result, picks in zip(siblings, choices, strict=True):
            children.append(None if result.ended else len(following))
            if not result.ended:
                seen = {name: result.observations[name] for name in result.live}
                chosen = {
                    name: group[k] for (name, group), k in zip(answers.items(), picks, strict=True)
                }
                said = {**node.said, **chosen}
                following.append(_Live(node.row, result.state, seen, result.infos, said))
        nodes.append(
            Node(
                row=node.row,
                turn=turn,
                observations={name: node.observations[name] for name in answers},
                completions=answers,
                joint_actions=choices,
                rewards={
                    name: tuple(result.turn_rewards[name] for result in siblings)
                    for name in node.observations
                },
                ended=tuple(result.ended for result in siblings),
                children=tuple(children),
                turns_credited=tuple(result.turns_credited for result in siblings),
            )
        )
    return tuple(nodes), following
