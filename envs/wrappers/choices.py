"""What `PickOfK` remembers of an episode, and what its picks mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.envs.task.parts import is_integer
from motet.envs.wrappers.candidates import Texts


@dataclass(frozen=True, slots=True)
class Choices:
    """The memory of `PickOfK`.

    Attributes:
        seed: source of what writers write in this episode.
        turn: turns taken.
        offered: by live agent, what it can choose from; nothing where it is not its turn.
        played: by agent, the text that its pick of the last turn became.
    """

    seed: int
    turn: int
    offered: Mapping[str, Texts]
    played: Mapping[str, str] = field(default_factory=dict)

    def texts(self, picks: Any, k: int) -> dict[str, str]:
        """Return the text that each live agent picked, empty where it is not its turn.

        Raises:
            TypeError: where `picks` is no mapping.
            ValueError: where an agent is missing or unknown, or a pick is not allowed.
        """
        self._check_names(picks)
        texts = {}
        for agent, offered in self.offered.items():
            allowed = len(offered) or k
            pick = picks[agent]
            if not _is_integer(pick) or not 0 <= pick < allowed:
                advice = "; infos[agent]['action_mask'] marks what is allowed" * (allowed < k)
                raise ValueError(
                    f"Expected an integer from 0 to {allowed - 1} as the action of {agent}, got "
                    f"{pick!r}{advice}."
                )
            texts[agent] = offered[int(pick)] if offered else ""
        return texts

    def _check_names(self, picks: Any) -> None:
        if not isinstance(picks, Mapping):
            raise TypeError(f"Expected a mapping of one pick per agent, got {picks!r}.")
        if picks.keys() != self.offered.keys():
            missing = [name for name in self.offered if name not in picks]
            unknown = [name for name in picks if name not in self.offered]
            raise ValueError(
                f"Expected one pick for each of {list(self.offered)}, got picks with {missing} "
                f"missing and {unknown} unknown."
            )


@dataclass(frozen=True, slots=True)
class Moment:
    """Where an episode stands, before choices are offered.

    Attributes:
        seed: of the episode.
        turn: turns taken.
        observations: prompt by agent, those that leave included.
        live: agents that go on.
        cut: agents whose episode something outside the task has cut; what they see is of the turn
            that does not come, for learners to bootstrap from.
        rewards: of the last turn by agent; none at the start.
        infos: by agent.
    """

    seed: int
    turn: int
    observations: Mapping[str, str]
    live: Sequence[str]
    cut: Sequence[str]
    rewards: Mapping[str, float]
    infos: Mapping[str, dict[str, Any]]

    @property
    def facing(self) -> list[str]:
        """Agents that see a turn of the task before them, be it that it does not come."""
        return [*self.live, *self.cut]

    def acts(self, agent: str) -> bool:
        """Whether the agent's pick counts in the coming turn."""
        return agent in self.facing and bool(self.infos[agent].get("acts", True))


def mask_of(offered: Texts, k: int) -> NDArray[np.int8]:
    """Return (K,) of 1 where there is a text; where nothing is offered, pick 0 alone."""
    mask = np.zeros(k, np.int8)
    mask[: max(1, len(offered))] = 1
    return mask


def _is_integer(pick: Any) -> bool:
    if isinstance(pick, np.ndarray):  # of no dimension, as stable-baselines3's predict returns it
        return pick.shape == () and pick.dtype.kind in "iu"
    return is_integer(pick)
