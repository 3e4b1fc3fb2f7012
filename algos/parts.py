"""Build an env and a team from loose parts: a model list, a reward function, a dataset.

It is the other way to call a trainer, `MAGRPOTrainer(agents=[model, model], tokenizer=...,
reward_func=..., train_dataset=...)`. There is one code path after it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from motet.agents import Agent, LMAgent
from motet.agents.loading import default_device
from motet.algos.config import TrainerConfig
from motet.algos.rollouts.collect import ParallelTextEnv
from motet.algos.suggesting import suggestion
from motet.envs import RewardProcessor, TextEnv
from motet.envs.simulator import text_env_of
from motet.envs.views.joint_view import is_vector


class TaskParts(TypedDict, total=False):
    """What a trainer builds its env from.

    Keys:
        tokenizer: one for all agents, or one per agent.
        reward_func: see `TextEnv`.
        reward_processor: see `TextEnv`.
        external_transition: see `TextEnv`'s `transition`.
        formatters: see `TextEnv`.
        train_dataset: rows to train on.
        eval_dataset: held-out rows.
    """

    tokenizer: PreTrainedTokenizerBase | Sequence[PreTrainedTokenizerBase]
    reward_func: Callable[..., Any]
    reward_processor: RewardProcessor | None
    external_transition: Callable[..., Sequence[str]] | None
    formatters: Any
    train_dataset: Any
    eval_dataset: Any


TeamMember: TypeAlias = Agent | PreTrainedModel | str | Path


def resolve_envs(
    env: ParallelTextEnv | None,
    eval_env: ParallelTextEnv | None,
    agents: Mapping[str, Agent] | Sequence[TeamMember],
    parts: TaskParts,
    config: TrainerConfig,
) -> tuple[ParallelTextEnv, ParallelTextEnv | None]:
    """Return the env to train on and the one to evaluate on, given or built.

    Args:
        env: what to train on, or None to build it.
        eval_env: what to evaluate on, where `env` is given.
        agents: a dict by name with `env`, a list with the parts.
        parts: the task, where `env` is None.
        config: its `num_turns` and `early_termination_threshold` go to an env that is built.

    Raises:
        ValueError: where a part is missing, or both ways are mixed.
        TypeError: where `agents` is no dict; and as `TextEnv`.
    """
    _check_names(parts)
    for name, given in (("env", env), ("eval_env", eval_env)):
        if given is not None:
            check_parallel_env(name, given)
    if env is None:
        if eval_env is not None:
            raise ValueError("Expected eval_dataset= with the parts of a task, got eval_env=.")
        _check_parts(parts)
        _check_members(agents)
        return _build_envs(parts, len(agents), config)
    if parts:
        raise ValueError(
            f"Expected env= or the parts of a task, got env= together with {sorted(parts)}; give "
            "them to the env."
        )
    if not isinstance(agents, Mapping):
        raise TypeError(
            f"Expected agents= as a dict by name with env=, {list(env.possible_agents)}; got "
            f"{type(agents).__name__}."
        )
    inner = text_env_of(env)
    if inner is not None:
        _check_env_settings(inner, config)
    if eval_env is not None and list(eval_env.possible_agents) != list(env.possible_agents):
        raise ValueError(
            f"Expected eval_env with the agents {list(env.possible_agents)} of env, got "
            f"{list(eval_env.possible_agents)}."
        )
    return env, eval_env


def _check_parts(parts: TaskParts) -> None:
    for name in ("reward_func", "train_dataset"):
        if parts.get(name) is None:
            raise ValueError(
                f"Expected env=, or reward_func= and train_dataset= to build one from; got neither "
                f"an env nor {name}."
            )


def _check_members(agents: object) -> None:
    if isinstance(agents, str) or not isinstance(agents, Sequence) or not agents:
        raise TypeError(
            f"Expected agents= as a list of models, one per agent, got {str(agents)[:80]}; for two "
            "agents that share one write [model, model]."
        )


def _check_names(parts: TaskParts) -> None:
    known = TaskParts.__annotations__
    for name in parts:
        if name not in known:
            hint = suggestion(name, known, "{}=")
            raise TypeError(
                f"Expected the parts of a task among {', '.join(known)}, got {name}=.{hint}"
            )


def check_parallel_env(name: str, env: object) -> None:
    """Raise where something is no env that rollouts can be collected from.

    Raises:
        TypeError: with what it lacks, or where it is one of numbers.
    """
    if isinstance(env, str):
        raise TypeError(f"Expected an env as {name}, got the text {env!r}; use envs.make({env!r}).")
    methods = ("reset", "step", "clone")
    missing = [method for method in methods if not callable(getattr(env, method, None))]
    if missing:
        raise TypeError(
            f"Expected a parallel env with reset, step and clone as {name}, got "
            f"{type(env).__name__} without {', '.join(missing)}."
        )
    _check_texts(name, env)


def _check_texts(name: str, env: Any) -> None:
    """Raise where a view shows numbers; an env need not have spaces."""
    seen, acted = (getattr(env, f"{what}_space", None) for what in ("observation", "action"))
    if not callable(seen) or not callable(acted):
        return
    for agent in env.possible_agents:
        if is_vector([seen(agent)], [acted(agent)]):
            raise TypeError(
                f"Expected an env of texts as {name}, got {env}, which shows {agent} numbers and "
                "takes numbers; learners of stable-baselines3 (sb3-ppo, ...) train in it, all "
                "others in the env of texts inside."
            )


def _check_env_settings(env: TextEnv, config: TrainerConfig) -> None:
    defaults = {field.name: field.default for field in fields(config)}
    for name in ("num_turns", "early_termination_threshold"):
        asked, actual = getattr(config, name), getattr(env, name)
        if asked not in (defaults[name], actual):
            raise ValueError(
                f"Expected {name} to be set where the env is made, got {name}={asked} in the "
                f"config and {actual} in the env; leave it out of the config."
            )


def _build_envs(
    parts: TaskParts, num_agents: int, config: TrainerConfig
) -> tuple[TextEnv, TextEnv | None]:
    def build(dataset: Any) -> TextEnv:
        return TextEnv(
            dataset,
            parts["reward_func"],
            transition=parts.get("external_transition"),
            formatters=parts.get("formatters"),
            num_agents=num_agents,
            num_turns=config.num_turns or 1,
            early_termination_threshold=config.early_termination_threshold,
            reward_processor=parts.get("reward_processor"),
        )

    held_out = parts.get("eval_dataset")
    return build(parts["train_dataset"]), None if held_out is None else build(held_out)


def build_team(members: Sequence[TeamMember], parts: TaskParts) -> dict[str, Agent]:
    """Return the agents by name: `agent_0`, `agent_1`, ...

    A model that is listed twice is one policy under two names. Models go to the GPU if there is
    one, as transformers' own trainers move them.

    Args:
        members: (N,) models, agents, or names to load.
        parts: its `tokenizer` goes with the models.

    Raises:
        ValueError: where a model has no tokenizer, or the number of tokenizers is wrong.
    """
    tokenizer = parts.get("tokenizer")
    tokenizers = list(tokenizer) if isinstance(tokenizer, list | tuple) else [tokenizer]
    if len(tokenizers) not in (1, len(members)):
        raise ValueError(
            f"Expected one tokenizer, or {len(members)}, one per agent; got {len(tokenizers)}."
        )
    tokenizers *= 1 if len(tokenizers) == len(members) else len(members)
    built: dict[tuple[int, int], Agent] = {}
    team: dict[str, Agent] = {}
    for index, (member, own) in enumerate(zip(members, tokenizers, strict=True)):
        if isinstance(member, str | Path):
            team[f"agent_{index}"] = LMAgent.from_pretrained(member)
            continue
        key = id(member), id(own)
        if key not in built:
            built[key] = _agent(member, own)
        team[f"agent_{index}"] = built[key]
    return team


def _agent(member: Agent | PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> Agent:
    if not isinstance(member, nn.Module):  # models of transformers, also in peft's wrapper
        return member
    if tokenizer is None:
        raise ValueError(
            f"Expected tokenizer= together with the model {type(member).__name__}, got None."
        )
    return LMAgent(member.to(default_device()), tokenizer)
