"""Two scripts of our own in the shape of CoMLRL's tutorials, called as theirs are, run here.

The scripts are read as text, the hub's model is replaced by the embedded one, and the whole is
executed once (once per worker, unless pytest-xdist runs with `--dist loadfile`); the tests look at
what it left: folders, and the trainer.
"""

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from wandb_files import own_wandb

from motet.agents import Agent, FixedAgent, ReplayAgent, pocket_path
from motet.algos import MAGRPOConfig, MAGRPOTrainer, Rollout, collect_rollouts, group_mean
from motet.algos.group.grouping import advantage_groups, credited_completions
from motet.algos.rollouts.returns import rollout_returns

FOLDER = Path(__file__).parent / "tutorials"
HUB_MODEL = "Qwen/Qwen2.5-0.5B"
AGENTS = ("agent_0", "agent_1")


def execute(name: str, folder: Path) -> dict[str, Any]:
    """Run a script in a folder of its own and return its global names."""
    path = FOLDER / name
    source = path.read_text(encoding="utf-8")
    assert source.count(HUB_MODEL) == 1
    source = source.replace(HUB_MODEL, pocket_path().as_posix())
    names: dict[str, Any] = {"__name__": "__main__"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_DIR", str(folder))
        patch.setenv("WANDB_SILENT", "true")
        exec(compile(source, path, "exec"), names)
    return names


@pytest.fixture(scope="module")
def one_turn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("one_turn")
    with own_wandb():
        return {**execute("one_turn.py", folder), "folder": folder}


@pytest.fixture(scope="module")
def two_turn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("two_turn")
    return {**execute("two_turn.py", folder), "folder": folder}


@pytest.fixture(scope="module")
def rollouts(two_turn: dict[str, Any]) -> list[Rollout]:
    """Each row of the two-turn tutorial, twice."""
    return [two_turn["trainer"].collect([row]) for row in (0, 1, 2, 3) for _ in range(2)]


def team_means(rollout: Rollout) -> Iterator[tuple[Any, float]]:
    """Each node with the mean reward of its group."""
    for node in rollout.nodes():
        rewards = [value for own in node.rewards.values() for value in own]
        yield node, sum(rewards) / len(rewards)


def advantages(rollout: Rollout) -> list[float]:
    credited = credited_completions(rollout, rollout_returns(rollout, 1.0), AGENTS)
    groups, _ = advantage_groups(credited, baseline=group_mean, normalize=True)
    return [value for group in groups for value in group.advantages]


def scaled(rollout: Rollout, factor: float) -> Rollout:
    return replace(
        rollout,
        levels=tuple(
            tuple(
                replace(
                    node,
                    rewards={
                        name: tuple(factor * value for value in own)
                        for name, own in node.rewards.items()
                    },
                )
                for node in level
            )
            for level in rollout.levels
        ),
    )


@pytest.mark.parametrize("tutorial", ["one_turn", "two_turn"])
def test_saved_folders_load_in_plain_transformers_and_were_trained(
    tutorial: str, request: pytest.FixtureRequest
) -> None:
    names = request.getfixturevalue(tutorial)
    models = names["folder"] / names["output_dir"] / "models"
    assert {path.name for path in models.iterdir()} == set(AGENTS)
    untrained = AutoModelForCausalLM.from_pretrained(pocket_path()).state_dict()
    weights = {}
    for name, model in zip(AGENTS, names["agents"], strict=True):
        loaded = AutoModelForCausalLM.from_pretrained(models / name)
        weights[name] = loaded.state_dict()
        assert all(torch.equal(weights[name][key], own) for key, own in model.state_dict().items())
        assert any(not torch.equal(weights[name][key], own) for key, own in untrained.items())
        text = AutoTokenizer.from_pretrained(models / name)
        prompt = text("Describe a city in the clouds:", return_tensors="pt")
        written = loaded.generate(**prompt, max_new_tokens=8)
        assert written.shape[1] > prompt["input_ids"].shape[1]
    assert any(
        not torch.equal(weights["agent_0"][key], weights["agent_1"][key]) for key in untrained
    )


def test_one_turn_takes_every_prompt_three_times_with_eight_pairs(one_turn: dict[str, Any]) -> None:
    trainer = one_turn["trainer"]
    assert trainer.num_env_steps == 3 * 10 * 8
    assert {agent.policy_version for agent in trainer.agents.values()} == {30}
    (level,) = trainer.collect([0]).levels
    (node,) = level
    assert node.observations == dict.fromkeys(AGENTS, one_turn["train_dataset"][0]["prompt"])
    assert len(node.joint_actions) == 8
    assert all(node.ended)
    assert all(
        len(completion.completion_ids) <= 128
        for group in node.completions.values()
        for completion in group
    )


def test_one_turn_rewards_are_a_hundred_times_what_the_function_returns(
    one_turn: dict[str, Any],
) -> None:
    node = next(one_turn["trainer"].collect([3]).nodes())
    texts = [[completion.text for completion in node.completions[name]] for name in AGENTS]
    plain = one_turn["proper_length_ratio_reward"](*texts, target_min=2, target_max=3)
    assert all(0 <= reward <= 1 for reward in plain)
    for name in AGENTS:
        assert node.rewards[name] == pytest.approx([100 * reward for reward in plain])


def test_one_turn_logs_to_weights_and_biases_without_a_network(one_turn: dict[str, Any]) -> None:
    (run,) = (one_turn["folder"] / "wandb").glob("offline-run-*")
    (log,) = run.glob("*.wandb")
    content = log.read_bytes()
    for word in ("turn_1/reward_mean", *one_turn["wandb_config"].values()):
        assert word.encode() in content, word


@pytest.mark.parametrize("tutorial", ["one_turn", "two_turn"])
def test_scaling_rewards_leaves_the_normalised_advantages(
    tutorial: str, request: pytest.FixtureRequest
) -> None:
    rollout = request.getfixturevalue(tutorial)["trainer"].collect([0, 1])
    before = advantages(rollout)
    assert max(before) > 0.5
    assert advantages(scaled(rollout, 100.0)) == pytest.approx(before, rel=1e-9)


def test_two_turns_are_four_joint_completions_and_then_at_most_sixteen(
    two_turn: dict[str, Any], rollouts: list[Rollout]
) -> None:
    row = two_turn["train_dataset"][0]
    for rollout in rollouts:
        (first,) = rollout.levels[0]
        assert len(first.joint_actions) == 4
        later = rollout.levels[1] if len(rollout.levels) == 2 else ()
        assert sum(len(node.joint_actions) for node in later) == 4 * len(later) <= 16
        assert all(all(node.ended) for node in later)
    first = rollouts[0].levels[0][0]
    assert first.observations == {
        "agent_0": two_turn["first_formatter"](row),
        "agent_1": two_turn["second_formatter"](row),
    }


def test_the_second_prompts_are_those_of_the_transition(
    two_turn: dict[str, Any], rollouts: list[Rollout]
) -> None:
    rollout = next(rollout for rollout in rollouts if len(rollout.levels) == 2)
    (first,) = rollout.levels[0]
    for child, joint in zip(first.children, first.joint_actions, strict=True):
        said = [first.completions[name][k].text for name, k in zip(AGENTS, joint, strict=True)]
        prompts = two_turn["external_transition"](
            two_turn["train_dataset"][first.row]["prompt"],
            said,
            2,
            prompt_history_per_agent=[[first.observations[name]] for name in AGENTS],
            response_history_per_agent=[[text] for text in said],
        )
        assert list(rollout.levels[1][child].observations.values()) == prompts


def test_a_turn_1_completion_is_credited_its_reward_and_the_mean_of_what_follows(
    rollouts: list[Rollout],
) -> None:
    for rollout in rollouts:
        (first,) = rollout.levels[0]
        returns = rollout_returns(rollout, discount=1.0)
        for name in AGENTS:
            by_hand = list(first.rewards[name])
            for k, child in enumerate(first.children):
                if child is not None:
                    by_hand[k] += sum(rollout.levels[1][child].rewards[name]) / 4
            assert returns[0][0][name].tolist() == pytest.approx(by_hand)
    assert any(len(rollout.levels) == 2 for rollout in rollouts)


def test_a_group_ends_only_where_its_mean_reward_is_above_the_threshold(
    rollouts: list[Rollout],
) -> None:
    for rollout in rollouts:
        for node, mean in team_means(rollout):
            last = node.turn == 2
            assert set(node.ended) == {last or mean > 0.9}
            assert all((child is None) == node.ended[0] for child in node.children)


def answers(*lengths: int) -> ReplayAgent:
    """An agent whose first four answers have these lengths, and whose later ones are short."""
    return ReplayAgent(["x" * length for length in lengths] + ["x"] * 16)


GOOD = FixedAgent("x" * 100), FixedAgent("x" * 250)
BAD = FixedAgent("x" * 100), FixedAgent("x" * 100)
# Rewards of 1, 1, 1 and exp(-0.43) = 0.65: the mean of 0.913 ends the worst of them as well.
MOSTLY_GOOD = FixedAgent("x" * 100), answers(200, 250, 300, 157)
# Rewards of 1, 1, 1 and exp(-0.69) = 0.50: the mean of 0.875 ends none, not even the best.
HALF_GOOD = FixedAgent("x" * 100), answers(200, 250, 300, 131)


@pytest.mark.parametrize(
    ("team", "ends"),
    [(GOOD, True), (BAD, False), (MOSTLY_GOOD, True), (HALF_GOOD, False)],
    ids=["good", "bad", "mostly good", "half good"],
)
def test_the_threshold_judges_groups_not_branches(
    two_turn: dict[str, Any], team: tuple[Agent, Agent], ends: bool
) -> None:
    rollout = collect_rollouts(
        two_turn["trainer"].env, dict(zip(AGENTS, team, strict=True)), [0], num_generations=4
    )
    (first,) = rollout.levels[0]
    assert first.ended == (ends,) * 4
    assert [len(level) for level in rollout.levels] == ([1] if ends else [1, 4])
    assert first.children == ((None,) * 4 if ends else (0, 1, 2, 3))


def test_the_default_threshold_ends_every_group_after_turn_1_and_says_so_once(
    two_turn: dict[str, Any],
) -> None:
    default = MAGRPOConfig().early_termination_threshold
    assert default == -0.2
    config = replace(two_turn["config"], early_termination_threshold=default, num_train_epochs=1)
    parts = ("tokenizer", "external_transition", "train_dataset")
    trainer = MAGRPOTrainer(
        args=config,
        agents=copy.deepcopy(two_turn["agents"]),
        reward_func=two_turn["proper_length_ratio_reward"],
        **{name: two_turn[name] for name in parts},
    )
    with pytest.warns(UserWarning, match=r"Every group ended at turn 1") as seen:
        trainer.train()
    about_turns = [str(w.message) for w in seen if "turn" in str(w.message)]
    assert len(about_turns) == 1
    assert "num_turns=2" in about_turns[0]
    assert "early_termination_threshold=-0.2" in about_turns[0]
    assert trainer.num_env_steps == 4 * 4
