"""Checkpoints in the middle of an update, files that are cut short, and processes that are killed.

`test_resuming.py` has what is between two rollouts, and what is refused.
"""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from resuming import Interrupting, Kept, assert_same
from tiny import letter_agent, matching_env

from motet import algos
from motet.algos import MAGRPOConfig, MAGRPOTrainer
from motet.algos.checkpoint import FILE_NAME
from motet.algos.checkpoint_folder import (
    FOLDER,
    CheckpointFolder,
    checkpoint_name,
    find_checkpoint,
    numbered,
)
from motet.envs import TextEnv

NAMES = ("agent_0", "agent_1")
ROWS = [{"prompt": letter} for letter in "abcd"]


def spread(first: list[str], second: list[str]) -> list[float]:
    return [
        (3 * sum(map(ord, a)) + 5 * sum(map(ord, b))) % 101 / 100
        for a, b in zip(first, second, strict=True)
    ]


def config(**changes: object) -> MAGRPOConfig:
    """Eight optimizer steps in each of two rollouts an epoch, of two policies."""
    settings: dict[str, Any] = {
        "num_generations": 3,
        "rollout_batch_size": 2,
        "train_batch_size": 1,
        "num_iterations": 2,
        "clip_range": 0.2,
        "agent_learning_rate": 0.02,
        "num_train_epochs": 2,
        "progress_bar": False,
    }
    return MAGRPOConfig(**{**settings, **changes})


def make(
    reward_func: Any = spread, *, loggers: Any = (), callbacks: Any = (), **changes: Any
) -> Any:
    return MAGRPOTrainer(
        TextEnv(ROWS, reward_func),
        {name: letter_agent(i) for i, name in enumerate(NAMES)},
        config(**changes),
        eval_env=matching_env(),
        loggers=loggers,
        callbacks=callbacks,
    )


def timeless(path: Path) -> list[dict[str, float]]:
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        {key: value for key, value in entry.items() if not key.startswith(("time/", "memory/"))}
        for entry in entries
    ]


# --- in the middle of an update ------------------------------------------------------------------


@pytest.mark.parametrize("num_steps", [1, 4, 8])
def test_a_run_goes_on_from_the_middle_of_an_update_to_the_bit(
    tmp_path: Path, num_steps: int
) -> None:
    whole = make(output_dir=str(tmp_path / "whole"))
    whole.train()
    killing = Interrupting(rollout=3, steps=num_steps)
    folder = tmp_path / "killed"
    killed = make(output_dir=str(folder), checkpoint_steps=1, callbacks=[killing])
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    assert find_checkpoint(folder).name == checkpoint_name(2, num_steps)
    kept = Kept()
    resumed = make(output_dir=str(folder), checkpoint_steps=1, loggers=[kept])
    resumed.train(resume_from=folder)
    assert_same(resumed.state_dict(), whole.state_dict())
    assert timeless(folder / "metrics.jsonl") == timeless(tmp_path / "whole" / "metrics.jsonl")
    assert resumed.num_optimizer_steps == whole.num_optimizer_steps == 32


def test_what_was_sampled_is_not_sampled_again(tmp_path: Path) -> None:
    calls: list[int] = []

    def counted(first: list[str], second: list[str]) -> list[float]:
        calls.append(len(first))
        return spread(first, second)

    killing = Interrupting(rollout=2, steps=3)
    with pytest.raises(KeyboardInterrupt):
        make(counted, output_dir=str(tmp_path), checkpoint_steps=3, callbacks=[killing]).train()
    assert len(calls) == 2
    make(counted, output_dir=str(tmp_path)).train(resume_from=tmp_path)
    assert len(calls) == 4


def test_steps_that_are_taken_again_are_not_saved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killing = Interrupting(rollout=2, steps=3)
    with pytest.raises(KeyboardInterrupt):
        make(output_dir=str(tmp_path), checkpoint_steps=1, callbacks=[killing]).train()
    written: list[str] = []
    write = CheckpointFolder.write

    def noted(self: CheckpointFolder, name: str, function: Any) -> None:
        written.append(name)
        write(self, name, function)

    monkeypatch.setattr(CheckpointFolder, "write", noted)
    make(output_dir=str(tmp_path), checkpoint_steps=1).train(resume_from=tmp_path)
    steps = [checkpoint_name(k, n) for k in range(1, 4) for n in range(1, 9)]
    assert written == steps[3:]  # the third step of the second rollout was the last one


class SavingBeforeTheUpdate(algos.Callback):
    """Writes a checkpoint when the third rollout was collected."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen = 0

    def on_rollout(self, trainer: Any, rollout: algos.Rollout) -> None:
        self.seen += 1
        if self.seen == 3:
            trainer.save_checkpoint(self.folder)


def test_a_checkpoint_between_sampling_and_update_holds_the_rollout(tmp_path: Path) -> None:
    whole = make(callbacks=[SavingBeforeTheUpdate(tmp_path)])
    whole.train()
    held = torch.load(tmp_path / FILE_NAME, weights_only=True)
    assert len(held["rollout"]) == 3  # a header, and a node for each of two rows
    resumed = make()
    resumed.train(resume_from=tmp_path)
    assert_same(resumed.state_dict(), whole.state_dict())


def test_what_a_reward_draws_from_the_global_generators_goes_on(tmp_path: Path) -> None:
    def noisy(first: list[str], second: list[str]) -> list[float]:
        noise = random.random() + np.random.rand() + torch.rand(()).item()
        return [reward + noise * index for index, reward in enumerate(spread(first, second))]

    def seeded(**changes: Any) -> Any:
        random.seed(1)
        np.random.seed(2)
        torch.manual_seed(3)
        return make(noisy, **changes)

    whole = seeded()
    whole.train()
    killing = Interrupting(rollout=3, steps=5)
    killed = seeded(output_dir=str(tmp_path), checkpoint_steps=2, callbacks=[killing])
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    torch.rand(7), random.random(), np.random.rand(3)
    resumed = make(noisy)
    resumed.train(resume_from=tmp_path)
    assert_same(resumed.state_dict(), whole.state_dict())


# --- which checkpoints stay ----------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "names"), [(1, [4]), (2, [3, 4]), (None, [1, 2, 3, 4])])
def test_the_newest_checkpoints_stay(tmp_path: Path, limit: int | None, names: list[int]) -> None:
    make(output_dir=str(tmp_path), checkpoint_interval=1, save_total_limit=limit).train()
    found = sorted(path.name for path in (tmp_path / FOLDER).iterdir())
    assert found == [checkpoint_name(number) for number in names]
    assert find_checkpoint(tmp_path).name == "000004"


class Rewarded(algos.Callback):
    """Keeps what evaluations find."""

    def __init__(self) -> None:
        self.returns: list[float] = []

    def on_eval(self, trainer: Any, evaluation: algos.Evaluation) -> None:
        self.returns.append(evaluation.metrics["return_mean"])


def test_the_best_checkpoint_stays_with_its_models(tmp_path: Path) -> None:
    found = Rewarded()
    trainer = make(output_dir=str(tmp_path), eval_interval=1, save_best=True, callbacks=[found])
    trainer.train()
    best = found.returns.index(max(found.returns))
    held = torch.load(tmp_path / FOLDER / "best" / FILE_NAME, weights_only=True)["state"][
        "progress"
    ]
    assert held["rollouts_done"] == best
    assert held["best_return"] == max(found.returns)
    models = sorted(path.name for path in (tmp_path / FOLDER / "best" / "models").iterdir())
    assert models == list(NAMES)
    resumed = make()
    resumed.train(resume_from=tmp_path / FOLDER / "best")
    assert_same(resumed.state_dict(), trainer.state_dict())


def test_a_new_run_in_an_old_folder_keeps_what_was_there(tmp_path: Path) -> None:
    settings = {"output_dir": str(tmp_path), "checkpoint_interval": 1}
    make(num_train_epochs=3, **settings).train()
    make(num_train_epochs=1, **settings).train()
    assert find_checkpoint(tmp_path).name == "000002"
    assert [path.name for path in numbered(tmp_path / f"{FOLDER}-1")] == ["000006"]
    assert (tmp_path / "rollouts-1" / "000006.jsonl").exists()
    assert sorted(path.name for path in (tmp_path / "rollouts").iterdir()) == [
        "000001.jsonl",
        "000002.jsonl",
    ]


def test_a_partial_checkpoint_is_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="save_checkpoint wrote"):
        find_checkpoint(tmp_path)
    make(output_dir=str(tmp_path), checkpoint_interval=1, save_total_limit=None).train()
    (tmp_path / FOLDER / "000009").mkdir()
    (tmp_path / FOLDER / ".partial-000010").mkdir()
    (tmp_path / FOLDER / ".partial-000010" / FILE_NAME).write_bytes(b"half")
    assert find_checkpoint(tmp_path).name == "000004"
    assert find_checkpoint(tmp_path / FOLDER).name == "000004"


# --- the end of a run ----------------------------------------------------------------------------


def test_a_run_that_has_ended_says_so(tmp_path: Path) -> None:
    trainer = make(output_dir=str(tmp_path), checkpoint_interval=4)
    trainer.train()
    again = make(output_dir=str(tmp_path))
    with pytest.warns(UserWarning, match=r"The run had ended: .* all of its 4 rollouts"):
        again.train(resume_from=tmp_path)
    assert_same(again.state_dict(), trainer.state_dict())
    assert len(timeless(tmp_path / "metrics.jsonl")) == 6  # as it was: 4 rollouts, 2 evaluations
    with pytest.raises(ValueError, match=r"at least the 4 rollouts .* got one of 2"):
        make(num_train_epochs=1).train(resume_from=tmp_path)


def test_the_end_of_an_epoch_is_no_end(tmp_path: Path) -> None:
    whole = make(num_train_epochs=2)
    whole.train()
    make(num_train_epochs=1, output_dir=str(tmp_path), checkpoint_interval=2).train()
    longer = make(num_train_epochs=2)
    longer.train(resume_from=tmp_path)
    assert_same(longer.state_dict(), whole.state_dict())


# --- a disk that is full -------------------------------------------------------------------------

FULL_DISK = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from test_half_rollouts import make

folder = Path(sys.argv[2])
trainer = make()
trainer.save_checkpoint(folder)
room = (folder / "trainer_state.pt").stat().st_size // 2
trainer.update(trainer.collect([0]))
resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
try:
    trainer.save_checkpoint(folder)
except OSError as error:
    print("refused:", error)
"""


def run_script(script: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    tests = Path(__file__).parents[1]
    path = os.pathsep.join(filter(None, [str(tests), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", script, str(tests / "algos"), *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        **options,
    )


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    """The system itself refuses the bytes: files may not be longer than half a checkpoint."""
    ended = run_script(FULL_DISK, str(tmp_path))
    assert "refused: " in ended.stdout, ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    resumed, whole = make(), make()
    resumed.train(resume_from=tmp_path)
    whole.train()
    assert_same(resumed.state_dict(), whole.state_dict())


# --- kill -9 -------------------------------------------------------------------------------------

KILLED = """
import os, random, signal, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from test_half_rollouts import make
from motet.algos.checkpoint_folder import FOLDER, numbered

folder, num_kills = Path(sys.argv[2]), int(sys.argv[3])
chances = random.Random(0)


def newest() -> str:
    return ", ".join(path.name for path in numbered(folder / FOLDER))


def run() -> None:
    trainer = make(
        output_dir=str(folder), num_train_epochs=20, checkpoint_steps=1, checkpoint_interval=1
    )
    trainer.train(resume_from=folder if newest() else None)


for kill in range(num_kills + 1):
    process = os.fork()
    if process == 0:
        run()
        os._exit(0)
    if kill < num_kills:
        for _ in range(chances.randrange(6)):  # by its progress: machines differ, and are busy
            seen = newest()
            while newest() == seen:
                time.sleep(0.0005)
        time.sleep(chances.uniform(0.0, 0.01))
        ended, _ = os.waitpid(process, os.WNOHANG)
        if ended:
            sys.exit(f"the run had ended before kill {kill + 1}")
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    print("ended", status, newest(), flush=True)
"""


@pytest.mark.slow
def test_a_run_that_is_killed_25_times_ends_as_one_that_is_not(tmp_path: Path) -> None:
    ended = run_script(KILLED, str(tmp_path / "killed"), "25")
    assert ended.returncode == 0, ended.stderr
    lines = [line.split() for line in ended.stdout.splitlines() if line.startswith("ended ")]
    assert [int(line[1]) for line in lines] == [signal.SIGKILL] * 25 + [0]
    places = {" ".join(line[2:]) for line in lines}
    assert len(places) >= 6  # it came on in between
    assert any("." in place for place in places)  # in the middle of updates, too
    whole = make(output_dir=str(tmp_path / "whole"), num_train_epochs=20, checkpoint_interval=1)
    whole.train()
    one, other = (
        torch.load(find_checkpoint(tmp_path / name) / FILE_NAME, weights_only=True)["state"]
        for name in ("killed", "whole")
    )
    assert_same(one, other)
    logs = [timeless(tmp_path / name / "metrics.jsonl") for name in ("killed", "whole")]
    assert logs[0] == logs[1]
