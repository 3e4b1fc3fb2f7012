"""Where a team on the command line comes from: a run, a folder of models, a model, or a name.

A team plays as it did in its run. Picks ask the agents that answered them; a discussion discusses;
and one policy that wrote for all agents writes for all of them again.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from motet import algos, envs
from motet.algos.choices.pick_agent import FILE_NAME as PICKS
from motet.algos.cli.members import Member, members_of, said_of
from motet.algos.cli.mistakes import UsageError, as_mistakes
from motet.algos.cli.run_folder import way_on
from motet.algos.cli.run_settings import config_of
from motet.algos.cli.settings_file import FILE_NAME, SettingsFile, read_settings
from motet.algos.cli.teams import build_team
from motet.algos.fixed.fixed_config import BestOfNConfig, FixedConfig
from motet.algos.fixed.fixed_team import FixedTeam
from motet.algos.rollouts.joint_policy import JointPolicy, Team
from motet.algos.team import with_sampling
from motet.envs.views.joint_text import TEAM

SAMPLING = ("max_new_tokens", "temperature", "top_p", "top_k", "bf16")


@dataclass(frozen=True)
class Source:
    """Where a team comes from.

    Attributes:
        name: as it was typed.
        file: settings of its run, empty where it is of none.
        models: folder with a folder for each agent, None where one model plays all.
    """

    name: str
    file: SettingsFile
    models: Path | None


def source_of(name: str) -> Source:
    """Return where a team comes from.

    Args:
        name: the folder of a run, of models or of a model, or a model's name.

    Raises:
        UsageError: where it is the folder of a run that has no models yet.
    """
    folder = Path(name)
    if (folder / FILE_NAME).exists():
        models = folder / "models"
        if not models.is_dir():
            raise UsageError(
                f"Expected a run with models, got {name}, which has none yet; {way_on(folder)}."
            )
        return Source(name, read_settings(folder), models)
    inside = [*folder.glob("*/config.json"), *folder.glob("*/adapter_config.json")]
    if folder.is_dir() and (inside or list(folder.glob(f"*/{PICKS}"))):
        run = folder.resolve().parent
        of_run = folder.name == "models" and (run / FILE_NAME).exists()
        return Source(name, read_settings(run) if of_run else SettingsFile(), folder)
    return Source(name, SettingsFile(), None)


def load_team(source: Source, env: Any, said: Mapping[str, Mapping[str, Any]]) -> Team:
    """Load a team, with the sampling settings of its run, and flags over them.

    Args:
        source: where it comes from.
        env: the task.
        said: `team` and `sampling`, what flags say.

    Raises:
        UsageError: where a model is missing or cannot be loaded.
    """
    names = list(env.possible_agents)
    fixed = _fixed_learner(source)
    if fixed is not None:
        return _fixed_team(fixed, source, env, said)
    if source.models is not None and list(source.models.glob(f"*/{PICKS}")):
        with as_mistakes():
            picks = algos.load_pick_agents(source.models, writer=_writers(source, env, said))
        _check_all_there(source, set(names) - set(picks), names)
        return dict(picks)
    members = _members(source, names, said["team"])
    shares = source.models is None
    team = build_team(env, members, share=shares and len(set(map(str, members.values()))) == 1)
    _check_all_there(source, set(names) - set(team), names)
    with as_mistakes():
        return with_sampling(team, **{**sampling_of(source), **said["sampling"]})


def _writers(source: Source, env: Any, said: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return who writes what picks are made of: the agents that the run began with, if any do."""
    if not source.file.values or source.file.section("config").get("candidates") is not None:
        return None
    names = list(env.possible_agents)
    members = members_of(names, source.file, said["team"])
    team = build_team(env, members, share=bool(source.file.values.get("share")))
    with as_mistakes():
        return with_sampling(team, **said["sampling"])


def sampling_of(source: Source) -> dict[str, Any]:
    """Return the sampling settings that a run was trained with, none where it is of no run."""
    own = source.file.section("config")
    return {name: own[name] for name in SAMPLING if own.get(name) is not None}


def _members(
    source: Source, names: Sequence[str], said: Mapping[str, Sequence[str]]
) -> dict[str, Member]:
    """Return settings by agent: as trained, with the models that came of it."""
    members, flags = members_of(names, _file_of(source), said), said_of(names, said)
    if source.models is None:
        members = {name: replace(each, model=source.name) for name, each in members.items()}
    else:
        trained = {
            name: replace(
                each, model=str(source.models / name), revision=None, lora_r=None, lora_alpha=None
            )
            for name, each in members.items()
            if (source.models / name).is_dir()
        }
        scripted = {name for name, each in members.items() if not each.has_weights}
        said_of_model = {name for name in names if "model" in flags[name]}
        _check_all_there(source, set(names) - set(trained) - scripted - said_of_model, names)
        members = {**members, **trained}
    return {name: replace(each, **flags[name]) for name, each in members.items()}


def _check_all_there(source: Source, missing: set[str], names: Sequence[str]) -> None:
    if missing:
        raise UsageError(
            f"Expected models of {', '.join(names)} in {source.name}, got none of "
            f"{', '.join(sorted(missing))}; name others with --model agent=MODEL."
        )


# --- as in the run ------------------------------------------------------------------------------


def is_one_policy(source: Source) -> bool:
    """Tell whether one policy wrote for all agents, as of `centralised-magrpo`."""
    return source.models is not None and (source.models / TEAM).is_dir()


def viewed(source: Source, env: Any) -> Any:
    """Return the task as a team saw it.

    Args:
        source: where the team comes from.
        env: the task as it is.
    """
    return envs.JointText(env) if is_one_policy(source) else env


def check_apart(source: Source) -> None:
    """Raise where a team cannot be compared with another in the same episodes.

    Raises:
        UsageError: where one policy writes for all, which sees another task.
    """
    if is_one_policy(source):
        raise UsageError(
            f"Expected a team with a model for each agent, got {source.name}, whose one policy "
            "writes for all of them; evaluate it alone."
        )


def _file_of(source: Source) -> SettingsFile:
    """Return the settings of a run; those that its agents shared are of the one policy."""
    agents = source.file.section("agents")
    if not is_one_policy(source) or not agents:
        return source.file
    shared = next(iter(agents.values()))
    return replace(source.file, values={**source.file.values, "agents": {TEAM: shared}})


def _fixed_learner(source: Source) -> algos.AlgorithmSpec | None:
    """Return the learner of a run that trained nothing, None where it trained or is none."""
    name = source.file.values.get("algo")
    if name is None:
        return None
    with as_mistakes():
        learner = algos.spec(str(name))
    return learner if issubclass(learner.config_class, FixedConfig) else None


def _fixed_team(
    learner: algos.AlgorithmSpec,
    source: Source,
    env: Any,
    said: Mapping[str, Mapping[str, Any]],
) -> Team:
    """Return a team that was not trained, from what its run was told."""
    if learner.config_class is BestOfNConfig:
        warnings.warn(
            f"{learner.name} chooses by rewards, which a team does not see that plays by itself: "
            "this is its team without the choice.",
            stacklevel=2,
        )
    config = config_of(learner, source.file, {"report_to": ()})
    members = members_of(list(env.possible_agents), source.file, said["team"])
    share = bool(source.file.values.get("share"))
    team = build_team(env, members, share=share, seed=config.seed)
    with as_mistakes():
        fixed = learner.factory(env=env, agents=team, config=config)
        assert isinstance(fixed, FixedTeam)
        policy = fixed.policy
        if isinstance(policy, JointPolicy):
            return policy.with_agents(with_sampling(policy.agents, **said["sampling"]))
        return with_sampling(policy, **said["sampling"])
