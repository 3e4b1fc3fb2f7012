"""A conversation by token ids: what opens it, and what a new observation adds to it.

What an agent has said stays the ids that it sampled. Text is never tokenised again: the ids of a
text are not always those that it was decoded from.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerBase

from motet.agents.agent import Completion, check_contexts_by_number

# Stand-ins for texts, to find in what a template makes of them.
_SAID = ("motet-first-user-turn", "motet-second-user-turn", "motet-third-user-turn")
_ANSWERED = ("motet-first-answer", "motet-second-answer")
_WORD = "motet"


@dataclass(frozen=True, slots=True)
class Conversation:
    """How observations become token ids.

    Attributes:
        tokenizer: of the agent.
        chat_template: whether observations are user messages of the tokenizer's chat template.
        system_prompt: system message before them.
    """

    tokenizer: PreTrainedTokenizerBase
    chat_template: bool
    system_prompt: str | None
    _adds_space: bool = field(init=False, repr=False)  # whether texts begin with a space to it

    def __post_init__(self) -> None:
        object.__setattr__(self, "_adds_space", self._ids(_WORD) != self._ids_behind_line(_WORD))
        if self.chat_template and self.tokenizer.chat_template is None:
            raise ValueError(
                "Expected a tokenizer with a chat template for chat_template=True, got one "
                "without; set tokenizer.chat_template, or leave chat_template=False."
            )
        if self.system_prompt is not None and not self.chat_template:
            raise ValueError(
                "Expected chat_template=True together with a system_prompt: a raw prompt has no "
                "place for it."
            )

    def opening(self, observation: str) -> list[int]:
        """Return the ids of a conversation's first prompt."""
        ids: list[int]
        if self.chat_template:
            ids = self.tokenizer.apply_chat_template(
                self._messages(observation), add_generation_prompt=True, return_dict=False
            )
        else:
            ids = self.tokenizer(observation, verbose=False)["input_ids"]
        return ids

    def continued(
        self,
        context: Completion,
        observation: str,
        stop_ids: Collection[int],
        stop_strings: Sequence[str] = (),
    ) -> list[int]:
        """Return the ids of a later prompt: the last one, its completion, and what is new.

        The completion is all that was sampled, the stop token or the stop string with which it
        ended included, or without an end where it was cut. Raw, what is new is the observation
        alone, without special tokens, and without the space that some tokenizers begin a text with.
        Of a chat template it is what it puts behind an assistant's text: its end, the user's turn,
        and the beginning of the assistant's next one. What of that the completion wrote itself, as
        its stop token or with its stop string, is not repeated.

        Args:
            context: the agent's last completion.
            observation: what it sees now.
            stop_ids: tokens that end a completion.
            stop_strings: texts that end a completion.
        """
        said = [*context.prompt_ids, *context.completion_ids]
        text = observation
        if self.chat_template:
            text = self._tail(observation)
            if said[-1] not in stop_ids:
                text = text[self._num_written(context, text, stop_strings) :]
        new = self._ids_behind_line(text) if self._adds_space else self._ids(text)
        if self.chat_template and said[-1] in stop_ids and said[-1] in new:
            first = new.index(said[-1])
            if not self.tokenizer.decode(new[:first]).strip():  # templates may put a space before
                new = new[first + 1 :]
        return said + new

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def _ids_behind_line(self, text: str) -> list[int]:
        """Return the ids of a text as they are behind the end of a line.

        Llama's tokenizer and others put a space before the first word of a text, which one that
        goes on from another does not have. It is as if alone where the two share a token.
        """
        before, whole = self._ids("\n"), self._ids(f"\n{text}")
        return whole[len(before) :] if whole[: len(before)] == before else self._ids(text)

    def _num_written(self, context: Completion, tail: str, stop_strings: Sequence[str]) -> int:
        """Return how many characters of the template's tail a stop string's completion ended with.

        Where the assistant's end, or the user's beginning, is ordinary text, it may be what a stop
        string waits for; the stop string need not be all of it.
        """
        if context.finish_reason != "stop" or not stop_strings:
            return 0
        opens = self._tail(_SAID[1]).find(_SAID[1])  # where the user's own text begins
        written: str = self.tokenizer.decode(context.completion_ids, skip_special_tokens=True)
        return next(
            (
                length
                for length in range(min(opens, len(written)), 0, -1)
                if written.endswith(tail[:length])
                and any(string in tail[:length] for string in stop_strings)
            ),
            0,
        )

    def check_continues(self) -> None:
        """Raise where the chat template does not let a conversation be continued by ids.

        Raises:
            ValueError: where it does not put new messages behind what it made of the former ones.
        """
        if not self.chat_template:
            return
        whole = self._rendered(_SAID[0], _ANSWERED[0], _SAID[1], _ANSWERED[1], _SAID[2])
        first, second = self._tail(_SAID[1]), self._tail(_SAID[2])
        parts = [self._rendered(_SAID[0]), _ANSWERED[0], first, _ANSWERED[1], second]
        if "".join(whole.split()) != "".join("".join(parts).split()):
            raise _not_appending()

    def _tail(self, observation: str) -> str:
        """Return what the template puts behind an assistant's text when the user goes on."""
        opening = self._rendered(_SAID[0])
        whole = self._rendered(_SAID[0], _ANSWERED[0], observation)
        # some templates put a space between the prompt and the assistant's text
        behind = whole[len(opening) :].lstrip()
        if not whole.startswith(opening) or not behind.startswith(_ANSWERED[0]):
            raise _not_appending()
        return behind.removeprefix(_ANSWERED[0])

    def _rendered(self, *texts: str) -> str:
        text: str = self.tokenizer.apply_chat_template(
            self._messages(*texts), tokenize=False, add_generation_prompt=True
        )
        return text

    def _messages(self, *texts: str) -> list[dict[str, str]]:
        """Return texts of user and assistant by turns, with the system's message before them."""
        messages = [
            {"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)
        ]
        if self.system_prompt is not None:
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        return messages


def check_contexts(contexts: Sequence[Completion | None], wanted: int, num_tokens: int) -> None:
    """Raise where contexts are not an agent's own completions, one for each observation.

    Args:
        contexts: what `act` got.
        wanted: number of observations.
        num_tokens: of the model: ids are below.

    Raises:
        TypeError: where they are no list, one is neither a completion nor None, or its ids are no
            tuples.
        ValueError: where their number is wrong, or one has no token ids or others than the model.
    """
    check_contexts_by_number(contexts, wanted)
    for context in contexts:
        if context is None:
            continue
        if not isinstance(context, Completion):
            raise TypeError(
                f"Expected Completions or None as contexts, got {context!r} of type "
                f"{type(context).__name__}."
            )
        _check_ids(context, num_tokens)


def _check_ids(context: Completion, num_tokens: int) -> None:
    for name in ("prompt_ids", "completion_ids"):
        ids = getattr(context, name)
        if not isinstance(ids, tuple):
            raise TypeError(
                f"Expected contexts with tuples of token ids, got {name} of type "
                f"{type(ids).__name__}; write {name}=tuple(ids)."
            )
        if not ids:
            raise ValueError(
                "Expected contexts with the token ids of prompt and completion, got none for "
                f"{context.text[:60]!r}; a context is the agent's own last completion."
            )
        if min(ids) < 0 or max(ids) >= num_tokens:
            raise ValueError(
                f"Expected contexts with token ids from 0 to {num_tokens - 1}, got {name} from "
                f"{min(ids)} to {max(ids)}; is the context another model's?"
            )


def _not_appending() -> ValueError:
    return ValueError(
        "Expected a chat template that puts new messages behind what it made of the former ones, "
        "for history='append'; this one renders the former ones anew. Set another "
        "tokenizer.chat_template, or leave history='none'."
    )
