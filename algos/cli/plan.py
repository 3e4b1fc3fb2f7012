"""What `motet train` is asked for: its flags, and what they and files say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from motet import envs
from motet.algos.cli.flags import Flag, field_flags, parsed
from motet.algos.cli.members import joined, member_flags
from motet.algos.cli.mistakes import UsageError, as_mistakes
from motet.algos.cli.run_folder import run_of
from motet.algos.cli.run_settings import OF_ENV
from motet.algos.cli.settings_file import FILE_NAME, SettingsFile, read_settings
from motet.algos.cli.tasks import env_flags, find_spec
from motet.algos.registration import AlgorithmSpec, registry, spec

COMMAND = "motet train"
ABOUT = (
    "Train a team on a task. ENV is the id of a task (`motet envs`), --algo the name of a learner "
    "(`motet algos`); below are the settings of both. Settings of agents take one value for all, "
    "or one each: --model agent_0=A agent_1=B."
)
RUN_FLAGS = [
    Flag("algo", str, "magrpo", "name of the learner"),
    Flag("config_file", str | None, None, "file of settings that flags override, such as the "
         f"{FILE_NAME} of a run, which runs it again", "config"),
    Flag("resume", str | None, None, "folder of a run that goes on from its newest checkpoint, "
         "or of one checkpoint in it", aliases=("--resume-from",)),
    Flag("eval_split", int | float | str | None, None, "where held-out rows come from: the name "
         "of a split of the task, a share or number of its rows, a file, or none; None for the "
         "split that the task has"),
    Flag("share", bool, False, "one policy for all agents"),
    Flag("wandb", bool, False, "log to Weights & Biases; WANDB_MODE=offline needs no network"),
    Flag("wandb_project", str | None, None, "project there; None for that of --project"),
    Flag("wandb_entity", str | None, None, "entity there"),
    Flag("num_threads", int | None, None, "threads of torch; one is the steadiest for a small "
         "model on a CPU"),
]  # fmt: skip
_PEEKED = ("algo", "config_file", "resume")  # what other flags there are depends on these


@dataclass(frozen=True)
class Plan:
    """What a command asks for, before anything is loaded.

    Attributes:
        task: the task.
        id: of the task, with the module that registers it where that was named.
        algo: the learner.
        file: settings of a file, empty for none.
        said: what flags say, by group and name.
        run: folder that goes on, None for a new run.
        checkpoint: to go on from.
    """

    task: envs.EnvSpec
    id: str
    algo: AlgorithmSpec
    file: SettingsFile
    said: Mapping[str, Mapping[str, Any]]
    run: Path | None = None
    checkpoint: Path | None = None


def planned(words: Sequence[str]) -> Plan:
    """Read a command.

    Args:
        words: what was typed after `motet train`.

    Raises:
        UsageError: where it does not say what to train, or says what cannot be.
    """
    peeked = {flag.name: _peek(flag, words) for flag in RUN_FLAGS if flag.name in _PEEKED}
    run_path, checkpoint = (None, None)
    if peeked["resume"] is not None:
        if peeked["config_file"] is not None:
            raise UsageError(
                "Expected --resume or --config, got both; a run that goes on has its own settings."
            )
        run_path, checkpoint = run_of(peeked["resume"])
    source = run_path or peeked["config_file"]
    file = SettingsFile() if source is None else read_settings(source)
    id, rest = _positional(words)
    in_file = file.values.get("env")
    id = id or (in_file.get("id") if isinstance(in_file, dict) else in_file)
    asks_help = any(word in ("-h", "--help") for word in words)
    if id is None and not asks_help:
        raise UsageError(
            f"Expected the id of a task, as in `{COMMAND} story-length-ratio-v0`, got none; "
            "`motet envs` lists them."
        )
    task = None if id is None else find_spec(str(id))
    with as_mistakes():
        algo = spec(str(peeked["algo"] or file.values.get("algo") or "magrpo"))
    groups = flag_groups(task, algo)
    command = f"{COMMAND} {'ENV' if task is None else task.id}"
    said = parsed(command, groups, joined(rest), ABOUT, partial(_of_others, algo.name))
    assert task is not None  # without one, the help has ended it
    _check_said(said, run_path)
    module, colon, _ = str(id).rpartition(":")
    return Plan(task, f"{module}{colon}{task.id}", algo, file, said, run_path, checkpoint)


def _check_said(said: Mapping[str, Mapping[str, Any]], run: Path | None) -> None:
    own = said["run"]
    named = said["learner"].get("output_dir")
    if run is not None and named is not None and Path(named).resolve() != run.resolve():
        raise UsageError(
            f"Expected no --output-dir with --resume, got {named}; a run goes on in its own "
            f"folder, {run}."
        )
    for name in ("wandb_project", "wandb_entity"):
        if name in own and own.get("wandb") is False:
            raise UsageError(f"Expected --wandb with --{name.replace('_', '-')}, got --no-wandb.")


def flag_groups(task: envs.EnvSpec | None, algo: AlgorithmSpec) -> dict[str, list[Flag]]:
    """Return all flags of the command: of the run, the team, the task and the learner.

    A learner's setting that has the name of another flag is spelled `--config.name`.
    """
    of_task = [] if task is None else env_flags(task)
    taken = {option for flag in [*RUN_FLAGS, *member_flags(), *of_task] for option in flag.options}
    of_learner = [
        replace(flag, spelled=f"config.{flag.name.replace('_', '-')}") if flag.option in taken
        else flag
        for flag in field_flags(algo.config_class, without=OF_ENV)
    ]  # fmt: skip
    return {"run": RUN_FLAGS, "team": member_flags(), "task": of_task, "learner": of_learner}


def _of_others(algo: str, option: str) -> str | None:
    """Return what to say of a flag that this learner does not have, and others do."""
    name = option.lstrip("-").replace("-", "_")
    owners = sorted(
        each.name
        for each in registry.values()
        if any(setting.name == name for setting in fields(each.config_class))
    )
    if not owners:
        return None
    some = ", ".join(owners[:4]) + (" and others" if len(owners) > 4 else "")
    return (
        f"Expected a setting of {algo}, got {option}, which {some} "
        f"{'has' if len(owners) == 1 else 'have'}; see `motet algos {algo}`, or choose with --algo."
    )


def _peek(flag: Flag, words: Sequence[str]) -> str | None:
    """Return what a flag is followed by, the last time; None where it is not there."""
    found = None
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option.replace("_", "-") in flag.options:
            following = words[place + 1] if place + 1 < len(words) else "--"
            if not equals and following.startswith("--"):
                raise UsageError(f"Expected a value after {option}, got none.")
            found = value if equals else following
    return found


def _positional(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the id of the task and the other words: the first, else one that is a known id."""
    if words and not words[0].startswith("-"):
        return words[0], list(words[1:])
    for place, word in enumerate(words):
        if word in envs.registry:
            return word, [*words[:place], *words[place + 1 :]]
    return None, list(words)
