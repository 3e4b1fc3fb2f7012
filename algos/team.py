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


def check_agent(name: str, agent: object) -> None:
    """Raise where something is no agent.

    Raises:
        TypeError: where it has no `act`, with how to make an agent of a model.
    """
    if not isinstance(agent, Agent) or isinstance(agent, type):
        raise TypeError(
            f"Expected an agent for {name}, with a method act, got {type(agent).__name__}; wrap a "
            "model as LMAgent(model, tokenizer), or load one with LMAgent.from_pretrained(name)."
        )


def _check_trained(name: str, agent: LMAgent) -> None:
    if agent.frozen:
        raise ValueError(
            f"Expected all agents with one model to be frozen or none, got {name} frozen and "
            "another trained: its weights would change. Load the model twice."
        )
    if not agent.generation.do_sample:
        raise ValueError(
            f"Expected do_sample=True for {name} while it is trained, got False: the most likely "
            "tokens have nothing to be compared with. Set it for evaluation only."
        )


def _has_trainable_weights(agent: LMAgent) -> bool:
    return any(weight.requires_grad for weight in agent.model.parameters())


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
        TypeError: where one of the team is no agent.
        ValueError: where there is none, where a model has frozen and unfrozen agents, or where an
            agent to be trained does not sample.
    """
    for name, agent in agents.items():
        check_agent(name, agent)
    members: dict[int, dict[str, LMAgent]] = {}
    for name, agent in agents.items():
        if isinstance(agent, LMAgent) and not agent.frozen and _has_trainable_weights(agent):
            members.setdefault(id(agent.model), {})[name] = agent
    for name, agent in agents.items():
        if isinstance(agent, LMAgent) and id(agent.model) in members:
            _check_trained(name, agent)
    if not members:
        kinds = {name: type(agent).__name__ for name, agent in agents.items()}
        raise ValueError(
            f"Expected at least one LMAgent that is not frozen, got {kinds}: there is nothing to "
            "train."
        )
    return [
        Policy(next(iter(group)), next(iter(group.values())).model, group)
        for group in members.values()
    ]
