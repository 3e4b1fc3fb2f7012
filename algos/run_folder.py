"""What a run leaves in its folder, beside the logs.

output_dir/rollouts/000001.jsonl      the rollout of that number, with its advantages
output_dir/evaluations/000000.jsonl   the evaluation after so many rollouts
output_dir/checkpoints/000010/        what `train(resume_from=output_dir)` goes on from
output_dir/checkpoints/best/          the same after the best evaluation, with `models/`
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from motet.agents import Agent
from motet.algos.checkpoint_folder import BEST, FOLDER, CheckpointFolder, has_reached, newer_ones
from motet.algos.earlier import set_aside, set_aside_some
from motet.algos.rollouts.annotations import with_token_offsets
from motet.algos.rollouts.rollout import Rollout

ROLLOUTS = "rollouts"
EVALUATIONS = "evaluations"
MODELS = "models"


class Saved(Protocol):
    """What a learner can be asked to write."""

    def save_checkpoint(self, output_dir: str | Path) -> None:
        """Write what a run goes on from."""

    def save_model(self, output_dir: str | Path) -> None:
        """Write one folder per trained agent."""


class RunFolder:
    """The folder of a run; without one, nothing is written.

    Args:
        output_dir: where it is; None for no folder.
        save_total_limit: checkpoints that stay; None for all.
    """

    def __init__(self, output_dir: str | Path | None, save_total_limit: int | None) -> None:
        self._path = None if output_dir is None else Path(output_dir)
        self._limit = save_total_limit

    def set_aside(self) -> None:
        """Move what an earlier run has left to `rollouts-1`, ...: nothing is lost or mixed."""
        if self._path is not None:
            for name in (ROLLOUTS, EVALUATIONS, FOLDER):
                set_aside(self._path / name)

    def go_on_from(self, checkpoint: Path, number: int) -> None:
        """Move what is beyond a checkpoint that is not the newest one to `checkpoints-1`, ...

        What follows the newest one needs no moving: the run that goes on writes the same again.

        Args:
            checkpoint: that the run goes on from.
            number: of rollouts, or of timesteps, that it is past.
        """
        if self._path is None:
            return
        newer = newer_ones(self._path / FOLDER, checkpoint, number)
        set_aside_some(newer)
        for name in (ROLLOUTS, EVALUATIONS) if newer else ():
            files = sorted((self._path / name).glob("*.jsonl"))
            beyond = [each for each in files if each.stem.isdigit() and int(each.stem) > number]
            set_aside_some(beyond)

    def save_rollout(self, number: int, rollout: Rollout, agents: Mapping[str, Agent]) -> None:
        """Write the rollout of a number, from 1, with the offsets of its tokens."""
        self._save(ROLLOUTS, number, rollout, agents)

    def save_evaluation(self, number: int, rollout: Rollout, agents: Mapping[str, Agent]) -> None:
        """Write the episodes of the evaluation after so many rollouts."""
        self._save(EVALUATIONS, number, rollout, agents)

    def save_checkpoint(self, name: str, write: Callable[[Path], object]) -> None:
        """Write a checkpoint; see `CheckpointFolder.write`."""
        if self._path is not None:
            CheckpointFolder(self._path, self._limit).write(name, write)

    def has_reached(self, name: str) -> bool:
        """Whether there is a checkpoint of this name, or one of a later place."""
        return self._path is not None and has_reached(self._path / FOLDER, name)

    def save_best(self, learner: Saved) -> None:
        """Write the checkpoint `best` and, in it, the models."""

        def write(folder: Path) -> None:
            learner.save_model(folder / MODELS)
            learner.save_checkpoint(folder)

        self.save_checkpoint(BEST, write)

    def _save(
        self, folder: str, number: int, rollout: Rollout, agents: Mapping[str, Agent]
    ) -> None:
        if self._path is None:
            return
        path = self._path / folder / f"{number:06d}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        try:
            with_token_offsets(rollout, agents).save(partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
