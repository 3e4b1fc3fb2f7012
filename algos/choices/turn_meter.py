"""What turns pay, counted while episodes are stepped side by side in the slots of a `VecEnv`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class TurnMeter:
    """Average the rewards of each turn.

    Args:
        num_slots: slots of the vectorised env.
        team: agents of a slot in mode "centralised"; none where each slot is one agent.
    """

    def __init__(self, num_slots: int, team: Sequence[str] = ()) -> None:
        self._team = list(team)
        self._turns = [0] * num_slots
        self._sums: dict[int, float] = {}
        self._counts: dict[int, int] = {}
        self.deepest = 0

    def record(
        self, rewards: NDArray[Any], dones: NDArray[Any], infos: Sequence[Mapping[str, Any]]
    ) -> None:
        """Count a step of all slots: (S,) each, as `VecEnv.step` returns them."""
        for slot, info in enumerate(infos):
            if info.get("idle", False):
                continue
            turn = self._turns[slot] + 1
            self._sums[turn] = self._sums.get(turn, 0.0) + self._paid(float(rewards[slot]), info)
            self._counts[turn] = self._counts.get(turn, 0) + 1
            self._turns[slot] = 0 if dones[slot] else turn
            self.deepest = max(self.deepest, turn)

    def metrics(self) -> dict[str, float]:
        """Return `turn_k/reward_mean` and `rollout/reward_mean` of what was counted so far."""
        metrics = {
            f"turn_{turn}/reward_mean": self._sums[turn] / self._counts[turn]
            for turn in sorted(self._sums)
        }
        if metrics:
            total = sum(self._sums.values()) / sum(self._counts.values())
            metrics["rollout/reward_mean"] = total
        return metrics

    def clear(self) -> None:
        """Begin a new average; episodes go on."""
        self._sums.clear()
        self._counts.clear()

    def get_state(self) -> dict[str, Any]:
        """Return all of it, in plain types."""
        return {
            "turns": list(self._turns),
            "sums": dict(self._sums),
            "counts": dict(self._counts),
            "deepest": self.deepest,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to where a meter of as many slots stood."""
        self._turns = list(state["turns"])
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])
        self.deepest = state["deepest"]

    def _paid(self, reward: float, info: Mapping[str, Any]) -> float:
        """Return what the turn alone paid, of a reward that counts for several turns too."""
        if not self._team:
            return float(info.get("turn_reward", reward))
        own = [info[name].get("turn_reward") for name in self._team if name in info]
        known = [paid for paid in own if paid is not None]
        return float(np.mean(known)) if len(known) == len(self._team) else reward
