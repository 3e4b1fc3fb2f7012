"""Weights in 4 and 8 bits: loaded, sampled, trained behind an adapter, saved, and never trained."""

import copy
import itertools
import sys
from pathlib import Path

import pytest
import torch
from peft import LoraConfig
from tiny import tiny_agent
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, GPTQConfig

from motet.agents import GenerationConfig, LMAgent, pocket_path
from motet.agents.adapter_files import plain_copy
from motet.agents.adapters import activated, adapter_parameters, without_adapters
from motet.agents.quantization import is_quantized
from motet.agents.side_by_side import Request, act_all
from motet.algos import MAGRPOConfig, MAGRPOTrainer
from motet.algos.team import Policy
from motet.algos.updates.batch import Sample, collate
from motet.algos.updates.log_probs import completion_log_probs
from motet.envs import make

bitsandbytes = pytest.importorskip("bitsandbytes")

PROMPTS = ["Rain", "Write a story about a cat."]
QUIET = {"progress_bar": False}
SHORT = GenerationConfig(max_new_tokens=16)

KINDS = {
    "4 bits": {"load_in_4bit": True},
    "4 bits, nested": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
                       "bnb_4bit_use_double_quant": True},
    "8 bits": {"load_in_8bit": True, "llm_int8_threshold": 0.0},
    "8 bits, outliers apart": {"load_in_8bit": True},
}  # fmt: skip
FOUR, EIGHT = KINDS["4 bits"], KINDS["8 bits"]


def loaded(kind: dict, **kwargs: object) -> LMAgent:
    options = {"generation": SHORT, "device": "cpu", "seed": 0, **kwargs}
    return LMAgent.from_pretrained(
        pocket_path(), quantization_config=BitsAndBytesConfig(**kind), **options
    )


def lora(**changes: object) -> LoraConfig:
    return LoraConfig(**{"r": 4, "target_modules": "all-linear", **changes})


def perturb(agent: LMAgent, seed: int = 0) -> LMAgent:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in adapter_parameters(agent.model, agent.adapter):
            weight.add_(0.05 * torch.randn(weight.shape, generator=generator))
    return agent


def dequantised(agent: LMAgent) -> torch.nn.Module:
    """An ordinary model with the numbers that the quantised weights stand for."""
    model = AutoModelForCausalLM.from_pretrained(pocket_path(), dtype=torch.float32)
    for name, layer in agent.model.named_modules():
        if isinstance(layer, bitsandbytes.nn.Linear4bit):
            weight = bitsandbytes.functional.dequantize_4bit(layer.weight, layer.weight.quant_state)
            twin = model.get_submodule(name.removesuffix(".base_layer"))
            twin.weight.data = weight.reshape(twin.weight.shape).float()
    return model.eval()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_it_loads_small_and_says_much_the_same(kind: dict) -> None:
    plain = LMAgent.from_pretrained(pocket_path(), generation=SHORT, device="cpu")
    agent = loaded(kind)
    assert is_quantized(agent.model)
    assert not is_quantized(plain.model)
    sizes = [
        sum(w.numel() * w.element_size() for w in model.model.layers.parameters())
        for model in (agent.model, plain.model)
    ]
    assert sizes[0] < 0.3 * sizes[1]
    completions = agent.act(PROMPTS, 2, seed=0)
    assert completions == agent.act(PROMPTS, 2, seed=0)
    ids = torch.tensor([plain.encode(PROMPTS[1])])
    with torch.no_grad():
        ours, theirs = (m(input_ids=ids).logits.softmax(-1) for m in (agent.model, plain.model))
    assert 1e-6 < float((ours - theirs).abs().mean()) < 1e-3


def test_4_bits_in_evaluation_mode_have_the_gradients_of_the_numbers_they_stand_for() -> None:
    agent = perturb(loaded(FOUR).with_adapter("a", lora()))
    agent.act(PROMPTS, 2, seed=0)  # where bitsandbytes would reorder the weights
    model = dequantised(agent)
    twin = LMAgent(model, agent.tokenizer, generation=SHORT).with_adapter("a", lora())
    with torch.no_grad():
        pairs = zip(*(adapter_parameters(x.model, "a") for x in (twin, agent)), strict=True)
        for theirs, ours in pairs:
            theirs.copy_(ours)
    ids = torch.tensor([agent.encode(PROMPTS[1])])
    for each in (agent, twin):
        assert not each.model.training
        with activated(each.model, "a"):
            each.model(input_ids=ids).logits.log_softmax(-1)[..., 3].sum().backward()
    for ours, theirs in zip(
        adapter_parameters(agent.model, "a"), adapter_parameters(twin.model, "a"), strict=True
    ):
        assert float(theirs.grad.norm()) > 1e-4
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-4)


def test_weights_that_were_reordered_before_are_brought_back() -> None:
    model = AutoModelForCausalLM.from_pretrained(
        pocket_path(),
        quantization_config=BitsAndBytesConfig(**FOUR),
        device_map={"": "cpu"},
        dtype=torch.float32,
    ).eval()
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        model(input_ids=ids)  # where bitsandbytes reorders them
        agent = LMAgent(model, AutoTokenizer.from_pretrained(pocket_path()), generation=SHORT)
        found = model(input_ids=ids).logits
        torch.testing.assert_close(
            found, dequantised(agent)(input_ids=ids).logits, rtol=1e-4, atol=1e-4
        )
    layer = model.model.layers[0].mlp.down_proj
    assert not getattr(layer.weight.quant_state, "packing_format_for_cpu", False)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_kept_log_probs_are_those_that_are_trained(kind: dict) -> None:
    agent = perturb(loaded(kind).with_adapter("a", lora()))
    completions = list(itertools.chain(*agent.act(PROMPTS, 2, seed=0)))
    policy = Policy("x", agent.model, {"x": agent}, "a")
    batch = collate([(Sample("x", completion, 1.0, 1.0),) for completion in completions])
    with torch.no_grad(), policy.activated():
        found = completion_log_probs(agent.model, batch, agent.generation)
    close = 1e-4 if "load_in_4bit" in kind else 0.2  # 8 bits round the activations, too
    torch.testing.assert_close(found, batch.old_log_probs, rtol=close, atol=close)


@pytest.mark.parametrize("kind", [FOUR, EIGHT], ids=["4 bits", "8 bits"])
def test_adapters_are_trained_and_nothing_else_moves(kind: dict, tmp_path: Path) -> None:
    base = loaded(kind)
    team = {f"agent_{i}": base.with_adapter(f"a{i}", lora()) for i in range(2)}
    before = copy.deepcopy(base.model.state_dict())
    config = MAGRPOConfig(
        rollout_batch_size=5, agent_learning_rate=1e-2, num_generations=4, kl_coef=0.05, **QUIET
    )
    trainer = MAGRPOTrainer(make("story-length-ratio-v0"), team, config)
    trainer.train()
    after = base.model.state_dict()
    assert before.keys() == after.keys()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert all("lora_" in name for name in moved)
    trainer.save_model(tmp_path)
    again = loaded(kind).with_adapter("again", tmp_path / "agent_0")
    pairs = zip(again.act(PROMPTS, 2, seed=4), team["agent_0"].act(PROMPTS, 2, seed=4), strict=True)
    for ours, theirs in pairs:
        assert [c.completion_ids for c in ours] == [c.completion_ids for c in theirs]


@pytest.mark.parametrize("kind", [FOUR, EIGHT], ids=["4 bits", "8 bits"])
def test_a_run_is_resumed_exactly_over_the_same_base_only(kind: dict, tmp_path: Path) -> None:
    def trainer(kind: dict, num_train_epochs: int) -> MAGRPOTrainer:
        base = loaded(kind, generation=GenerationConfig(max_new_tokens=4))
        team = {f"agent_{i}": base.with_adapter(f"a{i}", lora()) for i in range(2)}
        config = MAGRPOConfig(
            num_train_epochs=num_train_epochs,
            rollout_batch_size=5,
            agent_learning_rate=1e-2,
            **QUIET,
        )
        return MAGRPOTrainer(make("story-length-ratio-v0"), team, config)

    whole, half, rest = (trainer(kind, epochs) for epochs in (2, 1, 2))
    whole.train()
    half.train()
    half.save_checkpoint(tmp_path)
    rest.train(resume_from=tmp_path)
    for name in ("agent_0", "agent_1"):
        ours, theirs = (
            adapter_parameters(each.agents[name].model, each.agents[name].adapter)
            for each in (rest, whole)
        )
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    other = trainer(FOUR if kind is EIGHT else EIGHT, 2)
    with pytest.raises(ValueError, match="weights of agent_0 that are not trained"):
        other.train(resume_from=tmp_path)


def test_a_mixed_batch_in_4_bits_is_the_same() -> None:
    base = loaded(FOUR)
    agents = [base, *(perturb(base.with_adapter(f"a{i}", lora()), i) for i in range(2))]
    asked = [Request(agent, PROMPTS, i) for i, agent in enumerate(agents)]
    mixed, apart = (act_all(asked, 2, pays=lambda *_, on=on: on) for on in (True, False))
    for ours, theirs in zip(mixed, apart, strict=True):
        for one, other in zip(itertools.chain(*ours), itertools.chain(*theirs), strict=True):
            assert one.completion_ids == other.completion_ids
            assert one.log_probs == pytest.approx(other.log_probs, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_saved_model_is_loaded_quantised(kind: dict, tmp_path: Path) -> None:
    agent = loaded(kind)
    said = agent.act(PROMPTS, 2, seed=0)
    agent.save_pretrained(tmp_path)
    again = LMAgent.from_pretrained(tmp_path, generation=SHORT, device="cpu")
    assert is_quantized(again.model)
    assert again.act(PROMPTS, 2, seed=0) == said


def test_the_base_under_an_adapter_is_read_as_the_reference() -> None:
    base = loaded(FOUR)
    agent = perturb(base.with_adapter("a", lora()))
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad(), without_adapters(agent.model):
        under = agent.model(input_ids=ids).logits
    with torch.no_grad():
        assert torch.equal(under, loaded(FOUR).model(input_ids=ids).logits)


def test_what_needs_ordinary_weights_says_so() -> None:
    env = make("story-length-ratio-v0")
    names = ("agent_0", "agent_1")
    agent = loaded(FOUR)
    with pytest.raises(ValueError, match="an adapter for agent_0, or frozen=True, got weights in"):
        MAGRPOTrainer(env, dict.fromkeys(names, agent), MAGRPOConfig(**QUIET))
    with pytest.raises(ValueError, match="ordinary weights for a copy that is trained"):
        plain_copy(agent.model)
    adapter = agent.with_adapter("a", lora())
    with pytest.raises(ValueError, match="ordinary weights to merge the adapter 'a' with"):
        adapter.merged()
    agent.frozen = True
    MAGRPOTrainer(env, {"agent_0": agent, "agent_1": adapter}, MAGRPOConfig(**QUIET))


BAD = [
    ({"quantization_config": {"load_in_4bit": True}}, TypeError, "a transformers.BitsAndBytesCon"),
    ({"quantization_config": GPTQConfig(bits=4)}, TypeError, "got GPTQConfig"),
    ({"quantization_config": BitsAndBytesConfig()}, ValueError, "load_in_8bit=True in the quant"),
    (
        {"quantization_config": BitsAndBytesConfig(load_in_4bit=True), "device": "meta"},
        ValueError,
        r"that bitsandbytes computes on, \['cpu', .*, got meta",
    ),
    (
        {"quantization_config": BitsAndBytesConfig(load_in_4bit=True), "gguf_file": "x.gguf"},
        ValueError,
        "gguf_file or quantization_config, got both",
    ),
]


@pytest.mark.parametrize(("kwargs", "error", "words"), BAD, ids=[words for *_, words in BAD])
def test_settings_that_cannot_be_are_refused(
    kwargs: dict, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        LMAgent.from_pretrained(pocket_path(), **{"device": "cpu", **kwargs})


def test_without_bitsandbytes_everything_else_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)  # importing it fails
    monkeypatch.setattr("motet.agents.quantization.find_spec", lambda name: None)
    assert tiny_agent().act(["Rain"])
    assert LMAgent.from_pretrained(pocket_path(), generation=SHORT, device="cpu").act(["Rain"])
    with pytest.raises(ImportError, match=r'pip install "motet\[quantization\]"'):
        loaded(FOUR)
