"""The policy of a stable-baselines3 model, as one that picks.

That library is imported by `learner_class` alone, when a learner is made or loaded.
"""

import importlib
import math
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray

from motet.algos.randomness import kept_randomness

SB3Learner = Literal["sb3-ppo", "sb3-a2c", "sb3-dqn", "sb3-maskable-ppo"]

FILE_NAME = "policy.zip"
# Module, class, and what to install where there is none.
_CLASSES = {
    "sb3-ppo": ("stable_baselines3", "PPO", "stable-baselines3"),
    "sb3-a2c": ("stable_baselines3", "A2C", "stable-baselines3"),
    "sb3-dqn": ("stable_baselines3", "DQN", "stable-baselines3"),
    "sb3-maskable-ppo": ("sb3_contrib", "MaskablePPO", '"motet[sb3-contrib]"'),
}


def learner_class(learner: str) -> Any:
    """Import the class of a learner.

    Args:
        learner: one of `SB3Learner`.

    Raises:
        ImportError: where its library is not installed, with what to type.
        ValueError: where there is no such learner.
    """
    if learner not in _CLASSES:
        raise ValueError(f"Expected one of {list(_CLASSES)}, got {learner!r}.")
    module, name, install = _CLASSES[learner]
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as exc:
        missing = (exc.name or "").partition(".")[0]
        if missing not in ("stable_baselines3", "sb3_contrib"):
            raise
        raise ImportError(
            f"Expected {module} for {learner}, which is not installed; pip install {install}."
        ) from exc


class SB3Policy:
    """Pick with a model of stable-baselines3.

    PPO and A2C sample from their distribution; DQN has none, and picks what it values most always.

    Args:
        learner: which class the model is of.
        model: the model.
    """

    def __init__(self, learner: str, model: Any) -> None:
        self.learner = learner
        self.model = model

    def pick(
        self,
        features: NDArray[np.float32],
        allowed: NDArray[np.bool_],
        num_generations: int,
        rng: np.random.Generator | None,
    ) -> NDArray[np.int64]:
        """Return (B, G, A) picks; see `PickPolicy`. Without masks, `allowed` changes nothing."""
        num_situations, num_agents, num_candidates = allowed.shape
        self.model.policy.set_training_mode(False)
        with torch.no_grad():
            seen, _ = self.model.policy.obs_to_tensor(features)
            if self.learner == "sb3-dqn":
                values = self.model.policy.q_net(seen).cpu().numpy()
                best = np.unravel_index(values.argmax(axis=1), (num_candidates,) * num_agents)
                return np.repeat(np.stack(best, axis=-1)[:, None], num_generations, axis=1)
            logits = _logits(self.model.policy.get_distribution(seen))
        shape = (num_situations, num_agents, num_candidates)
        joint = torch.stack(logits, dim=1).double().cpu().numpy().reshape(shape)
        if self.learner == "sb3-maskable-ppo":
            joint = np.where(allowed, joint, -math.inf)
        if rng is None:
            return np.repeat(joint.argmax(axis=-1)[:, None], num_generations, axis=1)
        return _drawn(joint, num_generations, rng)

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the model as stable-baselines3 does, and return which class reads it."""
        self.model.save(folder / FILE_NAME)
        return {"learner": self.learner}

    @classmethod
    def load(cls, folder: Path, described: dict[str, Any]) -> Self:
        """Read what `save` wrote. Like all of that library's files it holds pickled objects.

        Args:
            folder: where it is.
            described: what `save` returned.
        """
        learner = described["learner"]
        with kept_randomness():  # loading seeds the global generators
            return cls(learner, learner_class(learner).load(folder / FILE_NAME, device="cpu"))


def _logits(distribution: Any) -> list[torch.Tensor]:
    """Return (B, K) logits for each agent that a distribution is over."""
    if hasattr(distribution, "distributions"):  # of MaskablePPO over several agents
        parts = distribution.distributions
    else:
        parts = distribution.distribution
    return [part.logits for part in (parts if isinstance(parts, list) else [parts])]


def _drawn(
    logits: NDArray[np.float64], num_generations: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw (B, G, A) picks from (B, A, K) logits."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    sums = weights.cumsum(axis=-1)[:, None]
    num_situations, num_agents, _ = logits.shape
    drawn = rng.random((num_situations, num_generations, num_agents, 1)) * sums[..., -1:]
    # the first whose sum is above what was drawn: never one of weight 0
    picks: NDArray[np.int64] = (sums <= drawn).sum(axis=-1)
    return picks
