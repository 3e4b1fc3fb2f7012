"""What may have been meant by a name that nobody knows."""

import difflib
from collections.abc import Iterable


def suggestion(
    wrong: str, known: Iterable[str], shown: str = "{!r}", *, cutoff: float = 0.6
) -> str:
    """Return " Did you mean ...?" where something known is like what came, else "".

    Args:
        wrong: what came.
        known: what could have been meant.
        shown: how a name is written, with `{}` for the name.
        cutoff: how like it has to be, from 0 to 1; see `difflib.get_close_matches`.
    """
    close = difflib.get_close_matches(wrong, list(known), n=1, cutoff=cutoff)
    return f" Did you mean {shown.format(close[0])}?" if close else ""
