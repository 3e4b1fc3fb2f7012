"""Texts from outside: whether they are any, and how a terminal can show them."""

import unicodedata

_UNSHOWN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_KEPT = "\n\t\u200c\u200d"  # emoji and several scripts join characters with the last two


def visible(text: str) -> str:
    r"""Return a text whose characters all show, the others as Python would write them (`\x1b`).

    As `motet.envs.transcript.visible`, of which agents know nothing.
    """
    return "".join(
        character
        if character in _KEPT or unicodedata.category(character) not in _UNSHOWN
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def is_text(text: str) -> bool:
    """Tell whether a text can be written as UTF-8, which half a character (a surrogate) cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
