"""Teams over one base: sampled together as they would be apart, with the base as the reference."""

import copy
import gc
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from peft import LoraConfig
from reference import completion_log_prob
from tiny import byte_tokenizer, tiny_agent, tiny_llama

from motet.agents import Agent, FixedAgent, GenerationConfig, LMAgent
from motet.agents.adapters import adapter_parameters, without_adapters
from motet.agents.side_by_side import Request
from motet.algos import MAGRPOConfig, MAGRPOTrainer, Rollout, evaluate
from motet.algos.rollouts.collect import collect_rollouts
from motet.algos.team import trainable_policies
from motet.algos.updates.batch import Sample, collate
from motet.algos.updates.reference_policy import ReferencePolicy
from motet.envs import TextEnv

QUIET = {"progress_bar": False}


def settings(**changes: object) -> LoraConfig:
    return LoraConfig(**{"r": 3, "target_modules": ["q_proj", "v_proj"], **changes})


def perturb(agent: LMAgent, seed: int) -> LMAgent:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in adapter_parameters(agent.model, agent.adapter):
            weight.add_(0.15 * torch.randn(weight.shape, generator=generator))
    return agent


def base_agent(**options: str) -> LMAgent:
    short = GenerationConfig(max_new_tokens=10)
    return LMAgent(tiny_llama(), byte_tokenizer(), generation=short, seed=0, **options)


def letters(*texts: list[str]) -> list[float]:
    return [
        sum(ord(c) for text in said for c in text) % 97 / 97 for said in zip(*texts, strict=True)
    ]


def env_of(num_agents: int, num_turns: int = 2) -> TextEnv:
    return TextEnv(
        [{"prompt": prompt} for prompt in ("Rain", "x", "A city in the clouds")],
        letters,
        transition=lambda prompt: [f"{prompt} again, {i}" for i in range(num_agents)],
        num_turns=num_turns,
        num_agents=num_agents,
        early_termination_threshold=None,
    )


def shared_team(**options: str) -> dict[str, Agent]:
    """Two adapters, the plain base beside them, a model of its own, and one that is scripted."""
    base = base_agent(**options)
    first, second = (perturb(base.with_adapter(f"a{i}", settings()), i) for i in range(2))
    base.frozen = True
    other = LMAgent(tiny_llama(1), byte_tokenizer(), generation=base.generation, **options)
    return {
        "agent_0": first,
        "agent_1": base,
        "agent_2": other,
        "agent_3": second,
        "agent_4": FixedAgent("so it is"),
    }


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each batch that is sampled."""
    from motet.agents import lm_agent, side_by_side

    rows: list[int] = []
    for module in (lm_agent, side_by_side):
        own = module.sample

        def sample(model, prompts, *args, own=own, **kwargs):
            rows.append(len(prompts))
            return own(model, prompts, *args, **kwargs)

        monkeypatch.setattr(module, "sample", sample)
    return rows


def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(requests: Sequence[Request], num_generations: int) -> bool:
        return False

    monkeypatch.setattr("motet.agents.side_by_side.mixing_pays", never)


def assert_same(one: Rollout, other: Rollout) -> None:
    nodes = list(zip(one.nodes(), other.nodes(), strict=True))
    assert nodes
    for ours, theirs in nodes:
        assert ours.observations == theirs.observations
        assert ours.rewards == theirs.rewards
        for name, group in ours.completions.items():
            for mine, its in zip(group, theirs.completions[name], strict=True):
                assert mine.completion_ids == its.completion_ids
                assert mine.log_probs == pytest.approx(its.log_probs, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("history", ["none", "append"])
def test_a_rollout_is_the_same_together_and_apart(
    history: str, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    team = shared_team(history=history)
    together = collect_rollouts(env_of(5), team, [0, 2], num_generations=2, seed=3)
    # at each turn one batch for the base, and one for the other model; what is kept is kept apart
    assert len(batches) == 2 * (2 if history == "none" else 4)
    batches.clear()
    apart(monkeypatch)
    assert_same(together, collect_rollouts(env_of(5), team, [0, 2], num_generations=2, seed=3))
    assert len(batches) == 2 * 4


def test_a_mixed_team_trains_its_two_adapters_and_its_own_model(tmp_path: Path) -> None:
    team = shared_team()
    base, other = team["agent_1"].model, team["agent_2"].model
    before = {name: weight.clone() for name, weight in base.named_parameters()}
    head = other.lm_head.weight.clone()
    config = MAGRPOConfig(
        rollout_batch_size=3, num_generations=3, agent_learning_rate=1e-2, **QUIET
    )
    trainer = MAGRPOTrainer(env_of(5, num_turns=1), team, config)
    assert [updater.policy.adapter for updater in trainer.updaters] == ["a0", None, "a1"]
    trainer.train()
    moved = {name for name, w in base.named_parameters() if not torch.equal(w, before[name])}
    assert {"a0", "a1"} == {name.split(".")[-2] for name in moved}
    assert not torch.equal(other.lm_head.weight, head)
    trainer.save_model(tmp_path)
    assert evaluate(env_of(5, num_turns=1), trainer.agents, num_samples=2).metrics


def test_training_is_the_same_together_and_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained() -> list[torch.Tensor]:
        base = base_agent()
        team = {f"agent_{i}": perturb(base.with_adapter(f"a{i}", settings()), i) for i in range(2)}
        config = MAGRPOConfig(
            rollout_batch_size=3, num_generations=3, num_turns=1, agent_learning_rate=1e-3, **QUIET
        )
        MAGRPOTrainer(env_of(2, num_turns=1), team, config).train()
        return [w.detach() for i in range(2) for w in adapter_parameters(base.model, f"a{i}")]

    together = trained()
    apart(monkeypatch)
    for one, other in zip(together, trained(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def tensor_bytes() -> int:
    """Bytes of all tensors that are alive."""
    gc.collect()
    held = {}
    for each in gc.get_objects():
        if type(each) in (torch.Tensor, torch.nn.Parameter):
            storage = each.untyped_storage()
            held[storage.data_ptr()] = storage.nbytes()
    return sum(held.values())


def test_the_reference_is_the_base_and_no_second_copy_is_held() -> None:
    base = base_agent()
    team = {f"agent_{i}": perturb(base.with_adapter(f"a{i}", settings()), i) for i in range(2)}
    policies = trainable_policies(team)
    before = tensor_bytes()
    references = [ReferencePolicy(policy) for policy in policies]
    assert tensor_bytes() == before
    full = tiny_agent()
    plain = trainable_policies({"agent_0": full})
    before = tensor_bytes()
    copied = ReferencePolicy(plain[0])
    own = sum(w.numel() * w.element_size() for w in full.model.parameters())
    assert tensor_bytes() >= before + own, "the copy of full weights is seen"
    assert copied.weights()
    assert not any(reference.weights() for reference in references)


def test_the_reference_equals_a_frozen_copy_of_the_base() -> None:
    base = base_agent()
    frozen = copy.deepcopy(base.model)
    team = {f"agent_{i}": perturb(base.with_adapter(f"a{i}", settings()), i) for i in range(2)}
    for i, policy in enumerate(trainable_policies(team)):
        agent = team[policy.name]
        completions = [c for group in agent.act(["Rain", "x"], 3, seed=i) for c in group]
        batch = collate([(Sample(policy.name, c, 1.0, 1.0),) for c in completions])
        found = ReferencePolicy(policy).log_probs(batch, agent.generation)
        with without_adapters(base.model):
            logits = base.model(input_ids=torch.tensor([[1, 2, 3]])).logits
        expected = frozen(input_ids=torch.tensor([[1, 2, 3]])).logits
        torch.testing.assert_close(logits, expected, rtol=1e-6, atol=1e-6)
        for row, completion in zip(found, completions, strict=True):
            with torch.no_grad():
                slow = completion_log_prob(frozen, completion, agent.generation)
            assert float(row.sum()) == pytest.approx(float(slow), rel=1e-5, abs=1e-5)
