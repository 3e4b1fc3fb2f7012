"""A model of stable-baselines3 from settings, and all that it goes on from."""

import inspect
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from motet.algos.choices.sb3_config import LEARNER_SETTINGS, SB3Config
from motet.algos.choices.sb3_policy import learner_class

# Where the library's own defaults are made for episodes of hundreds of steps.
DEFAULTS: dict[str, dict[str, Any]] = {
    "sb3-ppo": {"n_steps": 32},
    "sb3-maskable-ppo": {"n_steps": 32},
    "sb3-a2c": {},
    "sb3-dqn": {"buffer_size": 100_000, "target_update_interval": 500},
}
# What has a place of its own here, or would do nothing.
_TAKEN = {
    "policy": "set policy in the config",
    "env": "give it to the learner",
    "policy_kwargs": "set policy_kwargs in the config",
    "seed": "set seed in the config",
    "verbose": "set verbose in the config",
    "tensorboard_log": "give loggers= to the learner",
    "stats_window_size": "set logging_steps in the config",
    "_init_setup_model": "leave it out",
}
# Attributes that change while a model learns, beside its weights and its optimizer.
_NUMBERS = (
    "num_timesteps",
    "exploration_rate",
    "_n_updates",
    "_n_calls",
    "_episode_num",
    "_current_progress_remaining",
    "_total_timesteps",
)
_ARRAYS = ("_last_obs", "_last_episode_starts")


def model_arguments(learner: str, config: SB3Config) -> dict[str, Any]:
    """Return what the learner's class is called with, but for the env.

    Raises:
        ValueError: where a setting is not one of the class.
        ImportError: where the class's library is not installed.
    """
    kind = learner_class(learner)
    known = set(inspect.signature(kind).parameters)
    unknown = [name for name in config.learner_settings if name not in known]
    if unknown:
        raise ValueError(
            f"Expected settings of {kind.__name__} for {learner}, got {', '.join(unknown)}; leave "
            "them out."
        )
    further = dict(config.algo_kwargs or {})
    for name in further:
        if name in LEARNER_SETTINGS:
            raise ValueError(f"Expected no {name} in algo_kwargs; set {name} in the config.")
        if name in _TAKEN:
            raise ValueError(f"Expected no {name} in algo_kwargs; {_TAKEN[name]}.")
        if name not in known:
            raise ValueError(
                f"Expected arguments of {kind.__name__} in algo_kwargs, got {name}; it has "
                f"{', '.join(sorted(known - set(_TAKEN) - set(LEARNER_SETTINGS)))}."
            )
    if config.policy not in kind.policy_aliases:
        raise ValueError(
            f"Expected policy as one of {', '.join(kind.policy_aliases)}, got {config.policy!r}."
        )
    return {
        "policy": config.policy,
        "policy_kwargs": None if config.policy_kwargs is None else dict(config.policy_kwargs),
        "seed": config.seed,
        "verbose": config.verbose,
        "device": "cpu",
        **DEFAULTS[learner],
        **config.learner_settings,
        **further,
    }


def make_model(learner: str, env: Any, arguments: Mapping[str, Any]) -> Any:
    """Build a model, which logs to nowhere; it seeds the global random generators."""
    from stable_baselines3.common.logger import Logger  # noqa: PLC0415  # an optional import

    model = learner_class(learner)(env=env, **arguments)
    model.set_logger(Logger(None, []))
    return model


def model_state(model: Any, random_state: Any) -> dict[str, Any]:
    """Return all that a model goes on from where a rollout begins.

    Weights, optimizer, counters, what it saw last and what it remembers are tensors and numbers.
    The states of episodes and random generators are pickled: they can hold anything.

    Args:
        model: of `make_model`.
        random_state: of the global generators; it pickles.

    Raises:
        TypeError: where the env's episodes cannot be saved, or the model remembers in a buffer of
            its user's.
    """
    objects = {
        "env": model.env.get_state(),
        "random": random_state,
        "picks": model.action_space.np_random.bit_generator.state,
    }
    arrays = {name: vars(model)[name] for name in _ARRAYS}
    return {
        "parameters": model.get_parameters(),
        "numbers": {name: vars(model)[name] for name in _NUMBERS if name in vars(model)},
        "arrays": {
            name: torch.from_numpy(np.array(value))
            for name, value in arrays.items()
            if value is not None
        },
        "replay": _replay_state(vars(model).get("replay_buffer")),
        "objects": torch.frombuffer(bytearray(pickle.dumps(objects)), dtype=torch.uint8),
    }


def set_model_state(model: Any, state: Mapping[str, Any]) -> Any:
    """Bring a model that was made alike to where `model_state` was called.

    Returns:
        The random state.
    """
    objects = pickle.loads(state["objects"].numpy().tobytes())
    model.set_parameters(state["parameters"], exact_match=True)
    for name, value in state["numbers"].items():
        setattr(model, name, value)
    for name in _ARRAYS:
        array = state["arrays"].get(name)
        setattr(model, name, None if array is None else array.numpy().copy())
    if state["replay"]:
        buffer = model.replay_buffer
        buffer.pos, buffer.full = state["replay"]["pos"], state["replay"]["full"]
        for name, tensor in state["replay"]["arrays"].items():
            vars(buffer)[name][: len(tensor)] = tensor.numpy()
    model.env.set_state(objects["env"])
    model.action_space.np_random.bit_generator.state = objects["picks"]
    return objects["random"]


def _replay_state(buffer: Any) -> dict[str, Any]:
    """Return what a replay buffer holds, without its empty part."""
    if buffer is None:
        return {}
    if not type(buffer).__module__.startswith("stable_baselines3."):
        raise TypeError(
            "Expected a replay buffer of stable-baselines3 for a checkpoint, got "
            f"{type(buffer).__name__}, of which it is unknown what it goes on from."
        )
    used = buffer.buffer_size if buffer.full else buffer.pos
    return {
        "pos": buffer.pos,
        "full": buffer.full,
        "arrays": {
            name: torch.from_numpy(value[:used].copy())
            for name, value in vars(buffer).items()
            if isinstance(value, np.ndarray)
        },
    }
