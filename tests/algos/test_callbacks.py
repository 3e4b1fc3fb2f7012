"""Callbacks of trainers, of learners of stable-baselines3, of fixed teams: when, and what ends."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from good_env import Good
from resuming import Kept, assert_same
from told_runs import (
    BEGIN,
    END,
    EVAL,
    NAMES,
    ROLLOUT,
    UPDATE,
    Told,
    make,
    make_fixed,
    make_sb3,
    written,
)

from motet import algos
from motet.algos import FrozenConfig, SB3Config
from motet.algos.checkpoint import FILE_NAME
from motet.algos.checkpoint_folder import FOLDER, find_checkpoint

# --- trainers ------------------------------------------------------------------------------------


def test_callbacks_are_told_in_the_order_of_the_run() -> None:
    told = Told()
    make([told]).train()
    pair = [ROLLOUT, UPDATE, ROLLOUT, UPDATE, EVAL]
    assert told.told == [BEGIN, EVAL, *pair, *pair, END]


STOPS = [False, np.bool_(False), np.float64(1) < 1, torch.tensor(1.0) < 1]


@pytest.mark.parametrize("value", STOPS, ids=["bool", "numpy", "compared", "torch"])
@pytest.mark.parametrize("event", [ROLLOUT, UPDATE])
def test_false_ends_the_run_after_the_rollout_it_is_in(event: str, value: Any) -> None:
    first, second = Told({event: 1}, value), Told()
    make([first, second]).train()
    assert first.told == second.told == [BEGIN, EVAL, ROLLOUT, UPDATE, EVAL, END]


@pytest.mark.parametrize("value", [None, True, 0, "", np.bool_(True), torch.zeros(2) > 1])
def test_anything_else_lets_it_go_on(value: Any) -> None:
    told = Told({UPDATE: 1}, value)
    make([told]).train()
    assert told.told.count(UPDATE) == 4


@pytest.mark.parametrize("when", [{BEGIN: 1}, {EVAL: 1}], ids=["begin", "evaluation"])
def test_a_run_can_end_before_its_first_rollout(when: dict[str, int]) -> None:
    told = Told(when)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that no step was taken is no fault of the rewards
        make([told]).train()
    assert told.told == [BEGIN, EVAL, END]


@pytest.mark.parametrize("when", [{ROLLOUT: 2}, {UPDATE: 2}, {EVAL: 2}])
def test_a_run_that_a_callback_ends_is_logged_and_saved_to_its_end(
    when: dict[str, int], tmp_path: Path
) -> None:
    """Nothing of this is due after two rollouts but by the end of the run."""
    kept = Kept()
    settings = {"logging_steps": 3, "checkpoint_interval": 4, "output_dir": str(tmp_path)}
    stopped = make([Told(when)], [kept], **settings)
    stopped.train()
    assert written(tmp_path / FOLDER) == ["000002"]
    assert written(tmp_path / "rollouts") == ["000001.jsonl", "000002.jsonl"]
    assert written(tmp_path / "evaluations") == ["000000.jsonl", "000002.jsonl"]
    assert sorted("turn_1/reward_mean" in entry for _, entry in kept.entries) == [0, 0, 1]
    whole, resumed = make(**settings), make(**settings)
    resumed.train(resume_from=tmp_path)
    whole.train()
    assert_same(resumed.state_dict(), whole.state_dict())


def test_an_error_in_a_callback_passes_through_and_files_are_closed(tmp_path: Path) -> None:
    class Wrong(algos.Callback):
        def on_update(self, trainer: Any, metrics: Mapping[str, float]) -> None:
            raise RuntimeError("mine")

    told = Told()
    with pytest.raises(RuntimeError, match="mine"):
        make([Wrong(), told], output_dir=str(tmp_path)).train()
    assert told.told == [BEGIN, EVAL, ROLLOUT]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (Told(), "a list of callbacks, got"),
        ([Told], "instances of motet.algos.Callback"),
        ([print], "instances of motet.algos.Callback"),
    ],
)
def test_what_is_no_callback_is_refused(wrong: Any, sentence: str) -> None:
    for build in (make, make_sb3, make_fixed):
        with pytest.raises(TypeError, match=sentence):
            build(wrong)


class Saving(algos.Callback):
    """Writes a checkpoint at an event of a number."""

    def __init__(self, folder: Path, event: str, number: int) -> None:
        self._folder, self._event, self._left = folder, event, number

    def _at(self, event: str, trainer: Any) -> None:
        if event == self._event:
            self._left -= 1
            if self._left == 0:
                trainer.save_checkpoint(self._folder)

    def on_train_begin(self, trainer: Any) -> None:
        self._at(BEGIN, trainer)

    def on_rollout(self, trainer: Any, rollout: algos.Rollout) -> None:
        self._at(ROLLOUT, trainer)

    def on_update(self, trainer: Any, metrics: Mapping[str, float]) -> None:
        self._at(UPDATE, trainer)

    def on_eval(self, trainer: Any, evaluation: algos.Evaluation) -> None:
        self._at(EVAL, trainer)


@pytest.mark.parametrize(
    ("event", "number", "done"),
    # of the log of seven entries: evaluations before, in the middle and after, and four rollouts
    [(BEGIN, 1, 0), (ROLLOUT, 3, 4), (UPDATE, 1, 1), (UPDATE, 2, 2), (UPDATE, 4, 5), (EVAL, 2, 4)],
)
@pytest.mark.parametrize("logging_steps", [1, 2])
def test_what_a_callback_saves_goes_on_to_the_bit(
    event: str, number: int, done: int, logging_steps: int, tmp_path: Path
) -> None:
    whole, rest = Kept(), Kept()
    settings = {"logging_steps": logging_steps, "eval_interval": 2}
    expected = make([Saving(tmp_path, event, number)], [whole], **settings)
    expected.train()
    resumed = make(loggers=[rest], **settings)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The run had ended")
        resumed.train(resume_from=tmp_path)
    assert_same(resumed.state_dict(), expected.state_dict())
    assert rest.entries == whole.entries[len(whole.entries) - len(rest.entries) :]
    if logging_steps == 1:
        assert len(rest.entries) == 7 - done


def test_what_is_saved_as_a_run_goes_on_holds_the_rollout_it_goes_on_with(tmp_path: Path) -> None:
    whole = make([Saving(tmp_path / "first", ROLLOUT, 2)])
    whole.train()
    again = make([Saving(tmp_path / "second", BEGIN, 1)])
    again.train(resume_from=tmp_path / "first")
    last = make()
    last.train(resume_from=tmp_path / "second")
    for other in (again, last):
        assert_same(other.state_dict(), whole.state_dict())


# --- StopOnThreshold -----------------------------------------------------------------------------


class Value:
    """An evaluation of one metric."""

    def __init__(self, value: float) -> None:
        self.metrics = {"return_mean": value}


@pytest.mark.parametrize(
    ("at_most", "value", "goes_on"),
    [(False, 0.4, True), (False, 0.5, False), (True, 0.5, False), (True, 0.6, True)],
)
def test_a_threshold_is_reached_from_one_side(at_most: bool, value: float, goes_on: bool) -> None:
    stop = algos.StopOnThreshold(0.5, at_most=at_most)
    assert stop.on_eval(None, Value(value)) is goes_on
    stop = algos.StopOnThreshold(0.5, "train/loss", at_most=at_most)
    assert stop.on_update(None, {"train/loss": value}) is goes_on
    assert stop.on_update(None, {"train/kl": 0.5}) is None


def test_a_threshold_ends_a_run() -> None:
    told = Told()
    make([algos.StopOnThreshold(-9.0, "turn_1/reward_mean"), told]).train()
    assert told.told.count(UPDATE) == 1
    told = Told()
    make([algos.StopOnThreshold(-9.0), told]).train()
    assert told.told == [BEGIN, EVAL, END]


def test_a_misspelt_metric_is_told_at_the_end() -> None:
    stop = algos.StopOnThreshold(9.0, "eval/reward_means")
    with pytest.warns(UserWarning, match=r"'eval/reward_means' .* Did you mean 'eval/reward_mean'"):
        make([stop]).train()


def test_a_run_that_had_ended_has_no_metric_to_miss(tmp_path: Path) -> None:
    trainer = make()
    trainer.train()
    trainer.save_checkpoint(tmp_path)
    with pytest.warns(UserWarning) as caught:
        make([algos.StopOnThreshold(9.0)]).train(resume_from=tmp_path)
    assert [str(each.message)[:17] for each in caught] == ["The run had ended"]


@pytest.mark.parametrize("threshold", [float("nan"), float("inf")])
def test_a_threshold_is_a_number(threshold: float) -> None:
    with pytest.raises(ValueError, match="a finite number as threshold"):
        algos.StopOnThreshold(threshold)


# --- learners of stable-baselines3 ---------------------------------------------------------------


def test_learners_of_stable_baselines3_tell_of_all_but_rollouts() -> None:
    told = Told()
    make_sb3([told]).train()
    pair = [UPDATE, UPDATE, EVAL]
    assert told.told == [BEGIN, EVAL, *pair, *pair, END]


@pytest.mark.parametrize("name", ["sb3-ppo", "sb3-dqn"])
@pytest.mark.parametrize(
    ("when", "steps"), [({BEGIN: 1}, 0), ({EVAL: 1}, 0), ({UPDATE: 1}, 64), ({EVAL: 2}, 128)]
)
def test_they_end_at_the_border_of_a_rollout_and_go_on_from_there(
    name: str, when: dict[str, int], steps: int, tmp_path: Path
) -> None:
    settings = {"checkpoint_interval": 1000, "output_dir": str(tmp_path)}
    told, kept = Told(when), Kept()
    stopped = make_sb3([told], [kept], name, **settings)
    stopped.train()
    assert stopped.model.num_timesteps == steps
    assert told.told[-2:] == [EVAL, END]
    assert written(tmp_path / FOLDER) == ([f"{steps:06d}"] if steps else [])
    if steps:
        whole, resumed = make_sb3(name=name), make_sb3(name=name)
        whole.train()
        resumed.train(resume_from=tmp_path)
        assert_same(resumed.model.get_parameters(), whole.model.get_parameters())


def test_what_was_not_logged_yet_is_when_an_evaluation_ends_them() -> None:
    kept = Kept()
    make_sb3([Told({EVAL: 2})], [kept], logging_steps=192).train()
    assert ["rollout/reward_mean" in entry for _, entry in kept.entries] == [False, False, True]


def test_they_keep_the_newest_checkpoints_and_the_best(tmp_path: Path) -> None:
    class Returns(algos.Callback):
        def __init__(self) -> None:
            self.found: dict[int, float] = {}

        def on_eval(self, trainer: Any, evaluation: algos.Evaluation) -> None:
            self.found[trainer.model.num_timesteps] = evaluation.metrics["return_mean"]

    returns = Returns()
    settings = {"checkpoint_interval": 64, "eval_interval": 64, "output_dir": str(tmp_path)}
    trainer = make_sb3([returns], save_best=True, save_total_limit=2, **settings)
    trainer.train()
    assert written(tmp_path / FOLDER) == ["000192", "000256", "best"]
    best = tmp_path / FOLDER / "best"
    found = torch.load(best / FILE_NAME, weights_only=True)["state"]
    reached = max(returns.found.values())
    assert found["best_return"] == reached
    assert returns.found[found["reported"]] == reached
    team = algos.load_pick_agents(best / "models")
    assert list(team) == list(NAMES)
    resumed = make_sb3()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The run had ended")  # the best may be the last
        resumed.train(resume_from=best)
    assert_same(resumed.model.get_parameters(), trainer.model.get_parameters())


def test_a_run_of_them_that_had_ended_says_so(tmp_path: Path) -> None:
    trainer = make_sb3()
    trainer.train()
    trainer.save_checkpoint(tmp_path)
    again = make_sb3()
    with pytest.warns(UserWarning, match="The run had ended: .* 256 timesteps"):
        again.train(resume_from=tmp_path)
    assert again.model.num_timesteps == 256


def test_what_cannot_be_saved_is_told_before_the_best_would_be(tmp_path: Path) -> None:
    config = SB3Config(candidates=["a", "b"], save_best=True, output_dir=str(tmp_path))
    with pytest.raises(TypeError, match="to save its episodes"):
        algos.make("sb3-a2c", Good(), None, config, eval_env=Good())


# --- fixed teams ---------------------------------------------------------------------------------


def test_fixed_teams_tell_of_their_evaluation(tmp_path: Path) -> None:
    told = Told({BEGIN: 1})
    make_fixed([told], output_dir=str(tmp_path)).train()
    assert told.told == [BEGIN, EVAL, END]
    (entry,) = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert entry["time/optimizer_steps"] == 0
    assert entry["time/elapsed_seconds"] > 0
    assert written(tmp_path / "evaluations") == ["000000.jsonl"]


def test_fixed_teams_have_no_checkpoints_to_limit() -> None:
    for name in ("save_best", "save_total_limit", "checkpoint_interval"):
        with pytest.raises(TypeError, match=name):
            FrozenConfig(**{name: 1})


def test_a_fixed_team_is_no_checkpoint_of_its_run(tmp_path: Path) -> None:
    make_fixed(output_dir=str(tmp_path)).train()
    with pytest.raises(FileNotFoundError, match="save_checkpoint wrote"):
        find_checkpoint(tmp_path)


# --- silence -------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [make, make_sb3, make_fixed])
def test_without_a_bar_there_are_lines_alone(
    build: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    build().train()
    out, err = capsys.readouterr()
    assert not err
    assert all(line.startswith("step ") for line in out.splitlines())
    assert "\x1b" not in out
