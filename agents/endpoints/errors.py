"""What can go wrong with an endpoint, and what can be done about it."""

import email.utils
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motet.agents.agent import Completion

_AGAIN = (408, 409, 429)  # and 5xx: the next answer may be another
_LATE = (408, 504, 524)  # somebody on the way has waited no longer; the model may have answered
_NOT_CONNECTED = ("ConnectError", "ConnectTimeout")  # of the HTTP library: nothing was sent
_LONGEST = 300


class EndpointError(RuntimeError):
    """An endpoint did not give what it was asked for.

    Attributes:
        completions: (B,) lists of what had come before, by observation; they are paid for.
    """

    def __init__(self, message: str, completions: Sequence[Sequence[Completion]] = ()) -> None:
        super().__init__(message)
        self.completions = [list(group) for group in completions]


class BudgetExceededError(EndpointError):
    """The next request could exceed the agent's `APIBudget`, and was not sent."""


class DeadlineExceededError(EndpointError):
    """An `act` took longer than `APILimits.deadline_s`."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What came instead of an answer.

    Attributes:
        got: what came, to end "Expected ..., got".
        advice: what to do about it.
        again: whether the next answer may be another.
        wait_s: how long the endpoint asks to wait before; None where it does not.
        billed: whether the endpoint may bill it.
        status: HTTP status, 0 where it is about something else.
        told: what the endpoint told, for a program to look into.
        error: what to raise.
    """

    got: str
    advice: str
    again: bool = False
    wait_s: float | None = None
    billed: bool = False
    status: int = 0
    told: str = ""
    error: type[EndpointError] = EndpointError


def no_answer_in(seconds: float, name: str) -> Trouble:
    """Return the trouble of an endpoint that is too slow."""
    got = (
        f"a stream that stood still for {name}={seconds:g} seconds"
        if name == "idle_timeout_s"
        else f"none within {name}={seconds:g} seconds"
    )
    return Trouble(got, f"raise {name} in APILimits, or look after the endpoint", True, billed=True)


def of_broken(what: str) -> Trouble:
    """Return the trouble of an answer that no program can read."""
    return Trouble(
        what,
        "look after the endpoint, and whether base_url is that of an OpenAI-compatible one",
        again=True,
        billed=True,
    )


def of_connection(error: Exception) -> Trouble:
    """Return the trouble of a connection that was not made, or dropped."""
    reached = type(error.__cause__).__name__ not in _NOT_CONNECTED
    got = "a connection that was dropped" if reached else "no connection"
    return Trouble(got, "look after base_url and the endpoint", again=True, billed=reached)


def of_status(status: int, body: object, headers: Mapping[str, str]) -> Trouble:
    """Return the trouble of an answer with an HTTP status of 400 or more.

    Args:
        status: the HTTP status.
        body: of the answer.
        headers: of the answer.
    """
    told = _told(body)
    spent = status == 429 and "insufficient_quota" in told
    again = (status in _AGAIN or status >= 500) and not spent
    return Trouble(
        f"status {status}" + (f" ({told})" if told else ""),
        "the account has no credit left: pay, or use another key" if spent else _advice(status),
        again=again,
        wait_s=_wait(headers) if again else None,
        billed=status in _LATE,
        status=status,
        told=told,
    )


def of_event(body: object) -> Trouble:
    """Return the trouble of an error that comes where an answer, or a piece of one, should be."""
    return Trouble(
        f"an error ({_told(body)})",
        "try again later",
        again=True,
        billed=True,
    )


def shown(text: str) -> str:
    """Return what an endpoint told as one line that fits into a sentence."""
    line = " ".join(text.split())
    line = "".join(character for character in line if character.isprintable())
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "..."


def _told(body: object) -> str:
    """Return message, code and parameter of an error, as far as it has them."""
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        if isinstance(inner, Mapping):
            body = inner
        parts = [body.get("message"), body.get("code"), body.get("param")]
        told = [shown(str(part)) for part in parts if part not in (None, "")]
        return ", ".join(told) if told else shown(str(body))
    return "" if body is None else shown(str(body))


def _advice(status: int) -> str:
    if status in (401, 403):
        return "look after the key in the environment variable, and what it may be used for"
    if status == 404:
        return "look after model and base_url"
    if status == 429:
        return "lower max_concurrency, or raise max_retries or max_backoff_s in APILimits"
    if status in _AGAIN or status >= 500:
        return "try again later, or raise max_retries in APILimits"
    return "change what the endpoint does not take"


def _wait(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the endpoint asks to wait: by number, or until a date."""
    milliseconds = headers.get("retry-after-ms", "")
    if re.fullmatch(r"\d{1,12}(\.\d+)?", milliseconds):
        return float(milliseconds) / 1000
    wanted = headers.get("retry-after", "")
    if re.fullmatch(r"\d{1,9}(\.\d+)?", wanted):
        return float(wanted)
    parsed: Any = email.utils.parsedate_tz(wanted)
    return None if parsed is None else max(0.0, email.utils.mktime_tz(parsed) - time.time())
