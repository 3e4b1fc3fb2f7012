"""Agents without a model: for tests, baselines and transcripts."""

from collections.abc import Callable, Sequence

import numpy as np

from motet.agents.agent import Completion, check_request


class FixedAgent:
    """Give the same answer always, or the one that a function makes of the observation.

    Args:
        answer: a text, or `f(observation) -> text`.
    """

    def __init__(self, answer: str | Callable[[str], str]) -> None:
        if not isinstance(answer, str) and not callable(answer):
            raise TypeError(f"Expected a text or a function as answer, got {answer!r}.")
        self._answer = answer

    def act(
        self,
        observations: Sequence[str],
        num_generations: int = 1,
        *,
        seed: int | None = None,
        contexts: Sequence[Completion | None] | None = None,
    ) -> list[list[Completion]]:
        """Answer; see `Agent.act`. Seed and contexts change nothing."""
        del seed, contexts
        check_request(observations, num_generations)
        answer = self._answer
        texts = [answer if isinstance(answer, str) else answer(text) for text in observations]
        return [[Completion(text)] * num_generations for text in texts]


class RandomAgent:
    """Pick one of several texts at random, each as likely as the others.

    Args:
        texts: what to choose from.
        seed: seed of the agent's own randomness, used where `act` gets none.
    """

    def __init__(self, texts: Sequence[str], *, seed: int | None = None) -> None:
        if isinstance(texts, str) or any(not isinstance(text, str) for text in texts):
            raise TypeError(f"Expected a list of texts to choose from, got {texts!r}.")
        if not texts:
            raise ValueError("Expected at least one text to choose from, got none.")
        self._texts = list(texts)
        self._rng = np.random.default_rng(seed)

    def act(
        self,
        observations: Sequence[str],
        num_generations: int = 1,
        *,
        seed: int | None = None,
        contexts: Sequence[Completion | None] | None = None,
    ) -> list[list[Completion]]:
        """Answer; see `Agent.act`. Contexts change nothing."""
        del contexts
        check_request(observations, num_generations)
        rng = self._rng if seed is None else np.random.default_rng(seed)
        picks = rng.integers(len(self._texts), size=(len(observations), num_generations))
        return [[Completion(self._texts[i]) for i in row] for row in picks]


class ReplayAgent:
    """Give recorded answers in order, one per observation and generation.

    Args:
        texts: the answers.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = list(texts)
        self._next = 0

    def act(
        self,
        observations: Sequence[str],
        num_generations: int = 1,
        *,
        seed: int | None = None,
        contexts: Sequence[Completion | None] | None = None,
    ) -> list[list[Completion]]:
        """Answer; see `Agent.act`. Seed and contexts change nothing.

        Raises:
            ValueError: where the recording is over.
        """
        del seed, contexts
        check_request(observations, num_generations)
        wanted = len(observations) * num_generations
        if self._next + wanted > len(self._texts):
            raise ValueError(
                f"Expected at most {len(self._texts) - self._next} more answers of this "
                f"recording of {len(self._texts)}, got a request for {wanted}."
            )
        texts = self._texts[self._next : self._next + wanted]
        self._next += wanted
        return [
            [Completion(text) for text in texts[i : i + num_generations]]
            for i in range(0, wanted, num_generations)
        ]
