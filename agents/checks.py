"""Checks that many classes share: fields of a dataclass against their own annotations."""

import math
import types
from collections.abc import Collection
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def check_fields(settings: Any, *, others: Collection[str] = ()) -> None:
    """Raise where a field of a dataclass is not what its annotation says.

    Whole numbers pass for float, True and False only for bool, and numbers must be finite.

    Args:
        settings: a dataclass instance whose fields are int, float, bool, str, a `Literal` of
            strings, or one of these or None.
        others: names of fields that are checked elsewhere.

    Raises:
        TypeError: where a value has another type.
        ValueError: where a number is not finite, or a string is none of the choices.
    """
    hints = get_type_hints(type(settings))
    for field in fields(settings):
        if field.name in others:
            continue
        value, hint = getattr(settings, field.name), hints[field.name]
        options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        if value is None and type(None) in options:
            continue
        (expected,) = (option for option in options if option is not type(None))
        if get_origin(expected) is Literal:
            if value not in get_args(expected):
                raise ValueError(
                    f"Expected {field.name} to be one of {', '.join(get_args(expected))}, got "
                    f"{value!r}."
                )
            continue
        allowed = (int, float) if expected is float else (expected,)
        if not isinstance(value, allowed) or (isinstance(value, bool) and expected is not bool):
            raise TypeError(
                f"Expected {field.name} to be {expected.__name__}, got {value!r} of type "
                f"{type(value).__name__}."
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"Expected a finite {field.name}, got {value}.")
