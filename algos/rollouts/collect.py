"""Sample a team's trees, level by level.

Per turn there is one `act` for each distinct agent over all live nodes of all rows, and one call of
the env for all their joint actions: wide batches are where the speed of a language model is.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np

from motet.agents import Agent, Completion
from motet.agents.agent import CachingAgent, wants_contexts
from motet.algos.rollouts.asking import Question, ask
from motet.algos.rollouts.best_branch import only_best
from motet.algos.rollouts.greedy import GreedyEpisodes
from motet.algos.rollouts.joint_policy import (
    JointAnswers,
    JointPolicy,
    Team,
    agents_of,
    check_joint_answers,
    greedy_team,
    with_drafts,
)
from motet.algos.rollouts.rollout import Node, Rollout
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

    def actions(self, chosen: Mapping[str, Completion]) -> dict[str, str]:
        """Return a joint action for the env from what the acting agents say."""
        said = {name: completion.text for name, completion in chosen.items()}
        return {**dict.fromkeys(self.observations, ""), **said}

    def after(self, chosen: Mapping[str, Completion], result: StepResult) -> "_Live":
        """Return the state that follows what the acting agents said."""
        seen = {name: result.observations[name] for name in result.live}
        return _Live(self.row, result.state, seen, result.infos, {**self.said, **chosen})


@dataclass(frozen=True, slots=True)
class _Plan:
    """How trees are to be grown; see `collect_rollouts`."""

    num_generations: int
    joint_mode: JointMode
    branches: Branches
    with_state: bool
    on_turn: Callable[[int, int], None] | None = None

    def check_size(self, live: Sequence[_Live], turn: int) -> None:
        """Raise where a turn would have too many joint actions."""
        exponents = [len(node.acting) if self.joint_mode == "cross" else 1 for node in live]
        total = sum(self.num_generations**exponent for exponent in exponents)
        if total > MAX_JOINT_ACTIONS:
            raise ValueError(
                f"Expected at most {MAX_JOINT_ACTIONS} joint actions in a turn, got {total} at "
                f"turn {turn}; lower num_generations or the number of rows, or use "
                "joint_mode='aligned'."
            )


def collect_rollouts(  # noqa: PLR0913  # each is a choice of its own
    env: ParallelTextEnv,
    agents: Team,
    rows: Sequence[int],
    *,
    num_generations: int,
    joint_mode: JointMode = "aligned",
    branches: Branches = "all",
    seed: int | None = None,
    greedy_baseline: bool = False,
    with_state: bool = False,
    on_turn: Callable[[int, int], None] | None = None,
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
            and with no other (see the module `best_branch`); each is judged by itself where
            episodes end early, since no other is played.
        seed: makes the rollout reproducible.
        greedy_baseline: play a greedy episode from every node, too, and keep its rewards there
            (`motet.algos.rollouts.greedy`); what is sampled is the same with it and without.
        with_state: ask the env for its `state()` at every node, which a central critic reads.
        on_turn: called after each turn with its number and how many branches go on.

    Returns:
        The trees.

    Raises:
        ValueError: where the agents are not those of the env, a mode is unknown or asks a
            `JointPolicy` for more than it has, G is below 1, there are no rows, a reward is not
            finite, or one turn would have more than `MAX_JOINT_ACTIONS` joint actions.
        TypeError: where an agent is none, or answers in another shape than asked for, or where
            `state()` returns no texts.
    """
    _check(env, agents_of(agents), num_generations, joint_mode)
    _check_branches(agents, joint_mode, branches)
    if len(rows) == 0:
        raise ValueError("Expected at least one row to collect from, got none.")
    simulator = make_simulator(env)
    greedy: Team = greedy_team(agents) if greedy_baseline else {}
    plan = _Plan(num_generations, joint_mode, branches, with_state, on_turn)
    with ExitStack() as caches:
        asked = [*agents_of(agents).values(), *agents_of(greedy).values()]
        for agent in {id(agent): agent for agent in asked}.values():
            if wants_contexts(agent) and isinstance(agent, CachingAgent):
                caches.enter_context(agent.keeping_caches())
        levels = _grown(simulator, agents, greedy, rows, plan, seed)
    return Rollout(tuple(env.possible_agents), levels)


def _grown(
    simulator: Simulator,
    agents: Team,
    greedy: Team,
    rows: Sequence[int],
    plan: _Plan,
    seed: int | None,
) -> tuple[tuple[Node, ...], ...]:
    """Play turn after turn until every branch has ended; return the nodes by level."""
    seeds = np.random.SeedSequence(seed)
    live = _started(simulator, rows)
    levels: list[tuple[Node, ...]] = []
    episodes = GreedyEpisodes[_Live](
        lambda live, seeds: [each.completions for each in _answers(greedy, live, 1, seeds)]
    )
    while live or episodes.running:
        turn = len(levels) + 1
        plan.check_size(live, turn)
        turn_seeds = seeds.spawn(1)[0]
        answers = _answers(agents, live, plan.num_generations, turn_seeds)
        completions = [each.completions for each in answers]
        joint = [
            _joint_actions(len(group), plan.num_generations, plan.joint_mode)
            for group in completions
        ]
        if greedy:
            episodes.begin(live, depth=len(levels))
        beside, greedy_actions = episodes.act(turn_seeds.spawn(1)[0])
        results = step_siblings(
            simulator,
            [node.state for node in live + beside],
            _actions(live, completions, joint) + greedy_actions,
            apart=plan.branches == "best",
        )
        episodes.advance(results[len(live) :])
        if live:
            views = simulator.state_texts([each.state for each in live]) if plan.with_state else []
            nodes, live = _level(live, completions, joint, results[: len(live)], turn=turn)
            if plan.with_state:
                nodes = tuple(replace(n, state=view) for n, view in zip(nodes, views, strict=True))
            if plan.branches == "best":
                nodes, live = only_best(nodes, live)
            levels.append(with_drafts(nodes, answers))
            if plan.on_turn is not None:
                plan.on_turn(turn, len(live))
    return episodes.recorded(levels)


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
    if not live:
        return []
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
    if joint_mode == "aligned" and num_agents:  # a turn that is nobody's has one empty action
        return tuple((k,) * num_agents for k in generations)
    return tuple(itertools.product(generations, repeat=num_agents))


def _actions(
    live: Sequence[_Live],
    completions: Sequence[Mapping[str, tuple[Completion, ...]]],
    joint: Sequence[tuple[tuple[int, ...], ...]],
) -> list[list[dict[str, str]]]:
    return [
        [node.actions(_chosen(answers, picks)) for picks in choices]
        for node, answers, choices in zip(live, completions, joint, strict=True)
    ]


def _chosen(
    answers: Mapping[str, tuple[Completion, ...]], picks: Sequence[int]
) -> dict[str, Completion]:
    """Return what each acting agent says in a joint action."""
    return {name: group[k] for (name, group), k in zip(answers.items(), picks, strict=True)}


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
                following.append(node.after(_chosen(answers, picks), result))
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
