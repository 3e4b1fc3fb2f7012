"""Find a spec by the parts of an id, or say what is missing in Gymnasium's words and errors."""

import difflib
from collections.abc import Mapping

from gymnasium import error
from gymnasium.envs.registration import get_env_id

from motet.envs.registration.env_spec import EnvSpec


def versions_of(registry: Mapping[str, EnvSpec], namespace: str | None, name: str) -> list[EnvSpec]:
    """Return all versions of a task, the latest last."""
    specs = [s for s in registry.values() if (s.namespace, s.name) == (namespace, name)]
    return sorted(specs, key=lambda s: -1 if s.version is None else s.version)


def resolve(
    registry: Mapping[str, EnvSpec], namespace: str | None, name: str, version: int | None
) -> EnvSpec | None:
    """Return a version of a task, the latest where `version` is None; None if there is none."""
    if version is not None:
        return registry.get(get_env_id(namespace, name, version))
    specs = versions_of(registry, namespace, name)
    return specs[-1] if specs else None


def not_found(
    registry: Mapping[str, EnvSpec], namespace: str | None, name: str, version: int | None
) -> error.Error:
    """Return the error for what `resolve` did not find, with what may have been meant."""
    namespaces = {s.namespace for s in registry.values() if s.namespace is not None}
    if namespace is not None and namespace not in namespaces:
        hint = _suggestion(namespace, namespaces) or f" Is the package for {namespace} installed?"
        return error.NamespaceNotFound(f"Namespace {namespace} not found.{hint}")
    specs = versions_of(registry, namespace, name)
    if not specs:
        names = {s.name for s in registry.values() if s.namespace == namespace}
        where = f" in namespace {namespace}" if namespace else ""
        hint = _suggestion(name, names) or " pprint_registry() lists all that are registered."
        return error.NameNotFound(f"Environment {name} not found{where}.{hint}")
    latest = specs[-1]
    message = f"Environment {get_env_id(namespace, name, None)} has no version v{version}."
    if latest.version is None or (version is not None and version < latest.version):
        return error.DeprecatedEnv(f"{message} Please use {latest.id} instead.")
    return error.VersionNotFound(f"{message} It has {', '.join(s.id for s in specs)}.")


def _suggestion(wrong: str, known: set[str]) -> str:
    close = difflib.get_close_matches(wrong, known, n=1)
    return f" Did you mean: {close[0]}?" if close else ""
