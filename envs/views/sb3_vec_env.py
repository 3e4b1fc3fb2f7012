"""Episodes of one env as a vectorised env of stable-baselines3; `to_sb3_vec_env` makes it."""

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

from motet.envs.simulator import steps_in_batches, text_env_of
from motet.envs.text_batch import TextBatch
from motet.envs.views.sb3_slots import Info, Slots

# Methods that would move an episode behind the learner's back.
_MOVING = ("reset", "step", "set_state", "reset_batch", "next_row")


class EpisodeStream:
    """The rows and seeds of the episodes that follow each other in one place.

    Args:
        env: the env; a clone of the `TextEnv` in it, if there is one, keeps the order of rows.
        offset: rows to begin further on.
    """

    def __init__(self, env: Any, offset: int) -> None:
        text_env = text_env_of(env)
        self.has_rows = text_env is not None
        self._order = None if text_env is None else text_env.clone()
        self._offset = offset
        self._rng: np.random.Generator | None = None

    def next(self, *, seed: int | None = None, row: int | None = None) -> tuple[int | None, int]:
        """Return the row, None for an env without, and the seed of the next episode.

        Args:
            seed: starts the stream anew.
            row: this row instead, and the order is left alone.
        """
        if seed is None and self._rng is None:
            seed = secrets.randbits(31)
        if seed is not None:
            self._rng = np.random.default_rng(seed)
            self._seed_order(seed)
        assert self._rng is not None  # made with the first seed
        episode_seed = int(self._rng.integers(2**31)) if seed is None else int(seed)
        if row is None and self._order is not None:
            row = self._order.next_row()
        return row, episode_seed

    def get_state(self) -> Any:
        """Return where the stream stands; it pickles."""
        rng = None if self._rng is None else self._rng.bit_generator.state
        order = None if self._order is None or self._rng is None else self._order.get_state()
        return rng, order

    def set_state(self, state: Any) -> None:
        """Go to where a stream of the same env stood."""
        rng, order = state
        self._rng = None
        if rng is not None:
            self._rng = np.random.default_rng()
            self._rng.bit_generator.state = rng
        if self._order is not None and order is not None:
            self._order.set_state(order)

    def _seed_order(self, seed: int) -> None:
        if self._order is not None:
            self._order.reset(seed=seed, options={"row": 0})  # naming a row leaves the order alone
            for _ in range(self._offset):
                self._order.next_row()


class SB3VecEnv(VecEnv):
    """Play episodes of an env side by side; `to_sb3_vec_env` says how.

    Args:
        env: a parallel env of picks; a clone of it is played.
        num_episodes: episodes at a time.
        slots: how agents become slots.
    """

    def __init__(self, env: Any, num_episodes: int, slots: Slots) -> None:
        self.env = env.clone()
        self.spec = getattr(env, "spec", None)
        self._num_episodes = num_episodes
        self._slots = slots
        self._batch = TextBatch(self.env)
        self._streams = [EpisodeStream(env, offset) for offset in range(num_episodes)]
        self._picked: NDArray[Any] | None = None
        super().__init__(num_episodes * slots.size, slots.observation_space, slots.action_space)

    def reset(self) -> NDArray[np.float32]:
        """Begin new episodes with the seeds and options set before; `{"row": i}` is an option.

        Returns:
            (S, size) observations.

        Raises:
            ValueError: where options are others, or differ between the slots of an episode.
        """
        firsts = range(0, self.num_envs, self._slots.size)
        starts = [
            stream.next(seed=self._seeds[slot], row=self._row_option(slot))
            for stream, slot in zip(self._streams, firsts, strict=True)
        ]
        rows, seeds = self._parted(starts)
        self._batch.reset(rows, seeds=seeds)
        self._note_resets(range(self._num_episodes))
        self._reset_seeds()
        self._reset_options()
        return self._observations()

    def step_async(self, actions: NDArray[Any]) -> None:
        """Take the (S,) actions of the next step."""
        self._picked = np.asarray(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """Play one turn of all episodes, and begin those anew that ended.

        Raises:
            gymnasium.error.ResetNeeded: before the first `reset`.
            ValueError: where there are not S actions, or one is not allowed.
        """
        picked = self._checked_actions()
        size = self._slots.size
        results = self._batch.step(
            [
                self._slots.actions(picked[i * size : (i + 1) * size], live)
                for i, live in enumerate(self._batch.agents)
            ]
        )
        rewards = np.zeros(self.num_envs, np.float32)
        dones = np.zeros(self.num_envs, bool)
        infos: list[Info] = []
        for result in results:
            assert result is not None  # ended episodes have begun anew
            for reward, done, info in self._slots.outcomes(result):
                rewards[len(infos)], dones[len(infos)] = reward, done
                infos.append(info)
        self._restart([i for i, live in enumerate(self._batch.agents) if not live])
        return self._observations(), rewards, dones, infos

    def get_state(self) -> Any:
        """Return where all episodes and their streams stand; it pickles where the env's states do.

        Raises:
            TypeError: where the env is stepped clone by clone, and a state is the env itself.
        """
        if not steps_in_batches(self.env):
            raise TypeError(
                f"Expected a TextEnv, bare or in Wrappers, to save its episodes, got {self.env!r}, "
                "which is stepped by clones."
            )
        batch = self._batch
        return {
            "streams": [stream.get_state() for stream in self._streams],
            "seeds": list(self._seeds),
            "options": list(self._options),
            "reset_infos": list(self.reset_infos),
            "episodes": (batch.observations, batch.infos, batch.states),
        }

    def set_state(self, state: Any) -> None:
        """Go to where a vectorised env that was made alike stood.

        Args:
            state: what `get_state` returned.
        """
        for stream, own in zip(self._streams, state["streams"], strict=True):
            stream.set_state(own)
        self._seeds, self._options = list(state["seeds"]), list(state["options"])
        self.reset_infos = list(state["reset_infos"])
        batch = self._batch
        batch.observations, batch.infos, batch.states = map(list, state["episodes"])

    def close(self) -> None:
        """Close the env."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return an attribute of the env, as it stands in each slot's episode.

        Raises:
            AttributeError: where there is none.
        """
        if attr_name == "action_masks":
            return [self._mask_of(slot) for slot in self._indices(indices)]
        return [getattr(self._standing(slot), attr_name) for slot in self._indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of the env, on the layer that has it: one env plays all slots.

        Raises:
            AttributeError: where no layer has it.
            ValueError: where `indices` leaves slots out.
        """
        if set(self._indices(indices)) != set(range(self.num_envs)):
            raise ValueError(
                f"Expected all {self.num_envs} slots, which one env plays, got {indices}."
            )
        layer = self.env
        while not _has_own(layer, attr_name):
            if "env" not in vars(layer):
                raise AttributeError(
                    f"Expected an attribute of {self.env}, got {attr_name!r}; it has none such."
                )
            layer = layer.env
        setattr(layer, attr_name, value)

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: VecEnvIndices = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Call a method of the env, as it stands in each slot's episode.

        Raises:
            AttributeError: where there is none.
            ValueError: where it would move the episode.
        """
        if method_name in _MOVING:
            raise ValueError(
                f"Expected a method that leaves episodes where they are, got {method_name!r}; "
                "call reset() or step() of the vectorised env."
            )
        methods = self.get_attr(method_name, indices)
        return [method(*method_args, **method_kwargs) for method in methods]

    def env_is_wrapped(
        self,
        wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]],
        indices: VecEnvIndices = None,
    ) -> list[bool]:
        """Tell whether a layer of the env is of a class."""
        layers = [self.env]
        while "env" in vars(layers[-1]):
            layers.append(layers[-1].env)
        wrapped = any(isinstance(layer, wrapper_class) for layer in layers)
        return [wrapped for _ in self._indices(indices)]

    # --- parts --------------------------------------------------------------------------------

    def _restart(self, ended: Sequence[int]) -> None:
        if ended:
            rows, seeds = self._parted([self._streams[i].next() for i in ended])
            self._batch.restart(ended, rows, seeds=seeds)
            self._note_resets(ended)

    def _parted(
        self, starts: Sequence[tuple[int | None, int]]
    ) -> tuple[list[int] | None, list[int]]:
        rows = [row for row, _ in starts if row is not None]
        return rows or None, [seed for _, seed in starts]

    def _note_resets(self, episodes: Iterable[int]) -> None:
        size = self._slots.size
        for i in episodes:
            self.reset_infos[i * size : (i + 1) * size] = self._slots.infos(self._batch.infos[i])

    def _observations(self) -> NDArray[np.float32]:
        seen = [row for one in self._batch.observations for row in self._slots.observations(one)]
        return np.stack(seen)

    def _checked_actions(self) -> NDArray[Any]:
        self._check_begun("step()")
        picked = self._picked
        assert picked is not None  # step_async came before
        if picked.shape != (self.num_envs, *(self.action_space.shape or ())):
            raise ValueError(
                f"Expected {self.num_envs} actions of {self.action_space}, got an array of shape "
                f"{picked.shape}."
            )
        if picked.dtype.kind not in "iu":
            raise ValueError(f"Expected integers as actions, got {picked!r}.")
        return picked

    def _check_begun(self, what: str) -> None:
        if not len(self._batch):
            raise gymnasium.error.ResetNeeded(
                f"Expected running episodes, got {what} before reset(); call reset()."
            )

    def _row_option(self, slot: int) -> int | None:
        options = self._options[slot]
        others = self._options[slot + 1 : slot + self._slots.size]
        if any(other not in (options, {}) for other in others):
            raise ValueError(
                f"Expected the same options for the {self._slots.size} slots of an episode, or "
                f"those of its first alone, got {[options, *others]}."
            )
        if set(options) - {"row"} or (options and not self._streams[0].has_rows):
            raise ValueError(
                "Expected {'row': i} or nothing as options, and rows only of a TextEnv, got "
                f"{options}."
            )
        row: int | None = options.get("row")
        return row

    def _mask_of(self, slot: int) -> Callable[[], NDArray[np.bool_]]:
        def action_masks() -> NDArray[np.bool_]:
            self._check_begun("action_masks()")
            i, place = divmod(slot, self._slots.size)
            return self._slots.masks(self._batch.infos[i], self._batch.agents[i])[place]

        return action_masks

    def _standing(self, slot: int) -> Any:
        """Return a clone of the env where a slot's episode stands."""
        if not len(self._batch):
            return self.env
        state = self._batch.states[slot // self._slots.size]
        if not steps_in_batches(self.env):
            return state.clone()
        twin = self.env.clone()
        twin.set_state(state)
        return twin

    def _indices(self, indices: VecEnvIndices) -> list[int]:
        return [range(self.num_envs)[i] for i in self._get_indices(indices)]


def _has_own(layer: Any, name: str) -> bool:
    return name in vars(layer) or hasattr(type(layer), name)
