"""What is sent to an endpoint, and what this one has turned out not to take.

Endpoints that call themselves compatible differ in a few fields. The first refusal of one is taken
for an answer: the request is sent again without it, and so are all later ones.
"""

import dataclasses
import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from motet.agents.endpoints.conversation import Message
from motet.agents.endpoints.errors import Trouble
from motet.agents.generation import GenerationConfig

_logger = logging.getLogger(__name__)

_TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")
_SENT = ("max_new_tokens", "temperature", "top_p", "do_sample", "stop_strings")
_OWN = frozenset(
    [
        "model",
        "messages",
        "prompt",
        "n",
        "seed",
        "stream",
        "stream_options",
        "stop",
        "temperature",
        "top_p",
        "max_tokens",
        "max_completion_tokens",
        "tools",
        "functions",
        "best_of",  # completions that are paid for and never seen
    ]
)
# A token stands for a byte at least. Templates add the roles, and some a message of their own.
_TOKENS_OF_A_MESSAGE = 16
_TOKENS_OF_A_TEMPLATE = 128


def check_sendable(generation: GenerationConfig, extra_body: Mapping[str, Any]) -> None:
    """Raise where settings are for models that are at hand, or are to be given otherwise.

    Raises:
        ValueError: with the settings, and what to do.
        TypeError: where the further fields are no JSON.
    """
    for field in dataclasses.fields(generation):
        value = dataclasses.asdict(generation)[field.name]
        if field.name not in _SENT and value != field.default:
            raise ValueError(
                f"Expected {field.name}={field.default} for an endpoint, which is asked for "
                f"{', '.join(_SENT)} alone, got {value!r}; leave it out, or if the endpoint has "
                "such a field, give it in extra_body."
            )
    wrong = sorted(_OWN.intersection(extra_body))
    if wrong:
        raise ValueError(
            f"Expected other fields than the agent's own in extra_body, got {wrong}; set them by "
            "the arguments of APIAgent and by its GenerationConfig, or leave them out."
        )
    try:
        json.dumps(extra_body)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"Expected extra_body of what JSON can hold, got {extra_body!r}; write numbers, texts, "
            "lists and dicts."
        ) from error


class Dialect:
    """How requests to one endpoint look.

    Args:
        model: name of the model there.
        chat: whether it is asked for chat completions, or for the continuation of a text.
        openai: whether it is OpenAI's own, whose newer models know one name of a field alone.
        extra_body: further fields of requests, which may put something into prompts.

    Attributes:
        takes_n: whether it gives several completions for one request.
        takes_seed: whether it takes a seed.
    """

    def __init__(
        self, model: str, *, chat: bool, openai: bool, extra_body: Mapping[str, Any]
    ) -> None:
        self.model = model
        self._most_extra_tokens = len(json.dumps(extra_body).encode()) if extra_body else 0
        self.chat = chat
        self.takes_n = True
        self.takes_seed = True
        self._takes_stream_options = True
        self._token_limit = "max_completion_tokens" if chat and openai else "max_tokens"
        self._has_switched = not chat

    def prompt(
        self, system_prompt: str | None, conversation: Sequence[Message]
    ) -> list[dict[str, str]] | str:
        """Return a conversation as the endpoint takes it: messages, or one text."""
        if not self.chat:
            return "".join(text for _, text in conversation)
        messages = [{"role": role, "content": text} for role, text in conversation]
        if system_prompt is not None:
            messages.insert(0, {"role": "system", "content": system_prompt})
        return messages

    def most_prompt_tokens(self, prompt: list[dict[str, str]] | str) -> int:
        """Return the most tokens that a prompt can have."""
        if isinstance(prompt, str):
            return len(prompt.encode()) + 1 + self._most_extra_tokens
        content = sum(len(message["content"].encode()) for message in prompt)
        content += self._most_extra_tokens
        return content + _TOKENS_OF_A_MESSAGE * len(prompt) + _TOKENS_OF_A_TEMPLATE

    def body(
        self,
        prompt: list[dict[str, str]] | str,
        generation: GenerationConfig,
        *,
        n: int,
        seed: int | None,
        stream: bool,
    ) -> dict[str, Any]:
        """Return the fields of a request."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages" if self.chat else "prompt": prompt,
            self._token_limit: generation.max_new_tokens,
            "temperature": generation.temperature if generation.do_sample else 0.0,
        }
        if generation.top_p is not None:
            body["top_p"] = generation.top_p
        if generation.stop_strings is not None:
            body["stop"] = list(generation.stop_strings)
        if n > 1:
            body["n"] = n
        if seed is not None and self.takes_seed:
            body["seed"] = seed
        if stream:
            body["stream"] = True
            if self._takes_stream_options:
                body["stream_options"] = {"include_usage": True}
        return body

    def learn(self, trouble: Trouble, body: Mapping[str, Any]) -> bool:
        """Take a refusal for an answer; return whether requests look different from now on.

        Args:
            trouble: what came.
            body: of the request.
        """
        if trouble.status not in (400, 422):
            return False
        if "n" in body and _refused("n", trouble.told, "must be", "only"):
            self.takes_n = False
            return True
        if "stream_options" in body and _refused("stream_options", trouble.told):
            self._takes_stream_options = False
            return True
        if "seed" in body and _refused("seed", trouble.told):
            self.takes_seed = False
            _logger.warning(
                "%s takes no seed there: its completions will be others in each run.", self.model
            )
            return True
        return self._has_learnt_limit(trouble, body)

    def _has_learnt_limit(self, trouble: Trouble, body: Mapping[str, Any]) -> bool:
        """Use the other name of the token limit, once."""
        (name,) = (name for name in _TOKEN_LIMITS if name in body)
        if not _refused(name, trouble.told):
            return False
        if name == self._token_limit:
            if self._has_switched:
                return False
            self._has_switched = True
            self._token_limit = _TOKEN_LIMITS[1 - _TOKEN_LIMITS.index(name)]
        return True  # or another request has learnt it in between


def _refused(field: str, told: str, *signs: str) -> bool:
    """Tell whether an endpoint says that it does not know a field, or not with this value."""
    known = ("support", "unknown", "unrecognized", "unexpected", "permitted", "allowed", "extra")
    said = told.lower()
    named = re.search(rf"(?<!\w){field}(?!\w)", said) is not None
    return named and any(sign in said for sign in (*known, *signs))
