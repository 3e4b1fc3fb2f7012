"""A text env as one of picks that agents can be trained in, and the text env in one of picks.

A trained pick is to play in texts. What the policy sees must then be what an agent is told: its
prompt. The view's turn and last reward are hidden from it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from motet.agents import Agent
from motet.algos.choices.sb3_config import SB3Config
from motet.algos.team import check_agent
from motet.envs.simulator import whole_clone
from motet.envs.views.joint_view import is_vector
from motet.envs.wrappers.candidates import FixedCandidates, Strategies
from motet.envs.wrappers.pick_of_k import PickOfK


def picking_env(env: Any, agents: Mapping[str, Agent] | Agent | None, config: SB3Config) -> Any:
    """Return a clone of an env of picks, or the view of a text env that the config asks for.

    Args:
        env: a text env, or one with a `PickOfK` in it, possibly wrapped.
        agents: who writes where the config has strategies, or neither these nor candidates.
        config: what to pick from.

    Raises:
        TypeError: where the env is neither.
        ValueError: where what to pick from is said twice or not at all.
    """
    _check_env(env)
    if isinstance(agents, Mapping) and not agents:
        agents = None
    if pick_layer(env) is not None:
        return _without_progress(env, agents, config)
    names = list(env.possible_agents)
    if any(is_vector([env.observation_space(n)], [env.action_space(n)]) for n in names):
        raise TypeError(
            f"Expected a text env, or one with PickOfK in it, got {env}, whose numbers no agent "
            "that reads texts can see."
        )
    writers = None if agents is None else _checked_writers(agents, names)
    candidates: Any = config.candidates
    strategies: Any = config.strategies
    if candidates is None:
        _check_writing(writers, config)
    if candidates is None and strategies is None:
        candidates = writers
    return PickOfK(
        env,
        candidates,
        k=config.k,
        strategies=strategies,
        writer=None if strategies is None else writers,
        show_progress=False,
    )


def text_env_in(env: Any) -> Any:
    """Return a clone of an env of picks without its `PickOfK`: what its picks are played in.

    Wrappers around it stay; they see texts.
    """
    twin = whole_clone(env)
    if isinstance(twin, PickOfK):
        return twin.env
    outer = twin
    while not isinstance(outer.env, PickOfK):
        outer = outer.env
    outer.env = outer.env.env
    return twin


def pick_layer(env: Any) -> PickOfK | None:
    """Return the `PickOfK` in an env, None where there is none."""
    while not isinstance(env, PickOfK):
        if "env" not in getattr(env, "__dict__", ()):
            return None
        env = env.env
    return env


def check_masks(env: Any, learner: str) -> None:
    """Raise where some agent has fewer candidates than others, and the learner knows no masks.

    Raises:
        ValueError: with the learner that does.
    """
    layer = pick_layer(env)
    assert layer is not None  # of `picking_env`
    source = layer.offers.source
    if isinstance(source, FixedCandidates):
        numbers = {name: len(texts) for name, texts in source.texts.items()}
    elif isinstance(source, Strategies):
        numbers = {name: len(chosen) for name, chosen in source.strategies.items()}
    else:
        return
    if learner != "sb3-maskable-ppo" and min(numbers.values()) < layer.k:
        raise ValueError(
            f"Expected {layer.k} candidates for each agent with {learner}, which knows no masks, "
            f"got {numbers}; use sb3-maskable-ppo."
        )


def check_all_act(infos: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Raise where it is not everybody's turn, or somebody has left.

    A policy of the whole team is asked for all of its agents, and for them alone who act.

    Args:
        infos: by episode that goes on, the infos by agent.
        names: of the team.

    Raises:
        ValueError: with what to do.
    """
    for by_agent in infos:
        for name in names:
            if name not in by_agent or not by_agent[name].get("acts", True):
                raise ValueError(
                    f"Expected all of {list(names)} to act in every turn, for a policy that picks "
                    f"for all of them, got a turn without {name}; use mode='shared'."
                )


def _check_env(env: Any) -> None:
    if isinstance(env, str):
        raise TypeError(f"Expected an env, got the text {env!r}; use envs.make({env!r}).")
    methods = ("reset", "step", "clone", "get_state", "set_state")
    missing = [method for method in methods if not callable(getattr(env, method, None))]
    if missing:
        raise TypeError(
            f"Expected a parallel env with {', '.join(methods)}, got {type(env).__name__} without "
            f"{', '.join(missing)}."
        )


def _without_progress(env: Any, agents: Any, config: SB3Config) -> Any:
    given = {
        "agents": agents,
        "candidates": config.candidates,
        "strategies": config.strategies,
        "k": config.k,
    }
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"Expected no {name} with an env of picks, which says what they are, got {value!r}."
            )
    twin = whole_clone(env)
    layer = pick_layer(twin)
    assert layer is not None  # a whole clone has it
    layer.show_progress = False
    return twin


def _check_writing(writers: Any, config: SB3Config) -> None:
    if writers is None:
        raise ValueError(
            "Expected candidates in the config, or agents that write; got neither. Give "
            'candidates=["a text", ...], or agents with strategies=["{prompt}", ...] or with k.'
        )
    if config.strategies is None and config.k is None:
        raise ValueError(
            "Expected candidates, strategies or k in the config, which say what to pick from; got "
            "none."
        )


def _checked_writers(agents: Mapping[str, Agent] | Agent, names: list[str]) -> Any:
    by_name = agents if isinstance(agents, Mapping) else dict.fromkeys(names, agents)
    if set(by_name) != set(names):
        raise ValueError(
            f"Expected an agent for each of {names}, or one for all, got {list(by_name)}."
        )
    for name, agent in by_name.items():
        check_agent(name, agent)
    return dict(by_name)
