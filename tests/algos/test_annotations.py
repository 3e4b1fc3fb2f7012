"""Saved rollouts say what each completion was trained with, and which token wrote what."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import letter_agent, matching_env, tiny_agent

from motet import algos
from motet.agents import Agent, FixedAgent
from motet.algos import MAGRPOConfig, MAGRPOTrainer
from motet.algos.metrics import turn_metrics
from motet.algos.rollouts.returns import rollout_returns
from motet.algos.trainer import Trainer
from motet.envs import TextEnv

NAMES = ("agent_0", "agent_1")


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    shared = {"num_generations": 4, "rollout_batch_size": 4, "agent_learning_rate": 0.01}
    return {**shared, "output_dir": str(folder), "progress_bar": False, **changes}


def team() -> dict[str, Agent]:
    return {name: letter_agent(i) for i, name in enumerate(NAMES)}


def saved(folder: Path, number: int = 1) -> algos.Rollout:
    return algos.Rollout.load(folder / "rollouts" / f"{number:06d}.jsonl")


def test_advantages_are_those_that_were_trained_with(tmp_path: Path) -> None:
    trainer = MAGRPOTrainer(matching_env(), team(), MAGRPOConfig(**settings(tmp_path)))
    trainer.train()
    trained = 0
    for node in saved(tmp_path).nodes():
        assert list(node.advantages) == list(NAMES)
        for name in NAMES:
            rewards = torch.tensor(node.rewards[name])
            if rewards.std() == 0:
                assert node.advantages[name] == (None,) * 4
                continue
            trained += 1
            expected = (rewards - rewards.mean()) / rewards.std(correction=0)
            assert node.advantages[name] == pytest.approx(expected.tolist(), abs=1e-3)
    assert trained


@pytest.mark.parametrize("name", ["magrpo", "ippo", "mappo"])
def test_an_agent_that_a_rollout_taught_nothing_says_so(name: str, tmp_path: Path) -> None:
    """Agent 0 is paid for nothing in particular: none of its groups has a spread."""

    def paid(first: list[str], second: list[str]) -> dict[str, list[float]]:
        return {"agent_0": [1.0] * len(first), "agent_1": [float(text == "a") for text in second]}

    env = TextEnv([{"prompt": letter} for letter in "abcd"], paid)
    config = algos.spec(name).config_class(**settings(tmp_path))
    algos.make(name, env, team(), config).train()
    nodes = list(saved(tmp_path).nodes())
    assert all(node.advantages["agent_0"] == (None,) * 4 for node in nodes)
    assert any(each is not None for node in nodes for each in node.advantages["agent_1"])


def test_those_that_are_not_trained_have_no_advantages(tmp_path: Path) -> None:
    members = {
        "agent_0": letter_agent(),
        "agent_1": letter_agent(1, frozen=True),
        "agent_2": FixedAgent("a"),
    }
    env = matching_env(num_agents=3)
    MAGRPOTrainer(env, members, MAGRPOConfig(**settings(tmp_path))).train()
    for node in saved(tmp_path).nodes():
        assert list(node.advantages) == ["agent_0"]
        assert list(node.token_offsets) == ["agent_0", "agent_1"]


def test_advantages_of_tokens_are_one_for_each(tmp_path: Path) -> None:
    config = algos.PPOConfig(**settings(tmp_path, max_new_tokens=6, token_level=True))
    members = {name: tiny_agent(i) for i, name in enumerate(NAMES)}
    env = TextEnv(
        [{"prompt": "a"}],
        lambda first, second: [float(len(a + b)) for a, b in zip(first, second, strict=True)],
    )
    algos.make("ippo", env, members, config).train()
    for node in saved(tmp_path).nodes():
        for name in NAMES:
            for completion, own in zip(node.completions[name], node.advantages[name], strict=True):
                assert own is None or len(own) == len(completion.completion_ids)
            assert any(own is not None for own in node.advantages[name])
            for completion, ends in zip(
                node.completions[name], node.token_offsets[name], strict=True
            ):
                assert len(ends) == len(completion.completion_ids)
                assert ends[-1] == len(completion.text)


class Unoptimized(Trainer):
    """An update of its own, which computes no advantages."""

    def update(self, rollout: algos.Rollout) -> dict[str, float]:
        metrics = turn_metrics(rollout, rollout_returns(rollout, 1.0))
        return {**metrics, "train/num_optimizer_steps": 1.0, "train/tokens_computed": 1.0}


def test_where_nobody_computed_any_there_are_none(tmp_path: Path) -> None:
    Unoptimized(matching_env(), team(), algos.TrainerConfig(**settings(tmp_path))).train()
    assert all(node.advantages == {} for node in saved(tmp_path).nodes())


@pytest.mark.parametrize(("every", "numbers"), [(0, []), (1, [1, 2, 3, 4, 5]), (3, [1, 3, 5])])
def test_the_first_the_last_and_those_that_are_due_are_written(
    every: int, numbers: list[int], tmp_path: Path
) -> None:
    config = MAGRPOConfig(
        **settings(tmp_path, num_train_epochs=5, rollout_logging_steps=every, logging_steps=5)
    )
    MAGRPOTrainer(matching_env(), team(), config).train()
    found = sorted((tmp_path / "rollouts").glob("*")) if every else []
    assert [path.name for path in found] == [f"{number:06d}.jsonl" for number in numbers]
    for number in numbers:
        assert all(list(node.advantages) == list(NAMES) for node in saved(tmp_path, number).nodes())


def test_evaluations_have_offsets_and_no_advantages(tmp_path: Path) -> None:
    config = MAGRPOConfig(**settings(tmp_path))
    MAGRPOTrainer(matching_env(), team(), config, eval_env=matching_env()).train()
    for number in (0, 1):
        path = tmp_path / "evaluations" / f"{number:06d}.jsonl"
        nodes = [json.loads(line) for line in path.read_text().splitlines()][1:]
        assert len(nodes) == 4
        assert all(list(node["token_offsets"]) == list(NAMES) for node in nodes)
        assert all(node["advantages"] == {} for node in nodes)
