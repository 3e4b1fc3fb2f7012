"""A team seen as one agent: spaces, observations, actions and rewards of all in one.

`to_gymnasium` and the centralised mode of `to_sb3_vec_env` are both made of these functions of
dicts by agent; neither the env nor the episode is part of it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from motet.envs.text_space import TextSpace

TeamReward = Literal["mean", "sum"]
JointActionKind = Literal["multi_discrete", "discrete"]


class JointView:
    """Join what is by agent, and part what is joint.

    Where all agents pick from numbers and see vectors, observations are concatenated in the order
    of `possible_agents`, and actions are one number for each agent, or one for all of them (the
    first agent's pick is its most significant digit). Otherwise spaces are `Dict`s by agent.

    Args:
        env: a parallel env.
        reward: what the team earns: the mean over all agents, or the sum.
        joint_action: "multi_discrete", or "discrete" for learners that know one number only.

    Attributes:
        names: (N,) agents in their order.
        is_vector: whether the joint action is made of numbers.
        sizes: K by agent, where that is so.

    Raises:
        TypeError: where a space of observations is none of Box, Discrete and texts.
        ValueError: where `reward` or `joint_action` is unknown, or asks for what there is not or
            what no number holds.
    """

    def __init__(
        self,
        env: Any,
        reward: TeamReward = "mean",
        joint_action: JointActionKind = "multi_discrete",
    ) -> None:
        if reward not in ("mean", "sum"):
            raise ValueError(f"Expected reward 'mean' or 'sum', got {reward!r}.")
        if joint_action not in ("multi_discrete", "discrete"):
            raise ValueError(
                f"Expected joint_action 'multi_discrete' or 'discrete', got {joint_action!r}."
            )
        self.names: list[str] = list(env.possible_agents)
        self._seen = {name: env.observation_space(name) for name in self.names}
        self._acted = {name: env.action_space(name) for name in self.names}
        self._neutral = {name: _neutral(space) for name, space in self._seen.items()}
        self._reward = reward
        self.is_vector = is_vector(self._seen.values(), self._acted.values())
        self._is_single_number = joint_action == "discrete"
        if self._is_single_number and not self.is_vector:
            raise ValueError(
                f"Expected picks of Discrete spaces for joint_action='discrete', got {env} with "
                f"{self._acted}; wrap it in motet.envs.PickOfK first."
            )
        self.sizes = {
            name: int(space.n)
            for name, space in self._acted.items()
            if isinstance(space, spaces.Discrete)
        }
        self._sizes = list(self.sizes.values())
        if self._is_single_number and math.prod(self._sizes) >= 2**63:
            raise ValueError(
                f"Expected fewer than 2^63 joint actions for joint_action='discrete', got "
                f"{self._sizes} picks of {len(self.names)} agents; use 'multi_discrete'."
            )

    def observation_space(self) -> spaces.Space[Any]:
        """Return a new space of joint observations."""
        if not self.is_vector:
            return spaces.Dict(deepcopy(self._seen))
        return spaces.Box(
            np.concatenate([space.low.ravel() for space in self._seen.values()]),
            np.concatenate([space.high.ravel() for space in self._seen.values()]),
            dtype=np.float32,
        )

    def action_space(self) -> spaces.Space[Any]:
        """Return a new space of joint actions."""
        if not self.is_vector:
            return spaces.Dict(deepcopy(self._acted))
        if self._is_single_number:
            return spaces.Discrete(math.prod(self._sizes))
        return spaces.MultiDiscrete(self._sizes)

    def observation(self, observations: Mapping[str, Any]) -> Any:
        """Return the joint observation; agents that have left see zeros, or no text."""
        seen = {name: observations.get(name, self._neutral[name]) for name in self.names}
        if not self.is_vector:
            return seen
        return np.concatenate([np.ravel(part) for part in seen.values()]).astype(np.float32)

    def actions(self, action: Any, live: Sequence[str]) -> dict[str, Any]:
        """Return the action of each live agent.

        Raises:
            TypeError: where a joint action by agent is no mapping.
            ValueError: where numbers are of the wrong shape or range.
        """
        if not self.is_vector:
            if not isinstance(action, Mapping):
                raise TypeError(f"Expected a mapping of one action per agent, got {action!r}.")
            left = set(self.names).difference(live)
            return {name: value for name, value in action.items() if name not in left}
        picks = self._digits(action)
        return {name: pick for name, pick in zip(self.names, picks, strict=True) if name in live}

    def reward(self, rewards: Mapping[str, float]) -> float:
        """Return what the team earns; agents that have left earn nothing, and still count."""
        total = float(sum(rewards.values()))
        return total / len(self.names) if self._reward == "mean" else total

    def mask(self, masks: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Return which joint actions are allowed.

        Args:
            masks: (K,) by live agent; agents that have left have pick 0 alone.

        Returns:
            The masks one after the other, or (K^N,) where a joint action is one number.

        Raises:
            TypeError: where actions are not picks.
        """
        if not self.is_vector:
            raise TypeError(
                "Expected an env of picks for action masks, got texts; wrap it in "
                "motet.envs.PickOfK first."
            )
        parts = []
        for name, size in zip(self.names, self._sizes, strict=True):
            part = np.asarray(masks.get(name, np.arange(size) == 0), dtype=bool)
            parts.append(part)
        if not self._is_single_number:
            return np.concatenate(parts)
        joint = parts[0]
        for part in parts[1:]:
            joint = np.logical_and.outer(joint, part).ravel()
        return joint

    def _digits(self, action: Any) -> list[int]:
        action = np.asarray(action)
        shape = () if self._is_single_number else (len(self.names),)
        highest = math.prod(self._sizes) if self._is_single_number else np.array(self._sizes)
        if (
            action.shape != shape
            or action.dtype.kind not in "iu"
            or (action < 0).any()
            or (action >= highest).any()
        ):
            raise ValueError(
                f"Expected {_described(self._sizes, single=self._is_single_number)} as the joint "
                f"action of {self.names}, got {action!r}."
            )
        if self._is_single_number:
            return [int(digit) for digit in np.unravel_index(int(action), self._sizes)]
        return [int(pick) for pick in action]


def is_vector(seen: Iterable[spaces.Space[Any]], acted: Iterable[spaces.Space[Any]]) -> bool:
    """Whether observations are vectors and actions numbers that count from 0."""
    return all(isinstance(space, spaces.Box) for space in seen) and all(
        isinstance(space, spaces.Discrete) and space.start == 0 for space in acted
    )


def masks_of(
    infos: Mapping[str, Mapping[str, Any]], live: Sequence[str], sizes: Mapping[str, int]
) -> dict[str, NDArray[np.bool_]]:
    """Return (K,) masks by live agent: those of `infos`, or all allowed where there are none."""
    return {
        name: np.array(infos[name].get("action_mask", np.ones(sizes[name])), dtype=bool)
        for name in live
    }


def was_cut(terminations: Mapping[str, bool], truncations: Mapping[str, bool]) -> bool:
    """Whether the last step of an episode ended it from outside the task."""
    return any(truncations[name] and not terminations[name] for name in truncations)


def _neutral(space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Box):
        return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    if isinstance(space, spaces.Discrete):
        return space.start
    if isinstance(space, TextSpace):
        return " " * space.min_length
    if isinstance(space, spaces.Text):
        return space.characters[:1] * space.min_length
    raise TypeError(f"Expected observations in a Box, a Discrete or a space of texts, got {space}.")


def _described(sizes: Sequence[int], *, single: bool) -> str:
    if single:
        return f"an integer from 0 to {math.prod(sizes) - 1}"
    return f"{len(sizes)} integers, each from 0 to below its entry of {list(sizes)},"
