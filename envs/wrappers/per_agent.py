"""Arguments that are one for all agents, or one for each by name."""

from collections.abc import Mapping, Sequence
from typing import Any


def one_each(name: str, value: Any, agents: Sequence[str]) -> dict[str, Any]:
    """Return what each agent gets.

    Args:
        name: what the caller knows `value` as, for messages.
        value: one for all agents, or a mapping of one per agent.
        agents: (N,) names.

    Raises:
        ValueError: where a mapping lacks an agent or names an unknown one.
    """
    if not isinstance(value, Mapping):
        return dict.fromkeys(agents, value)
    if set(value) != set(agents):
        raise ValueError(f"Expected {name} for {list(agents)}, got {name} for {list(value)}.")
    return {agent: value[agent] for agent in agents}
