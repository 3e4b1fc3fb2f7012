"""The team that comes of words: models are loaded here, and shared where they can be."""

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from motet import agents
from motet.agents.lora_config import require_peft
from motet.algos.cli.members import Member
from motet.algos.cli.mistakes import UsageError, as_mistakes, suggestion
from motet.algos.cli.show import without_bars

if TYPE_CHECKING:
    from peft import LoraConfig

POCKET_TOKENS = 200  # as `agents.pocket` has it


def build_team(
    env: Any, members: Mapping[str, Member], *, share: bool = False, seed: int = 0
) -> dict[str, agents.Agent]:
    """Load a team.

    Agents with adapters over the same model share its weights; all others have weights of their
    own, unless `share` makes all of them one agent.

    Args:
        env: the task; its action spaces are what `random` draws from.
        members: settings by agent.
        share: one policy for all.
        seed: of adapters' first weights, and of agents' own randomness.

    Raises:
        UsageError: where a model cannot be loaded, or agents that are to be one differ.
    """
    if share:
        first, *others = members.values()
        if any(other != first for other in others):
            raise UsageError(
                "Expected the same settings for all agents with --share, which makes them one, got "
                "different ones; leave --share out."
            )
        one = _build(env, next(iter(members)), first, seed, {})
        return dict.fromkeys(members, one)
    bases: dict[str, agents.LMAgent] = {}
    return {
        name: _build(env, name, member, seed + index, bases)
        for index, (name, member) in enumerate(members.items())
    }


def _build(
    env: Any, name: str, member: Member, seed: int, bases: dict[str, agents.LMAgent]
) -> agents.Agent:
    if not member.has_weights:
        return _without_weights(env, name, member)
    if member.lora_r is None:
        return load(member, seed)
    plain = replace(member, lora_r=None, lora_alpha=None, frozen=False)
    key = str(asdict(plain))
    if key not in bases:
        bases[key] = load(plain, seed)
    with as_mistakes():
        agent = bases[key].with_adapter(name, _lora(member))
    agent.frozen = member.frozen
    return agent


def _without_weights(env: Any, name: str, member: Member) -> agents.Agent:
    if member.lora_r is not None:
        raise UsageError(f"Expected a model with weights for lora_r, got {member.model}.")
    if member.model == "random":
        return agents.SpaceAgent(env.action_space(name))
    if member.model == "human":
        return agents.HumanAgent(name)
    kind, _, said = member.model.partition(":")
    if kind == "text":
        return agents.FixedAgent(said)
    local = "OPENAI_BASE_URL" in os.environ and "OPENAI_API_KEY" not in os.environ
    with as_mistakes():
        return agents.APIAgent(
            said,
            api_key_env=None if local else "OPENAI_API_KEY",
            system_prompt=member.system_prompt,
            generation=agents.GenerationConfig(**member.generation),
            history=member.history,
        )


def _lora(member: Member) -> "LoraConfig":
    require_peft()
    from peft import LoraConfig  # noqa: PLC0415  # an extra

    rank = member.lora_r or 1
    return LoraConfig(r=rank, lora_alpha=member.lora_alpha or 2 * rank)


def load(member: Member, seed: int | None = None) -> agents.LMAgent:
    """Load the language model of a member, without an adapter of its own.

    Raises:
        UsageError: where there is none, or its tokenizer has no chat template.
    """
    _check_device(member.device)
    pocket = member.model == "pocket"
    generation = {"max_new_tokens": POCKET_TOKENS} if pocket else {}
    options: dict[str, Any] = {} if member.revision is None else {"revision": member.revision}
    device = member.device or ("cpu" if pocket else None)
    try:
        with as_mistakes(), without_bars(always=pocket):
            return agents.LMAgent.from_pretrained(
                agents.pocket_path() if pocket else member.model,
                dtype=vars(torch)[member.dtype],
                device=device,
                generation=agents.GenerationConfig(**{**generation, **member.generation}),
                chat_template=member.chat_template,
                system_prompt=member.system_prompt,
                history=member.history,
                overflow=member.overflow,
                frozen=member.frozen,
                seed=seed,
                **options,
            )
    except OSError as exc:  # the hub's way of saying that there is no such model
        known = "" if Path(member.model).exists() else suggestion(member.model, ["pocket"])
        told = str(exc).strip().partition("\n")[0]
        raise UsageError(
            f"Expected a model on the hub or in a folder, got {member.model!r}: {told}{known}"
        ) from exc


def _check_device(name: str | None) -> None:
    """Raise where there is no such device, which torch says in many ways, some of them late."""
    if name is None:
        return
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as exc:
        told = str(exc).strip().partition("\n")[0]
        raise UsageError(
            f"Expected a device that torch can use here, such as cpu, got {name!r}: {told}"
        ) from exc
