"""Fixed teams by name: what training is worth shows beside them.

| name         | who plays                                                 | cost per turn      |
|--------------|-----------------------------------------------------------|--------------------|
| `random`     | texts drawn from the action spaces, or from a list        | none               |
| `scripted`   | the agents that are given, texts and functions too        | theirs             |
| `frozen`     | the team that is given, untrained                         | N completions      |
| `best-of-n`  | the same; the best-paid of n joint completions is played  | n N, and n rewards |
| `pipeline`   | the same, one by one: each reads who wrote before it      | N, in N stages     |
| `discussion` | the same: all draft, then each reads the others' drafts   | 2 N, in 2 stages   |

    algos.make("best-of-n", env, team, algos.BestOfNConfig(num_generations=8)).evaluate()

`train` only evaluates. Two things to know when they are compared with learners:

1. `best-of-n` is an oracle: it is shown the rewards of the evaluation itself, turn by turn, and
   chooses by them. Nothing that is trained and then acts alone has that. It says how good the
   completions are that these models already sample.
2. `pipeline` and `discussion` let agents communicate within a turn. A team that acts at the same
   time cannot; where the task is one of coordination, that is most of the difference.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from motet.agents import Agent, FixedAgent, RandomAgent, SpaceAgent
from motet.algos.checks import check_team
from motet.algos.fixed.discussion import Discussion
from motet.algos.fixed.fixed_config import (
    BestOfNConfig,
    DiscussionConfig,
    FixedConfig,
    FrozenConfig,
    PipelineConfig,
    RandomConfig,
    SamplingConfig,
    ScriptedConfig,
)
from motet.algos.fixed.fixed_team import FixedTeam
from motet.algos.fixed.pipeline import Pipeline
from motet.algos.parts import check_parallel_env
from motet.algos.registration import register
from motet.algos.rollouts.collect import ParallelTextEnv
from motet.algos.team import with_sampling

Config = TypeVar("Config", bound=FixedConfig)
Scripted = Agent | str | Callable[[str], str]


@register("random", RandomConfig)
def random_team(
    *,
    env: ParallelTextEnv,
    agents: Mapping[str, Any] | None = None,
    config: RandomConfig | None = None,
    **options: Any,
) -> FixedTeam:
    """Texts at random, from the action spaces or from a list.

    Args:
        env: see `FixedTeam`.
        agents: the team that it stands in for; they are not asked, and may be left out.
        config: a `RandomConfig`.
        **options: see `FixedTeam`.

    Raises:
        ValueError: where the agents are not those of the env.
        TypeError: where the action spaces are not of texts, or the env has none.
    """
    config = _checked(config, RandomConfig)
    check_parallel_env("env", env)
    if agents:
        check_team(env, agents)
    names = env.possible_agents
    if config.texts is not None:
        return FixedTeam(
            env, {name: RandomAgent(config.texts) for name in names}, config, **options
        )
    spaces: Any = getattr(env, "action_space", None)  # not all envs that are played have one
    if not callable(spaces):
        raise TypeError(
            f"Expected texts= for an env without action_space, got {env!r}; "
            "pass RandomConfig(texts=[...])."
        )
    return FixedTeam(env, {name: SpaceAgent(spaces(name)) for name in names}, config, **options)


@register("scripted", ScriptedConfig)
def scripted_team(
    *,
    env: ParallelTextEnv,
    agents: Mapping[str, Scripted],
    config: ScriptedConfig | None = None,
    **options: Any,
) -> FixedTeam:
    """The agents as they are given, among them texts and functions of the observation.

    Args:
        env: see `FixedTeam`.
        agents: by name an agent, a text that is always said, or a function from observation to
            text.
        config: a `ScriptedConfig`.
        **options: see `FixedTeam`.
    """
    config = _checked(config, ScriptedConfig)
    team = {
        name: agent if isinstance(agent, Agent) else FixedAgent(agent)
        for name, agent in _by_name(agents).items()
    }
    return FixedTeam(env, team, config, **options)


@register("frozen", FrozenConfig)
def frozen_team(
    *,
    env: ParallelTextEnv,
    agents: Mapping[str, Agent],
    config: FrozenConfig | None = None,
    **options: Any,
) -> FixedTeam:
    """The team as it is before training.

    Args:
        env: see `FixedTeam`.
        agents: agent by name.
        config: a `FrozenConfig`.
        **options: see `FixedTeam`.
    """
    config = _checked(config, FrozenConfig)
    return FixedTeam(env, _samplers(agents, config), config, **options)


@register("best-of-n", BestOfNConfig)
def best_of_n(
    *,
    env: ParallelTextEnv,
    agents: Mapping[str, Agent],
    config: BestOfNConfig | None = None,
    **options: Any,
) -> FixedTeam:
    """The best-paid of n joint completions in each turn: an oracle that sees the rewards.

    Args:
        env: see `FixedTeam`.
        agents: agent by name.
        config: a `BestOfNConfig`.
        **options: see `FixedTeam`.
    """
    config = _checked(config, BestOfNConfig)
    team = _samplers(agents, config)
    return FixedTeam(env, team, config, best_of=config.num_generations, **options)


@register("pipeline", PipelineConfig)
def pipeline_team(
    *,
    env: ParallelTextEnv,
    agents: Mapping[str, Agent],
    config: PipelineConfig | None = None,
    **options: Any,
) -> FixedTeam:
    """The untrained team one after the other: each reads what was written before it this turn.

    Args:
        env: see `FixedTeam`.
        agents: agent by name.
        config: a `PipelineConfig`.
        **options: see `FixedTeam`.
    """
    config = _checked(config, PipelineConfig)
    team = Pipeline(_samplers(agents, config), template=config.template, order=config.order)
    return FixedTeam(env, team, config, **options)


@register("discussion", DiscussionConfig)
def discussion_team(
    *,
    env: ParallelTextEnv,
    agents: Mapping[str, Agent],
    config: DiscussionConfig | None = None,
    **options: Any,
) -> FixedTeam:
    """The untrained team after one round of discussion: each reads the others' drafts.

    Args:
        env: see `FixedTeam`.
        agents: agent by name.
        config: a `DiscussionConfig`.
        **options: see `FixedTeam`.
    """
    config = _checked(config, DiscussionConfig)
    team = Discussion(_samplers(agents, config), template=config.template)
    return FixedTeam(env, team, config, **options)


def _checked(config: Config | None, kind: type[Config]) -> Config:
    if config is None:
        return kind()
    if not isinstance(config, kind):
        names = ", ".join(field.name for field in fields(kind))
        raise TypeError(
            f"Expected a {kind.__name__} as config, got {config!r}; its fields are {names}."
        )
    return config


def _samplers(agents: Mapping[str, Agent], config: SamplingConfig) -> dict[str, Agent]:
    return with_sampling(_by_name(agents), **config.generation)


def _by_name(agents: object) -> Mapping[str, Any]:
    if not isinstance(agents, Mapping):
        raise TypeError(f"Expected agents= as a dict by name, got {type(agents).__name__}.")
    return agents
