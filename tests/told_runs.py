"""Runs of small learners with callbacks that keep what they are told, and can end them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiny import LETTERS, letter_agent, matching_env

from motet import algos
from motet.agents import FixedAgent
from motet.algos import MAGRPOConfig, MAGRPOTrainer, SB3Config, ScriptedConfig
from motet.envs import TextEnv

NAMES = ("agent_0", "agent_1")
ROWS = [{"prompt": letter} for letter in "abcd"]
BEGIN, ROLLOUT, UPDATE, EVAL, END = "begin", "rollout", "update", "eval", "end"


class Told(algos.Callback):
    """Keeps what it is told, and returns something at one of these times.

    Args:
        when: after how much of an event it returns it, by the event's name.
        value: what.
    """

    def __init__(self, when: Mapping[str, int] | None = None, value: Any = False) -> None:
        self.told: list[str] = []
        self._when, self._value = dict(when or {}), value

    def _tell(self, what: str) -> Any:
        self.told.append(what)
        return self._value if self.told.count(what) == self._when.get(what) else None

    def on_train_begin(self, trainer: Any) -> Any:
        return self._tell(BEGIN)

    def on_rollout(self, trainer: Any, rollout: algos.Rollout) -> Any:
        assert rollout.num_joint_actions
        return self._tell(ROLLOUT)

    def on_update(self, trainer: Any, metrics: Mapping[str, float]) -> Any:
        assert "rollout/reward_mean" in metrics
        return self._tell(UPDATE)

    def on_eval(self, trainer: Any, evaluation: algos.Evaluation) -> Any:
        assert "return_mean" in evaluation.metrics
        return self._tell(EVAL)

    def on_train_end(self, trainer: Any) -> None:
        self._tell(END)


def spread(first: list[str], second: list[str]) -> list[float]:
    return [
        (3 * sum(map(ord, a)) + 5 * sum(map(ord, b))) % 101 / 100
        for a, b in zip(first, second, strict=True)
    ]


def make(callbacks: Any = (), loggers: Any = (), **changes: Any) -> MAGRPOTrainer:
    """Four rollouts, with an evaluation and two entries of the log in the middle."""
    settings: dict[str, Any] = {
        "num_generations": 3,
        "rollout_batch_size": 2,
        "num_train_epochs": 2,
        "agent_learning_rate": 0.02,
        "eval_interval": 2,
        "progress_bar": False,
    }
    return MAGRPOTrainer(
        TextEnv(ROWS, spread),
        {name: letter_agent(i) for i, name in enumerate(NAMES)},
        MAGRPOConfig(**{**settings, **changes}),
        eval_env=matching_env(),
        callbacks=callbacks,
        loggers=loggers,
    )


def written(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def make_sb3(
    callbacks: Any = (), loggers: Any = (), name: str = "sb3-ppo", **changes: Any
) -> algos.SB3Trainer:
    """Rollouts of 64 timesteps, an entry of the log after each, an evaluation after two."""
    settings: dict[str, Any] = {
        "candidates": list(LETTERS),
        "total_timesteps": 256,
        "num_envs": 4,
        "learning_rate": 1e-2,
        "logging_steps": 64,
        "eval_interval": 128,
        "progress_bar": False,
    }
    if name == "sb3-ppo":
        settings["n_steps"] = 8
    return algos.make(
        name,
        matching_env(),
        None,
        SB3Config(**{**settings, **changes}),
        eval_env=matching_env(),
        callbacks=callbacks,
        loggers=loggers,
    )


def make_fixed(callbacks: Any = (), **changes: Any) -> Any:
    team = {name: FixedAgent("a") for name in NAMES}
    config = ScriptedConfig(progress_bar=False, **changes)
    return algos.make("scripted", matching_env(), team, config, callbacks=callbacks)
