"""`motet envs` and `motet algos`: what there is, and what one of it can be told."""

from collections.abc import Sequence
from typing import Any

from motet import envs
from motet.algos.cli.flags import Flag, parsed, shown_default
from motet.algos.cli.mistakes import UsageError, as_mistakes
from motet.algos.cli.show import print_json, print_table
from motet.algos.cli.tasks import env_flags, find_spec, page_of, summary
from motet.envs.registration.by_id import load_plugins

JSON = Flag("json", bool, False, "print JSON, for other programs")


def run_envs(words: list[str]) -> None:
    """Run `motet envs [NAME] [--json]`."""
    name, json = _asked("motet envs", "List the tasks; with an id, show its page.", words)
    if name is None:
        load_plugins()
        _list_envs(json=json)
    else:
        _show_env(find_spec(name), json=json)


def run_algos(words: list[str]) -> None:
    """Run `motet algos [NAME] [--json]`."""
    about = "List the learners; with a name, show its settings."
    name, json = _asked("motet algos", about, words)
    if name is None:
        _list_algos(json=json)
    else:
        _show_algo(name, json=json)


def _asked(command: str, about: str, words: list[str]) -> tuple[str | None, bool]:
    names = [word for word in words if not word.startswith("-")]
    if len(names) > 1:
        raise UsageError(f"Expected one name after `{command}`, got {', '.join(names)}.")
    flags = [word for word in words if word.startswith("-")]
    said = parsed(f"{command} [NAME]", {"output": [JSON]}, flags, about)["output"]
    return (names[0] if names else None), bool(said.get("json"))


# --- tasks --------------------------------------------------------------------------------------


def _list_envs(*, json: bool) -> None:
    found = [_env_entry(spec) for _, spec in sorted(envs.registry.items())]
    if json:
        print_json(found)
        return
    head = ("id", "agents", "turns", "rewards", "what it is")
    print_table(head, [[_cell(each[key]) for key in _ENV_KEYS] for each in found])


_ENV_KEYS = ("id", "num_agents", "num_turns", "reward_range", "summary")


def _env_entry(spec: envs.EnvSpec) -> dict[str, Any]:
    try:
        known = {flag.name: flag.default for flag in env_flags(spec)}
    except UsageError:  # a plug-in that cannot be loaded is listed all the same
        known = {}
    known |= spec.kwargs
    return {
        "id": spec.id,
        "num_agents": known.get("num_agents"),
        "num_turns": known.get("num_turns"),
        "reward_range": spec.reward_range,
        "summary": summary(spec),
    }


def _cell(value: Any) -> str:
    if value is None:
        return "?"
    if isinstance(value, tuple):
        return "[{:g}, {:g}]".format(*value)
    return str(value)


def _show_env(spec: envs.EnvSpec, *, json: bool) -> None:
    flags = env_flags(spec)
    if json:
        print_json({**_env_entry(spec), "page": page_of(spec), "settings": _settings(flags)})
        return
    print(f"{page_of(spec).rstrip()}\n")
    _print_settings(flags, f"Settings of {spec.id}, as flags of `motet train {spec.id}`:")


# --- learners -----------------------------------------------------------------------------------


def _list_algos(*, json: bool) -> None:
    from motet import algos  # noqa: PLC0415  # torch comes with it, which `motet envs` can do without
    from motet.algos.registration import load_plugins as load_learners  # noqa: PLC0415

    load_learners()
    specs = [spec for _, spec in sorted(algos.registry.items())]
    if json:
        entries = [
            {"name": s.name, "config": s.config_class.__name__, "summary": s.summary} for s in specs
        ]
        print_json(entries)
        return
    rows = [(s.name, s.config_class.__name__, s.summary) for s in specs]
    print_table(("name", "settings", "what it is"), rows)


def _show_algo(name: str, *, json: bool) -> None:
    from motet import algos  # noqa: PLC0415  # as above
    from motet.algos.cli.plan import flag_groups  # noqa: PLC0415

    with as_mistakes():
        spec = algos.spec(name)
    flags = flag_groups(None, spec)["learner"]
    if json:
        entry = {"name": name, "config": spec.config_class.__name__, "summary": spec.summary}
        print_json({**entry, "settings": _settings(flags)})
        return
    print(f"{name}: {spec.summary}\n")
    _print_settings(flags, f"Settings ({spec.config_class.__name__}), as flags of `motet train`:")


def _settings(flags: Sequence[Flag]) -> list[dict[str, Any]]:
    return [
        {"name": each.name, "flag": each.option, "default": each.default, "help": each.help}
        for each in flags
    ]


def _print_settings(flags: Sequence[Flag], title: str) -> None:
    rows = [(flag.option, shown_default(flag.default), flag.help) for flag in flags]
    print_table(("flag", "default", "what it does"), rows, title)
