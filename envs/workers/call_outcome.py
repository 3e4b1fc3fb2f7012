"""What came of one call of a user's function in a worker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Call(NamedTuple):
    """The arguments of one call."""

    args: Sequence[Any]
    named: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Returned:
    """The function returned.

    Attributes:
        value: what it returned.
    """

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The function raised.

    Attributes:
        exception: what it raised.
        trace: the traceback as text where the exception comes from another process, else "".
    """

    exception: BaseException
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker could not bring the function's answer.

    The sentence to raise is `f"{what} {where}; {advice}."`, with the place that only the caller
    knows.

    Attributes:
        kind: the exception to raise.
        what: what was expected and what came.
        advice: what to do.
        trace: the traceback as text of what went wrong in another process, else "".
    """

    kind: type[Exception]
    what: str
    advice: str
    trace: str = ""


Outcome = Returned | Raised | Failed


class WorkerTraceback(Exception):  # noqa: N818  # a cause to be shown, not an error to be caught
    """The traceback of an exception in a worker process, shown as the cause of that exception."""

    def __init__(self, trace: str) -> None:
        super().__init__(trace)
        self._trace = trace

    def __str__(self) -> str:
        return f'\n"""\n{self._trace}"""'
