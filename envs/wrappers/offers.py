"""What agents are offered to pick from, what they see of it, and what a pick becomes.

`PickOfK` is made of this. Agents whose picks were trained take it along: outside of the env they
are offered the same, see the same numbers, and say the same for a pick.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motet.envs.wrappers.candidates import (
    Question,
    Source,
    Strategies,
    Strategy,
    Texts,
    Writer,
    Writers,
    answers_by,
    make_source,
)
from motet.envs.wrappers.features import ChoiceFeatures, HashingEncoder, TextEncoder, View

Candidates = (
    Sequence[str]
    | Mapping[str, Sequence[str]]
    | Callable[[str, str], Sequence[str]]
    | Writer
    | Mapping[str, Writer]
)


class Offers:
    """Offer K texts to each agent; arguments are those of `PickOfK`.

    Args:
        agent_names: (N,) agents in the order of the env's `possible_agents`.
        candidates: texts to choose from.
        k: K.
        strategies: ways to put the prompt.
        writer: who answers the prompt that a strategy made.
        encoder: turns prompts, and candidates that vary, into numbers.

    Attributes:
        agent_names: (N,) agents.
        k: K.
        size: entries of an agent's vector of features.
        source: what the texts come from.
        encoder: as given, or the default.

    Raises:
        TypeError: where an argument is of another type.
        ValueError: where the arguments contradict each other.
    """

    def __init__(
        self,
        agent_names: Sequence[str],
        candidates: Candidates | None = None,
        *,
        k: int | None = None,
        strategies: Sequence[Strategy] | Mapping[str, Sequence[Strategy]] | None = None,
        writer: Writer | Mapping[str, Writer] | None = None,
        encoder: TextEncoder | None = None,
    ) -> None:
        self.agent_names = tuple(agent_names)
        _check_arguments(candidates, strategies, writer)
        self.source: Source = (
            make_source(candidates, self.agent_names, k)
            if strategies is None
            else Strategies(strategies, self.agent_names, k)
        )
        self._writers = None if writer is None else Writers(writer, self.agent_names)
        self.k = self.source.k
        self.encoder: TextEncoder = HashingEncoder() if encoder is None else encoder
        self._features = ChoiceFeatures(
            self.encoder, len(self.agent_names), self.k if self.source.varies else 0
        )
        self.size = self._features.size
        self._places = {name: i for i, name in enumerate(self.agent_names)}

    @property
    def asks_writers(self) -> bool:
        """Whether a pick is a prompt that a writer answers."""
        return self._writers is not None

    def place(self, agent: str) -> int:
        """Return an agent's place among the N."""
        return self._places[agent]

    def offer(self, questions: Sequence[Question]) -> list[Texts]:
        """Return what each question's agent can choose from."""
        return self.source.offer(questions)

    def features(self, views: Sequence[View]) -> NDArray[np.float32]:
        """Return (B, size) observations of (B,) views."""
        return self._features(views)

    def answers(self, picked: Sequence[Question]) -> list[Any]:
        """Return what the agents' writers answer to picks, as they give it.

        Args:
            picked: (B,) agents and the prompts that they picked; equal ones share their answer.

        Returns:
            (B,) answers with a `text`.
        """
        if self._writers is None:
            raise ValueError("Expected strategies, whose picks writers answer, got candidates.")
        return [answer for (answer,) in answers_by(self._writers, picked, 1)]


def _check_arguments(candidates: Any, strategies: Any, writer: Any) -> None:
    if (candidates is None) == (strategies is None):
        raise ValueError(
            "Expected either candidates or strategies, got "
            f"{'neither' if candidates is None else 'both'}."
        )
    if (writer is None) != (strategies is None):
        raise ValueError(
            "Expected strategies and writer together, got only one of them; an agent that writes "
            "candidates is passed as candidates=."
        )
