"""Ask several agents at once: language models over one model decode side by side where it pays.

Agents with an adapter each over one base, and the plain base beside them, are rows of one batch
(`motet.agents.mixed_adapters`). Each draws from the random numbers that its own seed gives it, so
that it says what it says when it is asked apart, up to rounding.

What it gains was measured (`make bench-adapters`; docs/adapters.md has the table): with rank 16 in
all linear layers of SmolLM2-135M, one thread of a CPU, one batch is 1.48 times as fast with two
agents of 4 rows each, 1.18 with 16, 1.09 with 32, and 0.96 with 64; with four agents 2.20, 1.39,
1.14 and 0.86. Over the embedded model it gains at all of these. On GPUs it was not measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from motet.agents.agent import Agent, Completion, wants_contexts
from motet.agents.decoding import decoding
from motet.agents.lm_agent import LMAgent
from motet.agents.mixed_adapters import can_mix
from motet.agents.sampler import sample

# On a CPU a batch of this many rows of each agent is as fast apart: its products cost what their
# numbers cost, and each adapter is added to the weights before they are multiplied with.
MAX_CPU_ROWS = 32


@dataclass(frozen=True, slots=True)
class Request:
    """What one agent is asked.

    Attributes:
        agent: who.
        observations: (B,) what it sees.
        seed: of its answers.
        contexts: (B,) its own last completions; agents that want none do not get them.
    """

    agent: Agent
    observations: Sequence[str]
    seed: int | None = None
    contexts: Sequence[Completion | None] | None = None


def act_all(
    requests: Sequence[Request],
    num_generations: int,
    *,
    pays: Callable[[Sequence[Request], int], bool] | None = None,
) -> list[list[list[Completion]]]:
    """Ask agents at the same time; each answers as `act` would.

    Args:
        requests: one for each distinct agent.
        num_generations: G.
        pays: tells whether requests are to be one batch, from them and G; default: `mixing_pays`.

    Returns:
        For each request, what `act` returns.
    """
    groups: dict[object, list[int]] = {}
    for place, request in enumerate(requests):
        groups.setdefault(_batch_of(request.agent), []).append(place)
    answers: list[list[list[Completion]]] = [[] for _ in requests]
    for places in groups.values():
        asked = [requests[place] for place in places]
        if len(asked) > 1 and (pays or mixing_pays)(asked, num_generations):
            found = _act_mixed(asked, num_generations)
        else:
            found = [_act_alone(request, num_generations) for request in asked]
        for place, own in zip(places, found, strict=True):
            answers[place] = own
    return answers


def mixing_pays(requests: Sequence[Request], num_generations: int) -> bool:
    """Tell whether agents over one model are sampled faster in one batch than apart.

    Args:
        requests: of agents that could share a batch.
        num_generations: G.
    """
    agents = [request.agent for request in requests if isinstance(request.agent, LMAgent)]
    model, adapters = agents[0].model, [agent.adapter for agent in agents]
    if len(set(adapters)) > 1:
        rows = num_generations * sum(len(request.observations) for request in requests)
        if model.device.type == "cpu" and rows > MAX_CPU_ROWS * len(requests):
            return False
        return can_mix(model, adapters)
    return True


def _batch_of(agent: Agent) -> object:
    """Return the same for agents that may be rows of one batch."""
    # an agent of another class may do more than sample
    if not isinstance(agent, LMAgent) or type(agent).act is not LMAgent.act or agent.keeps_caches:
        return id(agent)
    return id(agent.model), id(agent.tokenizer), agent.generation, agent.stop_ids


def _act_alone(request: Request, num_generations: int) -> list[list[Completion]]:
    told: dict[str, Any] = {}
    if wants_contexts(request.agent):
        told["contexts"] = request.contexts
    return request.agent.act(request.observations, num_generations, seed=request.seed, **told)


def _act_mixed(requests: Sequence[Request], num_generations: int) -> list[list[list[Completion]]]:
    """Sample agents over one model in one batch."""
    agents, prompts, uniforms = [], [], []
    for request in requests:
        agent = request.agent
        assert isinstance(agent, LMAgent)  # for mypy
        contexts = request.contexts if wants_contexts(agent) else None
        agents.append(agent)
        prompts.append(agent.prompts(request.observations, num_generations, contexts))
        uniforms.append(agent.uniforms(len(prompts[-1]), request.seed))
    first = agents[0]
    rows = [prompt for own in prompts for prompt in own]
    adapters = [agent.adapter for agent, own in zip(agents, prompts, strict=True) for _ in own]
    if not rows:
        return [[[] for _ in request.observations] for request in requests]
    with decoding(first.model, first.generation, adapters) as mixed:
        sampled = sample(
            first.model, rows, first.generation, first.stops, torch.cat(uniforms), mixed=mixed
        )
    answers, start = [], 0
    for agent, own in zip(agents, prompts, strict=True):
        answers.append(agent.completions(own, sampled[start : start + len(own)], num_generations))
        start += len(own)
    return answers
