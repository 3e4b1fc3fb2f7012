"""What every agent is to a learner: a function from observations to completions."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

FinishReason = Literal["stop", "length"]
History = Literal["none", "append"]


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer, with the tokens that were sampled. Ids are never re-derived from the text.

    P prompt tokens, T completion tokens.

    Attributes:
        text: the action; neither the stop token nor other special tokens are part of it, nor a stop
            string and what follows it.
        prompt_ids: (P,) tokens the model saw; empty for agents without a model.
        completion_ids: (T,) tokens the model wrote, the stop token, or those of the stop string,
            included.
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


def check_contexts_by_number(contexts: object, wanted: int) -> None:
    """Raise where contexts are not one for each observation.

    Args:
        contexts: what `act` got.
        wanted: number of observations.

    Raises:
        TypeError: where they are no list.
        ValueError: where their number is wrong.
    """
    if not isinstance(contexts, Completion | Sequence):
        raise TypeError(
            f"Expected a list of {wanted} contexts, one for each observation, got a "
            f"{type(contexts).__name__}; pass list(contexts)."
        )
    if isinstance(contexts, Completion) or len(contexts) != wanted:
        got = "a Completion" if isinstance(contexts, Completion) else len(contexts)
        raise ValueError(
            f"Expected a list of {wanted} contexts, one for each observation, got {got}."
        )


@runtime_checkable
class Agent(Protocol):
    """Anything that answers. Implement `act` and every learner and env of Motet can use it.

    An agent that is to be told what it said before has an attribute `history` that is "append"
    (`HistoryAgent`); to all others nobody passes `contexts`, and they need no such parameter.
    """

    def act(
        self,
        observations: Sequence[str],
        num_generations: int = 1,
        *,
        seed: int | None = None,
        contexts: "Sequence[Completion | None] | None" = None,
    ) -> list[list[Completion]]:
        """Answer each observation several times.

        Args:
            observations: (B,) prompts; the same prompt may come more than once.
            num_generations: G, independent answers to each.
            seed: makes the answers reproducible; None goes on with the agent's own randomness.
            contexts: (B,) the agent's own last completion on the way to each observation, None
                where it has not said anything yet; None is the same for all.

        Returns:
            (B,) lists of (G,) completions.
        """


@runtime_checkable
class HistoryAgent(Agent, Protocol):
    """An agent that says whether it is to be told what it said before.

    Attributes:
        history: "append" for an agent that goes on from `contexts`, "none" for one that does not.
    """

    history: History


@runtime_checkable
class GreedyAgent(Agent, Protocol):
    """An agent that can leave chance out. Language models do by `with_generation`."""

    def greedy(self) -> Agent:
        """Return the agent as it gives the likeliest answer always, with the same weights."""


@runtime_checkable
class DescribedAgent(Agent, Protocol):
    """An agent that says what it acts by, so that a run that goes on can tell it from another."""

    @property
    def settings(self) -> dict[str, str]:
        """Settings by name, as texts that are equal where they are; none is a secret."""


@runtime_checkable
class TeamAgent(Agent, Protocol):
    """An agent that says for whom it acts: where that is several, it is asked for all at once.

    Attributes:
        names: agents that it plays, in the order in which it is asked for them.
    """

    names: tuple[str, ...]


@runtime_checkable
class CachingAgent(Agent, Protocol):
    """An agent that can keep what it has computed from one call of `act` to the next."""

    def keeping_caches(self) -> AbstractContextManager[None]:
        """Keep it until the context ends. In between, nobody changes the agent's weights."""


def wants_contexts(agent: Agent) -> bool:
    """Tell whether an agent is to be told what it said before."""
    return isinstance(agent, HistoryAgent) and agent.history == "append"
