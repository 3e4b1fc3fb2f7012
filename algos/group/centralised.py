"""Centralised MAGRPO: one policy writes for all agents through a joint prompt and a parser.

It is MAGRPO (Liu et al. 2025, arXiv 2508.04652) with one agent, that is GRPO over turns, in the
view `motet.envs.JointText`: the team of one that decentralised teams are to be compared with. Every
token of a completion is trained on the reward of all its sections.

    algos.make("centralised-magrpo", env, agents.pocket(), view={"parser": my_parser})

Pitfalls of the comparison:

1. It has one set of weights where a team of separate agents has N.
2. Its completions are as long as those of all agents together: `max_new_tokens` has to be, too.
3. How well the model keeps to the form is part of the result; `infos["team"]["missing"]` says who
   got no text.
"""

from collections.abc import Mapping
from typing import Any, Unpack

from motet.agents import Agent
from motet.algos.group.magrpo import MAGRPOTrainer
from motet.algos.group.magrpo_config import MAGRPOConfig
from motet.algos.registration import register
from motet.algos.rollouts.collect import ParallelTextEnv
from motet.algos.trainer import TrainerOptions
from motet.envs import JointText
from motet.envs.views.joint_text import TEAM


@register("centralised-magrpo")
def centralised_magrpo(
    *,
    env: ParallelTextEnv,
    agents: Agent | Mapping[str, Agent],
    config: MAGRPOConfig | None = None,
    view: Mapping[str, Any] | None = None,
    **options: Unpack[TrainerOptions],
) -> MAGRPOTrainer:
    """MAGRPO with one policy that writes for all agents.

    Args:
        env: what to train on; it is put into a `JointText`, unless it is one.
        agents: the one agent; or a dict that has it alone, under any names.
        config: a `MAGRPOConfig`.
        view: options of `JointText`: `prompt_fn`, `parser`, `reward`.
        **options: see `Trainer`; `eval_env` is put into the same view.

    Returns:
        A trainer whose `env` and `eval_env` are the views, and whose one agent, "team", plays in
        them.

    Raises:
        ValueError: where there are several agents, or options for a view that is there already.
    """
    options["eval_env"] = _viewed(options.get("eval_env"), view)
    return MAGRPOTrainer(_viewed(env, view), {TEAM: _only(agents)}, config, **options)


def _viewed(env: Any, view: Mapping[str, Any] | None) -> Any:
    if env is None:
        return None
    if not isinstance(env, JointText):
        return JointText(env, **(view or {}))
    if view is not None:
        raise ValueError(
            f"Expected view= for an env that is not in one yet, got {env} and {list(view)}; give "
            "them to its JointText."
        )
    return env


def _only(agents: Agent | Mapping[str, Agent]) -> Agent:
    if not isinstance(agents, Mapping):
        return agents
    different = {id(agent): agent for agent in agents.values()}
    if len(different) != 1:
        raise ValueError(
            f"Expected one agent that writes for all, got {len(different)} different ones in "
            f"{list(agents)}; pass the one alone, or the same under all names, which is "
            "--share on the command line."
        )
    return next(iter(different.values()))
