"""All that decides a run: what files and flags say, put together and checked, and written down."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any, get_args, get_origin, get_type_hints

from motet import envs
from motet.algos.cli.members import Member
from motet.algos.cli.mistakes import UsageError, as_mistakes
from motet.algos.cli.settings_file import SettingsFile
from motet.algos.cli.tasks import accepted
from motet.algos.registration import AlgorithmSpec, spec

PACKAGES = (
    "motet", "torch", "transformers", "tokenizers", "numpy", "gymnasium", "pettingzoo", "datasets",
    "peft", "stable-baselines3",
)  # fmt: skip
OF_ENV = ("num_turns", "early_termination_threshold")  # with an env, they are the env's


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What decides a run, beside the code.

    Attributes:
        env: id of the task.
        env_kwargs: what it is made with, beside what it is registered with.
        eval_split: where held-out rows come from; None for the task's own.
        algo: name of the learner.
        share: one policy for all agents.
        members: settings by agent.
        wandb: options of `wandb.init`; None for no Weights & Biases.
        num_threads: of torch; None leaves it.
    """

    env: str
    env_kwargs: Mapping[str, Any]
    eval_split: str | float | None
    algo: str
    share: bool
    members: Mapping[str, Member]
    wandb: Mapping[str, Any] | None = None
    num_threads: int | None = None

    def as_file(self, config: Any, commands: Sequence[str]) -> dict[str, Any]:
        """Return what a file says to run this again.

        Args:
            config: the learner's whole settings.
            commands: that led here, the newest last.
        """
        whole = {each.name: getattr(config, each.name) for each in fields(config)}
        kept = {
            name: _file_value(value)
            for name, value in whole.items()
            if name not in ("output_dir", *OF_ENV) and not callable(value)
        }
        return {
            "commands": list(commands),
            "env": {"id": self.env, "kwargs": dict(self.env_kwargs)},
            "eval_split": self.eval_split,
            "algo": self.algo,
            "share": self.share,
            "agents": {name: asdict(member) for name, member in self.members.items()},
            "config": kept,
            "wandb": None if self.wandb is None else dict(self.wandb),
            "num_threads": self.num_threads,
            "versions": versions(),
        }


def _file_value(value: Any) -> Any:
    """Return a setting as a file holds it; of settings within settings, a mapping."""
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value


def versions() -> dict[str, str]:
    """Return the versions of what a result depends on."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


# --- files and flags ----------------------------------------------------------------------------


def env_kwargs_of(
    task: envs.EnvSpec, file: SettingsFile, said: Mapping[str, Any]
) -> dict[str, Any]:
    """Return keyword arguments of a task: those of a file, then those of flags.

    Raises:
        UsageError: where the file has some that the task does not take.
    """
    section = file.values.get("env")
    kwargs: dict[str, Any] = {}
    if isinstance(section, dict):
        file.check_keys(("env",), ("id", "kwargs"), "id or kwargs")
        kwargs = dict(_mapping(section.get("kwargs"), file))
        known = accepted(task)
        if kwargs and known is not None:
            file.check_keys(("env", "kwargs"), known, f"a keyword argument of {task.id}")
    of_config = file.section("config")
    return {**{name: of_config[name] for name in OF_ENV if name in of_config}, **kwargs, **said}


def _mapping(value: Any, file: SettingsFile) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(
            f"Expected a mapping as kwargs, got {value!r} in {file.where(('env', 'kwargs'))}."
        )
    return value


def config_of(algo: AlgorithmSpec, file: SettingsFile, said: Mapping[str, Any]) -> Any:
    """Return a learner's settings: its defaults, then a file, then flags.

    Args:
        algo: the learner.
        file: its `config` has settings by name.
        said: what flags say, by name.

    Raises:
        UsageError: where a setting is unknown or wrong, with its line in the file.
    """
    section = file.section("config")
    kind = algo.config_class
    known = [each.name for each in fields(kind)]
    if section:
        file.check_keys(("config",), known, f"a setting of {algo.name}")
    hints = get_type_hints(kind)
    values = {
        name: _typed(hints[name], value)
        for name, value in {**section, **said}.items()
        if name not in OF_ENV
    }
    if isinstance(values.get("algo_config"), Mapping):
        values["algo_config"] = _inner_config(values, kind)
    try:
        with as_mistakes():
            return kind(**values)
    except UsageError as mistake:
        places = [("config", name) for name in section if name not in said]
        raise UsageError(file.blamed(str(mistake), places)) from mistake


def _inner_config(values: Mapping[str, Any], kind: type) -> Any:
    """Return the settings of the learner within a learner, from a mapping."""
    inner = values.get("algo") or next(f.default for f in fields(kind) if f.name == "algo")
    with as_mistakes():
        found = spec(str(inner))
    given = values["algo_config"]
    known = {each.name for each in fields(found.config_class)}
    unknown = sorted(set(map(str, given)) - known)
    if unknown:
        raise UsageError(f"Expected settings of {inner} as algo_config, got {', '.join(unknown)}.")
    with as_mistakes():
        return found.config_class(**given)


def _typed(hint: Any, value: Any) -> Any:
    """Return a file's list as the tuple that a field wants."""
    options = get_args(hint) if get_origin(hint) is not tuple else (hint,)
    wants_tuple = any(get_origin(option) is tuple for option in options)
    return tuple(value) if isinstance(value, list) and wants_tuple else value
