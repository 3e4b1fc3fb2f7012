"""Checkpoints: what goes on from them is to the bit what would not have stopped; else they say why.

The suite of every learner has a run that is killed in several turns, with a linear schedule,
between two entries of the log; here are other teams and envs, and what may be wrong with a file.
"""

import copy
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from good_env import Good
from peft import LoraConfig
from resuming import Kept, assert_goes_on_to_the_bit, assert_same
from tiny import byte_tokenizer, letter_agent, matching_env, tiny_agent, tiny_llama

from motet import algos
from motet.agents import Agent, FixedAgent, LMAgent, RandomAgent
from motet.algos import MAGRPOConfig, MAGRPOTrainer
from motet.algos.checkpoint import FILE_NAME, read_checkpoint
from motet.algos.checkpoint_folder import FOLDER, find_checkpoint, numbered
from motet.envs import StreamedRows, TextEnv
from motet.envs.wrappers import RewardShaping

NAMES = ("agent_0", "agent_1")


def config(**changes: object) -> MAGRPOConfig:
    settings: dict[str, Any] = {
        "num_generations": 3,
        "rollout_batch_size": 2,
        "agent_learning_rate": 0.02,
        "progress_bar": False,
    }
    return MAGRPOConfig(**{**settings, **changes})


def separate(**kwargs: Any) -> dict[str, Agent]:
    return {name: letter_agent(i, **kwargs) for i, name in enumerate(NAMES)}


def shared() -> dict[str, Agent]:
    return dict.fromkeys(NAMES, letter_agent())


def lora(**changes: object) -> LoraConfig:
    return LoraConfig(**{"r": 2, "target_modules": ["q_proj", "v_proj"], **changes})


def adapters(**changes: object) -> dict[str, Agent]:
    base = letter_agent()
    return {name: base.with_adapter(name, lora(**changes)) for name in NAMES}


def remembering() -> dict[str, Agent]:
    return {
        name: LMAgent(tiny_llama(i), byte_tokenizer(), history="append")
        for i, name in enumerate(NAMES)
    }


def with_a_random_partner() -> dict[str, Agent]:
    return {"agent_0": letter_agent(), "agent_1": RandomAgent(["a", "b"], seed=3)}


def in_16_bits() -> dict[str, Agent]:
    team = separate()
    for agent in team.values():
        agent.model.bfloat16()
    return team


def streamed() -> TextEnv:
    """Five rows, read on and on."""
    return TextEnv(StreamedRows([{"prompt": letter} for letter in "abcda"]), spread)


def spread(first: list[str], second: list[str]) -> list[float]:
    return [
        (3 * sum(map(ord, a)) + 5 * sum(map(ord, b))) % 101 / 100
        for a, b in zip(first, second, strict=True)
    ]


CASES: dict[str, tuple[Callable[[], dict[str, Agent]], Callable[[], Any], dict[str, Any]]] = {
    "shared": (shared, matching_env, {}),
    "adapters": (adapters, matching_env, {}),
    "16 bits": (in_16_bits, matching_env, {"agent_learning_rate": 0.1}),
    "a random partner": (with_a_random_partner, matching_env, {}),
    "conversations": (
        remembering,
        lambda: matching_env(2),
        {"max_new_tokens": 2, "num_generations": 2},
    ),
    "state on disk": (separate, matching_env, {"offload_optimizer": "disk"}),
    "several steps": (
        separate,
        matching_env,
        {"train_batch_size": 1, "num_iterations": 2, "clip_range": 0.2},
    ),
    "a KL in the loss": (separate, matching_env, {"kl_coef": 0.1}),
    "a KL of adapters in the return": (adapters, matching_env, {"kl_coef": 0.1, "kl_in": "return"}),
    "an entropy bonus": (separate, matching_env, {"ent_coef": 0.1}),
    "an env without a dataset": (
        lambda: {name: tiny_agent(i, max_new_tokens=3) for i, name in enumerate(("ann", "bob"))},
        Good,
        {"num_train_epochs": None, "num_rollouts": 6, "eval_num_samples": 2},
    ),
    "a stream": (
        separate,
        streamed,
        {"num_train_epochs": None, "num_rollouts": 6, "eval_num_samples": 2},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_run_that_is_killed_goes_on_to_the_bit(case: tuple, tmp_path: Path) -> None:
    team, env, changes = case

    def make(output: dict[str, Any], kept: Kept) -> MAGRPOTrainer:
        settings = {
            "num_train_epochs": 3,
            "checkpoint_interval": 3,
            "eval_interval": 3,
            "logging_steps": 2,
        }
        given = config(**{**settings, **changes, **output})
        return MAGRPOTrainer(env(), team(), given, eval_env=env(), loggers=[kept])

    assert_goes_on_to_the_bit(make, tmp_path, entries=3, done=3)


def trained(team: dict[str, Agent] | None = None, **changes: object) -> MAGRPOTrainer:
    trainer = MAGRPOTrainer(
        matching_env(), separate() if team is None else team, config(num_train_epochs=1, **changes)
    )
    trainer.train()
    return trainer


def test_a_longer_run_goes_on_where_a_shorter_one_has_ended(tmp_path: Path) -> None:
    trainer = trained()
    trainer.save_checkpoint(tmp_path)
    weight = trainer.agents["agent_0"].model.lm_head.weight.detach().clone()
    kept = Kept()
    longer = MAGRPOTrainer(matching_env(), separate(), config(num_train_epochs=3), loggers=[kept])
    longer.train(resume_from=tmp_path)
    assert [step for step, _ in kept.entries] == [18, 24, 30, 36]
    assert longer.num_env_steps == 36
    assert not torch.equal(longer.agents["agent_0"].model.lm_head.weight, weight)
    trainer.train(resume_from=tmp_path)  # it is at its end: nothing is left to do
    assert torch.equal(trainer.agents["agent_0"].model.lm_head.weight, weight)
    assert trainer.num_env_steps == 12


def test_a_checkpoint_of_before_training_begins_the_same_run(tmp_path: Path) -> None:
    expected = trained()
    fresh = MAGRPOTrainer(matching_env(), separate(), config(num_train_epochs=1))
    fresh.save_checkpoint(tmp_path)
    again = MAGRPOTrainer(matching_env(), separate(), config(num_train_epochs=1))
    again.train(resume_from=tmp_path)
    assert_same(again.state_dict()["policies"], expected.state_dict()["policies"])
    assert again.num_env_steps == expected.num_env_steps


def test_a_trainer_goes_back_to_its_own_checkpoint(tmp_path: Path) -> None:
    trainer = trained()
    trainer.save_checkpoint(tmp_path)
    before = copy.deepcopy(trainer.state_dict())
    trainer.update(trainer.collect([0, 1, 2, 3]))
    assert trainer.agents["agent_0"].policy_version == 3
    trainer.train(resume_from=tmp_path)
    assert_same(trainer.state_dict(), before)
    assert trainer.agents["agent_0"].policy_version == 2


def test_a_folder_may_move_and_what_is_free_may_change(tmp_path: Path) -> None:
    trained(output_dir=str(tmp_path / "old"), checkpoint_interval=1)
    (tmp_path / "old").rename(tmp_path / "new")
    changes = {"logging_steps": 5, "eval_interval": 1, "eval_num_samples": 1}
    trainer = MAGRPOTrainer(matching_env(), separate(), config(num_train_epochs=2, **changes))
    trainer.train(resume_from=tmp_path / "new")
    assert trainer.num_env_steps == 24


class Saving(Kept):
    """A logger that writes a checkpoint as it gets the first entry of the training."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.trainer: MAGRPOTrainer | None = None

    def log(self, metrics: dict[str, float], step: int) -> None:
        super().log(metrics, step)
        if self.trainer is not None and len(self.entries) == 1:
            self.trainer.save_checkpoint(self.folder)


def test_a_checkpoint_that_a_logger_writes_is_past_the_entry_it_got(tmp_path: Path) -> None:
    settings = config(num_train_epochs=2, logging_steps=2)
    saving, kept = Saving(tmp_path), Kept()
    saving.trainer = MAGRPOTrainer(matching_env(), separate(), settings, loggers=[saving])
    saving.trainer.train()
    other = MAGRPOTrainer(matching_env(), separate(), settings, loggers=[kept])
    other.train(resume_from=tmp_path)
    assert kept.entries == saving.entries[1:]


def test_a_run_that_begins_anew_logs_nothing_of_the_one_before() -> None:
    calls: list[int] = []

    def paid(first: list[str], second: list[str]) -> list[float]:
        calls.append(len(first))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return [100.0 if len(calls) < 2 else 1.0] * len(first)

    kept, rows = Kept(), [{"prompt": letter} for letter in "abcd"]
    settings = config(num_train_epochs=1, logging_steps=2)
    trainer = MAGRPOTrainer(TextEnv(rows, paid), separate(), settings, loggers=[kept])
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    with pytest.warns(UserWarning, match="No optimizer step"):
        trainer.train()
    assert [entry["rollout/reward_mean"] for _, entry in kept.entries] == [1.0]


def test_numbers_of_numpy_in_metrics_can_be_read_again(tmp_path: Path) -> None:
    class Counting(MAGRPOTrainer):
        def update(self, rollout: algos.Rollout) -> dict[str, float]:
            return {**super().update(rollout), "train/counted": np.mean([1.0, 2.0])}

    def make(output: dict[str, Any], kept: Kept) -> MAGRPOTrainer:
        given = config(num_train_epochs=1, logging_steps=2, checkpoint_interval=1, **output)
        return Counting(matching_env(), separate(), given, loggers=[kept])

    # killed at the end of the second rollout, with those of the first in the checkpoint
    assert_goes_on_to_the_bit(make, tmp_path, entries=0, done=0)


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    class Forgetful(MAGRPOTrainer):
        mean: object = 0.0

        def state_dict(self) -> dict[str, Any]:
            return {**super().state_dict(), "mean": self.mean}

    trainer = Forgetful(matching_env(), separate(), config(num_train_epochs=1))
    trainer.save_checkpoint(tmp_path)
    trainer.mean = np.random.default_rng(0)
    with pytest.raises(ValueError, match="of tensors, numbers, strings, lists and dicts"):
        trainer.save_checkpoint(tmp_path)
    trainer.mean = 0.0
    trainer.train(resume_from=tmp_path)


# --- writes that are cut short -------------------------------------------------------------------


def test_a_write_that_fails_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trained()
    trainer.save_checkpoint(tmp_path)
    kept = (tmp_path / FILE_NAME).read_bytes()

    def fails(obj: object, file: Any) -> None:
        file.write(kept[: len(kept) // 2])
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", fails)
        trainer.update(trainer.collect([0]))
        with pytest.raises(OSError, match="No space left"):
            trainer.save_checkpoint(tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes() == kept
    trainer.train(resume_from=tmp_path)
    trainer.save_checkpoint(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from test_resuming import endless

endless(10_000, checkpoint_interval=1, output_dir=sys.argv[2]).train()
"""


def endless(num_rollouts: int, **changes: object) -> MAGRPOTrainer:
    """A trainer on a stream, whose rows do not depend on the length of the run."""
    return MAGRPOTrainer(streamed(), separate(), config(num_rollouts=num_rollouts, **changes))


@pytest.mark.slow
@pytest.mark.parametrize("delay_s", [0.0, 0.02])
def test_a_process_that_is_killed_at_any_time_leaves_a_checkpoint(
    tmp_path: Path, delay_s: float
) -> None:
    tests = Path(__file__).parents[1]
    command = [sys.executable, "-c", SCRIPT, str(tests / "algos"), str(tmp_path)]
    path = os.pathsep.join(filter(None, [str(tests), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL
    )
    while not numbered(tmp_path / FOLDER):
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(delay_s)
    process.kill()
    process.wait()
    written = find_checkpoint(tmp_path) / FILE_NAME
    done = torch.load(written, weights_only=True)["state"]["progress"]["rollouts_done"]
    assert done >= 1
    resumed, expected = endless(done + 2), endless(done + 2)
    resumed.train(resume_from=tmp_path)
    expected.train()
    assert_same(resumed.state_dict(), expected.state_dict())


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"", b"weights", b"PK\x03\x04", None])
def test_a_broken_file_is_refused_with_its_name(tmp_path: Path, text: bytes | None) -> None:
    trained().save_checkpoint(tmp_path)
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes()[:-500] if text is None else text)
    trainer = MAGRPOTrainer(matching_env(), separate(), config(num_train_epochs=2))
    with pytest.raises(ValueError, match=r"a whole checkpoint in .*trainer_state\.pt"):
        trainer.train(resume_from=tmp_path)


def test_a_changed_byte_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    """A disk that forgets: torch reads weights without a look at their checksums."""
    trainer = trained()
    trainer.save_checkpoint(tmp_path)
    path = tmp_path / FILE_NAME
    whole, rng, refused = path.read_bytes(), np.random.default_rng(0), 0
    state = read_checkpoint(tmp_path, trainer.config, "MAGRPOTrainer").state
    for place in rng.integers(len(whole), size=100):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            found = read_checkpoint(tmp_path, trainer.config, "MAGRPOTrainer").state
        except ValueError as error:
            assert "a whole checkpoint in" in str(error)
            refused += 1
        else:  # in the room between two parts
            assert_same(found, state)
    assert refused > 50


class Danger:
    """What a checkpoint must not run."""

    def __reduce__(self) -> tuple:
        return print, ("run",)


@pytest.mark.parametrize("content", [{"weights": torch.ones(2)}, [1, 2], Danger()])
def test_another_file_is_refused_and_not_run(
    tmp_path: Path, content: object, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(content, tmp_path / FILE_NAME)
    trainer = MAGRPOTrainer(matching_env(), separate(), config(num_train_epochs=2))
    with pytest.raises(ValueError, match=r"a whole checkpoint in .*trainer_state\.pt"):
        trainer.train(resume_from=tmp_path)
    assert "run" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 7}, "seed=42 there and 7 here"),
        ({"temperature": 0.5, "num_generations": 2}, "num_generations=3 .* temperature=None"),
        ({"kl_coef": 0.1}, "kl_coef=0.0 there and 0.1 here"),
        ({"ent_coef": 0.1}, "ent_coef=0.0 there and 0.1 here"),
    ],
)
def test_other_settings_are_refused_by_name(tmp_path: Path, changes: dict, words: str) -> None:
    trained().save_checkpoint(tmp_path)
    other = MAGRPOTrainer(matching_env(), separate(), config(num_train_epochs=1, **changes))
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(ValueError, match=words):
        other.train(resume_from=tmp_path)
    assert_same(other.state_dict(), before)


def test_another_length_of_a_linear_schedule_is_refused(tmp_path: Path) -> None:
    trained(lr_scheduler_type="linear").save_checkpoint(tmp_path)
    longer = config(num_train_epochs=2, lr_scheduler_type="linear")
    with pytest.raises(ValueError, match="num_train_epochs=1 there and 2 here"):
        MAGRPOTrainer(matching_env(), separate(), longer).train(resume_from=tmp_path)


def one_frozen() -> dict[str, Agent]:
    return {"agent_0": letter_agent(0), "agent_1": letter_agent(1, frozen=True)}


def larger() -> dict[str, Agent]:
    return {name: tiny_agent(max_new_tokens=1) for name in NAMES}


@pytest.mark.parametrize(
    "there, here",
    [
        (separate, shared),
        (shared, separate),
        (separate, one_frozen),
        (one_frozen, separate),
        (separate, larger),
        (separate, in_16_bits),
        (separate, adapters),
        (adapters, separate),
        (adapters, lambda: adapters(r=3)),
        (adapters, lambda: adapters(target_modules=["k_proj", "v_proj"])),
        (one_frozen, lambda: {"agent_0": letter_agent(), "agent_1": FixedAgent("a")}),
    ],
)
def test_another_team_is_refused(
    tmp_path: Path, there: Callable[[], dict], here: Callable[[], dict]
) -> None:
    trained(there()).save_checkpoint(tmp_path)
    other = MAGRPOTrainer(matching_env(), here(), config(num_train_epochs=1))
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(ValueError, match=r"Expected the policies of|of the model of|began with"):
        other.train(resume_from=tmp_path)
    assert_same(other.state_dict(), before)


def test_other_weights_than_training_began_with_are_refused_where_they_count(
    tmp_path: Path,
) -> None:
    """A reference is what training began with, and so are the weights under adapters."""
    trainer = trained(kl_coef=0.1)
    trainer.save_checkpoint(tmp_path)
    moved = MAGRPOTrainer(
        matching_env(), dict(trainer.agents), config(num_train_epochs=2, kl_coef=0.1)
    )
    with pytest.raises(ValueError, match="began with"):
        moved.train(resume_from=tmp_path)
    given = algos.MADPOConfig(num_train_epochs=2, progress_bar=False)
    learner = algos.make("madpo", matching_env(), separate(), given)
    learner.train()
    learner.save_checkpoint(tmp_path)
    with pytest.raises(ValueError, match=r"reference of agent_0: .* there, .* here"):
        algos.make("madpo", matching_env(), dict(learner.agents), given).train(resume_from=tmp_path)
    trained(adapters()).save_checkpoint(tmp_path)
    team = adapters()
    with torch.no_grad():
        team["agent_0"].model.lm_head.weight[0, 0] += 1
    other = MAGRPOTrainer(matching_env(), team, config(num_train_epochs=2))
    with pytest.raises(ValueError, match="began with"):
        other.train(resume_from=tmp_path)
    frozen = one_frozen()
    trained(frozen).save_checkpoint(tmp_path)
    team = {"agent_0": letter_agent(0), "agent_1": letter_agent(5, frozen=True)}
    with pytest.raises(ValueError, match="began with"):
        MAGRPOTrainer(matching_env(), team, config(num_train_epochs=2)).train(resume_from=tmp_path)


def test_another_env_is_refused(tmp_path: Path) -> None:
    trained().save_checkpoint(tmp_path)
    fewer = TextEnv([{"prompt": "a"}] * 3, spread)
    for env, words in (
        (fewer, "rows: 4 there, 3 here"),
        (matching_env(2), "num_turns: 1 there, 2 here"),
        (
            matching_env(early_termination_threshold=0.5),
            r"early_termination: group above None there, group above 0\.5 here",
        ),
        (
            RewardShaping(matching_env(), "improvement"),
            r"env: TextEnv there, RewardShaping\(TextEnv\) here",
        ),
    ):
        other = MAGRPOTrainer(env, separate(), config(num_train_epochs=2))
        with pytest.raises(ValueError, match=words):
            other.train(resume_from=tmp_path)


def test_another_learner_is_refused(tmp_path: Path) -> None:
    given = config(num_train_epochs=1, advantage_normalization=False)
    for name, other in (("marloo", "mareinforce"), ("magrpo", "marloo")):
        learner = algos.make(name, matching_env(), separate(), given)
        learner.train()
        learner.save_checkpoint(tmp_path)
        with pytest.raises(ValueError, match=r"baseline: .* there, .* here"):
            algos.make(other, matching_env(), separate(), given).train(resume_from=tmp_path)


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    trainer = MAGRPOTrainer(matching_env(), separate(), config(num_train_epochs=2))
    with pytest.raises(FileNotFoundError, match="a folder that save_checkpoint wrote"):
        trainer.train(resume_from=tmp_path)
    assert trainer.num_env_steps == 0
