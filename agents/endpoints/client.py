"""One request to an OpenAI-compatible endpoint: an answer, or what came instead of one."""

import asyncio
import importlib
import importlib.util
import json
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Self

from motet.agents.endpoints.answer import Answer
from motet.agents.endpoints.errors import (
    Trouble,
    no_answer_in,
    of_broken,
    of_connection,
    of_event,
    of_status,
)
from motet.agents.endpoints.key import Key
from motet.agents.endpoints.limits import APILimits


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
        self._key = key
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
        """Send one request, once. What came instead of an answer does not show the key."""
        answer = await self._in_time(body)
        if isinstance(answer, Trouble):
            got, told = self._key.hidden_in(answer.got), self._key.hidden_in(answer.told)
            return replace(answer, got=got, told=told)
        return answer

    async def _in_time(self, body: Mapping[str, Any]) -> Answer | Trouble:
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                return await self._asked(body)
        except TimeoutError:
            return no_answer_in(self._limits.timeout_s, "timeout_s")
        except self._openai.APIError as error:
            return self._trouble(error)
        except (json.JSONDecodeError, UnicodeDecodeError):
            return of_broken("what is no JSON")
        except RecursionError:
            return of_broken("JSON that is too deep to read")

    def _trouble(self, error: Any) -> Trouble:
        if isinstance(error, self._openai.APIStatusError):
            return of_status(error.status_code, error.body, error.response.headers)
        if isinstance(error, self._openai.APIConnectionError):
            return of_connection(error)
        return of_event(error.body)

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
