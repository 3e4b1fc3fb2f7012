"""Help texts, from the docstrings that readers of the code have."""

import inspect
import re

_SECTION = re.compile(r"^(Args|Attributes|Arguments|Parameters):\s*$")
_ENTRY = re.compile(r"^(\*{0,2}\w+)(?:\s*\([^)]*\))?:\s*(.*)$")


def described(docstring: str | None) -> dict[str, str]:
    """Return what a Google docstring says of arguments or attributes, by name.

    Args:
        docstring: its sections Args and Attributes are read.
    """
    found: dict[str, str] = {}
    name, inside, indent = "", False, 0
    for line in inspect.cleandoc(docstring or "").splitlines():
        text, depth = line.strip(), len(line) - len(line.lstrip())
        if not depth and text:
            inside, indent = bool(_SECTION.match(line)), 0
            continue
        if not inside or not text:
            continue
        indent = indent or depth
        entry = _ENTRY.match(text) if depth == indent else None
        if entry is not None:
            name = entry.group(1)
            found[name] = entry.group(2)
        elif name:
            found[name] = f"{found[name]} {text}".strip()
    return found


def described_fields(kind: type) -> dict[str, str]:
    """Return what a class and those that it inherits from say of their fields, the nearest first.

    Args:
        kind: usually a dataclass, with an Attributes section in its docstring.
    """
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each is not object:
            found |= described(each.__doc__)
    return found
