"""Metrics of rollouts, of optimizer steps, of spread and of memory, against numbers by hand."""

import math
import re
import subprocess
import sys
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from resuming import Kept
from tiny import LETTERS, letter_agent
from torch import Tensor

from motet import algos
from motet.agents import Completion, FixedAgent
from motet.algos import Batch, MAGRPOConfig, MAGRPOTrainer, Rollout
from motet.algos.memory import memory_metrics
from motet.algos.metrics import means, rollout_metrics, turn_metrics
from motet.algos.rollouts.returns import rollout_returns
from motet.algos.rollouts.rollout import Node
from motet.algos.spread import SpreadWatch, spread_metrics
from motet.algos.updates.batch import Sample, collate
from motet.algos.updates.ratio_statistics import ratio_sums
from motet.algos.updates.step_metrics import Step, approx_kl, step_metrics
from motet.envs import TextEnv

NAMES = ("agent_0", "agent_1")


def team_of(kind: str = "separate") -> dict[str, Any]:
    first = letter_agent(0)
    second = {
        "separate": lambda: letter_agent(1),
        "shared": lambda: first,
        "scripted": lambda: FixedAgent("a"),
    }
    return {"agent_0": first, "agent_1": second[kind]()}


def spread_env(num_turns: int = 1) -> TextEnv:
    """Rewards that differ between any two joint actions."""

    def reward(first: list[str], second: list[str]) -> list[float]:
        worth = {letter: i for i, letter in enumerate(("", *LETTERS))}
        return [worth[a[:1]] + worth[b[:1]] / 5 for a, b in zip(first, second, strict=True)]

    return TextEnv(
        [{"prompt": letter} for letter in LETTERS],
        reward,
        transition=lambda prompt: [prompt] * 2,
        num_turns=num_turns,
    )


# --- rollouts -----------------------------------------------------------------------------------


def written(*log_probs: float, cut: bool = False) -> Completion:
    ids = tuple(range(1, len(log_probs) + 1))
    return Completion("x", (1,), ids, log_probs, "length" if cut else "stop")


def node(
    turn: int,
    rewards: dict[str, tuple[float, ...]],
    completions: dict[str, tuple[Completion, ...]],
    children: tuple[int | None, ...],
) -> Node:
    return Node(
        row=0,
        turn=turn,
        observations=dict.fromkeys(completions, "p"),
        completions=completions,
        joint_actions=tuple((i,) * len(completions) for i in range(len(children))),
        rewards=rewards,
        ended=tuple(child is None for child in children),
        children=children,
        turns_credited=(1,) * len(children),
    )


def two_turns(second: tuple[float, float]) -> Rollout:
    """Turn 1 pays (2, 4) and (0, 0), turn 2 pays `second` and (1, -1); then agent_1 is silent."""
    said = {
        "agent_0": (written(-1.0, -2.0, cut=True), written(-3.0)),
        "agent_1": (written(-1.0), written(-1.0, -1.0, -4.0)),
    }
    first = node(1, {"agent_0": (2.0, 4.0), "agent_1": (0.0, 0.0)}, said, (None, 0))
    said = {"agent_0": (written(-1.0), written(-1.0)), "agent_1": (Completion("y"),) * 2}
    last = node(2, {"agent_0": second, "agent_1": (1.0, -1.0)}, said, (None, None))
    return Rollout(NAMES, ((first,), (last,)))


def test_rewards_and_returns_by_turn_and_agent() -> None:
    rollout = two_turns((3.0, 5.0))
    metrics = turn_metrics(rollout, rollout_returns(rollout, 0.5))
    assert metrics == {
        # turn 1: team (1, 2); returns of agent_0 2 and 4 + 4 / 2, of agent_1 0 and 0 + 0 / 2
        "turn_1/reward_mean": 1.5,
        "turn_1/reward_std": 0.5,
        "turn_1/expected_return": 2.0,
        "turn_1/return_std": 1.0,  # of the team's 1 and 3
        "turn_1/reward_mean/agent_0": 3.0,
        "turn_1/reward_std/agent_0": 1.0,
        "turn_1/expected_return/agent_0": 4.0,
        "turn_1/return_std/agent_0": 2.0,
        "turn_1/reward_mean/agent_1": 0.0,
        "turn_1/reward_std/agent_1": 0.0,
        "turn_1/expected_return/agent_1": 0.0,
        "turn_1/return_std/agent_1": 0.0,
        # turn 2: team (2, 2)
        "turn_2/reward_mean": 2.0,
        "turn_2/reward_std": 0.0,
        "turn_2/expected_return": 2.0,
        "turn_2/return_std": 0.0,
        "turn_2/reward_mean/agent_0": 4.0,
        "turn_2/reward_std/agent_0": 1.0,
        "turn_2/expected_return/agent_0": 4.0,
        "turn_2/return_std/agent_0": 1.0,
        "turn_2/reward_mean/agent_1": 0.0,
        "turn_2/reward_std/agent_1": 1.0,
        "turn_2/expected_return/agent_1": 0.0,
        "turn_2/return_std/agent_1": 1.0,
    }


def test_texts_by_agent_leave_out_those_without_tokens() -> None:
    metrics = rollout_metrics(two_turns((3.0, 5.0)))
    # lengths 2 1 1 1 and 1 3; agent_1's two answers of turn 2 have no tokens
    expected = {
        "rollout/completion_length_mean": 9 / 6,
        "rollout/completion_length_mean/agent_0": 5 / 4,
        "rollout/completion_length_mean/agent_1": 2.0,
        "rollout/completion_length_min": 1.0,
        "rollout/completion_length_max": 3.0,
        "rollout/completion_length_max/agent_0": 2.0,
        "rollout/completion_length_min/agent_1": 1.0,
        "rollout/frac_cut": 1 / 6,
        "rollout/frac_cut/agent_0": 1 / 4,
        "rollout/frac_cut/agent_1": 0.0,
        "rollout/entropy_estimate": 15 / 9,
        "rollout/entropy_estimate/agent_0": 8 / 5,
        "rollout/entropy_estimate/agent_1": 7 / 4,
        "rollout/reward_mean": 1.75,  # of 1, 2, 2, 2
        "rollout/reward_std": math.sqrt(3) / 4,
        "rollout/reward_mean/agent_0": 3.5,  # of 2, 4, 3, 5
        "rollout/reward_std/agent_1": math.sqrt(0.5),  # of 0, 0, 1, -1
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    alone = Rollout(
        ("agent_0",), ((node(1, {"agent_0": (1.0,)}, {"agent_0": (written(-1.0),)}, (None,)),),)
    )
    assert not [name for name in rollout_metrics(alone) if "agent" in name]


# --- log entries --------------------------------------------------------------------------------


def test_an_entry_has_means_and_lasts_and_extremes() -> None:
    history = {
        "train/loss/agent_0": [1.0, 2.0],
        "train/num_optimizer_steps": [4.0, 2.0],
        "train/learning_rate": [4.0, 2.0],
        "train/learning_rate/agent_1": [4.0, 1.0],
        "time/update_seconds": [1.0, 3.0],
        "memory/rss_gib": [2.0, 1.0],
        "rollout/completion_length_mean": [2.0, 1.0],
        "rollout/completion_length_max/agent_0": [9.0, 8.0],
        "rollout/completion_length_min": [2.0, 1.0, 3.0],
        "turn_2/reward_mean": [7.0],  # one of two rollouts had a second turn
    }
    assert means(history) == {
        "train/loss/agent_0": 1.5,
        "train/num_optimizer_steps": 3.0,
        "train/learning_rate": 2.0,
        "train/learning_rate/agent_1": 1.0,
        "time/update_seconds": 2.0,
        "memory/rss_gib": 2.0,
        "rollout/completion_length_mean": 1.5,
        "rollout/completion_length_max/agent_0": 9.0,
        "rollout/completion_length_min": 1.0,
        "turn_2/reward_mean": 7.0,
    }


def test_what_agents_earn_is_by_agent_where_it_differs() -> None:
    def history(*rollouts: Rollout) -> dict[str, list[float]]:
        found = defaultdict(list)
        for each in rollouts:
            metrics = turn_metrics(each, rollout_returns(each, 1.0)) | rollout_metrics(each)
            for name, value in metrics.items():
                found[name].append(value)
        return found

    # three agents, whose mean of 0.1 is not 0.1 to the last digit
    said = {name: (written(-1.0),) * 2 for name in "abc"}
    shared = Rollout(
        tuple("abc"), ((node(1, dict.fromkeys("abc", (0.1, 0.2)), said, (None, None)),),)
    )
    one = {**dict.fromkeys("ab", (0.1, 0.2)), "c": (0.1, 0.3)}
    differing = Rollout(tuple("abc"), ((node(1, one, said, (None, None)),),))
    entry = means(history(shared, shared))
    assert not [name for name in entry if re.search("(reward|return).*/[abc]$", name)]
    assert "rollout/frac_cut/a" in entry
    entry = means(history(shared, differing))
    # all of the entry's rollouts count, those without a difference too
    assert entry["turn_1/reward_mean/c"] == pytest.approx((0.15 + 0.2) / 2)
    assert entry["rollout/reward_mean/a"] == pytest.approx(0.15)


def test_a_run_logs_by_agent_and_by_policy() -> None:
    def logged(team: dict[str, Any]) -> set[str]:
        kept = Kept()
        config = MAGRPOConfig(num_train_epochs=1, rollout_batch_size=4, progress_bar=False)
        MAGRPOTrainer(spread_env(), team, config, loggers=[kept]).train()
        return set(kept.entries[-1][1])

    by_policy = {f"train/{name}/{a}" for a in NAMES for name in ("loss", "grad_norm", "approx_kl")}
    by_agent = {f"rollout/frac_cut/{a}" for a in NAMES}
    by_agent |= {f"train/frac_zero_std_groups/{a}" for a in NAMES}
    assert by_policy | by_agent <= logged(team_of("separate"))
    shared = logged(team_of("shared"))
    assert by_agent <= shared
    assert not by_policy & shared
    partner = logged(team_of("scripted"))  # one writes tokens, one is trained
    assert not [name for name in partner if "agent" in name]


# --- optimizer steps ----------------------------------------------------------------------------


def test_ratio_sums_by_hand() -> None:
    # ratios 1, 2, 1/2 and 2, 1/2; sampled with probability 1
    samples = [
        Sample("a", Completion("", (1,), (1, 1, 1), (0.0, 0.0, 0.0)), (1.0, 1.0, 1.0), 1.0),
        Sample("a", Completion("", (1,), (1, 1), (0.0, 0.0)), (-1.0, -1.0), 1.0),
    ]
    batch = collate([(sample,) for sample in samples])
    now = torch.log(torch.tensor([[1.0, 2.0, 0.5], [2.0, 0.5, 9.0]])).requires_grad_()
    # r - 1 - log r: 0, 1 - log 2, log 2 - 1/2, 1 - log 2, log 2 - 1/2; the 9 is padding
    total = 2 * (1 - math.log(2)) + 2 * (math.log(2) - 0.5)
    sums = ratio_sums(now, batch, 0.25)
    # clipped are the 2 that is to grow, and the 1/2 that is to shrink
    assert sums == {"approx_kl": pytest.approx(total), "clip_fraction": 2.0}
    assert ratio_sums(now, batch, 0.25, 1.5)["clip_fraction"] == 1.0  # 2 is below 5/2
    assert ratio_sums(now, batch, 0.75, 0.5)["clip_fraction"] == 1.0  # 1/2 is above 1/4
    assert ratio_sums(now, batch, None).keys() == {"approx_kl"}


def test_step_metrics_by_hand() -> None:
    def step(policy: str, iteration: int, tokens: float, kl: float, clipped: float) -> Step:
        sums = {"loss": kl, "grad_norm": 2 * kl, "tokens": 10.0, "completion_tokens": tokens}
        return Step(policy, iteration, {**sums, "approx_kl": kl, "clip_fraction": clipped})

    steps = [
        step("a", 0, 4, 0, 0),
        step("b", 0, 2, 0, 0),
        step("a", 1, 4, 2, 3),
        step("b", 1, 2, 4, 0),
    ]
    assert step_metrics(steps, {"a": 0.1, "b": 0.3, "c": 0.2}) == {
        "train/num_optimizer_steps": 4.0,
        "train/learning_rate": pytest.approx(0.2),
        "train/learning_rate/a": 0.1,
        "train/learning_rate/b": 0.3,
        "train/learning_rate/c": 0.2,
        "train/num_iterations": 2.0,
        "train/loss": 1.5,
        "train/loss/a": 1.0,
        "train/loss/b": 2.0,
        "train/grad_norm": 3.0,
        "train/grad_norm/a": 2.0,
        "train/grad_norm/b": 4.0,
        "train/clip_fraction": 3 / 12,  # tokens of both passes
        "train/clip_fraction/a": 3 / 8,
        "train/clip_fraction/b": 0.0,
        "train/approx_kl": 6 / 6,  # of the last one
        "train/approx_kl/a": 2 / 4,
        "train/approx_kl/b": 4 / 2,
        "train/tokens_computed": 40.0,
    }
    assert approx_kl(steps[:2]) == 0
    one = step_metrics(steps[::2], {"a": 0.1}, with_loss=False)
    assert not [name for name in one if name.endswith("/a") or "loss" in name]
    assert step_metrics([], {"a": 0.1}) == {
        "train/num_optimizer_steps": 0.0,
        "train/learning_rate": 0.1,
        "train/tokens_computed": 0.0,
    }


class Watched(MAGRPOTrainer):
    """Keeps what its loss is given."""

    def policy_loss(self, log_probs: Tensor, batch: Batch) -> Tensor:
        self.seen.append((log_probs.detach().clone(), batch))
        return super().policy_loss(log_probs, batch)


@pytest.mark.parametrize("high", [None, 0.5])
def test_clipped_tokens_of_an_update_counted_one_by_one(high: float | None) -> None:
    config = MAGRPOConfig(
        num_iterations=3,
        train_batch_size=4,
        clip_range=0.1,
        clip_range_high=high,
        max_new_tokens=2,
        agent_learning_rate=0.03,
        max_tokens_per_batch=8,
    )
    trainer = Watched(
        spread_env(2), {"agent_0": letter_agent(0), "agent_1": letter_agent(1)}, config
    )
    trainer.seen = []
    metrics = trainer.update(trainer.collect([0, 1, 2, 3]))
    clipped, kl = [], []
    for log_probs, batch in trainer.seen:
        for own, old, advantages, mask in zip(
            log_probs.tolist(), batch.old_log_probs.tolist(), batch.advantages.tolist(),
            batch.mask.tolist(), strict=True,
        ):  # fmt: skip
            for new, before, advantage, real in zip(own, old, advantages, mask, strict=True):
                ratio = math.exp(new - before)
                beyond = ratio > 1 + (high or 0.1) if advantage > 0 else ratio < 0.9
                clipped += [beyond and advantage != 0] if real else []
                kl += [ratio - 1 - (new - before)] if real else []
    assert 0 < np.mean(clipped) < 1
    assert metrics["train/clip_fraction"] == pytest.approx(np.mean(clipped))
    assert metrics["train/num_iterations"] == 3
    last = kl[len(kl) * 2 // 3 :]  # each pass is over the same tokens
    assert metrics["train/approx_kl"] == pytest.approx(np.mean(last), rel=1e-4)
    assert metrics["train/approx_kl"] > 0


def test_fresh_samples_are_no_distance_from_their_policy() -> None:
    metrics = MAGRPOTrainer(
        spread_env(), team_of(), MAGRPOConfig(clip_range=0.2, progress_bar=False)
    )
    found = metrics.update(metrics.collect([0, 1]))
    assert abs(found["train/approx_kl"]) < 1e-9
    assert found["train/clip_fraction"] == 0
    assert found["train/num_iterations"] == 1


@pytest.mark.parametrize("kl_in", ["loss", "return"])
def test_a_kl_is_measured_for_each_policy(kl_in: str) -> None:
    config = MAGRPOConfig(kl_coef=0.1, kl_in=kl_in, agent_learning_rate=0.05, progress_bar=False)
    trainer = MAGRPOTrainer(spread_env(), team_of(), config)
    for _ in range(3):
        metrics = trainer.update(trainer.collect([0, 1, 2, 3]))
    own = [metrics[f"train/kl/{name}"] for name in NAMES]
    assert own[0] != own[1]
    # both write one token in each of their completions
    assert metrics["train/kl"] == pytest.approx(np.mean(own))


# --- spread -------------------------------------------------------------------------------------


def test_silent_groups_are_counted_by_agent() -> None:
    assert spread_metrics(["a", "a", "b"], ["b"]) == {
        "train/frac_zero_std_groups": 0.25,
        "train/frac_zero_std_groups/a": 0.0,
        "train/frac_zero_std_groups/b": 0.5,
    }
    assert spread_metrics([], ["a"]) == {"train/frac_zero_std_groups": 1.0}
    assert spread_metrics([], []) == {}


@pytest.mark.parametrize("name", ["magrpo", "marloo", "ippo", "madpo"])
def test_an_agent_that_is_paid_the_same_for_anything_is_told_apart(name: str) -> None:
    def reward(first: list[str], second: list[str]) -> dict[str, list[float]]:
        return {"agent_0": [1.0] * len(first), "agent_1": [float(i) for i in range(len(first))]}

    env = TextEnv([{"prompt": "a"}, {"prompt": "b"}], reward)
    trainer = algos.make(name, env, team_of(), algos.spec(name).config_class(num_generations=3))
    metrics = trainer.update(trainer.collect([0, 1]))
    assert metrics["train/frac_zero_std_groups/agent_0"] == 1.0
    assert metrics["train/frac_zero_std_groups/agent_1"] == 0.0
    assert metrics["train/frac_zero_std_groups"] == 0.5


def observed(watch: SpreadWatch, *shares: float) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for share in shares:
            watch.observe({"train/frac_zero_std_groups": share})
            watch.observe({})
    return [str(each.message) for each in caught]


def test_a_long_time_without_spread_is_told_once() -> None:
    assert observed(SpreadWatch(), *[1.0] * 19) == []
    assert observed(SpreadWatch(), *[0.8] * 40) == []  # not above
    watch = SpreadWatch()
    # twenty zeros leave the window one by one: above 0.8 once the 17th 1 is in it
    assert observed(watch, *[0.0] * 20, *[1.0] * 16) == []
    (told,) = observed(watch, 1.0)
    assert "In 85 % of groups of the last 20 rollouts all completions earned the same" in told
    assert observed(watch, *[1.0] * 50) == []


def test_a_run_that_pays_the_same_for_anything_says_so() -> None:
    env = TextEnv([{"prompt": "a"}], lambda first, second: [1.0] * len(first))
    config = MAGRPOConfig(num_train_epochs=25, num_generations=2, progress_bar=False)
    trainer = MAGRPOTrainer(env, team_of(), config)
    for _ in range(2):  # once in each of two runs
        with pytest.warns(UserWarning, match="In 100 % of groups") as caught:
            trainer.train()
        assert len([each for each in caught if "In 100 %" in str(each.message)]) == 1


# --- memory -------------------------------------------------------------------------------------

PEAK = """
import torch
from motet.algos.memory import memory_metrics
before = memory_metrics()
block = torch.ones(2**26)  # 0.25 GiB
del block
after = memory_metrics()
print(before["memory/rss_gib"], after["memory/rss_gib"], *after)
"""


def test_a_peak_stays_when_what_caused_it_is_gone() -> None:
    found = subprocess.run(
        [sys.executable, "-c", PEAK], capture_output=True, text=True, check=True
    ).stdout.split()
    before, after = map(float, found[:2])
    assert 0.05 < before < 5
    assert 0.2 < after - before < 0.5
    assert found[2:] == ["memory/rss_gib"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_peak_of_a_gpu_is_since_the_last_call() -> None:
    torch.ones(2**26, device="cuda")
    first, second = memory_metrics(), memory_metrics()
    assert first["memory/allocated_gib"] - second["memory/allocated_gib"] >= 0.25
    assert first["memory/reserved_gib"] >= first["memory/allocated_gib"]
