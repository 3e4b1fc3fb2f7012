"""What a user has to change: one sentence and exit status 2, where a bug has a traceback."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeGuard

from gymnasium import error

from motet.algos.suggesting import suggestion as suggested


class UsageError(Exception):
    """Something in a command or a file has to be changed; `main` prints it and exits with 2."""


def suggestion(wrong: str, known: Iterable[str], shown: str = "{}") -> str:
    """Return what `motet.algos.suggesting.suggestion` does, for words typed in haste."""
    return suggested(wrong, known, shown, cutoff=0.55)


@contextmanager
def as_mistakes(*, until: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Turn what the library refuses before it computes into a `UsageError`.

    An error of one of these types whose text is no such refusal passes through: it is a bug, of
    ours or of a plug-in, and its traceback says where.

    Args:
        until: tells whether it computes already, so that nothing is a refusal any more.

    Raises:
        UsageError: with the library's sentence.
    """
    try:
        yield
    except (
        error.Error, ValueError, TypeError, KeyError, ImportError, OSError, AttributeError
    ) as exc:  # fmt: skip
        told = _told(exc)
        if until() or not _is_refusal(exc, told):
            raise
        raise UsageError(told) from exc


def _told(exc: Exception) -> str:
    if isinstance(exc, KeyError) and exc.args:
        return str(exc.args[0])
    if _is_of_a_path(exc):
        return f"Expected a path that can be used, got {exc.filename}: {exc.strerror}."
    return str(exc)


def _is_of_a_path(exc: Exception) -> TypeGuard[OSError]:
    """Tell whether the system refuses a path: it is not there, read-only or a folder."""
    return isinstance(exc, OSError) and exc.filename is not None and exc.strerror is not None


def _is_refusal(exc: Exception, told: str) -> bool:
    if isinstance(exc, error.Error | FileNotFoundError | FileExistsError | PermissionError):
        return True
    if _is_of_a_path(exc):
        return True
    if isinstance(exc, ImportError | ValueError) and not isinstance(exc, UnicodeError):
        return "Expected " in told or isinstance(exc, ModuleNotFoundError)
    return told.startswith("Expected ") or "keyword argument" in told
