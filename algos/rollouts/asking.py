"""Ask the agents of a team, each distinct one once for all that it is asked at the same time.

Wide batches are where the speed of a language model is: one object under several names, and all
nodes of all rows, go into one `act`, and agents over one model into one batch where it pays
(`motet.agents.side_by_side`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from motet.agents import Agent, Completion
from motet.agents.agent import TeamAgent
from motet.agents.side_by_side import Request, act_all


@dataclass(frozen=True, slots=True)
class Question:
    """What one agent is asked at one place.

    Attributes:
        name: of the agent.
        observation: what it sees.
        context: its own last completion on the way there; only agents that want one get it.
    """

    name: str
    observation: str
    context: Completion | None = None


def ask(
    agents: Mapping[str, Agent],
    questions: Sequence[Question],
    num_generations: int,
    seeds: np.random.SeedSequence,
) -> list[tuple[Completion, ...]]:
    """Ask every distinct agent once for all of its questions.

    Args:
        agents: agent by name.
        questions: (Q,) in any order.
        num_generations: G, independent answers to each.
        seeds: gives each distinct agent a seed.

    Returns:
        (Q,) tuples of (G,) completions.

    Raises:
        TypeError: where an agent answers in another shape than asked for.
        ValueError: where one that acts for several is not asked for all of them.
    """
    asked: dict[int, list[int]] = {}
    for place, question in enumerate(questions):
        asked.setdefault(id(agents[question.name]), []).append(place)
    requests = []
    for places, seed in zip(asked.values(), seeds.spawn(len(asked)), strict=True):
        agent = agents[questions[places[0]].name]
        _check_asked(agent, [questions[place].name for place in places])
        requests.append(
            Request(
                agent,
                [questions[place].observation for place in places],
                int(seed.generate_state(1)[0]),
                [questions[place].context for place in places],
            )
        )
    answers: list[tuple[Completion, ...]] = [()] * len(questions)
    found = act_all(requests, num_generations)
    for request, places, groups in zip(requests, asked.values(), found, strict=True):
        _check_answers(request.agent, groups, len(places), num_generations)
        for place, group in zip(places, groups, strict=True):
            answers[place] = tuple(group)
    return answers


def _check_asked(agent: Agent, asked: Sequence[str]) -> None:
    """An agent for several takes observations by place: others in their place would go unseen."""
    if not isinstance(agent, TeamAgent) or len(agent.names) < 2:
        return
    names = tuple(asked[: len(agent.names)])
    renamed = len(set(names)) == len(names) and not set(names) & set(agent.names)
    whole = list(names) * (len(asked) // len(agent.names)) == list(asked)
    if not whole or not (names == agent.names or renamed):
        raise ValueError(
            f"Expected one agent that acts for {list(agent.names)} to be asked for all of them, in "
            f"this order and in every turn, got {list(asked[:8])}; put it under all of these "
            "names, or use agents that act for one each."
        )


def _check_answers(agent: Agent, groups: object, wanted: int, num_generations: int) -> None:
    """An agent of somebody else's may answer in another shape than it was asked for."""
    shaped = isinstance(groups, list) and all(
        isinstance(group, list | tuple)
        and len(group) == num_generations
        and all(isinstance(completion, Completion) for completion in group)
        for group in groups
    )
    if not shaped or len(cast("list[Any]", groups)) != wanted:
        raise TypeError(
            f"Expected {wanted} lists of {num_generations} Completions from "
            f"{type(agent).__name__}.act, got {str(groups)[:200]}."
        )
