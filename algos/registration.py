"""Learners by name: `make("magrpo", ...)`, and `register` for those of others.

Third-party packages add theirs through the entry-point group `motet.algos`, loaded on the first
name that is not known; `motet.envs.registration.plugins` has the form.
"""

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from motet.agents import Agent
from motet.algos.evaluation import Evaluation
from motet.envs.registration.entry_point import origin
from motet.envs.registration.plugins import PluginLoader


class Algorithm(Protocol):
    """What every learner offers.

    Attributes:
        agents: agent by name, as trained so far; they play in any env.
    """

    agents: dict[str, Agent]

    def train(self) -> None:
        """Train to the end of the schedule."""

    def evaluate(self, *, num_samples: int = 1, do_sample: bool = True) -> Evaluation:
        """Play episodes on held-out rows."""

    def save_model(self, output_dir: str | Path) -> None:
        """Write one folder per trained agent."""


Factory = Callable[..., Algorithm]

registry: dict[str, Factory] = {}
_plugins = PluginLoader("motet.algos")


def register(name: str) -> Callable[[Factory], Factory]:
    """Register a learner: a class or function that `make` calls with env, agents and config.

    Args:
        name: lower-case name, such as "magrpo".

    Raises:
        ValueError: where another learner has that name; the same one replaces itself.
    """
    if not isinstance(name, str):
        raise TypeError(f'Expected a name, as in @register("name"), got {name!r}.')

    def decorate(factory: Factory) -> Factory:
        known = registry.get(name)
        if known is not None and origin(known) != origin(factory):
            raise ValueError(
                f"Expected a new name, got {name!r}, which is {origin(known)}; choose another."
            )
        registry[name] = factory
        return factory

    return decorate


def make(
    name: str, env: Any, agents: Mapping[str, Agent], config: Any = None, **kwargs: Any
) -> Algorithm:
    """Build a learner by name.

    Args:
        name: a registered name.
        env: what to train on.
        agents: agent by name.
        config: the learner's settings; None for its defaults.
        **kwargs: passed on to the learner, `eval_env` for one.

    Raises:
        KeyError: where no learner has that name.
    """
    if name not in registry:
        _plugins.load()
    if name not in registry:
        close = difflib.get_close_matches(str(name).lower(), registry, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise KeyError(f"Expected one of {sorted(registry)}, got {name!r}.{hint}")
    return registry[name](env=env, agents=agents, config=config, **kwargs)
