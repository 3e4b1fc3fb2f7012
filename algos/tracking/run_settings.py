"""The settings of a run as trackers show them."""

from dataclasses import fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_PACKAGES = ("motet", "torch", "transformers")


def run_settings(config: Any, learner: str) -> dict[str, str | int | float | bool | None]:
    """Return settings by name, those of a config in a config as `outer.inner`, and versions.

    Args:
        config: a dataclass.
        learner: its name.
    """
    return {
        "learner": learner,
        **_flat(config),
        **{f"version.{name}": _version(name) for name in _PACKAGES},
    }


def _flat(config: Any) -> dict[str, str | int | float | bool | None]:
    flat: dict[str, str | int | float | bool | None] = {}
    for each in fields(config):
        value = getattr(config, each.name)
        if is_dataclass(value):
            flat |= {f"{each.name}.{key}": inner for key, inner in _flat(value).items()}
        elif value is None or isinstance(value, str | int | float):
            flat[each.name] = value
        elif callable(value):
            flat[each.name] = getattr(value, "__name__", type(value).__name__)
        else:
            flat[each.name] = str(value)
    return flat


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:  # imported from its sources
        return None
