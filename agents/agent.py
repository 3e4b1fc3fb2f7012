"""What every agent is to a learner: a function from observations to completions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer, with the tokens that were sampled. Ids are never re-derived from the text.

    P prompt tokens, T completion tokens.

    Attributes:
        text: the action; neither the stop token nor other special tokens are part of it.
        prompt_ids: (P,) tokens the model saw; empty for agents without a model.
        completion_ids: (T,) tokens the model wrote, the stop token included.
        log_probs: (T,) log-probabilities under the distribution that was sampled from.
        finish_reason: "stop" when the agent ended by itself, "length" when it was cut.
        policy_version: how many updates the sampling policy had seen.
    """

    text: str
    prompt_ids: tuple[int, ...] = ()
    completion_ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    finish_reason: FinishReason = "stop"
    policy_version: int = 0


def check_request(observations: Sequence[str], num_generations: int) -> None:
    """Raise where `act` is not asked for lists of answers to a list of texts.

    A bare string would be taken for a list of letters, and answered letter by letter.

    Raises:
        TypeError: where `observations` is a string, or holds something else than strings.
        ValueError: where `num_generations` is below 1.
    """
    if isinstance(observations, str):
        raise TypeError(
            f"Expected a list of observations, got the text {observations[:60]!r}; pass [text]."
        )
    for observation in observations:
        if not isinstance(observation, str):
            raise TypeError(
                f"Expected strings as observations, got {observation!r} of type "
                f"{type(observation).__name__}."
            )
    if num_generations < 1:
        raise ValueError(f"Expected num_generations of at least 1, got {num_generations}.")


@runtime_checkable
class Agent(Protocol):
    """Anything that answers. Implement `act` and every learner and env of Motet can use it."""

    def act(
        self, observations: Sequence[str], num_generations: int = 1, *, seed: int | None = None
    ) -> list[list[Completion]]:
        """Answer each observation several times.

        Args:
            observations: (B,) prompts; the same prompt may come more than once.
            num_generations: G, independent answers to each.
            seed: makes the answers reproducible; None goes on with the agent's own randomness.

        Returns:
            (B,) lists of (G,) completions.
        """
