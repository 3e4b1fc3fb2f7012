"""What an agent may spend, and what it has spent: checked before a request, not after it.

Nobody knows beforehand how many tokens a request will take. Before it is sent it claims the most
that it can: a token for each byte of its prompt (and of `extra_body`, which may hold a schema),
something for what a chat template adds, and `max_new_tokens` for each completion. When it has come
back the claim gives way to what the endpoint has counted. A request that does not fit waits while
others are in flight, since most of what they have claimed comes back; where it still does not fit,
it is not sent.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from motet.agents.checks import check_fields

_MILLION = 1_000_000
_ROUNDING = 1e-9  # of a cost that is a sum of many


@dataclass(frozen=True, slots=True, kw_only=True)
class APIBudget:
    """What an `APIAgent` may spend over its life. A request that could exceed it is not sent.

    Attributes:
        max_requests: most requests, retries included; None for no limit.
        max_tokens: most tokens, of prompts and completions together; None for no limit.
        max_cost: most that they cost, in the unit of the prices; None for no limit.
        price_per_million_tokens: prices of a million tokens of prompts and of completions; needed
            by `max_cost`, and by `APIUsage.cost`.
    """

    max_requests: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    price_per_million_tokens: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check_fields(self, others=("price_per_million_tokens",))
        for name, most in (
            ("max_requests", self.max_requests),
            ("max_tokens", self.max_tokens),
            ("max_cost", self.max_cost),
        ):
            if most is not None and most < 0:
                raise ValueError(f"Expected {name} of at least 0 or None, got {most}.")
        prices = self.price_per_million_tokens
        if prices is not None and not _are_prices(prices):
            raise ValueError(
                "Expected price_per_million_tokens=(prompt, completion), two numbers of at least "
                f"0, got {prices!r}."
            )
        if self.max_cost is not None and prices is None:
            raise ValueError(
                f"Expected price_per_million_tokens together with max_cost={self.max_cost}: "
                "without prices nobody knows what has been spent."
            )

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """Return what tokens cost, None without prices."""
        if self.price_per_million_tokens is None:
            return None
        prompt, completion = self.price_per_million_tokens
        return (prompt_tokens * prompt + completion_tokens * completion) / _MILLION


@dataclass(frozen=True, slots=True)
class APIUsage:
    """What an `APIAgent` has spent so far.

    Attributes:
        num_requests: requests sent, retries included.
        num_retries: of these, requests that were sent again.
        num_estimated: of these, requests whose tokens nobody has told: the endpoint counts none,
            or the request was given up. They count as many as they could have taken.
        prompt_tokens: tokens of prompts.
        completion_tokens: tokens of completions.
        cost: what they cost; None without prices.
    """

    num_requests: int = 0
    num_retries: int = 0
    num_estimated: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """The most that one request can take.

    Attributes:
        prompt_tokens: of its prompt.
        completion_tokens: of all of its completions.
        retry: whether it was sent before.
    """

    prompt_tokens: int
    completion_tokens: int
    retry: bool = False


class Ledger:
    """What has been spent of a budget, and what requests in flight have claimed of it.

    Threads may share it. A copy of it, such as one from a pickle, goes on by itself from what has
    been spent.

    Args:
        budget: what may be spent.
    """

    def __init__(self, budget: APIBudget) -> None:
        self.budget = budget
        self._usage = APIUsage(cost=budget.cost(0, 0))
        self._claims: list[Claim] = []
        self._lock = threading.Lock()

    @property
    def usage(self) -> APIUsage:
        """What has been spent by requests that are over."""
        return self._usage

    def claim(self, claim: Claim) -> bool:
        """Claim what a request can take; return whether it fits beside the others in flight."""
        with self._lock:
            if self._shortage(claim, self._claims) is not None:
                return False
            self._claims.append(claim)
            return True

    def shortage(self, claim: Claim) -> str | None:
        """Return what there is too little of for a request, None where waiting may help."""
        with self._lock:
            return None if self._claims else self._shortage(claim, ())

    def settle(self, claim: Claim, tokens: tuple[int, int] | None) -> None:
        """Let a claim give way to what the request has taken.

        Args:
            claim: that was made for it.
            tokens: of prompt and completions, as the endpoint counted them; None where it did not.
        """
        prompt, completion = tokens or (claim.prompt_tokens, claim.completion_tokens)
        with self._lock:
            self._claims.remove(claim)
            used = self._usage
            prompt, completion = used.prompt_tokens + prompt, used.completion_tokens + completion
            self._usage = replace(
                used,
                num_requests=used.num_requests + 1,
                num_retries=used.num_retries + claim.retry,
                num_estimated=used.num_estimated + (tokens is None),
                prompt_tokens=prompt,
                completion_tokens=completion,
                cost=self.budget.cost(prompt, completion),
            )

    def _shortage(self, claim: Claim, others: "list[Claim] | tuple[()]") -> str | None:
        """Return the first limit that a request would exceed beside others, with what is left."""
        budget, used = self.budget, self._usage
        claims = [claim, *others]
        requests = used.num_requests + len(claims)
        if budget.max_requests is not None and requests > budget.max_requests:
            return f"max_requests={budget.max_requests}: all have been sent"
        prompt = used.prompt_tokens + sum(each.prompt_tokens for each in claims)
        completion = used.completion_tokens + sum(each.completion_tokens for each in claims)
        tokens, spent = prompt + completion, used.prompt_tokens + used.completion_tokens
        if budget.max_tokens is not None and tokens > budget.max_tokens:
            return (
                f"max_tokens={budget.max_tokens}: {spent} are spent, and the next request can take "
                f"up to {claim.prompt_tokens + claim.completion_tokens}"
            )
        cost = budget.cost(prompt, completion)
        if (
            budget.max_cost is not None
            and cost is not None
            and cost > budget.max_cost * (1 + _ROUNDING)
        ):
            most = budget.cost(claim.prompt_tokens, claim.completion_tokens)
            return (
                f"max_cost={budget.max_cost:g}: {used.cost:.6g} is spent, and the next request can "
                f"cost up to {most:.6g}"
            )
        return None

    def __getstate__(self) -> dict[str, Any]:
        return {"budget": self.budget, "usage": self._usage}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        Ledger.__init__(self, state["budget"])
        self._usage = state["usage"]


def _are_prices(prices: object) -> bool:
    return (
        isinstance(prices, tuple)
        and len(prices) == 2
        and all(
            isinstance(price, int | float) and not isinstance(price, bool) and 0 <= price < 1e12
            for price in prices
        )
    )
