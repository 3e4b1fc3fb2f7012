"""Checkpoints: one file that holds all that a run needs to go on as if it had not stopped.

A checkpoint in the middle of a rollout holds that rollout, and the state that its update began
with: the run that goes on takes the same optimizer steps again, and samples nothing anew.
"""

import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch

from motet.algos.config import TrainerConfig
from motet.algos.randomness import global_states
from motet.algos.rollouts.rollout import Rollout

FILE_NAME = "trainer_state.pt"
VERSION = 2

_UNREADABLE = (  # what zipfile raises on broken bytes: among RuntimeErrors, of an unknown method
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    RuntimeError,
    ValueError,
)
_PLAIN = (str, int, float, type(None))

# What may differ in the run that goes on: it changes neither a sample nor a weight before the end.
_FREE = {
    "num_train_epochs",
    "num_rollouts",
    "eval_interval",
    "eval_num_samples",
    "eval_episodes_per_row",
    "eval_do_sample",
    "logging_steps",
    "checkpoint_interval",
    "checkpoint_steps",
    "save_total_limit",
    "save_best",
    "rollout_logging_steps",
    "output_dir",
    "report_to",
    "project",
    "run_name",
    "progress_bar",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a run goes on from.

    Attributes:
        state: of the learner: tensors, numbers, strings, lists and dicts.
        rollout: what was sampled after that, and is to be trained on before anything else is; None
            between two rollouts.
        randomness: of the global generators, which a task's functions may draw from.
        elapsed_s: seconds that the run has taken.
    """

    state: Mapping[str, Any]
    rollout: Rollout | None = None
    randomness: Mapping[str, Any] = field(default_factory=global_states)
    elapsed_s: float = 0.0


def write_checkpoint(
    folder: str | Path, checkpoint: Checkpoint, config: TrainerConfig, learner: str
) -> None:
    """Write a checkpoint; a write that is cut short leaves the one that was there before.

    Args:
        folder: made where it is missing.
        checkpoint: what to write.
        config: of the run.
        learner: name of the trainer's class.

    Raises:
        ValueError: where the state holds what could not be read again.
        OSError: where it cannot be written, for want of room, say.
    """
    path = Path(folder) / FILE_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".part")
    rollout = checkpoint.rollout
    whole = {
        "version": VERSION,
        "learner": learner,
        "config": _settings(config),
        "state": checkpoint.state,
        "rollout": None if rollout is None else list(rollout.to_lines()),
        "randomness": checkpoint.randomness,
        "elapsed_s": checkpoint.elapsed_s,
    }
    try:
        with half.open("wb") as file:
            torch.save(whole, file)
            file.flush()
            os.fsync(file.fileno())
        _load(half, mmap=True)  # one that cannot be read is not to take the place of one that can
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, written to the disk, where the system can be asked."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_checkpoint(folder: str | Path, config: TrainerConfig, learner: str) -> Checkpoint:
    """Read what a like run wrote.

    Args:
        folder: that was given to `write_checkpoint`.
        config: of the run that goes on.
        learner: name of its trainer's class.

    Raises:
        FileNotFoundError: where there is no checkpoint.
        ValueError: where it is no whole checkpoint, another learner's, of another version, or of
            other settings, all of which it names.
    """
    path = Path(folder) / FILE_NAME
    if not path.exists():
        raise FileNotFoundError(
            f"Expected a folder that save_checkpoint wrote, with {FILE_NAME}, got {folder}."
        )
    _check_bytes(path)
    whole = _load(path)
    if whole["version"] != VERSION:
        raise ValueError(
            f"Expected a checkpoint of version {VERSION}, got {whole['version']} in {path}; resume "
            "it with the release that wrote it."
        )
    if whole["learner"] != learner:
        raise ValueError(f"Expected a checkpoint of {learner}, got one of {whole['learner']}.")
    own = _settings(config)
    other = {
        name: (whole["config"].get(name), own.get(name))
        for name in sorted({*own, *whole["config"]} - _free(own))
        if whole["config"].get(name) != own.get(name)
    }
    if other:
        told = ", ".join(f"{name}={was} there and {now} here" for name, (was, now) in other.items())
        raise ValueError(f"Expected the settings of the run in {folder}, got {told}.")
    lines = whole["rollout"]
    return Checkpoint(
        state=whole["state"],
        rollout=None if lines is None else Rollout.from_lines(lines),
        randomness=whole["randomness"],
        elapsed_s=whole["elapsed_s"],
    )


def _check_bytes(path: Path) -> None:
    """Hold what is in a file to the checksums that torch wrote into it, and does not read."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except _UNREADABLE as error:
        raise _not_whole(path, type(error).__name__) from error
    if broken is not None:
        raise _not_whole(path, f"other bytes than were written, in {broken}")


def _not_whole(path: Path, found: str) -> ValueError:
    return ValueError(
        f"Expected a whole checkpoint in {path}, of tensors, numbers, strings, lists and dicts, "
        f"got what cannot be read: {found}."
    )


def _load(path: Path, *, mmap: bool = False) -> dict[str, Any]:
    """Read a file, or with `mmap` all but the numbers in it, without running what it holds."""
    try:
        whole: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise _not_whole(path, type(error).__name__) from error
    if not isinstance(whole, dict) or not {"version", "learner", "config", "state"} <= set(whole):
        raise ValueError(
            f"Expected a whole checkpoint in {path}, got another file that torch wrote."
        )
    return whole


def _free(settings: Mapping[str, str]) -> set[str]:
    """Return what may differ; a schedule that ends with the run depends on its length."""
    if settings.get("lr_scheduler_type") == repr("linear"):
        return _FREE - {"num_train_epochs", "num_rollouts"}
    return _FREE


def _settings(config: Any) -> dict[str, str]:
    """Return fields as text; of what is no plain value, a model or a function, its type alone."""
    plain: dict[str, str] = {}
    for each in fields(config):
        value = getattr(config, each.name)
        if is_dataclass(value):
            own = _settings(value)  # what may differ is the outer config's to say
            plain |= {f"{each.name}.{key}": own[key] for key in own if key not in _FREE}
        else:
            plain[each.name] = _text(value)
    return plain


def _text(value: Any) -> str:
    """Return a value as text that is the same in another process."""
    if isinstance(value, dict):
        return str({key: _text(own) for key, own in value.items()})
    if isinstance(value, list | tuple) and not all(isinstance(own, _PLAIN) for own in value):
        return str([_text(own) for own in value])
    if isinstance(value, type):
        return value.__qualname__
    return repr(value) if isinstance(value, (*_PLAIN, list, tuple)) else type(value).__name__
