"""The snapshot of a wrapper."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class WrapperState:
    """A snapshot of a wrapper: its own part and that of the env inside.

    Attributes:
        memory: what the wrapper remembers of the episode.
        agents: live agents.
        stream: seed of the wrapper's random stream, and how many episodes it began.
        inner: snapshot of the env inside.
        wrapper: name of the wrapper's class.
    """

    memory: Any
    agents: tuple[str, ...]
    stream: tuple[int, int]
    inner: Any
    wrapper: str = ""

    @property
    def ended(self) -> bool:
        """Whether the episode is over, be it that only the wrapper ended it."""
        return not self.agents

    @property
    def row(self) -> int:
        """Dataset row of the `TextEnv` inside."""
        row: int = self.inner.row
        return row

    @property
    def turn(self) -> int:
        """Number of turns taken by the `TextEnv` inside."""
        turn: int = self.inner.turn
        return turn
