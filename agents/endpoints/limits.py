"""How long an endpoint is waited for, how often it is asked again, and how much at once."""

from dataclasses import dataclass

from motet.agents.checks import check_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class APILimits:
    """Time limits, retries and concurrency of an `APIAgent`.

    Attributes:
        timeout_s: most seconds of one request, from sending it to its last byte.
        deadline_s: most seconds of one `act`, retries and waiting included; None for no limit.
        idle_timeout_s: most seconds between two pieces of a stream (`stream=True`).
        max_retries: how often one request is sent again after an answer that may be different the
            next time: none in time, none at all, a broken one, or status 408, 409, 429 or 5xx.
        backoff_s: about how many seconds before the first retry; each further one waits twice as
            long, with a random part, so that requests that failed together do not return together.
        max_backoff_s: most seconds before a retry. Where the endpoint asks for a longer wait
            (`Retry-After`), `act` says so instead of waiting.
        max_concurrency: most requests in flight at the same time.
    """

    timeout_s: float = 60.0
    deadline_s: float | None = None
    idle_timeout_s: float = 20.0
    max_retries: int = 5
    backoff_s: float = 0.5
    max_backoff_s: float = 60.0
    max_concurrency: int = 8

    def __post_init__(self) -> None:
        check_fields(self)
        seconds = {
            "timeout_s": self.timeout_s,
            "idle_timeout_s": self.idle_timeout_s,
            "backoff_s": self.backoff_s,
            "max_backoff_s": self.max_backoff_s,
        }
        if self.deadline_s is not None:
            seconds["deadline_s"] = self.deadline_s
        for name, value in seconds.items():
            if not value > 0:
                raise ValueError(f"Expected {name} above 0, got {value}.")
        if self.max_retries < 0 or self.max_concurrency < 1:
            raise ValueError(
                "Expected max_retries of at least 0 and max_concurrency of at least 1, got "
                f"max_retries={self.max_retries} and max_concurrency={self.max_concurrency}."
            )
