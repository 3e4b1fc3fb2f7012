"""What turns pay, counted while episodes are stepped side by side in the slots of a `VecEnv`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TEAM = ""  # in the place of an agent's name
_ALL_TURNS = 0  # in the place of a turn


@dataclass(slots=True)
class _Moments:
    """Mean and population deviation of numbers that come one by one.

    They are added up less the first one, so that a deviation that is small beside them is not lost.
    """

    count: int = 0
    first: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        if not self.count:
            self.first = value
        self.count += 1
        self.total += value - self.first
        self.squares += (value - self.first) ** 2

    @property
    def mean(self) -> float:
        return self.first + self.total / self.count

    @property
    def std(self) -> float:
        shift = self.total / self.count
        return math.sqrt(max(self.squares / self.count - shift**2, 0.0))


class TurnMeter:
    """Average the rewards of each turn, the team's and, where they differ, each agent's.

    Args:
        num_slots: slots of the vectorised env.
        team: agents of a slot in mode "centralised"; none where each slot is one agent.
        agents: whose the slots are, in turn, in mode "shared"; none where each is an episode.
    """

    def __init__(
        self, num_slots: int, team: Sequence[str] = (), *, agents: Sequence[str] = ()
    ) -> None:
        self._team = list(team)
        self._agents = list(agents)
        self._turns = [0] * num_slots
        self._moments: dict[tuple[int, str], _Moments] = {}
        self.deepest = 0

    def record(
        self, rewards: NDArray[Any], dones: NDArray[Any], infos: Sequence[Mapping[str, Any]]
    ) -> None:
        """Count a step of all slots: (S,) each, as `VecEnv.step` returns them."""
        width = max(len(self._agents), 1)
        for begin in range(0, len(infos), width):
            slots = [
                slot for slot in range(begin, begin + width) if not infos[slot].get("idle", False)
            ]
            if not slots:
                continue
            turn = self._turns[slots[0]] + 1  # of an episode's agents those that are left
            self.deepest = max(self.deepest, turn)
            paid = {slot: self._paid(float(rewards[slot]), infos[slot]) for slot in slots}
            self._add(turn, _TEAM, float(np.mean(list(paid.values()))))
            for slot in slots:
                own = {self._agents[slot - begin]: paid[slot]} if self._agents else {}
                for name, value in (own or self._told(infos[slot])).items():
                    self._add(turn, name, value)
                self._turns[slot] = 0 if dones[slot] else turn

    def metrics(self) -> dict[str, float]:
        """Return means and deviations of what was counted so far, by turn and over all of them.

        They are named as `motet.algos.metrics` names those of a rollout.
        """
        turns = sorted({turn for turn, _ in self._moments} - {_ALL_TURNS})
        names = sorted({name for _, name in self._moments} - {_TEAM}) if self._differ() else []
        metrics = {}
        for turn in [*turns, _ALL_TURNS] if turns else ():
            group = "rollout" if turn == _ALL_TURNS else f"turn_{turn}"
            for name in (_TEAM, *names):
                own = self._moments.get((turn, name))
                if own is not None:
                    of = f"/{name}" if name else ""
                    metrics[f"{group}/reward_mean{of}"] = own.mean
                    metrics[f"{group}/reward_std{of}"] = own.std
        return metrics

    def clear(self) -> None:
        """Begin a new average; episodes go on."""
        self._moments.clear()

    def get_state(self) -> dict[str, Any]:
        """Return all of it, in plain types."""
        return {
            "turns": list(self._turns),
            "moments": [[*key, *astuple(own)] for key, own in self._moments.items()],
            "deepest": self.deepest,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to where a meter of as many slots stood."""
        self._turns = list(state["turns"])
        self._moments = {(turn, name): _Moments(*own) for turn, name, *own in state["moments"]}
        self.deepest = state["deepest"]

    def _add(self, turn: int, name: str, value: float) -> None:
        for key in ((turn, name), (_ALL_TURNS, name)):
            self._moments.setdefault(key, _Moments()).add(value)

    def _differ(self) -> bool:
        """Tell whether agents were paid differently."""
        seen: dict[int, list[_Moments]] = {}
        for (turn, name), own in self._moments.items():
            if name != _TEAM:
                seen.setdefault(turn, []).append(own)
        return any(own != each[0] for each in seen.values() for own in each)

    def _paid(self, reward: float, info: Mapping[str, Any]) -> float:
        """Return what the turn alone paid, of a reward that counts for several turns too."""
        if not self._team:
            return float(info.get("turn_reward", reward))
        told = self._told(info)
        return float(np.mean(list(told.values()))) if told else reward

    def _told(self, info: Mapping[str, Any]) -> dict[str, float]:
        """Return what each agent of a team was paid, where it is told of all of them."""
        own = {name: info.get(name, {}).get("turn_reward") for name in self._team}
        known = {name: float(paid) for name, paid in own.items() if paid is not None}
        return known if len(known) == len(self._team) else {}
