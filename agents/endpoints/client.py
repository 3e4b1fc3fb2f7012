"""One request to an OpenAI-compatible endpoint: an answer, or what came instead of one."""

import asyncio
import importlib
import importlib.util
import json
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Self

from motet.agents.agent import FinishReason
from motet.agents.endpoints.errors import (
    Trouble,
    no_answer_in,
    of_broken,
    of_connection,
    of_event,
    of_status,
    shown,
)
from motet.agents.endpoints.key import Key
from motet.agents.endpoints.limits import APILimits
from motet.agents.visible import is_text

_MISSING = "it has no choices: nothing was written"


@dataclass(slots=True)
class Choice:
    """One completion as it has come so far.

    Attributes:
        text: what was written; None where nothing was.
        finish_reason: why it ended, in the endpoint's words; None where it has not.
        refusal: what the model said in place of a completion.
        calls: whether the model has called a tool.
    """

    text: str | None = None
    finish_reason: str | None = None
    refusal: str | None = None
    calls: bool = False

    def add(self, piece: Mapping[str, Any]) -> None:
        """Add what a choice of an answer has, or a piece of it in a stream."""
        said = _said(piece)
        content = said.get("content")
        if content is not None:
            self.text = (self.text or "") + content
        if said.get("refusal"):
            self.refusal = (self.refusal or "") + said["refusal"]
        if said.get("tool_calls") or said.get("function_call"):
            self.calls = True
        if piece.get("finish_reason") is not None:
            self.finish_reason = str(piece["finish_reason"])

    def read(self) -> tuple[str, FinishReason] | Trouble:
        """Return text and finish reason, or what came in place of a completion."""
        if self.calls or self.finish_reason in ("tool_calls", "function_call"):
            return Trouble(
                "a call of a tool", "use a model or an endpoint that calls none unless offered one"
            )
        if self.refusal is not None:
            return Trouble(f"a refusal ({shown(self.refusal)})", "change the prompt, or the model")
        if self.finish_reason == "content_filter":
            return Trouble(
                "a completion that its content filter cut", "change the prompt, or the filter"
            )
        if self.finish_reason == "length":
            return self.text or "", "length"  # no text where all tokens went into thoughts
        if self.finish_reason == "stop" and self.text is None:
            return Trouble("a completion without a text", "change the prompt, or the model")
        if self.finish_reason == "stop":
            return self.text or "", "stop"
        return Trouble(
            f"finish_reason {shown(str(self.finish_reason))!r}",
            "look after the endpoint: completions end with 'stop' or 'length'",
        )


@dataclass(slots=True)
class Answer:
    """What came for one request.

    Attributes:
        choices: completions by index.
        tokens: of prompt and completions, as the endpoint counted them; None where it did not.
    """

    choices: dict[int, Choice] = field(default_factory=dict)
    tokens: tuple[int, int] | None = None

    def add(self, told: Mapping[str, Any]) -> Trouble | None:
        """Add an answer, or a piece of it in a stream; return what is wrong with it."""
        if told.get("error"):
            return of_event(told["error"])
        wrong = _wrong_form(told)
        if wrong is not None:
            return of_broken(wrong)
        for place, piece in enumerate(told.get("choices") or []):
            index = piece.get("index")
            where = index if isinstance(index, int) else place
            self.choices.setdefault(where, Choice()).add(piece)
        usage = told.get("usage") or {}
        tokens = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
        if all(isinstance(number, int) and number >= 0 for number in tokens):
            self.tokens = tokens
        return None

    @property
    def has_ended(self) -> bool:
        """Whether all completions that have begun have ended."""
        return bool(self.choices) and all(
            choice.finish_reason is not None for choice in self.choices.values()
        )


class Client:
    """A connection to an endpoint, to be used within `async with` and one loop.

    Args:
        base_url: of the endpoint.
        key: for it.
        limits: its time limits are used.
        chat: whether to ask for chat completions, or for the continuation of a text.
        extra_body: further fields of requests.
    """

    def __init__(
        self,
        base_url: str,
        key: Key,
        limits: APILimits,
        *,
        chat: bool,
        extra_body: Mapping[str, Any],
    ) -> None:
        self._limits = limits
        self._extra_body = dict(extra_body)
        self._openai = openai_library()
        # time limits and retries are those of `APILimits`, which are of whole requests
        self._client = self._openai.AsyncOpenAI(
            base_url=base_url, api_key=key.reveal(), max_retries=0, timeout=None
        )
        self._completions = self._client.chat.completions if chat else self._client.completions

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def ask(self, body: Mapping[str, Any]) -> Answer | Trouble:
        """Send one request, once."""
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                answer = await self._asked(body)
        except TimeoutError:
            return no_answer_in(self._limits.timeout_s, "timeout_s")
        except self._openai.APIStatusError as error:
            return of_status(error.status_code, error.body, error.response.headers)
        except self._openai.APIConnectionError as error:
            return of_connection(error)
        except self._openai.APIError as error:
            return of_event(error.body)
        except (json.JSONDecodeError, UnicodeDecodeError):
            return of_broken("what is no JSON")
        if isinstance(answer, Answer) and not answer.choices:
            return Trouble(_MISSING, "change the prompt, or look after the endpoint")
        return answer

    async def _asked(self, body: Mapping[str, Any]) -> Answer | Trouble:
        came = await self._completions.create(**body, extra_body=self._extra_body)
        if body.get("stream"):
            async with aclosing(came):
                return await self._streamed(came)
        answer, told = Answer(), _fields(came)
        if told is None:
            return of_broken("what is no JSON object")
        return answer.add(told) or answer

    async def _streamed(self, stream: Any) -> Answer | Trouble:
        """Gather a stream, as long as its pieces come."""
        answer = Answer()
        pieces = aiter(stream)
        while True:
            begun = bool(answer.choices)  # until then it is `timeout_s` that counts
            try:
                async with asyncio.timeout(self._limits.idle_timeout_s if begun else None):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                break
            except TimeoutError:
                if answer.has_ended:  # and the endpoint has not told so
                    break
                return no_answer_in(self._limits.idle_timeout_s, "idle_timeout_s")
            told = _fields(piece)
            wrong = of_broken("what is no JSON object") if told is None else answer.add(told)
            if wrong is not None:
                return wrong
        if answer.choices and not answer.has_ended:
            return of_broken("a stream that ended in the middle of a completion")
        return answer


def _said(piece: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a choice says: of a chat, of a piece of one, or of a text that goes on."""
    said: Mapping[str, Any] = (
        piece.get("message") or piece.get("delta") or {"content": piece.get("text")}
    )
    return said


def _wrong_form(told: Mapping[str, Any]) -> str | None:
    """Return what an answer has where it should have something else, None where all is well."""
    choices, usage = told.get("choices") or [], told.get("usage") or {}
    if not isinstance(choices, list) or not isinstance(usage, Mapping):
        return "choices and usage of other types than a list and an object"
    for piece in choices:
        if not isinstance(piece, Mapping) or not isinstance(_said(piece), Mapping):
            return "a choice that is no object"
        for name in ("content", "refusal"):
            text = _said(piece).get(name)
            if text is not None and not isinstance(text, str):
                return f"a choice whose {name} is of type {type(text).__name__}"
            if text is not None and not is_text(text):
                return f"a choice whose {name} has half a character (a lone surrogate)"
    return None


def require_openai() -> None:
    """Raise where the library is missing.

    Raises:
        ImportError: with what to install.
    """
    if importlib.util.find_spec("openai") is None:
        raise ImportError('Expected openai for an APIAgent; pip install "motet[api]".')


def openai_library() -> Any:
    """Return the library, which is imported for those alone who ask an endpoint."""
    require_openai()
    return importlib.import_module("openai")


def _fields(came: Any) -> dict[str, Any] | None:
    """Return what the library has read as plain data; None where it is no JSON object."""
    if not isinstance(came, importlib.import_module("openai").BaseModel):
        return None
    fields: dict[str, Any] = came.to_dict(mode="python", warnings=False)
    return fields
