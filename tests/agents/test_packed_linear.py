"""Decoding with reordered weights, and in bfloat16."""

import pytest
import torch
from peft import LoraConfig
from tiny import byte_tokenizer, tiny_agent, tiny_llama
from torch.nn.utils import prune

from motet.agents import GenerationConfig, LMAgent, packed_linear, pocket
from motet.agents.adapters import activated
from motet.agents.packed_linear import packed_linears
from motet.agents.precision import precision

PROMPTS = ["Write a story about a fox.", "Hi", "A somewhat longer prompt, of unlike length."]


def flat(groups):
    return [completion for group in groups for completion in group]


def forwards(model):
    return [m for m in model.modules() if "forward" in m.__dict__]


def test_the_same_tokens_and_log_probs(monkeypatch):
    agent = pocket(generation=GenerationConfig(max_new_tokens=40))
    seen = []
    original = packed_linear._product

    def product(*args):
        seen.append(len(args[2]))
        return original(*args)

    monkeypatch.setattr(packed_linear, "_product", product)
    packed = agent.act(PROMPTS, 4, seed=0)
    assert seen, "no layer was packed"
    assert forwards(agent.model) == []
    monkeypatch.setattr(packed_linear, "_MIN_STEPS", 1000)
    count = len(seen)
    plain = agent.act(PROMPTS, 4, seed=0)
    assert len(seen) == count
    for ours, theirs in zip(flat(packed), flat(plain), strict=True):
        assert ours.completion_ids == theirs.completion_ids
        assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-4)


@pytest.mark.parametrize("dora", [False, True])
def test_adapters_are_part_of_the_copies(monkeypatch, dora):
    """Where the layer is one matrix: DoRA's are not, and are computed as they are."""
    agent = tiny_agent(max_new_tokens=20).with_adapter("a", LoraConfig(r=2, use_dora=dora))
    with torch.no_grad():
        for weight in agent.model.parameters():
            weight.add_(0.1 * torch.randn_like(weight) * weight.requires_grad)
    packed = agent.act(PROMPTS, 4, seed=0)
    assert forwards(agent.model) == []
    monkeypatch.setattr(packed_linear, "_MIN_STEPS", 1000)
    plain = agent.act(PROMPTS, 4, seed=0)
    for ours, theirs in zip(flat(packed), flat(plain), strict=True):
        assert ours.completion_ids == theirs.completion_ids
        assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-4)


def test_weights_are_read_anew_for_each_batch():
    agent = tiny_agent(max_new_tokens=20)
    before = agent.act(PROMPTS, 2, seed=0)
    with torch.no_grad():
        agent.model.lm_head.weight.mul_(-1)
    assert agent.act(PROMPTS, 2, seed=0) != before


def test_layers_are_as_before_also_after_an_error():
    model = tiny_agent().model
    inputs = {"input_ids": torch.tensor([[1, 2, 3]])}
    expected = model(**inputs).logits
    with (
        pytest.raises(RuntimeError, match="stop"),
        packed_linears(model, None, GenerationConfig(), num_rows=3),
        torch.no_grad(),
    ):
        torch.testing.assert_close(model(**inputs).logits, expected)
        assert len(forwards(model)) == 15  # seven layers in each of two blocks, and the head
        raise RuntimeError("stop")
    assert forwards(model) == []
    assert torch.equal(model(**inputs).logits, expected)


def test_layers_that_somebody_wrapped_are_left_alone():
    model = tiny_agent().model
    model.lm_head.forward = mine = lambda rows: rows @ model.lm_head.weight.T
    with packed_linears(model, None, GenerationConfig(), num_rows=1):
        assert model.lm_head.forward is mine
    assert model.lm_head.forward is mine


def test_bf16_multiplies_in_bfloat16_and_keeps_weights():
    agent = tiny_agent(max_new_tokens=20, bf16=True)
    assert agent.model.dtype == torch.float32
    answers = agent.act(PROMPTS, 4, seed=0)
    assert agent.model.dtype == torch.float32
    exact = agent.with_generation(bf16=False).act(PROMPTS, 4, seed=0)
    ours, theirs = answers[0][0].log_probs[0], exact[0][0].log_probs[0]
    assert ours != theirs
    assert ours == pytest.approx(theirs, abs=0.5)
    with precision(torch.device("cpu"), agent.generation):
        layer = torch.nn.Linear(3, 2)
        assert layer(torch.ones(1, 3)).dtype == torch.bfloat16


def test_hardware_without_bfloat16_is_a_sentence(monkeypatch):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    with pytest.raises(ValueError, match=r"Expected hardware with bfloat16 for bf16=True, got cpu"):
        tiny_agent(bf16=True).act(PROMPTS)


def test_bfloat16_without_onednn_is_a_sentence(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.setattr(torch.ops, "mkldnn", object())
    with pytest.raises(ValueError, match=r"Expected hardware with bfloat16 for bf16=True, got cpu"):
        tiny_agent(bf16=True).act(PROMPTS)


def inside(model, adapter=None, **generation):
    """Names of the layers that are packed."""
    config = GenerationConfig(**generation)
    with packed_linears(model, adapter, config, num_rows=3):
        return {name for name, m in model.named_modules() if "forward" in m.__dict__}


def adapted(model, *, scale=1e-3):
    agent = LMAgent(model, byte_tokenizer())
    agent.with_adapter("b", LoraConfig(r=2, target_modules=["q_proj"]))
    agent = agent.with_adapter("a", LoraConfig(r=2, target_modules=["q_proj"]))
    with torch.no_grad():
        for name, weight in agent.model.named_parameters():
            if ".a." in name:
                weight.copy_(scale * torch.randn(weight.shape, generator=torch.manual_seed(0)))
    return agent


@pytest.mark.parametrize("autocast", [False, True])
def test_in_16_bits_an_adapter_is_computed_beside_the_base(autocast):
    """It is too small to change a weight in bfloat16, and still changes what the layer gives."""
    model = tiny_llama() if autocast else tiny_llama().to(torch.bfloat16)
    adapted(model, scale=1e-2)
    packed = {name for name in inside(model, "a", bf16=autocast) if "layers.0.self_attn.q" in name}
    layer = "model.layers.0.self_attn.q_proj"
    assert packed == {f"{layer}.{part}" for part in ("base_layer", "lora_A.a", "lora_B.a")}
    plain = {name for name in inside(model, None, bf16=autocast) if layer in name}
    assert plain == {f"{layer}.base_layer"}
    rows = torch.randn(3, 32, generator=torch.manual_seed(1), dtype=torch.float32).to(model.dtype)
    generation = GenerationConfig(bf16=autocast)
    q_proj = model.get_submodule(layer)
    with (
        torch.no_grad(),
        activated(model, "a"),
        precision(torch.device("cpu"), generation),
    ):
        expected = q_proj(rows)
        with packed_linears(model, "a", generation, num_rows=3):
            torch.testing.assert_close(q_proj(rows), expected)
    assert layer in inside(adapted(tiny_llama()).model, "a"), "merged in float32"


@pytest.mark.parametrize("bf16", [False, True])
def test_layers_with_hooks_before_them_are_left_alone(bf16):
    model = tiny_llama()
    prune.random_unstructured(model.lm_head, "weight", amount=0.5)
    names = inside(model, bf16=bf16)
    assert "lm_head" not in names
    assert len(names) == 14


@pytest.mark.parametrize("watch", ["register_forward_hook", "register_forward_pre_hook", "forward"])
def test_adapters_are_not_merged_around_layers_that_somebody_watches(watch):
    model = adapted(tiny_llama()).model
    layer = model.model.layers[0].self_attn.q_proj
    base = layer.base_layer
    if watch == "forward":
        base.forward = lambda rows: rows @ base.weight.T
    else:
        getattr(base, watch)(lambda *_: None)
    names = inside(model, "a")
    assert "model.layers.0.self_attn.q_proj" not in names
    assert "model.layers.0.self_attn.q_proj.lora_A.a" in names
    assert "model.layers.1.self_attn.q_proj" in names


def test_nothing_is_merged_on_other_devices(monkeypatch):
    model = adapted(tiny_llama()).model.to("meta")
    monkeypatch.setattr(packed_linear, "merged_weight", lambda *_: pytest.fail("merged"))
    assert inside(model, "a") == set()


def test_no_copies_in_bfloat16_where_the_hardware_has_none(monkeypatch):
    assert inside(tiny_llama().to(torch.bfloat16))
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    assert inside(tiny_llama().to(torch.bfloat16)) == set()
    assert inside(tiny_llama())
