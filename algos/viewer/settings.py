"""What `run.yaml` says of a run: a few facts for the head of its page, and what returns need.

The file is shown as it is; this module looks only for names that it may hold anywhere, so that a
page can be made of runs that other versions wrote.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import yaml

# what the head of a page shows, and the names by which a run may have saved it, best first
FACTS = {
    "Task": ("env_id", "env", "task", "id"),
    "Learner": ("algo", "learner", "algorithm"),
    "Model": ("model", "models"),
    "Seed": ("seed",),
    "Started": ("started", "started_at", "start_time"),
    "Motet": ("motet",),
    "Torch": ("torch",),
    "Transformers": ("transformers",),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What reproduces a run, as far as it is known.

    Attributes:
        facts: names and values for the head of the page.
        text: the file itself.
        discount: weight of the next turn in returns; None where it is unknown.
        num_turns: turns of the task; None where it is unknown.
    """

    facts: tuple[tuple[str, str], ...] = ()
    text: str = ""
    discount: float | None = None
    num_turns: int | None = None


def read_settings(path: Path, notices: list[str]) -> Settings:
    """Read `run.yaml`; a sentence is added to the notices where it is missing or broken."""
    if not path.is_file():
        notices.append("There is no run.yaml, so task, learner and settings are unknown.")
        return Settings()
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        saved = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):  # the latter of brackets in thousands of brackets
        notices.append("run.yaml is no YAML; it is shown as it is.")
        return Settings(text=text)
    if not isinstance(saved, Mapping):
        notices.append("run.yaml holds no settings by name; it is shown as it is.")
        return Settings(text=text)
    return settings_of(saved, text)


def settings_of(saved: Mapping[str, Any], text: str = "") -> Settings:
    """Return what a page needs of a run's settings."""
    facts = [(label, _fact(saved, names)) for label, names in FACTS.items()]
    discount, num_turns = _first(saved, "discount"), _first(saved, "num_turns")
    return Settings(
        facts=tuple((label, value) for label, value in facts if value),
        text=text,
        discount=float(discount) if is_number(discount) else None,
        num_turns=num_turns if is_number(num_turns) and isinstance(num_turns, int) else None,
    )


def _fact(saved: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Return all different values by the first of the names that has some: agents may differ."""
    for name in names:
        values = [value for each in _values(saved, name) for value in _listed(each)]
        if values:
            return ", ".join(dict.fromkeys(map(str, values)))
    return ""


def _first(saved: Mapping[str, Any], name: str) -> Any:
    return next(_values(saved, name), None)


def _values(saved: Mapping[str, Any], name: str) -> Iterator[Any]:
    """Iterate over the values of a name that are no mappings, outer ones before inner.

    Each mapping is looked at once: aliases in YAML may repeat it many times, or within itself.
    """
    seen, left = {id(saved)}, [saved]
    while left:
        mapping = left.pop()
        value = mapping.get(name)
        if value is not None and not isinstance(value, Mapping):
            yield value
        inner = [each for each in mapping.values() if isinstance(each, Mapping)]
        left += [each for each in reversed(inner) if id(each) not in seen]
        seen |= {id(each) for each in inner}


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def is_number(value: object) -> TypeGuard[int | float]:
    """Tell whether a value is a number that JSON and a chart can have: finite, and no bool."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max
