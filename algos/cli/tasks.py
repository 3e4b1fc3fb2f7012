"""Tasks on the command line: their parameters as flags, their pages, and their held-out rows."""

import inspect
import sys
import typing
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from motet import envs
from motet.algos.cli.docs import described, described_fields
from motet.algos.cli.flags import Flag, flag_hint
from motet.algos.cli.mistakes import UsageError, as_mistakes, suggestion
from motet.envs.registration.entry_point import load_creator, parameters, passed_on

_HIDDEN = {"render_mode"}  # how one looks at an episode; a run has its own ways
_HELD_OUT = ("eval", "test", "validation", "val", "dev")


def find_spec(id: str) -> envs.EnvSpec:
    """Return a task by its id.

    Raises:
        UsageError: where there is none, with what may have been meant.
    """
    with as_mistakes():
        return envs.spec(id)


def creator_of(spec: envs.EnvSpec) -> Any:
    """Return the function or class that makes a task."""
    with as_mistakes():
        return load_creator(spec.entry_point, spec.id)


def env_flags(spec: envs.EnvSpec) -> list[Flag]:
    """Return the keyword arguments of a task that words can say, as flags.

    Args:
        spec: of the task; what it is registered with is what they start from.
    """
    creator = creator_of(spec)
    told = described(inspect.getdoc(creator))
    flags = []
    for own, hints, parent in _parameters(creator):
        known = told if parent is None else {**described_fields(parent), **told}
        for each in own:
            hint = flag_hint(hints.get(each.name, Any))
            if hint is None or each.name in _HIDDEN:
                continue
            default = spec.kwargs.get(each.name, each.default)
            flags.append(
                Flag(
                    each.name,
                    hint,
                    None if default is inspect.Parameter.empty else default,
                    known.get(each.name, ""),
                )
            )
    return flags


def accepted(spec: envs.EnvSpec) -> set[str] | None:
    """Return the names of all keyword arguments of a task; None where any name may be one."""
    creator = creator_of(spec)
    own, passed = parameters(creator), passed_on(creator)
    if own is None:
        return None
    open_ended = any(each.kind is each.VAR_KEYWORD for each in own)
    if open_ended and not passed:
        return None
    return {each.name for each in [*own, *passed] if each.kind is not each.VAR_KEYWORD}


def _parameters(
    creator: Any,
) -> list[tuple[list[inspect.Parameter], dict[str, Any], type | None]]:
    """Return a task's own parameters, and those of the env that it passes others on to."""
    skipped = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    own = [each for each in parameters(creator) or [] if each.kind not in skipped]
    is_class = inspect.isclass(creator)
    found: list[tuple[list[inspect.Parameter], dict[str, Any], type | None]] = [
        (own, _hints(creator.__init__ if is_class else creator), creator if is_class else None)
    ]
    passed = passed_on(creator)
    if passed:
        made = _hints(creator).get("return")
        kind = made if inspect.isclass(made) else envs.TextEnv
        found.append((passed, _hints(kind.__init__), kind))
    return found


def _hints(thing: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(thing)
    except (NameError, TypeError, AttributeError):  # names that only a checker knows: no flags
        return {}


def make_env(spec: envs.EnvSpec, kwargs: Mapping[str, Any]) -> Any:
    """Make a task.

    Raises:
        UsageError: where it refuses its arguments.
    """
    with as_mistakes():
        return spec.make(**kwargs)


def held_out_split(spec: envs.EnvSpec) -> str | None:
    """Return the split with a task's held-out rows, None where it has none."""
    named = _split_names(spec)
    return next((name for name in _HELD_OUT if name in named), None)


def held_out_env(
    spec: envs.EnvSpec, env: Any, kwargs: Mapping[str, Any], wanted: str | float | None
) -> tuple[Any, Any | None, str]:
    """Return the env to train on and the one with held-out rows, where there are such rows.

    Args:
        spec: of the task.
        env: as it was made with `kwargs`.
        kwargs: what the task was made with.
        wanted: the name of a split, a share or number of rows to hold out, a file with rows,
            "none", or None for the split that the task has.

    Returns:
        Both, and in words where the held-out rows come from.

    Raises:
        UsageError: where the task has no such rows.
    """
    split = held_out_split(spec)
    if wanted is None:
        own_rows = {"split", "dataset"} & set(kwargs)
        wanted = split if split is not None and not own_rows else "none"
    if wanted == "none":
        return env, None, "no held-out rows"
    if not isinstance(wanted, str):
        return _divided(spec, kwargs, env, wanted)
    names = _split_names(spec)
    if wanted in names:
        rows = {name: value for name, value in kwargs.items() if name != "dataset"}
        return env, make_env(spec, {**rows, "split": wanted}), f"split={wanted}"
    known = accepted(spec)
    if ("." in wanted or "/" in wanted) and (known is None or "dataset" in known):
        return env, make_env(spec, {**kwargs, "dataset": wanted}), f"the rows of {wanted}"
    raise UsageError(
        f"Expected --eval-split of {spec.id} to be {', '.join(names) or 'a share such as 0.1'}, "
        f"a share such as 0.1, a file with rows, or none, got {wanted!r}."
        f"{suggestion(wanted, names)}"
    )


def _split_names(spec: envs.EnvSpec) -> list[str]:
    flag = next((each for each in env_flags(spec) if each.name == "split"), None)
    hints = () if flag is None else (flag.hint, *get_args(flag.hint))
    return [str(name) for each in hints if get_origin(each) is Literal for name in get_args(each)]


def _divided(
    spec: envs.EnvSpec, kwargs: Mapping[str, Any], env: Any, size: float
) -> tuple[Any, Any, str]:
    known = accepted(spec)
    if not isinstance(env.unwrapped, envs.TextEnv) or (
        known is not None and "dataset" not in known
    ):
        raise UsageError(
            f"Expected a task that takes dataset= to hold out {size:g} of its rows, and "
            f"{spec.id} does not; leave --eval-split out."
        )
    with as_mistakes():
        train, held_out = envs.train_eval_split(env.unwrapped.dataset, size)
    return (
        make_env(spec, {**kwargs, "dataset": train}),
        make_env(spec, {**kwargs, "dataset": held_out}),
        f"{len(held_out)} of {len(train) + len(held_out)} rows held out",
    )


# --- to read ------------------------------------------------------------------------------------


def page_of(spec: envs.EnvSpec) -> str:
    """Return what there is to read about a task: its module's page, else its function's."""
    creator = creator_of(spec)
    module = sys.modules.get(getattr(creator, "__module__", ""))  # a callable object has none
    page = inspect.getdoc(module) or ""
    return page if spec.id in page else inspect.getdoc(creator) or ""


def summary(spec: envs.EnvSpec) -> str:
    """Return what a task is about, in a line; "" where it cannot be loaded or does not say."""
    try:
        page = page_of(spec)
    except UsageError:
        return ""
    return " ".join(page.partition("\n\n")[0].split())
