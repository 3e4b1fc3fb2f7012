"""`motet train ENV`: train a team on a task, and leave a folder with all that came of it."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from motet.algos.callbacks import Callback
from motet.algos.cli.members import members_of
from motet.algos.cli.mistakes import UsageError, as_mistakes
from motet.algos.cli.plan import Plan, planned
from motet.algos.cli.run_folder import check_new, new_folder, newest_checkpoint
from motet.algos.cli.run_settings import RunSettings, config_of, env_kwargs_of
from motet.algos.cli.settings_file import FILE_NAME, SettingsFile, write_settings
from motet.algos.cli.show import console, without_bars
from motet.algos.cli.tasks import held_out_env, make_env
from motet.algos.cli.teams import build_team
from motet.algos.registration import Algorithm


def run(words: list[str]) -> None:
    """Run `motet train ENV ...`."""
    plan = planned(words)
    env = make_env(plan.task, env_kwargs_of(plan.task, plan.file, plan.said["task"]))
    settings = settled(plan, env)
    folder = plan.run or _folder(plan)
    config = config_of(plan.algo, plan.file, {**plan.said["learner"], "output_dir": str(folder)})
    set_threads(settings.num_threads)
    commands = [*plan.file.values.get("commands", ())] if plan.run else []
    typed = shlex.join(["motet", "train", *words])
    begun = _Begun(folder, settings.as_file(config, [*commands, typed]))
    trainer, held_out = built(settings, plan, env, _named(config, folder), begun)
    out = console()
    out.print(f"{plan.algo.name} on {plan.task.id}, {_team(settings)}; {held_out}.")
    out.print(f"Run: {folder}")
    with _interrupts_told(folder), as_mistakes(until=lambda: begun.yet):
        trainer.train(resume_from=plan.checkpoint)
    _finish(trainer, folder, typed)


def settled(plan: Plan, env: Any) -> RunSettings:
    """Return all settings of a run but the learner's: those of a file, then those of flags.

    Args:
        plan: what the command asks for.
        env: the task, whose agents are asked for.

    Raises:
        UsageError: where settings of agents are wrong.
    """
    own, file = plan.said["run"], plan.file.values
    share = own.get("share", file.get("share"))
    if share not in (None, True, False):
        raise UsageError(
            f"Expected true or false as share, got {share!r} in {plan.file.where(('share',))}."
        )
    return RunSettings(
        env=plan.id,
        env_kwargs=env_kwargs_of(plan.task, plan.file, plan.said["task"]),
        eval_split=own.get("eval_split", file.get("eval_split")),
        algo=plan.algo.name,
        share=bool(share),
        members=members_of(list(env.possible_agents), plan.file, plan.said["team"]),
        wandb=_wandb(own, plan.file),
        num_threads=own.get("num_threads", file.get("num_threads")),
    )


def set_threads(wanted: Any) -> None:
    """Set the number of torch's threads; None leaves it.

    Raises:
        UsageError: where it is no number, or below 1.
    """
    if wanted is None:
        return
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1:
        raise UsageError(f"Expected num_threads of at least 1, got {wanted!r}.")
    torch.set_num_threads(wanted)


def _wandb(own: Mapping[str, Any], file: SettingsFile) -> dict[str, Any] | None:
    """Return options of `wandb.init`, None where it is not asked for."""
    in_file = file.values.get("wandb")
    if not (in_file is None or isinstance(in_file, bool | dict)):
        raise UsageError(
            f"Expected options of wandb.init as wandb, or true or false, got {in_file!r} in "
            f"{file.where(('wandb',))}."
        )
    options = {
        name: own[f"wandb_{name}"] for name in ("project", "entity") if f"wandb_{name}" in own
    }
    asked = own.get("wandb", bool(options) or in_file not in (None, False))
    if not asked:
        return None
    return {**(in_file if isinstance(in_file, dict) else {}), **options}


def _wandb_options(settings: RunSettings, config: Any) -> dict[str, Any] | None:
    """Return options of `wandb.init`, None where nothing goes there; its files are in the run."""
    named = "wandb" in config.report_to if _has(config, "report_to") else False
    if settings.wandb is None and not named:
        return None
    return {"dir": config.output_dir, **(settings.wandb or {})}


def _named(config: Any, folder: Path) -> Any:
    """Return settings in which the run has its folder's name, unless it has another."""
    if not _has(config, "run_name") or config.run_name is not None:
        return config
    return replace(config, run_name=folder.name)


def _has(config: Any, name: str) -> bool:
    return any(each.name == name for each in fields(config))


def _folder(plan: Plan) -> Path:
    named = plan.said["learner"].get("output_dir") or plan.file.section("config").get("output_dir")
    if named is None:
        return new_folder(plan.task.id, plan.algo.name)
    check_new(Path(named))
    return Path(named)


def built(
    settings: RunSettings, plan: Plan, env: Any, config: Any, callback: Callback
) -> tuple[Algorithm, str]:
    """Load the team and build the learner.

    Returns:
        The learner, and in words where held-out rows come from.

    Raises:
        UsageError: where the library refuses what was asked for.
    """
    env, eval_env, held_out = held_out_env(plan.task, env, settings.env_kwargs, settings.eval_split)
    team = build_team(env, settings.members, share=settings.share, seed=config.seed)
    with as_mistakes():
        learner = plan.algo.factory(
            env=env,
            agents=team,
            config=config,
            eval_env=eval_env,
            callbacks=[callback],
            wandb_config=_wandb_options(settings, config),
        )
    return learner, held_out


def _team(settings: RunSettings) -> str:
    """Return who plays, in words."""
    models = {member.model for member in settings.members.values()}
    if settings.share:
        return f"{len(settings.members)} agents that share {models.pop()}"
    if len(models) == 1:
        return f"{len(settings.members)} agents with {models.pop()} each"
    return ", ".join(f"{name}: {member.model}" for name, member in settings.members.items())


class _Begun(Callback):
    """Writes down what is run as it begins: from then on, an error is no mistake in a command.

    Args:
        folder: of the run.
        settings: for its file.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._folder = folder
        self._settings = settings
        self.yet = False

    def on_train_begin(self, trainer: Any) -> None:
        """Write the file."""
        del trainer
        write_settings(self._folder / FILE_NAME, self._settings)
        self.yet = True


@contextmanager
def _interrupts_told(folder: Path) -> Iterator[None]:
    """Say how to go on after Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        if newest_checkpoint(folder) is not None:
            print(f"Go on with: motet train --resume {shlex.quote(str(folder))}", file=sys.stderr)
        elif (folder / FILE_NAME).exists():
            print(
                f"There is no checkpoint in {folder} to go on from; --checkpoint-interval 10 would "
                "have left one after every tenth rollout.",
                file=sys.stderr,
            )
        raise


def _finish(learner: Algorithm, folder: Path, typed: str) -> None:
    from motet.algos import write_report  # noqa: PLC0415  # draws, which nobody waits for before

    with without_bars():
        learner.save_model(folder / "models")
    report = write_report(folder, command=typed)
    quoted = shlex.quote(str(folder))
    out = console()
    out.print(f"Models: {folder / 'models'}")
    out.print(f"Report: {report}")
    out.print(f"Next: motet eval {quoted}, or motet view {quoted}")
