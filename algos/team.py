"""Who is trained: views of agents with other sampling settings, and the policies behind them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from motet.agents import Agent, LMAgent
from motet.agents.adapters import activated, adapter_names, adapter_parameters
from motet.agents.agent import GreedyAgent
from motet.agents.quantization import is_quantized


@dataclass(frozen=True, slots=True)
class Policy:
    """One set of trained weights and the agents that act with it.

    Attributes:
        name: the first of its agents.
        model: the weights, or what the adapter is in.
        agents: language-model agents by name that share it.
        adapter: which adapter in the model is trained, None where all of the model is.
    """

    name: str
    model: PreTrainedModel
    agents: dict[str, LMAgent]
    adapter: str | None = None

    def parameters(self) -> list[nn.Parameter]:
        """Return the weights that are trained, each once."""
        if self.adapter is not None:
            return adapter_parameters(self.model, self.adapter)
        return [weight for weight in self.model.parameters() if weight.requires_grad]

    @contextmanager
    def activated(self) -> Iterator[None]:
        """Compute with the policy's adapter, forward and backward; afterwards it is as before.

        Raises:
            ValueError: where an adapter was added to its model since the policy was made, or
                peft froze its own.
        """
        if self.adapter is None:
            frozen = bool(adapter_names(self.model))
        else:
            frozen = not all(weight.requires_grad for weight in self.parameters())
        if frozen:
            raise ValueError(
                f"Expected weights that require a gradient for the policy of {self.name}, got "
                "frozen ones: an adapter was added to its model, or peft's set_adapter was called. "
                "Make the team and the trainer after that."
            )
        with activated(self.model, self.adapter):
            yield


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


def _is_trained(name: str, agent: Agent) -> bool:
    if not isinstance(agent, LMAgent) or agent.frozen:
        return False
    if agent.adapter is not None:
        return True
    others = adapter_names(agent.model)
    if others:
        raise ValueError(
            f"Expected an adapter for {name}, or frozen=True, got the plain base of the adapters "
            f"{others}: training it would change them. Give it one of its own with "
            "agent.with_adapter(name), or load the model twice."
        )
    if is_quantized(agent.model):
        raise ValueError(
            f"Expected an adapter for {name}, or frozen=True, got weights in 4 or 8 bits, which "
            "cannot be trained. Give it an adapter with agent.with_adapter(name), or load the "
            "model without quantization_config."
        )
    return any(weight.requires_grad for weight in agent.model.parameters())


def with_sampling(agents: Mapping[str, Agent], **changes: Any) -> dict[str, Agent]:
    """Return the team with other sampling settings; shared agents stay shared.

    Of agents without a language model, those that can leave chance out do so with
    `do_sample=False`; all others are returned as they are.

    Args:
        agents: agent by name.
        **changes: fields of `GenerationConfig`.
    """
    views: dict[int, Agent] = {}
    for agent in agents.values():
        if id(agent) not in views:
            views[id(agent)] = _with_sampling(agent, changes)
    return {name: views[id(agent)] for name, agent in agents.items()}


def _with_sampling(agent: Agent, changes: Mapping[str, Any]) -> Agent:
    if isinstance(agent, LMAgent):
        return agent.with_generation(**changes)
    if changes.get("do_sample") is False and isinstance(agent, GreedyAgent):
        return agent.greedy()
    return agent


def trainable_policies(agents: Mapping[str, Agent]) -> list[Policy]:
    """Return the policies of a team that a learner may change: language models not frozen.

    Raises:
        TypeError: where one of the team is no agent.
        ValueError: where there is none, where a model or an adapter has frozen and unfrozen agents,
            where one would train the base of others' adapters, or where an agent to be trained does
            not sample.
    """
    for name, agent in agents.items():
        check_agent(name, agent)
    members: dict[tuple[int, str | None], dict[str, LMAgent]] = {}
    for name, agent in agents.items():
        if isinstance(agent, LMAgent) and _is_trained(name, agent):
            members.setdefault((id(agent.model), agent.adapter), {})[name] = agent
    for name, agent in agents.items():
        if isinstance(agent, LMAgent) and (id(agent.model), agent.adapter) in members:
            _check_trained(name, agent)
    if not members:
        kinds = {name: type(agent).__name__ for name, agent in agents.items()}
        raise ValueError(
            f"Expected at least one LMAgent that is not frozen, got {kinds}: there is nothing to "
            "train."
        )
    policies = []
    for group in members.values():
        name, first = next(iter(group.items()))
        policies.append(Policy(name, first.model, group, first.adapter))
    return policies
