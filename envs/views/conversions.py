"""An env of Motet as other interfaces want it: PettingZoo's AEC API, and Gymnasium's `Env`."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec

from motet.envs.views.joint_view import JointActionKind, JointView, TeamReward, masks_of, was_cut


def to_aec(env: Any) -> AECEnv:
    """Return PettingZoo's agent-by-agent view of a parallel env.

    The agents of a turn are asked one after the other and see only what was there before it; the
    turn is played when the last has acted. An agent whose turn it is not is asked too, and its
    action ignored. The view plays `env` itself, not a copy.

    PettingZoo's `seed_test` and `render_test` pass. Its `api_test` passes where observations are
    arrays, as those of `PickOfK`. On bare texts it cannot pass, up to PettingZoo 1.27 at least: it
    compares the `dtype` of each observation with that of its space, and strings have none.

    Args:
        env: a parallel env.

    Raises:
        TypeError: where `env` is none.
    """
    return parallel_to_aec(_checked_parallel(env))


def to_gymnasium(
    env: Any,
    *,
    reward: TeamReward = "mean",
    joint_action: JointActionKind = "multi_discrete",
) -> "CentralisedEnv":
    """Return a Gymnasium env in which one policy acts for all agents.

    Args:
        env: a parallel env with `get_state`, `set_state` and `clone`; it is played itself, not a
            copy.
        reward: what the team earns: the mean over all agents, or the sum.
        joint_action: for an env of picks (see `PickOfK`), "multi_discrete" for one number per
            agent, or "discrete" for one number in all, which DQN needs.

    Raises:
        TypeError: where `env` is no parallel env, or its spaces have no joint form.
        ValueError: where an argument is unknown, or asks for what there is not.
    """
    return CentralisedEnv(env, reward=reward, joint_action=joint_action)


@dataclass(frozen=True, slots=True)
class CentralisedState:
    """A snapshot of a `CentralisedEnv`: the allowed picks by agent, and the env inside."""

    masks: Mapping[str, tuple[bool, ...]]
    inner: Any


class CentralisedEnv(gymnasium.Env[Any, Any]):
    """A parallel env as a single-agent one; made by `to_gymnasium`.

    | env inside        | observation                                 | action                   |
    |-------------------|---------------------------------------------|--------------------------|
    | of texts          | `Dict` of texts by agent                    | `Dict` of texts by agent |
    | of picks          | `Box`: the agents' vectors, concatenated    | `MultiDiscrete([K] * N)` |
    | ... as "discrete" | the same                                    | `Discrete(K ** N)`       |

    The episode ends when the last agent leaves; it is truncated where that was a cut from outside
    the task. An agent that leaves before sees zeros, or an empty text, from that step on; its part
    of the action is ignored, and it earns nothing more. Infos are those of the agents, by their
    names.

    Attributes:
        env: the parallel env inside.
    """

    def __init__(
        self, env: Any, *, reward: TeamReward = "mean", joint_action: JointActionKind
    ) -> None:
        self.env = _checked_parallel(env)
        self._view = JointView(env, reward, joint_action)
        self.observation_space = self._view.observation_space()
        self.action_space = self._view.action_space()
        self.metadata = dict(env.metadata)
        self.render_mode = getattr(env, "render_mode", None)  # PettingZoo does not ask for one
        self.spec = self._made_spec(reward, joint_action)
        self._masks: dict[str, tuple[bool, ...]] | None = None

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; see the env inside."""
        super().reset(seed=seed)
        observations, infos = self.env.reset(seed=seed, options=options)
        self._note(infos)
        return self._view.observation(observations), infos

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Play one turn of all agents; see the env inside."""
        actions = self._view.actions(action, self.env.agents)
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        self._note(infos)
        ended = not self.env.agents
        truncated = ended and was_cut(terminations, truncations)
        if not ended:
            observations = {agent: observations[agent] for agent in self.env.agents}
        return (
            self._view.observation(observations),
            self._view.reward(rewards),
            ended and not truncated,
            truncated,
            infos,
        )

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which picks are allowed: the agents' masks one after the other.

        Where a joint action is one number, one entry for each. sb3-contrib's MaskablePPO calls it.

        Raises:
            gymnasium.error.ResetNeeded: before the first `reset`.
            TypeError: where actions are not picks.
        """
        return self._view.mask(self._current_masks())

    def render(self) -> Any:
        """Render the env inside."""
        return self.env.render()

    def close(self) -> None:
        """Close the env inside."""
        self.env.close()

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.env})"

    def get_state(self) -> CentralisedState:
        """Return a snapshot of the running episode; see the env inside."""
        inner = self.env.get_state()
        return CentralisedState(dict(self._current_masks()), inner)

    def set_state(self, state: CentralisedState, *, seed: int | None = None) -> None:
        """Go to a snapshot of this env or of a clone of it; see the env inside.

        Raises:
            TypeError: where `state` is something else.
        """
        if not isinstance(state, CentralisedState):
            raise TypeError(
                f"Expected a state that get_state() of {type(self).__name__} returned, got "
                f"{state!r}."
            )
        self.env.set_state(state.inner, seed=seed)
        self._masks = dict(state.masks)

    def clone(self, *, seed: int | None = None) -> Self:
        """Return an independent env at the same point, around a clone of the env inside."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.env = self.env.clone(seed=seed)
        twin._np_random = deepcopy(self._np_random)
        twin.observation_space = self._view.observation_space()
        twin.action_space = self._view.action_space()
        return twin

    def _note(self, infos: Mapping[str, Mapping[str, Any]]) -> None:
        masks = masks_of(infos, self.env.agents, self._view.sizes) if self._view.is_vector else {}
        self._masks = {agent: tuple(mask.tolist()) for agent, mask in masks.items()}

    def _current_masks(self) -> dict[str, tuple[bool, ...]]:
        if self._masks is None:
            raise gymnasium.error.ResetNeeded("Expected a started episode; call reset() first.")
        return self._masks

    def _made_spec(self, reward: TeamReward, joint_action: JointActionKind) -> EnvSpec | None:
        """Return a Gymnasium spec that makes fresh envs of the same parts."""
        spec = getattr(self.env, "spec", None)
        if spec is None:
            return None
        fresh = _FreshEnvs(self.env, reward, joint_action)
        return EnvSpec(spec.id, fresh, kwargs={"render_mode": self.render_mode})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class _FreshEnvs:
    """Make envs of the same parts. Copies are itself: Gymnasium deep-copies specs, not datasets."""

    env: Any
    reward: TeamReward
    joint_action: JointActionKind

    def __call__(self, render_mode: str | None) -> CentralisedEnv:
        twin = self.env.clone()
        twin.unwrapped.render_mode = render_mode
        return to_gymnasium(twin, reward=self.reward, joint_action=self.joint_action)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


def _checked_parallel(env: Any) -> Any:
    if not isinstance(env, ParallelEnv):
        raise TypeError(
            f"Expected a PettingZoo ParallelEnv, got {env!r}; make one with envs.make(id) first."
        )
    return env
