"""What a run is made of: what a checkpoint must find again in the run that goes on from it.

Settings are compared by `motet.algos.checkpoint`. This is about env and agents, as far as they can
be told apart: functions, such as a task's reward, cannot.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from motet.agents import Agent, LMAgent
from motet.agents.agent import DescribedAgent
from motet.algos.rollouts.collect import ParallelTextEnv
from motet.algos.streaming import stream_of
from motet.algos.updates.update import PolicyUpdater
from motet.envs.simulator import named_layers, text_env_of

_SAMPLE = 4096  # numbers of each weight that its digest is made of


def run_identity(
    env: ParallelTextEnv, samplers: Mapping[str, Agent], updaters: Sequence[PolicyUpdater]
) -> dict[str, str]:
    """Return what a run is made of, by name.

    Args:
        env: that is trained on.
        samplers: agents as they sample.
        updaters: of the policies that are trained.
    """
    return env_identity(env) | _of_team(samplers, updaters)


def check_identity(found: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Raise where a checkpoint is of another run.

    Args:
        found: in the checkpoint.
        own: of the run that is to go on.

    Raises:
        ValueError: with all that differs.
    """
    names = [name for name in {**found, **own} if found.get(name) != own.get(name)]
    if names:
        told = ", ".join(f"{name}: {found.get(name)} there, {own.get(name)} here" for name in names)
        raise ValueError(
            f"Expected the env and the agents that the checkpoint's run began with, got {told}."
        )


def env_identity(env: ParallelTextEnv) -> dict[str, str]:
    """Return what can be told of an env, by name."""
    inner = text_env_of(env)
    layers = {"env": named_layers(env)}
    if inner is None:
        return layers
    rows = "a stream" if stream_of(env) is not None else str(len(inner.dataset))
    threshold = inner.early_termination_threshold
    return layers | {
        "task": str(inner),
        "rows": rows,
        "num_turns": str(inner.num_turns),
        "early_termination": f"{inner.early_termination} above {threshold}",
    }


def _of_team(samplers: Mapping[str, Agent], updaters: Sequence[PolicyUpdater]) -> dict[str, str]:
    policy_of = {name: each.policy.name for each in updaters for name in each.policy.agents}
    trained = {id(weight) for each in updaters for weight in each.policy.parameters()}
    known: dict[int, str] = {}
    parts = {}
    for name, agent in samplers.items():
        parts[name] = type(agent).__name__
        if isinstance(agent, DescribedAgent):
            parts |= {f"{what} of {name}": told for what, told in agent.settings.items()}
        if not isinstance(agent, LMAgent):
            continue
        parts[name] = f"policy of {policy_of[name]}" if name in policy_of else "frozen"
        kept = [weight for weight in agent.model.parameters() if id(weight) not in trained]
        if kept and id(agent.model) not in known:
            known[id(agent.model)] = digest(kept)
        if kept:
            parts[f"weights of {name} that are not trained"] = known[id(agent.model)]
    for each in updaters:
        reference = each.reference_weights()
        if reference:
            parts[f"reference of {each.policy.name}"] = digest(reference)
    return parts


@torch.no_grad()
def digest(weights: Iterable[Tensor]) -> str:
    """Return a short text that other weights, their shapes, or another precision change.

    Large ones are sampled, so that billions take no time; what touches no sampled number is missed.
    """
    found = 0
    for weight in weights:
        flat = weight.detach().reshape(-1)
        some = flat[:: max(1, len(flat) // _SAMPLE)].cpu().contiguous()
        told = f"{tuple(weight.shape)} {weight.dtype}".encode()
        found = zlib.crc32(some.view(torch.uint8).numpy().tobytes(), zlib.crc32(told, found))
    return f"{found:08x}"
