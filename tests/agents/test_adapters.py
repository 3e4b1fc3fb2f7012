"""Adapters: several policies in one module, each computed, trained and saved by itself."""

import copy
import sys
from pathlib import Path

import pytest
import torch
from peft import IA3Config, LoraConfig, PeftModel, PromptTuningConfig, get_peft_model
from peft.functional import delete_adapter
from reference import completion_log_prob
from safetensors.torch import load_file
from tiny import byte_tokenizer, tiny_agent, tiny_llama
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from motet.agents import GenerationConfig, LMAgent, pocket
from motet.agents.adapters import (
    activated,
    adapter_names,
    adapter_parameters,
    merged_weight,
    without_adapters,
)

PROMPTS = ["Rain", "Describe a city in the clouds:", "x"]
ATTENTION = ["q_proj", "v_proj"]


def lora(**changes: object) -> LoraConfig:
    return LoraConfig(**{"r": 4, "lora_alpha": 12, "target_modules": ATTENTION, **changes})


def perturb(agent: LMAgent, seed: int = 0) -> LMAgent:
    """Give all weights of an adapter a value: B begins at zero, and A has no gradient then."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in adapter_parameters(agent.model, agent.adapter):
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return agent


def pair(**changes: object) -> tuple[LMAgent, LMAgent, LMAgent]:
    """A base and two agents over it."""
    base = tiny_agent(max_new_tokens=12)
    return (
        base,
        perturb(base.with_adapter("a", lora(**changes)), 1),
        perturb(base.with_adapter("b", lora(**changes)), 2),
    )


def logits(agent: LMAgent) -> torch.Tensor:
    ids = torch.tensor([[1, 7, 42, 99, 3]])
    with torch.no_grad(), activated(agent.model, agent.adapter):
        return agent.model(input_ids=ids).logits[0]


KINDS = {
    "attention": {},
    "head": {"target_modules": ["q_proj", "lm_head"]},
    "embeddings": {"target_modules": ["embed_tokens", "down_proj"]},
    "whole head": {"modules_to_save": ["lm_head"]},
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True},
    "all linear": {"target_modules": "all-linear", "lora_bias": False},
}


@pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)
def test_each_agent_computes_what_a_model_of_its_own_does(changes: dict, tmp_path: Path) -> None:
    base, a, b = pair(**changes)
    for agent in (a, b):
        agent.save_pretrained(tmp_path / agent.adapter)
    alone = {
        agent.adapter: PeftModel.from_pretrained(tiny_llama(), tmp_path / agent.adapter).eval()
        for agent in (a, b)
    }
    plain = {None: tiny_llama(), **alone}
    ids = torch.tensor([[1, 7, 42, 99, 3]])
    for agent in (a, b, base, a, base, b):
        with torch.no_grad():
            expected = plain[agent.adapter](input_ids=ids).logits[0]
        torch.testing.assert_close(logits(agent), expected, rtol=1e-5, atol=1e-5)
        for group in agent.act(PROMPTS, 2, seed=3):
            for completion in group:
                with torch.no_grad():
                    total = completion_log_prob(plain[agent.adapter], completion, agent.generation)
                assert sum(completion.log_probs) == pytest.approx(float(total), rel=1e-4, abs=1e-4)
    assert not torch.allclose(logits(a), logits(b), atol=1e-2)
    assert not torch.allclose(logits(a), logits(base), atol=1e-2)


def test_a_new_adapter_changes_nothing_until_it_is_trained() -> None:
    base = tiny_agent(max_new_tokens=12)
    before = base.act(PROMPTS, 2, seed=0)
    state = torch.get_rng_state()
    agent = base.with_adapter("a", lora())
    assert torch.equal(state, torch.get_rng_state())
    for same in (agent, base):
        groups = zip(same.act(PROMPTS, 2, seed=0), before, strict=True)
        for one, other in (pair for group in groups for pair in zip(*group, strict=True)):
            assert one.completion_ids == other.completion_ids
            assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)
    assert (agent.adapter, base.adapter) == ("a", None)
    assert (agent.generation, agent.tokenizer) == (base.generation, base.tokenizer)
    agent.version.value += 1
    assert (agent.policy_version, base.policy_version) == (1, 0)
    assert agent.with_generation(temperature=0.5).version is agent.version


def test_the_seed_of_the_base_gives_the_first_weights() -> None:
    def first(seed: int) -> torch.Tensor:
        agent = LMAgent(tiny_llama(), byte_tokenizer(), seed=seed)
        agent = agent.with_adapter("a", lora())
        return adapter_parameters(agent.model, "a")[0].detach()

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


def test_switching_touches_no_parameter_and_leaves_the_model_as_it_was() -> None:
    base, a, b = pair(modules_to_save=["lm_head"])
    third = tiny_agent(1).with_adapter("c", lora(target_modules=["o_proj"]))
    assert adapter_names(third.model) == ["c"]
    model = base.model
    flags = {name: weight.requires_grad for name, weight in model.named_parameters()}
    assert {name for name, flag in flags.items() if flag} == {
        name for name in flags if "lora_" in name or "modules_to_save" in name
    }
    state = [(m._active_adapter, m._disable_adapters) for m in layers(model)]
    assert state
    for agent in (a, b, base, b):
        agent.act(["Rain"], seed=0)
        with activated(model, "a"), without_adapters(model), activated(model, agent.adapter):
            assert {name: w.requires_grad for name, w in model.named_parameters()} == flags
    assert [(m._active_adapter, m._disable_adapters) for m in layers(model)] == state


def layers(model: torch.nn.Module) -> list:
    return [module for module in model.modules() if hasattr(module, "_disable_adapters")]


def test_adapters_of_different_layers_do_not_mix() -> None:
    base = tiny_agent()
    a = perturb(base.with_adapter("a", lora(target_modules=["q_proj"])))
    before = logits(a)
    other = lora(target_modules=["down_proj"], r=2, modules_to_save=["lm_head"])
    b = perturb(base.with_adapter("b", other))
    torch.testing.assert_close(logits(a), before, rtol=1e-5, atol=1e-5)
    ids = torch.tensor([[1, 7, 42, 99, 3]])
    assert torch.equal(base.model(input_ids=ids).logits[0], logits(a)), "the first is active"
    assert LMAgent(base.model, base.tokenizer).adapter == "a"
    assert not torch.allclose(logits(b), before, atol=1e-2)
    with without_adapters(base.model):
        plain = base.model(input_ids=ids).logits[0]
    torch.testing.assert_close(plain, logits(base))
    torch.testing.assert_close(plain, logits(tiny_agent()))


def test_adapters_of_a_model_in_16_bits_are_in_32() -> None:
    model = tiny_llama().to(torch.bfloat16)
    agent = perturb(LMAgent(model, byte_tokenizer()).with_adapter("a", lora()))
    assert {w.dtype for w in adapter_parameters(model, "a")} == {torch.float32}
    assert logits(agent).dtype == torch.bfloat16
    layer = model.model.layers[0].self_attn.q_proj
    assert merged_weight(layer, "a").dtype == torch.bfloat16
    assert not torch.equal(merged_weight(layer, "a"), merged_weight(layer, None))


def test_an_adapter_costs_its_own_weights_only() -> None:
    base = tiny_agent()
    plain = sum(weight.numel() for weight in base.model.parameters())
    one = 4 * (32 + 32) + 4 * (32 + 16)  # r * (in + out) of a query and a value projection
    for i in range(4):
        agent = base.with_adapter(f"writer {i}", lora())
        assert sum(w.numel() for w in adapter_parameters(agent.model, agent.adapter)) == 2 * one
        count = sum(weight.numel() for weight in agent.model.parameters())
        assert count == plain + 2 * one * (i + 1)
    assert agent.model is base.model


@pytest.mark.parametrize("name", ["a", "default", "writer 2", "lora_A"])
def test_what_is_saved_is_the_trained_adapter_byte_for_byte(name: str, tmp_path: Path) -> None:
    tiny_agent().save_pretrained(tmp_path / "base")
    base = LMAgent.from_pretrained(
        tmp_path / "base", generation=GenerationConfig(max_new_tokens=12), device="cpu"
    )
    perturb(base.with_adapter("other", lora(r=2)))
    agent = perturb(base.with_adapter(name, lora(target_modules=["q_proj", "lm_head"])))
    agent.save_pretrained(tmp_path / "saved")
    files = {path.name for path in (tmp_path / "saved").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= files
    saved = load_file(tmp_path / "saved" / "adapter_model.safetensors")
    own = adapter_parameters(agent.model, name)
    assert len(saved) == len(own) == 2 * 3
    assert all(any(torch.equal(w, kept) for kept in saved.values()) for w in own)

    loaded = LMAgent.from_pretrained(
        tmp_path / "saved", generation=agent.generation, device="cpu", adapter="again"
    )
    assert loaded.adapter == "again"
    beside = base.with_adapter("beside", tmp_path / "saved")
    peft = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "saved"
    )
    wrapped = LMAgent(peft, byte_tokenizer(), generation=agent.generation)
    for other in (loaded, beside, wrapped):
        pairs = zip(own, adapter_parameters(other.model, other.adapter), strict=True)
        assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
        assert other.act(PROMPTS, 2, seed=1) == agent.act(PROMPTS, 2, seed=1)
        for other_name, weight in other.model.named_parameters():
            assert weight.requires_grad == ("lora_" in other_name)


def test_the_plain_base_is_saved_as_an_ordinary_model(tmp_path: Path) -> None:
    for base, targets in ((tiny_agent(), ATTENTION), (pocket(), ["q_proj", "lm_head"])):
        before = {name: w.clone() for name, w in base.model.state_dict().items()}
        perturb(base.with_adapter("a", lora(target_modules=targets)))
        perturb(base.with_adapter("b", lora(modules_to_save=["norm"])))
        base.save_pretrained(tmp_path)
        after = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
        assert after.keys() == before.keys()
        assert all(torch.equal(after[name], weight) for name, weight in before.items())


def test_models_that_have_adapters_already_become_agents() -> None:
    peft = get_peft_model(tiny_llama(), lora(), adapter_name="first")
    peft.add_adapter("second", lora())
    tokenizer = byte_tokenizer()
    agent = LMAgent(peft, tokenizer)
    assert agent.adapter == "first"
    assert agent.model is peft.get_base_model()
    second = LMAgent(peft, tokenizer, adapter="second")
    assert second.model is agent.model
    assert LMAgent(agent.model, tokenizer).adapter == "first"
    assert all(w.requires_grad for w in adapter_parameters(agent.model, "first"))
    assert all(w.requires_grad for w in adapter_parameters(agent.model, "second"))
    with pytest.raises(ValueError, match=r"among those of the model, \['first', 'second'\]"):
        LMAgent(peft, tokenizer, adapter="third")
    peft.base_model.set_adapter(["first", "second"])
    with pytest.raises(ValueError, match="one active adapter"):
        LMAgent(peft, tokenizer)
    peft.base_model.set_adapter("first")
    peft.merge_adapter()
    with pytest.raises(ValueError, match="unmerge_adapter"):
        agent.act(["Rain"])


def test_an_adapter_that_is_not_there_any_more_is_not_the_plain_base() -> None:
    _, a, b = pair()
    delete_adapter(a.model, "a", prefix="lora_")
    a.model.peft_config.pop("a")
    with pytest.raises(
        ValueError, match=r"among those of the model, \['b'\], got 'a'; has it been"
    ):
        a.act(["Rain"])
    assert b.act(["Rain"])
    with (
        pytest.raises(ValueError, match=r"among those of the model, \[\], got 'a'"),
        activated(tiny_llama(), "a"),
    ):
        pass


def test_from_pretrained_adds_a_new_adapter(tmp_path: Path) -> None:
    tiny_agent().save_pretrained(tmp_path)
    settings = lora()
    agent = LMAgent.from_pretrained(tmp_path, lora=settings, device="cpu", seed=3, frozen=True)
    assert (agent.adapter, agent.frozen) == ("default", True)
    assert settings.base_model_name_or_path is None, "the argument is left alone"
    again = LMAgent.from_pretrained(tmp_path, lora=settings, device="cpu", seed=3)
    pairs = zip(*(adapter_parameters(x.model, "default") for x in (agent, again)), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    sibling = agent.with_adapter("sibling")
    assert not sibling.frozen
    assert sibling.model.peft_config["sibling"].lora_alpha == 12, "as its elder sibling"
    assert pocket().with_adapter("writer").adapter == "writer"


@pytest.mark.parametrize("changes", [{}, {"use_rslora": True}, {"target_modules": "all-linear"}])
def test_merged_weights_give_the_layers_output(changes: dict) -> None:
    base, a, _ = pair(**changes)
    x = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    layer = base.model.model.layers[1].self_attn.v_proj
    with torch.no_grad():
        for adapter in ("a", "b", None):
            with activated(base.model, adapter):
                expected = layer(x)
            weight = merged_weight(layer, adapter)
            torch.testing.assert_close(x @ weight.T, expected, rtol=1e-5, atol=1e-5)
            assert not weight.requires_grad
    assert not torch.equal(merged_weight(layer, "a"), merged_weight(layer, "b"))
    head = a.model.lm_head
    assert merged_weight(head, "a") is not None
    assert torch.equal(merged_weight(head, "a"), head.weight)


def test_what_is_not_one_matrix_has_no_merged_weight() -> None:
    base, _, _ = pair(use_dora=True, target_modules=["q_proj", "embed_tokens"])
    attention = base.model.model.layers[0].self_attn
    assert merged_weight(attention.q_proj, "a") is None
    assert torch.equal(merged_weight(attention.q_proj, None), attention.q_proj.base_layer.weight)
    assert torch.equal(merged_weight(attention.k_proj, "a"), attention.k_proj.weight)
    assert merged_weight(base.model.model.embed_tokens, "a") is None
    assert merged_weight(torch.nn.LayerNorm(3), None) is None
    gpt2 = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=1, n_head=4, vocab_size=257))
    agent = LMAgent(gpt2, byte_tokenizer()).with_adapter("a", LoraConfig(fan_in_fan_out=True))
    assert merged_weight(agent.model.transformer.h[0].attn.c_attn, "a") is None


BAD = [
    ({"name": "a.b"}, ValueError, "a name without dots for an adapter, got 'a.b'"),
    ({"name": ""}, ValueError, "a name without dots"),
    ({"name": 3}, ValueError, "got 3"),
    ({"name": "keys"}, ValueError, "'keys', which torch has"),
    ({"name": "a"}, ValueError, r"a new name, got 'a', .* with_generation\(\)"),
    ({"lora": {"r": 4}}, TypeError, "a peft.LoraConfig for an adapter, got dict"),
    ({"lora": IA3Config()}, TypeError, "got IA3Config"),
    ({"lora": lora(bias="all")}, ValueError, "bias='none' in the LoraConfig, got 'all'"),
    ({"lora": lora(init_lora_weights="pissa")}, ValueError, "got 'pissa': it changes the base"),
    ({"lora": lora(trainable_token_indices=[3])}, ValueError, "without trainable_token_indices"),
    (
        {"lora": lora(alora_invocation_tokens=[3], task_type="CAUSAL_LM")},
        ValueError,
        "without alora_invocation_tokens",
    ),
    ({"lora": lora(target_modules=["qqq"])}, ValueError, "(?i)target.modules"),
    ({"lora": "nowhere"}, FileNotFoundError, r"an adapter and its adapter_config.json, got nowh"),
]


@pytest.mark.parametrize(("changes", "error", "words"), BAD, ids=[words for *_, words in BAD])
def test_adapters_that_cannot_be_are_refused(
    changes: dict, error: type[Exception], words: str
) -> None:
    base = tiny_agent()
    agent = perturb(base.with_adapter("a", lora()))
    before = logits(agent)
    with pytest.raises(error, match=words):
        base.with_adapter(**{"name": "b", "lora": lora(), **changes})
    assert adapter_names(base.model) == ["a"]
    assert torch.equal(logits(agent), before)
    assert base.with_adapter("b", lora()).adapter == "b"


def fingerprint(model: torch.nn.Module) -> tuple:
    """What an adapter that could not be added must leave alone."""
    return (
        {name: type(module) for name, module in model.named_modules()},
        {name: (id(w), w.requires_grad) for name, w in model.named_parameters()},
        {name: (m._active_adapter, m._disable_adapters) for name, m in model.named_modules()
         if hasattr(m, "_disable_adapters")},
        adapter_names(model),
        model._hf_peft_config_loaded,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["plain", "adapted"])
@pytest.mark.parametrize("changes", [{}, {"modules_to_save": ["lm_head"]}], ids=["", "whole head"])
def test_what_cannot_be_added_leaves_the_model_as_it_was(
    kind: str, changes: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = perturb(tiny_agent().with_adapter("x", lora(**changes)))
    other.save_pretrained(tmp_path)
    narrow = copy.deepcopy(other.model.peft_config["x"])
    narrow.r = 2
    narrow.save_pretrained(str(tmp_path))
    base = tiny_agent()
    if kind == "adapted":
        perturb(base.with_adapter("a", lora(**changes)))
        base.model.requires_grad_(True)
    before, expected = fingerprint(base.model), base.model(torch.tensor([[1, 2]])).logits

    def check() -> None:
        assert fingerprint(base.model) == before
        assert torch.equal(base.model(torch.tensor([[1, 2]])).logits, expected)

    with pytest.raises(ValueError, match="is it another model's"):
        base.with_adapter("x", tmp_path)
    check()
    with monkeypatch.context() as patched:

        def interrupted(*args: object) -> None:
            raise KeyboardInterrupt

        patched.setattr("peft.functional.cast_adapter_dtype", interrupted)
        with pytest.raises(KeyboardInterrupt):
            base.with_adapter("x", lora(**changes))
    check()
    (tmp_path / "adapter_model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"adapter_model.bin beside adapter_config.json in"):
        base.with_adapter("x", tmp_path)
    check()
    assert base.with_adapter("x", lora(**changes)).act(["Rain"])


def test_dropout_is_said_to_have_no_effect() -> None:
    with pytest.warns(UserWarning, match="lora_dropout=0.1 has no effect") as seen:
        agent = tiny_agent().with_adapter("a", lora(lora_dropout=0.1))
    assert len(seen) == 1
    agent.model.train()
    assert agent.act(PROMPTS, seed=0) == agent.act(PROMPTS, seed=0)


def test_other_kinds_of_adapters_are_refused() -> None:
    settings = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    with pytest.raises(TypeError, match="for an adapter, got PromptTuningConfig"):
        LMAgent(get_peft_model(tiny_llama(), settings), byte_tokenizer())
    with pytest.raises(TypeError, match="a causal language model of transformers"):
        LMAgent(torch.nn.Linear(2, 2), byte_tokenizer())


def test_an_adapter_without_its_base_says_how_to_load_it(tmp_path: Path) -> None:
    agent = perturb(tiny_agent().with_adapter("a", lora()))
    agent.save_pretrained(tmp_path / "agent_0")
    with pytest.raises(FileNotFoundError, match=r"base.with_adapter\(name, folder\)"):
        LMAgent.from_pretrained(tmp_path / "agent_0")
    with pytest.raises(FileNotFoundError, match=r"the folders \['agent_0'\] in it have one"):
        LMAgent.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="leave lora out"):
        LMAgent.from_pretrained(tmp_path / "agent_0", lora=lora())
    loaded = tiny_agent().with_adapter("a", tmp_path / "agent_0")
    assert torch.equal(logits(loaded), logits(agent))
    with pytest.raises(ValueError, match="is it another model's"):
        pocket().with_adapter("a", tmp_path / "agent_0")
    wide = copy.deepcopy(agent.model.peft_config["a"])
    wide.target_modules = {"q_proj"}
    wide.save_pretrained(str(tmp_path / "agent_0"))
    with pytest.raises(ValueError, match="all weights of the adapter"):
        tiny_agent().with_adapter("a", tmp_path / "agent_0")


def test_without_peft_everything_else_works_and_the_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)  # importing it fails
    for part in ("adapters", "lora_config"):
        monkeypatch.setattr(f"motet.agents.{part}.find_spec", lambda name: None)
    agent = tiny_agent()
    assert agent.act(["Rain"])
    assert merged_weight(agent.model.lm_head, None) is not None
    assert merged_weight(agent.model.model.norm, None) is None
    with pytest.raises(ImportError, match=r'pip install "motet\[lora\]"'):
        agent.with_adapter("a")
