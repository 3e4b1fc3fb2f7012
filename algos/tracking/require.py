"""Libraries that are needed only where they were asked for."""

from importlib.util import find_spec


def require(module: str, what: str, extra: str) -> None:
    """Raise where a library is not installed; it is not imported.

    Args:
        module: its name in an import statement.
        what: what it is needed for.
        extra: of this package, which brings it.

    Raises:
        ImportError: with what to type.
    """
    if find_spec(module) is None:
        raise ImportError(f'Expected {module} for {what}; pip install "motet[{extra}]".')
