"""The learning rates of policies: one for all of them, or one for each by the agents' names."""

import math
from collections.abc import Collection, Mapping, Sequence

from motet.algos.suggesting import suggestion
from motet.algos.team import Policy


def checked_learning_rate(rate: object) -> float | dict[str, float]:
    """Return a learning rate, or those by agent in the order of the names.

    Args:
        rate: a number, or a dict of numbers by agent.

    Raises:
        TypeError: where it is neither.
        ValueError: where a number is not finite and above zero, or the dict is empty.
    """
    if not isinstance(rate, Mapping):
        return _checked_number("agent_learning_rate", rate)
    if not rate:
        raise ValueError("Expected agent_learning_rate for at least one agent, got an empty dict.")
    for name in rate:
        if not isinstance(name, str):
            raise TypeError(f"Expected agents' names in agent_learning_rate, got {name!r}.")
    return {
        name: _checked_number(f"agent_learning_rate of {name}", rate[name]) for name in sorted(rate)
    }


def check_learning_rates(
    rate: float | Mapping[str, float], policies: Sequence[Policy], agents: Collection[str]
) -> None:
    """Raise where learning rates by agent are not those of the policies that are trained.

    Of agents that share a policy one is enough; where several are named, they have the same.

    Args:
        rate: `TrainerConfig.agent_learning_rate`.
        policies: that are trained.
        agents: names of all of the team.

    Raises:
        ValueError: where a name is unknown or of an agent that is not trained, where a policy has
            no learning rate, or two.
    """
    if not isinstance(rate, Mapping):
        return
    trained = [name for policy in policies for name in policy.agents]
    for name in rate:
        if name not in agents:
            raise ValueError(
                f"Expected agent_learning_rate by the names of agents that are trained, {trained}, "
                f"got {name!r}.{suggestion(name, trained)}"
            )
        if name not in trained:
            raise ValueError(
                f"Expected agent_learning_rate for agents that are trained, {trained}, got one for "
                f"{name!r}, which is not; leave it out."
            )
    for policy in policies:
        own = {name: rate[name] for name in policy.agents if name in rate}
        if not own:
            raise ValueError(
                f"Expected agent_learning_rate for each policy that is trained, got none for "
                f"{policy.name!r}; add it, or give one number for all."
            )
        if len(set(own.values())) > 1:
            raise ValueError(
                f"Expected one agent_learning_rate for {list(policy.agents)}, which share their "
                f"weights, got {own}."
            )


def policy_learning_rate(rate: float | Mapping[str, float], policy: Policy) -> float:
    """Return the learning rate that a policy begins with.

    Args:
        rate: `TrainerConfig.agent_learning_rate`, checked.
        policy: whose.
    """
    if not isinstance(rate, Mapping):
        return rate
    return next(rate[name] for name in policy.agents if name in rate)


def _checked_number(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(
            f"Expected {name} to be float, got {value!r} of type {type(value).__name__}."
        )
    if not math.isfinite(value):
        raise ValueError(f"Expected a finite {name}, got {value}.")
    if not value > 0:
        raise ValueError(f"Expected {name} above 0, got {value}.")
    return value
