"""A frozen agent whose model is behind an OpenAI-compatible endpoint.

    export OPENAI_API_KEY=...
    partner = APIAgent("gpt-4o-mini", budget=APIBudget(max_requests=1000))
    partner = APIAgent("qwen", base_url="http://localhost:8000/v1", api_key_env=None)

It has no weights here, so that learners leave it alone. Its completions have no token ids either:
metrics of lengths and of cut completions are of agents that have.
"""

import copy
import json
import os
import urllib.parse
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from motet.agents.agent import Completion, History, check_request
from motet.agents.endpoints.apart import run_apart
from motet.agents.endpoints.asking import Asking, Request
from motet.agents.endpoints.budget import APIBudget, APIUsage, Ledger
from motet.agents.endpoints.client import Client, require_openai
from motet.agents.endpoints.conversation import check_spoken_contexts, continued
from motet.agents.endpoints.dialect import Dialect, check_sendable
from motet.agents.endpoints.errors import Trouble
from motet.agents.endpoints.key import Key
from motet.agents.endpoints.limits import APILimits
from motet.agents.generation import GenerationConfig

_OPENAI = "https://api.openai.com/v1"


class APIAgent:
    """Ask a model behind an OpenAI-compatible endpoint. It is never trained.

    Needs `pip install "motet[api]"`. The key is read from the environment whenever the agent acts;
    it is no argument and no attribute, and in no error, log or pickle.

    The observations of an `act` are asked for side by side, and their completions come back in
    order. One request asks for all G completions of an observation (`n`), or for one where the
    endpoint turns out not to do that. Each has a seed of its own that comes from `act`'s; whether
    the same seed brings the same completion is up to the endpoint.

    Args:
        model: its name there.
        base_url: of the endpoint, such as "http://localhost:8000/v1"; default: the environment
            variable OPENAI_BASE_URL, else OpenAI's.
        api_key_env: name of the environment variable with the key; None for endpoints without.
        chat: send each observation as a user message of a chat. False sends it as a text to go on
            from, to endpoints that have raw completions.
        system_prompt: system message before it; needs `chat=True`.
        generation: sampling settings: `max_new_tokens`, `temperature`, `top_p`, `do_sample` (False
            asks for temperature 0) and stop strings. Endpoints have no names for the others.
        history: "none" sends an observation alone, "append" the running conversation, as `act` gets
            it in `contexts`. Rollouts and evaluation pass it on by themselves. With `chat=False` it
            is one text, of which stop strings are no part: endpoints leave them out.
        stream: let completions come piece by piece, so that one that stands still is given up
            after `APILimits.idle_timeout_s` rather than `timeout_s`.
        limits: time limits, retries and concurrency.
        budget: what the agent may spend over its life.
        extra_body: further fields of each request, such as {"top_k": 20} where the endpoint knows
            them.

    Raises:
        ImportError: where the library is missing.
        ValueError: where the key is missing, the URL is none, or settings cannot be sent.
        TypeError: where `extra_body` is no JSON.

    Attributes:
        model: name of the model.
        host: host of the endpoint.
        generation: sampling settings.
        history: whether it is told the running conversation.
    """

    def __init__(  # noqa: PLR0913  # an endpoint's parts, and the options of one agent
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key_env: str | None = "OPENAI_API_KEY",
        chat: bool = True,
        system_prompt: str | None = None,
        generation: GenerationConfig | None = None,
        history: History = "none",
        stream: bool = False,
        limits: APILimits | None = None,
        budget: APIBudget | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        require_openai()
        if not model:
            raise ValueError("Expected the name of a model, got an empty one.")
        if history not in ("none", "append"):
            raise ValueError(f"Expected history 'none' or 'append', got {history!r}.")
        if system_prompt is not None and not chat:
            raise ValueError(
                "Expected chat=True together with a system_prompt: a raw prompt has no place for "
                "it."
            )
        Key(api_key_env)  # missing ones are told of before anything is computed
        self.model = model
        self.generation = generation or GenerationConfig()
        self.history: History = history
        self._url = base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI
        self.host = _host(self._url)
        self._extra_body = dict(extra_body or {})
        check_sendable(self.generation, self._extra_body)
        self._key_variable = api_key_env
        self._system_prompt = system_prompt
        self._stream = stream
        self._limits = limits or APILimits()
        self._ledger = Ledger(budget or APIBudget())
        self._dialect = Dialect(
            model, chat=chat, openai=self.host == _host(_OPENAI), extra_body=self._extra_body
        )

    @property
    def usage(self) -> APIUsage:
        """What the agent has spent so far, together with those that `greedy` made of it."""
        return self._ledger.usage

    @property
    def settings(self) -> dict[str, str]:
        """What it acts by, but for the host, which may move; see `DescribedAgent`."""
        return {
            "model": self.model,
            "generation": str(self.generation),
            "history": self.history,
            "chat": str(self._dialect.chat),
            "system_prompt": repr(self._system_prompt),
            "extra_body": f"{zlib.crc32(json.dumps(self._extra_body).encode()):08x}",
        }

    def greedy(self) -> Self:
        """Return an agent that asks for temperature 0, with the same budget."""
        twin = copy.copy(self)
        twin.generation = replace(self.generation, do_sample=False)
        return twin

    def act(
        self,
        observations: Sequence[str],
        num_generations: int = 1,
        *,
        seed: int | None = None,
        contexts: Sequence[Completion | None] | None = None,
    ) -> list[list[Completion]]:
        """Ask for completions; see `Agent.act`. It may be called where an event loop runs, too.

        Raises:
            BudgetExceededError: before a request that could exceed the budget.
            DeadlineExceededError: where it takes longer than `APILimits.deadline_s`.
            EndpointError: where the endpoint does not give a completion; `completions` of all three
                have what came.
            ValueError: where there are contexts although `history` is "none", or not one for each
                observation, or where the key is gone.
            TypeError: where contexts are not an `APIAgent`'s completions.
        """
        check_request(observations, num_generations)
        if contexts is not None and self.history == "none":
            raise ValueError(
                "Expected no contexts for an agent with history='none', which sees its "
                "observation alone; leave them out, or make it with history='append'."
            )
        if contexts is None:
            contexts = [None] * len(observations)
        check_spoken_contexts(contexts, len(observations))
        if not observations:
            return []
        seeds = None if seed is None else _seeds(seed, len(observations) * num_generations)
        request = Request(
            conversations=[continued(*pair) for pair in zip(contexts, observations, strict=True)],
            seeds=seeds,
            num_generations=num_generations,
            system_prompt=self._system_prompt,
            generation=self.generation,
            stream=self._stream,
        )
        return self._asked(Asking(request, self._dialect, self._ledger, self._limits))

    def _asked(self, asking: Asking) -> list[list[Completion]]:
        """Ask, and return what came or raise what went wrong."""
        key = Key(self._key_variable)

        async def work() -> None:
            client = Client(
                self._url,
                key,
                self._limits,
                chat=self._dialect.chat,
                extra_body=self._extra_body,
            )
            async with client:
                await asking.run(client)

        run_apart(work)
        came: list[list[Completion]] = [
            [completion for completion in group if completion is not None]
            for group in asking.completions
        ]
        if asking.trouble is not None:
            raise asking.trouble.error(self._sentence(asking.trouble, key), came)
        return came

    def _sentence(self, trouble: Trouble, key: Key) -> str:
        return key.hidden_in(
            f"Expected completions of {self.model} at {self.host}, got {trouble.got}; "
            f"{trouble.advice}."
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r} at {self.host})"


def _host(url: str) -> str:
    """Return the host that a URL names.

    Raises:
        ValueError: where it is no URL of an endpoint, or has a secret in it.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"Expected base_url to begin with http:// or https:// and a host, got {url[:60]!r}; "
            'write for example "http://localhost:8000/v1".'
        )
    if parts.username is not None or parts.password is not None or parts.query:
        raise ValueError(
            f"Expected base_url without a user, a password or a query, got some for "
            f"{parts.hostname}; put the key into the environment variable that api_key_env names."
        )
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.hostname}{port}"


def _seeds(seed: int, number: int) -> list[int]:
    """Return a seed for each completion, as small as every endpoint takes them."""
    drawn = np.random.SeedSequence(seed).generate_state(number)
    return [int(each) & 0x7FFFFFFF for each in drawn]
