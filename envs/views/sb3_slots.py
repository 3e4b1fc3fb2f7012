"""How the agents of an episode become slots of a vectorised env, and what each slot gets."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from motet.envs.text_state import StepResult
from motet.envs.views.joint_view import JointActionKind, JointView, TeamReward, masks_of, was_cut

Info = dict[str, Any]
CUT = "TimeLimit.truncated"


class Slots(Protocol):
    """The slots of one episode.

    Attributes:
        size: their number.
        observation_space: of a slot.
        action_space: of a slot.
    """

    size: int
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]

    def actions(self, picked: NDArray[Any], live: Sequence[str]) -> dict[str, Any]:
        """Return the action of each live agent from the (size,) actions of the slots."""

    def observations(self, seen: Mapping[str, Any]) -> list[NDArray[np.float32]]:
        """Return (size,) observations."""

    def infos(self, infos: Mapping[str, Info]) -> list[Info]:
        """Return (size,) infos after a reset, fresh dicts."""

    def outcomes(self, result: StepResult) -> list[tuple[float, bool, Info]]:
        """Return (size,) rewards, whether the slot's agents left now, and fresh infos."""

    def masks(self, infos: Mapping[str, Info], live: Sequence[str]) -> list[NDArray[np.bool_]]:
        """Return (size,) masks of allowed actions."""


class SharedSlots:
    """One slot for each agent: one policy plays them all.

    Args:
        env: a parallel env of picks.

    Raises:
        ValueError: where agents have different spaces.
    """

    def __init__(self, env: Any) -> None:
        self._names: list[str] = list(env.possible_agents)
        self.size = len(self._names)
        own = env.clone()  # its spaces sample apart from those of env
        self.observation_space: spaces.Space[Any] = own.observation_space(self._names[0])
        self.action_space: spaces.Space[Any] = own.action_space(self._names[0])
        self._idle = np.zeros_like(own.observation_space(self._names[0]).low)
        self._num_actions = int(env.action_space(self._names[0]).n)
        for name in self._names:
            kinds = env.observation_space(name), env.action_space(name)
            if kinds != (self.observation_space, self.action_space):
                raise ValueError(
                    "Expected the same spaces of all agents, who share one policy, got "
                    f"{self.observation_space} and {self.action_space} of {self._names[0]}, and "
                    f"{kinds[0]} and {kinds[1]} of {name}; use mode='centralised'."
                )

    def actions(self, picked: NDArray[Any], live: Sequence[str]) -> dict[str, Any]:
        """Return the action of each live agent."""
        return {
            name: int(pick) for name, pick in zip(self._names, picked, strict=True) if name in live
        }

    def observations(self, seen: Mapping[str, Any]) -> list[NDArray[np.float32]]:
        """Return each agent's, zeros where it has left."""
        return [seen.get(name, self._idle) for name in self._names]

    def infos(self, infos: Mapping[str, Info]) -> list[Info]:
        """Return each agent's."""
        return [dict(infos.get(name, {})) for name in self._names]

    def outcomes(self, result: StepResult) -> list[tuple[float, bool, Info]]:
        """Return each agent's; one that has left before idles."""
        outcomes = []
        for name in self._names:
            if name not in result.rewards:
                outcomes.append((0.0, False, {"idle": True, CUT: False}))
                continue
            terminated, truncated = result.terminations[name], result.truncations[name]
            info = {**result.infos[name], CUT: truncated and not terminated}
            if terminated or truncated:
                info["terminal_observation"] = result.observations[name]
            outcomes.append((result.rewards[name], terminated or truncated, info))
        return outcomes

    def masks(self, infos: Mapping[str, Info], live: Sequence[str]) -> list[NDArray[np.bool_]]:
        """Return each agent's; action 0 alone where it has left."""
        masks = masks_of(infos, live, dict.fromkeys(live, self._num_actions))
        only_first = np.arange(self._num_actions) == 0
        return [masks.get(name, only_first) for name in self._names]


class CentralisedSlots:
    """One slot for the whole team: one policy acts for all its agents.

    Args:
        env: a parallel env of picks.
        reward: the mean over agents, or the sum.
        joint_action: one number per agent, or one in all.
    """

    size = 1

    def __init__(self, env: Any, reward: TeamReward, joint_action: JointActionKind) -> None:
        self._view = JointView(env, reward, joint_action)
        self.observation_space = self._view.observation_space()
        self.action_space = self._view.action_space()

    def actions(self, picked: NDArray[Any], live: Sequence[str]) -> dict[str, Any]:
        """Return the part of each live agent."""
        return self._view.actions(picked[0], live)

    def observations(self, seen: Mapping[str, Any]) -> list[NDArray[np.float32]]:
        """Return the joint one."""
        return [self._view.observation(seen)]

    def infos(self, infos: Mapping[str, Info]) -> list[Info]:
        """Return those of the agents, by their names."""
        return [dict(infos)]

    def outcomes(self, result: StepResult) -> list[tuple[float, bool, Info]]:
        """Return the team's."""
        ended = result.ended
        cut = ended and was_cut(result.terminations, result.truncations)
        info = {**result.infos, CUT: cut}
        if ended:
            info["terminal_observation"] = self._view.observation(result.observations)
        return [(self._view.reward(result.rewards), ended, info)]

    def masks(self, infos: Mapping[str, Info], live: Sequence[str]) -> list[NDArray[np.bool_]]:
        """Return the joint one."""
        return [self._view.mask(masks_of(infos, live, self._view.sizes))]
