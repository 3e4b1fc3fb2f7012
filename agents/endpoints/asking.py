"""Ask an endpoint many times at once, again where that may help, within limits and a budget."""

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from motet.agents.endpoints.answer import Answer
from motet.agents.endpoints.budget import Claim, Ledger
from motet.agents.endpoints.client import Client
from motet.agents.endpoints.conversation import APICompletion, Message, said
from motet.agents.endpoints.dialect import Dialect
from motet.agents.endpoints.errors import BudgetExceededError, DeadlineExceededError, Trouble
from motet.agents.endpoints.limits import APILimits
from motet.agents.generation import GenerationConfig

_logger = logging.getLogger(__name__)

_random = (
    random.Random()
)  # retries are not to be the same in every run, nor to change a user's seed
_BUDGET_POLL_S = 0.02  # claims of other threads end without a sign


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of an endpoint in one `act`.

    Attributes:
        conversations: (B,) what each prompt is made of.
        seeds: (B * G,) a seed for each completion, None for none.
        num_generations: G.
        system_prompt: message before all of them.
        generation: sampling settings.
        stream: whether completions come piece by piece.
    """

    conversations: Sequence[tuple[Message, ...]]
    seeds: Sequence[int] | None
    num_generations: int
    system_prompt: str | None
    generation: GenerationConfig
    stream: bool

    def seed(self, place: int, k: int) -> int | None:
        """Return the seed of completion k of an observation."""
        return None if self.seeds is None else self.seeds[place * self.num_generations + k]


class Asking:
    """One `act`: what has come so far, and what is still to be asked for.

    Args:
        request: what is asked for.
        dialect: how requests look.
        ledger: of what may be spent.
        limits: time limits, retries, concurrency.

    Attributes:
        completions: (B, G) what has come; None where nothing has yet.
        trouble: the first that ended the asking.
    """

    def __init__(
        self, request: Request, dialect: Dialect, ledger: Ledger, limits: APILimits
    ) -> None:
        self.completions: list[list[APICompletion | None]] = [
            [None] * request.num_generations for _ in request.conversations
        ]
        self.trouble: Trouble | None = None
        self._request = request
        self._dialect = dialect
        self._ledger = ledger
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.max_concurrency)
        self._deadline: float | None = None

    async def run(self, client: Client) -> None:
        """Ask until all has come, or something has ended it; what came is kept in any case."""
        if self._limits.deadline_s is not None:
            self._deadline = asyncio.get_running_loop().time() + self._limits.deadline_s
        try:
            async with asyncio.timeout_at(self._deadline):
                await asyncio.gather(
                    *(self._fill(client, place) for place in range(len(self.completions)))
                )
        except TimeoutError:
            self._fail(self._late())

    async def _fill(self, client: Client, place: int) -> None:
        """Ask for the completions of one observation: at once, or one by one where need be."""
        group = self.completions[place]
        while self.trouble is None:
            wanted = [k for k, completion in enumerate(group) if completion is None]
            if not wanted:
                return
            if self._dialect.takes_n:
                await self._fetch(client, place, wanted)
            else:
                await asyncio.gather(*(self._fetch(client, place, [k]) for k in wanted))

    async def _fetch(self, client: Client, place: int, wanted: list[int]) -> None:
        """Ask for completions in one request, again and again; keep what comes."""
        async with self._slots:
            num_tries = 0
            while self.trouble is None:
                came = await self._ask(client, place, wanted, retry=num_tries > 0)
                if came is None or isinstance(came, Answer):
                    if came is not None:
                        self._keep(came, place, wanted)
                    return
                delay = self._delay(came, num_tries)
                if delay is None:
                    return
                num_tries += 1
                _logger.info(
                    "%s: got %s; asking again in %.1f seconds (retry %d of %d).",
                    *(self._dialect.model, came.got, delay, num_tries, self._limits.max_retries),
                )
                await asyncio.sleep(delay)

    async def _ask(
        self, client: Client, place: int, wanted: list[int], *, retry: bool
    ) -> Answer | Trouble | None:
        """Send one request and account for it; None where it is to be asked for otherwise."""
        request = self._request
        if len(wanted) > 1 and not self._dialect.takes_n:
            return None
        prompt = self._dialect.prompt(request.system_prompt, request.conversations[place])
        body = self._dialect.body(
            prompt,
            request.generation,
            n=len(wanted),
            seed=request.seed(place, wanted[0]),
            stream=request.stream,
        )
        most = request.generation.max_new_tokens * len(wanted)
        claim = Claim(self._dialect.most_prompt_tokens(prompt), most, retry)
        if not await self._claimed(claim):
            return None
        tokens: tuple[int, int] | None = None
        try:
            came = await client.ask(body)
            if isinstance(came, Answer):
                tokens = came.tokens
            elif not came.billed:
                tokens = (0, 0)
        finally:  # what was given up may be billed, and counts as all that it could have taken
            self._ledger.settle(claim, tokens)
        if isinstance(came, Trouble) and self._dialect.learn(came, body):
            return None
        return came

    async def _claimed(self, claim: Claim) -> bool:
        """Wait until a request fits into the budget; False where it never will."""
        while self.trouble is None:
            if self._ledger.claim(claim):
                return True
            shortage = self._ledger.shortage(claim)
            if shortage is not None:
                self._fail(
                    Trouble(
                        shortage,
                        "raise it, lower max_new_tokens, or go on with what has come, in the "
                        "error's completions",
                        error=BudgetExceededError,
                    )
                )
                return False
            await asyncio.sleep(_BUDGET_POLL_S)
        return False

    def _keep(self, answer: Answer, place: int, wanted: list[int]) -> None:
        """Put completions where they belong; one that is none ends the asking."""
        before = self._request.conversations[place]
        choices = [answer.choices[index] for index in sorted(answer.choices)]
        if not choices:
            streams = ", or leave stream=False" if self._request.stream else ""
            advice = f"change the prompt, or the endpoint{streams}"
            self._fail(Trouble("an answer without a choice", advice))
            return
        for k, choice in zip(wanted, choices, strict=False):  # some give fewer, some give more
            completion = choice.read()
            if isinstance(completion, Trouble):
                self._fail(completion)
                return
            self.completions[place][k] = said(before, *completion)
        if len(choices) < len(wanted):
            self._dialect.takes_n = False

    def _delay(self, trouble: Trouble, num_tries: int) -> float | None:
        """Return the seconds to wait before the next try, None where there is none."""
        limits = self._limits
        if not trouble.again or num_tries >= limits.max_retries:
            tried = f" after {num_tries + 1} requests" if num_tries else ""
            self._fail(replace(trouble, got=trouble.got + tried))
            return None
        delay = drawn_wait(limits, num_tries)
        if trouble.wait_s is not None:
            if trouble.wait_s > limits.max_backoff_s:
                wants = f"{trouble.got}, and that it wants to be left alone for {trouble.wait_s:g}"
                advice = f"ask later, or raise max_backoff_s={limits.max_backoff_s:g} in APILimits"
                self._fail(replace(trouble, got=f"{wants} seconds", advice=advice))
                return None
            delay = trouble.wait_s + delay / 10  # not all at the same moment
        now = asyncio.get_running_loop().time()
        if self._deadline is not None and now + delay >= self._deadline:
            self._fail(self._late(trouble))
            return None
        return delay

    def _late(self, last: Trouble | None = None) -> Trouble:
        missing = sum(group.count(None) for group in self.completions)
        total = sum(map(len, self.completions))
        why = "" if last is None else f", and last {last.got}"
        return Trouble(
            f"{total - missing} of {total} within deadline_s={self._limits.deadline_s:g}{why}",
            "raise deadline_s or max_concurrency in APILimits; what has come is in the error's "
            "completions",
            error=DeadlineExceededError,
        )

    def _fail(self, trouble: Trouble) -> None:
        if self.trouble is None:
            self.trouble = trouble


def drawn_wait(limits: APILimits, num_tries: int) -> float:
    """Return how many seconds to wait after so many tries before this one.

    Twice as long each time up to `max_backoff_s`, less a part of up to a half that is drawn.
    """
    longest = min(limits.backoff_s * 2.0 ** min(num_tries, 64), limits.max_backoff_s)
    return longest * _random.uniform(0.5, 1.0)
