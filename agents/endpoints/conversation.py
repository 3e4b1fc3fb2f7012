"""What an agent without token ids has said and seen: messages, carried by its completions.

A language model's conversation is in the ids of its last completion. An endpoint takes and gives
texts, so that its completions carry the texts: `APICompletion` is a `Completion` to everybody else,
in comparisons and in files, where the conversation is left out.
"""

from collections.abc import Sequence
from typing import Any

from motet.agents.agent import Completion, FinishReason, check_contexts_by_number

Message = tuple[str, str]  # role ("user" or "assistant") and text


class APICompletion(Completion):
    """A completion that knows the conversation that it ends.

    It equals the same completion without one, as a rollout's file has it.

    Attributes:
        messages: the conversation by (role, text), this completion included; without the system's
            message, which is the agent's.
    """

    __slots__ = ("messages",)
    messages: tuple[Message, ...]

    def __init__(  # those of Completion, which dataclasses.replace passes on
        self,
        text: str,
        prompt_ids: tuple[int, ...] = (),
        completion_ids: tuple[int, ...] = (),
        log_probs: tuple[float, ...] = (),
        finish_reason: FinishReason = "stop",
        policy_version: int = 0,
        *,
        messages: tuple[Message, ...] = (),
    ) -> None:
        Completion.__init__(
            self, text, prompt_ids, completion_ids, log_probs, finish_reason, policy_version
        )
        object.__setattr__(self, "messages", messages)

    def plain(self) -> Completion:
        """Return the completion alone."""
        return Completion(
            self.text,
            self.prompt_ids,
            self.completion_ids,
            self.log_probs,
            self.finish_reason,
            self.policy_version,
        )

    def __eq__(self, other: object) -> bool:
        return self.plain() == (other.plain() if isinstance(other, APICompletion) else other)

    def __hash__(self) -> int:
        return hash(self.plain())

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.plain(), self.messages)


def said(
    before: Sequence[Message], text: str, finish_reason: FinishReason = "stop"
) -> APICompletion:
    """Return the completion that an endpoint gave, with the conversation that it ends."""
    return APICompletion(text, finish_reason=finish_reason, messages=(*before, ("assistant", text)))


def continued(context: Completion | None, observation: str) -> tuple[Message, ...]:
    """Return the conversation that an observation is the end of."""
    before = context.messages if isinstance(context, APICompletion) else ()
    return (*before, ("user", observation))


def check_spoken_contexts(contexts: Sequence[Completion | None], wanted: int) -> None:
    """Raise where contexts are not an agent's own completions, one for each observation.

    Args:
        contexts: what `act` got.
        wanted: number of observations.

    Raises:
        TypeError: where they are no list, or one is neither None nor a completion with its
            conversation.
        ValueError: where their number is wrong.
    """
    check_contexts_by_number(contexts, wanted)
    for context in contexts:
        if context is not None and not (isinstance(context, APICompletion) and context.messages):
            raise TypeError(
                "Expected contexts that an APIAgent's act returned, which carry their "
                f"conversation, got {str(context)[:80]!r} of type {type(context).__name__}; "
                "completions of other agents, or from a file, do not."
            )


def _restored(completion: Completion, messages: tuple[Message, ...]) -> APICompletion:
    return APICompletion(
        completion.text,
        completion.prompt_ids,
        completion.completion_ids,
        completion.log_probs,
        completion.finish_reason,
        completion.policy_version,
        messages=messages,
    )
