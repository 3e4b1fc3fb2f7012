"""Who is trained: views of agents with other sampling settings, and the policies behind them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from motet.agents import Agent, LMAgent


@dataclass(frozen=True, slots=True)
class Policy:
    """One set of weights and the agents that act with it.

    Attributes:
        name: the first of its agents.
        model: the weights.
        agents: language-model agents by name that share it.
    """

    name: str
    model: PreTrainedModel
    agents: dict[str, LMAgent]


def with_sampling(agents: Mapping[str, Agent], **changes: Any) -> dict[str, Agent]:
    """Return the team with other sampling settings; shared agents stay shared.

    Agents without a language model are returned as they are.

    Args:
        agents: agent by name.
        **changes: fields of `GenerationConfig`.
    """
    views: dict[int, Agent] = {}
    for agent in agents.values():
        if id(agent) not in views:
            views[id(agent)] = (
                agent.with_generation(**changes) if isinstance(agent, LMAgent) else agent
            )
    return {name: views[id(agent)] for name, agent in agents.items()}


def trainable_policies(agents: Mapping[str, Agent]) -> list[Policy]:
    """Return the policies of a team that a learner may change: language models not frozen.

    Raises:
        ValueError: where there is none.
    """
    members: dict[int, dict[str, LMAgent]] = {}
    for name, agent in agents.items():
        if isinstance(agent, LMAgent) and not agent.frozen:
            members.setdefault(id(agent.model), {})[name] = agent
    if not members:
        kinds = {name: type(agent).__name__ for name, agent in agents.items()}
        raise ValueError(
            f"Expected at least one language model that is not frozen, got {kinds}: there is "
            "nothing to train."
        )
    return [
        Policy(next(iter(group)), next(iter(group.values())).model, group)
        for group in members.values()
    ]
