"""A run that stops and goes on ends as one that did not stop, to the bit."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import letter_agent, matching_env

from motet import algos
from motet.agents import Agent
from motet.algos import MAGRPOConfig, MAGRPOTrainer

NAMES = ("agent_0", "agent_1")


def config(**changes: object) -> MAGRPOConfig:
    settings = {
        "num_train_epochs": 6,
        "rollout_batch_size": 4,
        "num_generations": 4,
        "agent_learning_rate": 0.01,
        "progress_bar": False,
    }
    return MAGRPOConfig(**{**settings, **changes})


def separate() -> dict[str, Agent]:
    return {name: letter_agent(i) for i, name in enumerate(NAMES)}


def trainer(settings: MAGRPOConfig, team: dict[str, Agent] | None = None) -> MAGRPOTrainer:
    return MAGRPOTrainer(matching_env(2), team or separate(), settings, eval_env=matching_env(2))


def weights(trained: MAGRPOTrainer) -> list[torch.Tensor]:
    return [weight for each in trained.updaters for weight in each.policy.parameters()]


def entries(folder: Path) -> list[dict[str, float]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [
        {
            key: value
            for key, value in json.loads(line).items()
            if not key.startswith(("time/", "memory/"))
        }
        for line in lines
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rollout_batch_size": 3, "train_batch_size": 2, "lr_scheduler_type": "constant"},
        {"logging_steps": 4, "eval_interval": 2},
        {"kl_coef": 0.1, "clip_range": 0.2, "num_iterations": 2},
    ],
    ids=["plain", "small steps", "means over several rollouts", "a reference"],
)
def test_a_run_that_stopped_ends_like_one_that_did_not(
    changes: dict[str, object], tmp_path: Path
) -> None:
    whole = trainer(config(**changes, output_dir=str(tmp_path / "whole")))
    whole.train()
    again = config(**changes, output_dir=str(tmp_path / "halves"))
    # one log: the half that stops has written no mean that the whole run would not have
    first = trainer(replace(again, num_train_epochs=4))
    first.train()
    first.save_checkpoint(tmp_path / "checkpoint")
    second = trainer(again)
    second.train(resume_from=tmp_path / "checkpoint")
    for own, other in zip(weights(whole), weights(second), strict=True):
        assert torch.equal(own, other)
    for own, other in zip(whole.updaters, second.updaters, strict=True):
        mine, theirs = own.optimizer.state_dict()["state"], other.optimizer.state_dict()["state"]
        assert all(torch.equal(mine[i][key], theirs[i][key]) for i in mine for key in mine[i])
    assert second.num_env_steps == whole.num_env_steps
    assert [agent.policy_version for agent in second.agents.values()] == [
        agent.policy_version for agent in whole.agents.values()
    ]
    assert entries(tmp_path / "halves")[-1] == entries(tmp_path / "whole")[-1]
    before = algos.evaluate(matching_env(2), whole.agents, seed=1).rollout
    assert before == algos.evaluate(matching_env(2), second.agents, seed=1).rollout


def test_checkpoints_are_written_while_training(tmp_path: Path) -> None:
    trained = trainer(config(checkpoint_interval=4, output_dir=str(tmp_path)))
    trained.train()
    resumed = trainer(config(output_dir=str(tmp_path / "resumed")))
    with pytest.warns(UserWarning, match="The run had ended"):
        resumed.train(resume_from=tmp_path)
    for own, other in zip(weights(trained), weights(resumed), strict=True):
        assert torch.equal(own, other)


def test_checkpoints_need_a_folder() -> None:
    with pytest.raises(ValueError, match="Expected an output_dir with checkpoint_interval=4"):
        config(checkpoint_interval=4)


def test_another_run_does_not_go_on_from_it(tmp_path: Path) -> None:
    trained = trainer(config(num_train_epochs=1))
    trained.train()
    trained.save_checkpoint(tmp_path)
    other = trainer(config(discount=0.5))
    with pytest.raises(ValueError, match=r"got discount=1\.0 there and 0\.5 here"):
        other.train(resume_from=tmp_path)
    with pytest.raises(FileNotFoundError, match="Expected a folder that save_checkpoint wrote"):
        other.train(resume_from=tmp_path / "nowhere")
    shared = trainer(config(), dict.fromkeys(NAMES, letter_agent()))
    with pytest.raises(ValueError, match=r"Expected the policies of \['agent_0'\]"):
        shared.train(resume_from=tmp_path)
