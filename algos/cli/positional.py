"""The word of a command that belongs to no flag, wherever it stands: `motet view --open RUN`."""

from collections.abc import Sequence

from motet.algos.cli.flags import Flag


def positional(words: Sequence[str], flags: Sequence[Flag]) -> tuple[str | None, list[str]]:
    """Return the first word that belongs to no flag, and all others.

    A flag that is not known is taken to have one value; one with several has all that follow it, so
    that the word stands before it.

    Args:
        words: what was typed after the command.
        flags: those that are known.

    Returns:
        The word, None where there is none, and the other words in order.
    """
    known = {option: flag for flag in flags for option in flag.options}
    place = 0
    while place < len(words):
        word = words[place]
        if not word.startswith("-"):
            return word, [*words[:place], *words[place + 1 :]]
        option, equals, _ = word.partition("=")
        flag = known.get(option.replace("_", "-"))
        place += 1
        if equals or (flag is None and word in ("-h", "--help")):
            continue
        place += _values(words[place:], flag)
    return None, list(words)


def _values(words: Sequence[str], flag: Flag | None) -> int:
    """Return how many words are values of a flag that stands before them."""
    if flag is not None and flag.hint is bool:
        return int(bool(words) and words[0].lower() in ("true", "false"))
    found = 0
    for word in words:
        if word.startswith("-") and not word[1:2].isdigit():
            break
        found += 1
        if flag is None or not flag.takes_several:
            break
    return found
