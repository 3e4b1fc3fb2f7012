"""A team with a partner behind an endpoint: it is played with, told its past, and never trained."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from openai_stub import KEY, OpenAIStub

from motet import agents, algos, envs
from motet.algos import Rollout, collect_rollouts, evaluate

SHORT = agents.GenerationConfig(max_new_tokens=12)
NAMES = ("agent_0", "agent_1")


def tale(body: Mapping[str, Any], index: int) -> str:
    """Longer for some seeds than for others, so that rewards differ."""
    return "A tale of a fox. " * (1 + (body.get("seed", 0) + index) % 5)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def stub() -> Iterator[OpenAIStub]:
    with OpenAIStub(answer=tale) as server:
        yield server


def test_a_writer_is_trained_with_a_frozen_partner_behind_an_endpoint(
    stub: OpenAIStub, tmp_path: Path
) -> None:
    writer = agents.pocket(generation=SHORT)
    partner = agents.APIAgent("m", base_url=stub.url)
    config = algos.MAGRPOConfig(
        num_generations=3,
        rollout_batch_size=2,
        agent_learning_rate=1e-3,
        max_new_tokens=12,
        seed=1,
        output_dir=str(tmp_path),
        progress_bar=False,
    )
    before = [weight.clone() for weight in writer.model.parameters()]
    trainer = algos.make(
        "magrpo",
        env=envs.make("story-length-ratio-v0"),
        agents=dict(zip(NAMES, (writer, partner), strict=True)),
        config=config,
    )
    rollout = trainer.collect([0, 1])
    metrics = trainer.update(rollout)
    assert metrics["train/num_optimizer_steps"] == 1
    moved = zip(before, writer.model.parameters(), strict=True)
    assert any(not torch.equal(old, new) for old, new in moved)
    assert [seen.body["n"] for seen in stub.requests] == [3, 3]
    for node in rollout.nodes():
        assert all(c.text.startswith("A tale") for c in node.completions["agent_1"])
        assert not any(c.completion_ids for c in node.completions["agent_1"])
    again = trainer.collect([0, 1])  # other seeds each time, and the same in each run
    assert {seen.body["seed"] for seen in stub.requests[:2]}.isdisjoint(
        seen.body["seed"] for seen in stub.requests[2:]
    )
    assert again.num_joint_actions == 6
    trainer.save_model(tmp_path / "models")  # of the one that has weights


def test_a_run_asks_the_same_again_with_the_same_seed(stub: OpenAIStub) -> None:
    team = {"agent_0": agents.pocket(generation=SHORT), "agent_1": None}
    asked = []
    for _ in range(2):
        team["agent_1"] = agents.APIAgent("m", base_url=stub.url)
        stub.requests.clear()
        env = envs.make("story-length-ratio-v0", num_turns=2)
        rollout = collect_rollouts(env, team, [0], num_generations=2, seed=7)
        bodies = [seen.body for seen in stub.requests]
        asked.append((rollout, sorted(map(str, bodies))))
    assert asked[0] == asked[1]


@pytest.mark.parametrize("joint_mode", ["aligned", "cross"])
def test_each_branch_of_a_rollout_is_a_conversation_of_its_own(
    stub: OpenAIStub, tmp_path: Path, joint_mode: str
) -> None:
    partner = agents.APIAgent("m", base_url=stub.url, history="append", system_prompt="Be brief.")
    team = {"agent_0": agents.pocket(generation=SHORT), "agent_1": partner}
    env = envs.make("story-length-ratio-v0", num_turns=2, early_termination_threshold=None)
    rollout = collect_rollouts(env, team, [0, 1], num_generations=2, joint_mode=joint_mode, seed=3)
    first, second = rollout.levels
    checked = 0
    for node in first:
        for joint, child in zip(node.joint_actions, node.children, strict=True):
            assert child is not None
            said = node.completions["agent_1"][joint[1]]
            past = (("user", node.observations["agent_1"]), ("assistant", said.text))
            seen = ("user", second[child].observations["agent_1"])
            for completion in second[child].completions["agent_1"]:
                assert completion.messages == (*past, seen, ("assistant", completion.text))
                checked += 1
    assert checked == 2 * (2 if joint_mode == "aligned" else 4) * 2
    sent = [tuple((m["role"], m["content"]) for m in s.body["messages"]) for s in stub.requests]
    assert all(messages[0] == ("system", "Be brief.") for messages in sent)
    known = {c.messages[:-1] for n in rollout.nodes() for c in n.completions["agent_1"]}
    assert {messages[1:] for messages in sent} == known
    rollout.save(tmp_path / "rollout.jsonl")
    assert Rollout.load(tmp_path / "rollout.jsonl") == rollout


def test_evaluation_without_chance_asks_for_temperature_0(stub: OpenAIStub) -> None:
    partner = agents.APIAgent("m", base_url=stub.url, history="append")
    team = {"agent_0": agents.pocket(generation=SHORT), "agent_1": partner}
    env = envs.make("story-length-ratio-v0", num_turns=2, early_termination_threshold=None)
    evaluate(env, team, [0, 1], do_sample=False)
    assert {seen.body["temperature"] for seen in stub.requests} == {0.0}
    assert sorted(len(seen.body["messages"]) for seen in stub.requests) == [1, 1, 3, 3]
    assert partner.usage.num_requests == 4


def test_a_budget_ends_training_with_a_sentence(stub: OpenAIStub) -> None:
    partner = agents.APIAgent("m", base_url=stub.url, budget=agents.APIBudget(max_requests=3))
    team = {"agent_0": agents.pocket(generation=SHORT), "agent_1": partner}
    config = algos.MAGRPOConfig(num_generations=2, max_new_tokens=12, progress_bar=False)
    env = envs.make("story-length-ratio-v0")
    with pytest.raises(agents.BudgetExceededError, match="max_requests=3: all have been sent"):
        algos.make("magrpo", env=env, agents=team, config=config).train()
    assert len(stub.requests) == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "other"}, "model of agent_1: m there, other here"),
        ({"system_prompt": "Hm."}, "system_prompt of agent_1: None there, 'Hm.' here"),
        ({"generation": SHORT}, "generation of agent_1: .*max_new_tokens=256"),
        ({"history": "append"}, "history of agent_1: none there, append here"),
        ({"extra_body": {"top_k": 3}}, "extra_body of agent_1: "),
        ({"chat": False}, "chat of agent_1: True there, False here"),
    ],
)
def test_a_run_goes_on_with_the_same_partner_alone(
    stub: OpenAIStub, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    def trainer_with(**options: Any) -> algos.MAGRPOTrainer:
        partner = agents.APIAgent(**{"model": "m", "base_url": stub.url, **options})
        team = {"agent_0": agents.pocket(generation=SHORT), "agent_1": partner}
        config = algos.MAGRPOConfig(num_generations=2, num_train_epochs=1, progress_bar=False)
        env = envs.make("story-length-ratio-v0")
        trainer = algos.make("magrpo", env=env, agents=team, config=config)
        assert isinstance(trainer, algos.MAGRPOTrainer)
        return trainer

    first = trainer_with()
    first.save_checkpoint(tmp_path)
    with pytest.raises(ValueError, match=words):
        trainer_with(**changes).train(resume_from=tmp_path)
    moved = trainer_with(base_url=stub.url.replace("127.0.0.1", "localhost"))
    moved.load_state_dict(first.state_dict())  # the same server under another name


def test_a_team_of_nobody_with_weights_cannot_be_trained(stub: OpenAIStub) -> None:
    team = {"agent_0": agents.HumanAgent(), "agent_1": agents.APIAgent("m", base_url=stub.url)}
    with pytest.raises(ValueError, match="'agent_0': 'HumanAgent', 'agent_1': 'APIAgent'"):
        algos.make("magrpo", env=envs.make("story-length-ratio-v0"), agents=team)
