"""Merged agents: an adapter in the weights of a model of its own, and files that stay the same."""

import itertools
import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig
from safetensors.torch import load_file
from tiny import byte_tokenizer, tiny_agent
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from motet.agents import GenerationConfig, LMAgent, pocket
from motet.agents.adapters import activated, adapter_names, adapter_parameters
from motet.algos import MAGRPOConfig, MAGRPOTrainer
from motet.envs import make

PROMPTS = ["Rain", "Describe a city in the clouds:"]


def lora(**changes: object) -> LoraConfig:
    return LoraConfig(
        **{"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], **changes}
    )


def perturbed(agent: LMAgent, seed: int = 0) -> LMAgent:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in adapter_parameters(agent.model, agent.adapter):
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    return agent


def logits(agent: LMAgent) -> torch.Tensor:
    with torch.no_grad(), activated(agent.model, agent.adapter):
        return agent.model(input_ids=torch.tensor([[1, 7, 42, 99, 3]])).logits[0]


KINDS = {
    "attention": {},
    "rank patterns": {"rank_pattern": {"v_proj": 2}, "alpha_pattern": {"q_proj": 5}},
    "head": {"target_modules": ["q_proj", "lm_head"]},
    "embeddings": {"target_modules": ["embed_tokens", "down_proj"]},
    "a whole head": {"modules_to_save": ["lm_head"]},
    "whole norms": {"modules_to_save": ["norm"]},
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True},
    "all linear": {"target_modules": "all-linear"},
}


@pytest.mark.parametrize("base", [tiny_agent, pocket], ids=["head of its own", "tied head"])
@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_a_merged_agent_computes_the_same_without_adapters(
    changes: dict, base: object, tmp_path: Path
) -> None:
    plain = base().with_generation(max_new_tokens=8)
    agent = perturbed(plain.with_adapter("a", lora(**changes)))
    perturbed(plain.with_adapter("b", lora(r=2)), 1)
    before = {name: w.clone() for name, w in agent.model.state_dict().items()}
    expected = logits(agent)
    assert not torch.allclose(expected, logits(plain), atol=1e-3)

    merged = agent.merged()
    # Products are summed in another order, so that errors go by the largest logits, near 0 as well.
    tolerance = 1e-5 * float(expected.abs().max())
    torch.testing.assert_close(logits(merged), expected, rtol=1e-5, atol=tolerance)
    assert (merged.adapter, adapter_names(merged.model)) == (None, [])
    assert type(merged.model) is type(agent.model)
    assert all(weight.requires_grad for weight in merged.model.parameters())
    kept = agent.model.state_dict()
    assert kept.keys() == before.keys()
    assert all(torch.equal(kept[name], weight) for name, weight in before.items())
    assert not {id(w) for w in merged.model.parameters()} & {
        id(w) for w in agent.model.parameters()
    }

    agent.save_pretrained(tmp_path, merge=True)
    loaded = LMAgent.from_pretrained(tmp_path, generation=agent.generation, device="cpu")
    assert torch.equal(logits(loaded), logits(merged))
    ordinary = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert torch.equal(logits(LMAgent(ordinary, plain.tokenizer)), logits(merged))


def test_a_merged_agent_draws_what_the_agent_would() -> None:
    agent = perturbed(tiny_agent(max_new_tokens=12).with_adapter("a", lora()))
    agent.version.value = 3
    merged = agent.merged()
    ours, theirs = merged.act(PROMPTS, 3), agent.act(PROMPTS, 3)
    for one, other in zip(itertools.chain(*ours), itertools.chain(*theirs), strict=True):
        assert one.completion_ids == other.completion_ids
        assert one.log_probs == pytest.approx(other.log_probs, rel=1e-5, abs=1e-5)
        assert one.policy_version == 3
    agent.version.value += 1
    assert merged.policy_version == 3


def test_a_merged_agent_is_trained_as_a_whole() -> None:
    merged = perturbed(tiny_agent(max_new_tokens=6).with_adapter("a", lora())).merged()
    config = MAGRPOConfig(rollout_batch_size=5, agent_learning_rate=1e-2, progress_bar=False)
    names = ("agent_0", "agent_1")
    trainer = MAGRPOTrainer(make("story-length-ratio-v0"), dict.fromkeys(names, merged), config)
    before = merged.model.model.embed_tokens.weight.clone()
    trainer.train()
    assert not torch.equal(merged.model.model.embed_tokens.weight, before)


def test_other_architectures_and_16_bits() -> None:
    gpt2 = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=1, n_head=4, vocab_size=257)).eval()
    settings = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    agent = perturbed(LMAgent(gpt2, byte_tokenizer()).with_adapter("a", settings))
    torch.testing.assert_close(logits(agent.merged()), logits(agent), rtol=1e-5, atol=1e-5)
    half = perturbed(pocket(generation=GenerationConfig()).with_adapter("a", lora()))
    half.model.to(torch.bfloat16)
    assert half.merged().model.dtype == torch.bfloat16


def test_what_cannot_be_merged_is_said() -> None:
    base = tiny_agent()
    with pytest.raises(ValueError, match="an agent with an adapter to merge, got one without"):
        base.merged()
    with pytest.warns(UserWarning, match="lora_bias"):
        agent = base.with_adapter("a", lora(lora_bias=True))
    with pytest.raises(ValueError, match="layers with a bias to merge the adapter 'a' with"):
        agent.merged()


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_files_stay_the_same_through_loading(changes: dict, tmp_path: Path) -> None:
    agent = perturbed(tiny_agent().with_adapter("a", lora(**changes)))
    agent.save_pretrained(tmp_path / "first")
    again = tiny_agent().with_adapter("b", tmp_path / "first")
    again.save_pretrained(tmp_path / "second")
    first, second = (
        (tmp_path / folder / "adapter_model.safetensors").read_bytes()
        for folder in ("first", "second")
    )
    assert first == second
    settings = [read_settings(tmp_path / folder) for folder in ("first", "second")]
    assert settings[0] == settings[1]


def read_settings(folder: Path) -> dict:
    """An adapter's settings; peft writes sets as lists in any order."""
    written = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    return {
        key: sorted(value) if isinstance(value, list) else value for key, value in written.items()
    }


def test_what_is_saved_after_training_is_what_was_trained(tmp_path: Path) -> None:
    base = tiny_agent(max_new_tokens=6)
    team = {f"agent_{i}": base.with_adapter(f"a{i}", lora()) for i in range(2)}
    start = [w.clone() for w in adapter_parameters(base.model, "a0")]
    config = MAGRPOConfig(
        rollout_batch_size=5,
        agent_learning_rate=1e-2,
        progress_bar=False,
        output_dir=str(tmp_path / "run"),
    )
    env = make("story-length-ratio-v0")
    trainer = MAGRPOTrainer(env, team, config)
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    trained = dict(base.model.named_parameters())
    for i, name in enumerate(team):
        saved = load_file(tmp_path / "saved" / name / "adapter_model.safetensors")
        assert len(saved) == len(adapter_parameters(base.model, f"a{i}"))
        for key, weight in saved.items():
            own = key.removeprefix("base_model.model.").replace(".weight", f".a{i}.weight")
            assert weight.numpy().tobytes() == trained[own].detach().numpy().tobytes()
    moved = adapter_parameters(base.model, "a0")
    assert not all(torch.equal(a, b) for a, b in zip(start, moved, strict=True))
