"""YAML as users write it: 1e-3 is a number, as everywhere else, which YAML 1.1 denies."""

import re
from typing import Any

import yaml


class Loader(yaml.SafeLoader):  # type: ignore[misc]  # untyped
    """PyYAML's safe loader with the numbers of JSON and Python."""


_FLOAT = "tag:yaml.org,2002:float"
_NUMBER = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+"
    r"|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))$|\.(?:nan|NaN|NAN)$"
)
_PAIRS = re.compile(r"\w+=[^={}]*(,\w+=[^={}]*)*")

Loader.yaml_implicit_resolvers = {
    key: [pair for pair in pairs if pair[0] != _FLOAT]
    for key, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver(_FLOAT, _NUMBER, list("-+0123456789."))


def from_word(word: str) -> Any:
    """Return what a word of a command says: YAML, or pairs as in `agent_0=1e-3,agent_1=1e-4`.

    Raises:
        ValueError: where it is neither.
    """
    if _PAIRS.fullmatch(word):
        pairs = (pair.partition("=") for pair in word.split(","))
        return {name: from_word(value) for name, _, value in pairs}
    try:
        return yaml.load(word, Loader)  # a subclass of the safe one
    except yaml.YAMLError as exc:
        raise ValueError(f"expected YAML, such as '{{a: 1}}', got {word!r}") from exc


def mapping_from_word(word: str) -> dict[str, Any]:
    """Return the mapping that a word says, as `from_word` reads it.

    Raises:
        ValueError: where it says something else.
    """
    value = from_word(word)
    if not isinstance(value, dict):
        told = f"expected a mapping, such as a=1,b=2 or '{{a: 1}}', got {word!r}"
        raise ValueError(told)  # noqa: TRY004  # as parsers expect of a word
    return value


def to_word(value: Any) -> str:
    """Return a value as a word that `from_word` reads."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=float("inf"))
    return text.removesuffix("...\n").strip()
