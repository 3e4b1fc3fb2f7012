"""Learners by name: `make("magrpo", ...)`, and `register` for those of others.

Third-party packages add theirs through the entry-point group `motet.algos`, loaded on the first
name that is not known; `motet.envs.registration.plugins` has the form.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from motet.agents import Agent
from motet.algos.evaluation import Evaluation
from motet.algos.group.magrpo_config import MAGRPOConfig
from motet.algos.suggesting import suggestion
from motet.algos.trainer import Trainer
from motet.envs.registration.entry_point import origin
from motet.envs.registration.plugins import PluginLoader


class Algorithm(Protocol):
    """What every learner offers.

    Attributes:
        agents: agent by name, as trained so far; they play in any env.
    """

    agents: dict[str, Agent]

    def train(self, *, resume_from: str | Path | None = None) -> None:
        """Train to the end of the schedule, from its beginning or from a checkpoint."""

    def evaluate(
        self, *, num_samples: int | None = None, do_sample: bool | None = None
    ) -> Evaluation:
        """Play episodes on held-out rows."""

    def save_model(self, output_dir: str | Path) -> None:
        """Write one folder per trained agent."""

    def save_checkpoint(self, output_dir: str | Path) -> None:
        """Write what `train(resume_from=output_dir)` goes on from."""


Factory = Callable[..., Algorithm]


@dataclass(frozen=True, slots=True)
class AlgorithmSpec:
    """A learner by name.

    Attributes:
        name: what `make` takes.
        factory: what it calls.
        config_class: what its `config` is.
    """

    name: str
    factory: Factory
    config_class: type

    @property
    def summary(self) -> str:
        """The first line of the factory's docstring, "" where it has none."""
        return (inspect.getdoc(self.factory) or "").partition("\n")[0]


registry: dict[str, AlgorithmSpec] = {}
_plugins = PluginLoader("motet.algos")


def register(name: str, config_class: type | None = None) -> Callable[[Factory], Factory]:
    """Register a learner: a class or function that `make` calls with env, agents and config.

    Args:
        name: lower-case name, such as "magrpo".
        config_class: the dataclass of its settings; all of its fields have defaults. None for that
            of a trainer's class, and for `MAGRPOConfig` of a function.

    Raises:
        TypeError: where a trainer takes no such config.
        ValueError: where another learner has that name; the same one replaces itself.
    """
    if not isinstance(name, str):
        raise TypeError(f'Expected a name, as in @register("name"), got {name!r}.')

    def decorate(factory: Factory) -> Factory:
        known = registry.get(name)
        if known is not None and origin(known.factory) != origin(factory):
            raise ValueError(
                f"Expected a new name, got {name!r}, which is {origin(known.factory)}; choose "
                "another."
            )
        registry[name] = AlgorithmSpec(name, factory, _config_class(factory, config_class))
        return factory

    return decorate


def _config_class(factory: Factory, given: type | None) -> type:
    if not (isinstance(factory, type) and issubclass(factory, Trainer)):
        return MAGRPOConfig if given is None else given
    own = factory.config_class
    if given is not None and not issubclass(given, own):
        raise TypeError(
            f"Expected {own.__name__}, the config_class of {factory.__name__}, or a subclass of "
            f"it, got {given.__name__}."
        )
    return own if given is None else given


def make(
    name: str,
    env: Any = None,
    agents: Mapping[str, Agent] | Agent | None = None,
    config: Any = None,
    **kwargs: Any,
) -> Algorithm:
    """Build a learner by name.

    Args:
        name: a registered name.
        env: what to train on; None with the parts of a task (`Trainer`).
        agents: agent by name; some learners do without, or take one for all.
        config: the learner's settings; None for its defaults.
        **kwargs: passed on to the learner, `eval_env` for one.

    Raises:
        KeyError: where no learner has that name.
    """
    return spec(name).factory(env=env, agents=agents, config=config, **kwargs)


def load_plugins() -> None:
    """Load those entry points of the group `motet.algos` that were not tried before.

    One that fails gives a warning and leaves the others alone.
    """
    _plugins.load()


def spec(name: str) -> AlgorithmSpec:
    """Return a registered learner.

    Raises:
        KeyError: where no learner has that name.
    """
    if name not in registry:
        importlib.import_module("motet.algos.public")  # registers those that come with it
    if name not in registry:
        _plugins.load()
    if name not in registry:
        hint = suggestion(str(name).lower(), registry)
        raise KeyError(f"Expected one of {sorted(registry)}, got {name!r}.{hint}")
    return registry[name]
