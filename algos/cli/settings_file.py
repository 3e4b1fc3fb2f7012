"""Files of settings, `run.yaml`: read with the line of every key, and written to be read again.

    env: {id: story-length-ratio-v0, kwargs: {num_turns: 2}}
    eval_split: eval
    algo: magrpo
    share: false
    agents: {agent_0: {model: pocket}, agent_1: {model: pocket, frozen: true}}
    config: {num_generations: 4}

All keys may be left out. A run writes these, and for readers `commands` and `versions`.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from motet.algos.cli.mistakes import UsageError, suggestion
from motet.algos.cli.yaml_text import Loader
from motet.algos.earlier import put_in_place

FILE_NAME = "run.yaml"
KEYS = ("env", "eval_split", "algo", "share", "agents", "config", "num_threads", "wandb")
READ_ONLY = ("commands", "versions")

Place = tuple[str, ...]


@dataclass(frozen=True)
class SettingsFile:
    """What a file says, and where.

    Attributes:
        path: of the file, None for no file.
        values: its content.
        lines: line of every key, by the keys that lead there.
    """

    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[Place, int] = field(default_factory=dict)

    def section(self, name: str) -> dict[str, Any]:
        """Return a mapping of the file, empty where it has none.

        Raises:
            UsageError: where it is no mapping.
        """
        value = self.values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise UsageError(
                f"Expected a mapping as {name}, got {value!r}, in {self.where((name,))}."
            )
        return value

    def where(self, place: Place) -> str:
        """Return the file's name and the line of a key."""
        line = self.lines.get(place)
        return f"{self.path}" if line is None else f"{self.path}, line {line}"

    def check_keys(self, place: Place, known: Iterable[str], what: str) -> None:
        """Raise where a mapping has keys that nobody reads.

        Args:
            place: of the mapping.
            known: its keys.
            what: whose keys they are, for the sentence.

        Raises:
            UsageError: with file, line and what may have been meant.
        """
        value: Any = self.values
        for key in place:
            value = value[key]
        for key in value:
            if key not in known:
                raise UsageError(
                    f"Expected {what}, got {key!r} in {self.where((*place, str(key)))}."
                    f"{suggestion(str(key), known)}"
                )

    def blamed(self, told: str, places: Iterable[Place]) -> str:
        """Return a sentence with the line of the setting that it is about, where it is of the file.

        Args:
            told: a sentence of the library that names a setting.
            places: of settings that came from the file.
        """
        words = set(re.findall(r"\w+", told))
        named = [place for place in places if place[-1] in words and place in self.lines]
        if not named:
            return told
        listed = "; ".join(f"{place[-1]} is in {self.where(place)}" for place in named)
        return f"{told} ({listed})"


def read_settings(path: str | Path) -> SettingsFile:
    """Read a file of settings.

    Args:
        path: of the file, or the folder of a run that has one.

    Raises:
        UsageError: where there is none, it is no YAML, or it has a key twice or one too many.
    """
    file = Path(path)
    if file.is_dir():
        file = file / FILE_NAME
    if not file.is_file():
        raise UsageError(f"Expected a file of settings or the folder of a run, got {path}.")
    lines: dict[Place, int] = {}
    try:
        loader = Loader(file.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        values = {} if node is None else _value(loader, node, (), lines, file)
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        told = " ".join(str(exc).split())
        raise UsageError(f"Expected YAML in {file}, got what cannot be read: {told}") from exc
    if not isinstance(values, dict):
        raise UsageError(f"Expected a mapping in {file}, with keys such as env, got {values!r}.")
    settings = SettingsFile(file, values, lines)
    settings.check_keys((), (*KEYS, *READ_ONLY), f"one of {', '.join(KEYS)}")
    return settings


def _value(
    loader: Loader, node: yaml.Node, place: Place, lines: dict[Place, int], file: Path
) -> Any:
    if not isinstance(node, yaml.MappingNode):
        return loader.construct_object(node, deep=True)
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = str(loader.construct_object(key_node, deep=True))
        own = (*place, key)
        line = key_node.start_mark.line + 1
        if key in found:
            raise UsageError(
                f"Expected {key} once, got it in line {lines[own]} and in line {line} of {file}."
            )
        lines[own] = line
        found[key] = _value(loader, value_node, own, lines, file)
    return found


def write_settings(path: Path, values: Mapping[str, Any]) -> None:
    """Write a file of settings, whole or not at all.

    Args:
        path: of the file; its folder is made.
        values: what `read_settings` gives back.

    Raises:
        UsageError: where a value cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        text = yaml.safe_dump(_plain(values), sort_keys=False, allow_unicode=True, width=100)
    except yaml.YAMLError as exc:
        raise UsageError(
            f"Expected settings that {path.name} can hold (numbers, texts, lists and mappings), "
            f"got {' '.join(str(exc).split())}."
        ) from exc
    put_in_place(path, [f"# motet train --config {path.name} runs this again\n", text])


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(own) for key, own in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(own) for own in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    return value
