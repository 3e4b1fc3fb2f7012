"""Templates of text and named fields: read once, and filled with texts as they are.

`str.format` would read a template anew each time, and look into what it is given
(`{observation.__class__}`). Here a field is a name and nothing else, and is replaced once, so that
braces inside of what fills it are text like any other.
"""

import string
from collections.abc import Sequence

Parts = tuple[str | int, ...]  # texts, and indices into the fields


def parse_template(template: str, fields: Sequence[str], required: Sequence[str]) -> Parts:
    """Read a template; `{{` and `}}` in it stand for braces.

    Args:
        template: text with fields in braces.
        fields: names of all fields that there are.
        required: those that must occur.

    Returns:
        What `fill_template` fills.

    Raises:
        ValueError: where it has other fields, lacks a required one, or has a single brace.
    """
    expected = "Expected a template of text and " + ", ".join(f"{{{name}}}" for name in fields)
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as exc:
        raise ValueError(
            f"{expected}, got {template!r}: {exc}; write {{{{ and }}}} for braces."
        ) from exc
    parts: list[str | int] = []
    for text, name, spec, conversion in parsed:
        parts.append(text)
        if name is None:
            continue
        if name not in fields or spec or conversion:
            shown = name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
            raise ValueError(
                f"{expected}, got {template!r} with {{{shown}}}; write {{{{ and }}}} for braces."
            )
        parts.append(fields.index(name))
    for name in required:
        if fields.index(name) not in parts:
            raise ValueError(
                f"{expected}, got {template!r} without {{{name}}}; pass a function to leave it out."
            )
    return tuple(parts)


def fill_template(parts: Parts, values: Sequence[str]) -> str:
    """Return a template with its fields filled.

    Args:
        parts: what `parse_template` returned.
        values: one text for each field, in their order.
    """
    return "".join([part if isinstance(part, str) else values[part] for part in parts])
