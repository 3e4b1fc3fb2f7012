"""The table of all tasks that `pprint_registry` prints."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium.envs.registration import get_env_id

from motet.envs.registration.entry_point import load_creator, parameters, passed_on, short
from motet.envs.registration.env_spec import EnvSpec

TABLE_WIDTH = 100
MIN_ORIGIN_WIDTH = 30
HEAD = ("id", "agents", "turns", "reward range", "origin and defaults")
COUNTS = ("num_agents", "num_turns")


def registry_table(specs: Iterable[EnvSpec], exclude_namespaces: Collection[str] = ()) -> str:
    """Return a table with one line per task, in the order of their names and versions.

    The last column is cut where a line would pass 100 columns.

    Args:
        specs: the tasks.
        exclude_namespaces: namespaces whose tasks are left out.
    """
    shown = sorted((s for s in specs if s.namespace not in exclude_namespaces), key=_by_version)
    lines = [HEAD, *map(_cells, shown)]
    *columns, _ = zip(*lines, strict=True)
    widths = [max(map(len, column)) for column in columns]
    rest = max(TABLE_WIDTH - sum(width + 2 for width in widths), MIN_ORIGIN_WIDTH)
    return "\n".join(
        "  ".join([*(c.ljust(w) for c, w in zip(cells, widths, strict=True)), _cut(last, rest)])
        for *cells, last in lines
    )


def _by_version(spec: EnvSpec) -> tuple[str, int]:
    return get_env_id(spec.namespace, spec.name, None), -1 if spec.version is None else spec.version


def _cells(spec: EnvSpec) -> tuple[str, str, str, str, str]:
    known: Mapping[str, Any] = spec.kwargs
    if any(name not in known for name in COUNTS):
        known = {**_signature_defaults(spec), **known}
    agents, turns = (_shown_count(known.get(name)) for name in COUNTS)
    rewards = "?" if spec.reward_range is None else "[{:g}, {:g}]".format(*spec.reward_range)
    defaults = ", ".join(f"{k}={short(v)}" for k, v in spec.kwargs.items() if k not in COUNTS)
    return spec.id, agents, turns, rewards, spec.origin + (f"({defaults})" if defaults else "")


def _signature_defaults(spec: EnvSpec) -> dict[str, Any]:
    try:
        creator = load_creator(spec.entry_point, spec.id)
        taken = [*(parameters(creator) or ()), *passed_on(creator)]
    # Importing somebody else's module may fail in any way; the others are listed all the same, and
    # `make` says what is wrong.
    except (Exception, SystemExit):  # noqa: BLE001
        return {}
    return {p.name: p.default for p in taken}


def _shown_count(value: Any) -> str:
    is_count = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return str(value) if is_count else "?"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
