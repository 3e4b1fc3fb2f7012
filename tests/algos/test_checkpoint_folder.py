"""Which checkpoints a run's folder holds, and what is gone on from, whatever cut a run short."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from resuming import assert_same
from told_runs import Told, make, make_sb3, written

from motet import algos
from motet.agents import LMAgent
from motet.algos.checkpoint import FILE_NAME
from motet.algos.checkpoint_folder import BEST, FOLDER, CheckpointFolder, find_checkpoint


def write_best(folder: Path, text: str) -> None:
    """A best checkpoint of two files, as `save_best` writes it."""
    (folder / "models").mkdir(parents=True)
    (folder / "models" / "weights").write_text(text)
    (folder / FILE_NAME).write_text(text)


def best_of(folder: Path) -> set[str]:
    best = find_checkpoint(folder / FOLDER / BEST)
    return {(best / name).read_text() for name in (FILE_NAME, "models/weights")}


class Cut:
    """Writes half of the best checkpoint, and is interrupted."""

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def __call__(self, folder: Path) -> None:
        (folder / "models").mkdir(parents=True)
        (folder / "models" / "weights").write_text("half")
        raise self._error


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_best_checkpoint_that_is_cut_short_leaves_the_one_before(
    error: type[BaseException], tmp_path: Path
) -> None:
    folder = CheckpointFolder(tmp_path, 1)
    folder.write(BEST, lambda path: write_best(path, "old"))
    with pytest.raises(error):
        folder.write(BEST, Cut(error))
    assert best_of(tmp_path) == {"old"}
    folder.write(BEST, lambda path: write_best(path, "new"))
    assert best_of(tmp_path) == {"new"}
    assert written(tmp_path / FOLDER) == [BEST]


@pytest.mark.parametrize("number", [1, 2])
def test_an_interrupt_while_the_best_is_replaced_loses_none(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = CheckpointFolder(tmp_path, 1)
    folder.write(BEST, lambda path: write_best(path, "old"))
    rename, calls = Path.rename, []

    def interrupted(path: Path, target: Path) -> Path:
        calls.append(path)
        if len(calls) == number:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            folder.write(BEST, lambda path: write_best(path, "new"))
    assert best_of(tmp_path) == {"old"}
    assert written(tmp_path / FOLDER) == [BEST]


def test_a_process_that_is_killed_while_the_best_is_replaced_leaves_the_one_before(
    tmp_path: Path,
) -> None:
    folder = CheckpointFolder(tmp_path, 1)
    folder.write(BEST, lambda path: write_best(path, "old"))
    # as it is between two renames: no process could put it back
    (tmp_path / FOLDER / BEST).rename(tmp_path / FOLDER / "best.before")
    write_best(tmp_path / FOLDER / ".partial-best", "new")
    assert best_of(tmp_path) == {"old"}
    folder.write(BEST, lambda path: write_best(path, "newest"))
    assert best_of(tmp_path) == {"newest"}
    assert written(tmp_path / FOLDER) == [BEST]


def test_the_models_of_the_best_are_those_of_its_checkpoint(tmp_path: Path) -> None:
    trainer = make(save_best=True, eval_interval=1, output_dir=str(tmp_path))
    trainer.train()
    best = tmp_path / FOLDER / BEST
    held = torch.load(best / FILE_NAME, weights_only=True)["state"]
    resumed = make()
    resumed.load_state_dict(held)
    for name in resumed.agents:
        loaded = LMAgent.from_pretrained(best / "models" / name, device="cpu")
        assert_same(dict(loaded.model.state_dict()), dict(resumed.agents[name].model.state_dict()))


# --- what is gone on from ------------------------------------------------------------------------


def test_a_run_with_the_best_alone_says_how_to_go_on(tmp_path: Path) -> None:
    make(save_best=True, output_dir=str(tmp_path)).train()
    with pytest.raises(FileNotFoundError, match=r"got best alone: set checkpoint_interval .*best"):
        make().train(resume_from=tmp_path)
    make().train(resume_from=tmp_path / FOLDER / BEST)


def test_a_checkpoint_beside_those_of_a_run_is_ambiguous(tmp_path: Path) -> None:
    """Else a run that is killed again would go on from the older one again and again."""
    trainer = make(checkpoint_interval=1, output_dir=str(tmp_path))
    trainer.save_checkpoint(tmp_path)
    trainer.train()
    with pytest.raises(ValueError, match=r"one checkpoint to go on from.*give .*checkpoints for"):
        make().train(resume_from=tmp_path)
    assert find_checkpoint(tmp_path / FOLDER).name == "000004"


def test_the_current_folder_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(checkpoint_interval=1, output_dir=str(tmp_path)).train()
    monkeypatch.chdir(tmp_path)
    assert find_checkpoint(".").name == "000004"
    monkeypatch.chdir(tmp_path / FOLDER / "000004")
    assert find_checkpoint(".") == Path(".")


@pytest.mark.parametrize("limit", [1, None])
def test_going_back_sets_aside_what_is_beyond(limit: int | None, tmp_path: Path) -> None:
    """What is newer is another end of the run: nothing that goes on may be taken for older."""
    settings: dict[str, Any] = {"checkpoint_interval": 1, "output_dir": str(tmp_path)}
    settings |= {"rollout_logging_steps": 1, "eval_interval": 1}
    make(save_total_limit=None, **settings).train()
    back = make([Told({"update": 1})], save_total_limit=limit, **settings)
    back.train(resume_from=tmp_path / FOLDER / "000002")
    names = ["000003"] if limit else ["000001", "000002", "000003"]
    assert written(tmp_path / FOLDER) == names
    assert written(tmp_path / f"{FOLDER}-1") == ["000003", "000004"]
    assert find_checkpoint(tmp_path).name == "000003"
    for name in ("rollouts", "evaluations"):
        assert written(tmp_path / name)[-1] == "000003.jsonl"
        assert written(tmp_path / f"{name}-1") == ["000003.jsonl", "000004.jsonl"]
    whole, resumed = make(), make()
    whole.train()
    resumed.train(resume_from=tmp_path)
    assert_same(resumed.state_dict()["policies"], whole.state_dict()["policies"])


def test_going_on_from_the_newest_moves_nothing(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"checkpoint_interval": 2, "output_dir": str(tmp_path)}
    make([Told({"update": 2})], rollout_logging_steps=1, **settings).train()
    before = written(tmp_path)
    make(**settings).train(resume_from=tmp_path)
    assert written(tmp_path) == before


def test_going_back_with_a_learner_of_stable_baselines3(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"checkpoint_interval": 64, "output_dir": str(tmp_path)}
    make_sb3(save_total_limit=None, **settings).train()
    back = make_sb3([Told({"update": 1})], **settings)
    back.train(resume_from=tmp_path / FOLDER / "000064")
    assert written(tmp_path / FOLDER) == ["000128"]
    assert written(tmp_path / f"{FOLDER}-1") == ["000128", "000192", "000256"]


def test_what_is_too_old_is_gone_as_a_whole(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, 1)
    for number in (1, 2):
        folder.write(f"{number:06d}", lambda path: write_best(path, "state"))
    assert written(tmp_path / FOLDER) == ["000002"]


def test_a_new_run_after_one_that_was_cut_off_while_saving_begins_clean(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"checkpoint_interval": 1, "output_dir": str(tmp_path)}
    make(**settings).train()
    (tmp_path / "rollouts" / "000009.part").write_text("half")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(**settings).train()
    assert written(tmp_path / "rollouts") == ["000001.jsonl", "000004.jsonl"]


def test_a_rollout_that_cannot_be_written_leaves_no_half(tmp_path: Path) -> None:
    class Blocking(algos.Callback):
        def on_rollout(self, trainer: Any, rollout: algos.Rollout) -> None:
            (tmp_path / "rollouts" / "000001.jsonl" / "in the way").mkdir(parents=True)

    with pytest.raises(OSError, match="000001"):
        make([Blocking()], output_dir=str(tmp_path)).train()
    assert written(tmp_path / "rollouts") == ["000001.jsonl"]
