"""Agents over one model in one batch say what they say when each is asked apart."""

import itertools

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny import byte_tokenizer, tiny_agent, tiny_llama
from transformers import GPT2Config, GPT2LMHeadModel, MixtralConfig, MixtralForCausalLM

from motet.agents import Completion, GenerationConfig, LMAgent, RandomAgent
from motet.agents.adapters import adapter_names, adapter_parameters
from motet.agents.mixed_adapters import can_mix, mixed_adapters
from motet.agents.side_by_side import MAX_CPU_ROWS, Request, act_all, mixing_pays

PROMPTS = ["Rain", "Describe a city in the clouds:", "x"]


def lora(**changes: object) -> LoraConfig:
    return LoraConfig(
        **{"r": 4, "lora_alpha": 12, "target_modules": ["q_proj", "v_proj"], **changes}
    )


def perturb(agent: LMAgent, seed: int) -> LMAgent:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in adapter_parameters(agent.model, agent.adapter):
            weight.add_(0.15 * torch.randn(weight.shape, generator=generator))
    return agent


def team(base: LMAgent, *settings: dict) -> list[LMAgent]:
    """The plain base, and an adapter over it for each of the settings."""
    adapters = [
        perturb(base.with_adapter(f"a{i}", lora(**changes)), i)
        for i, changes in enumerate(settings)
    ]
    return [base, *adapters]


def requests(agents: list[LMAgent], **changes: object) -> list[Request]:
    """Other observations, in another order and number, for each."""
    return [
        Request(agent, PROMPTS[i % 2 :] if i % 3 else PROMPTS[::-1], 7 + i, **changes)
        for i, agent in enumerate(agents)
    ]


def assert_same(mixed: list, apart: list) -> None:
    for ours, theirs in zip(mixed, apart, strict=True):
        assert [len(group) for group in ours] == [len(group) for group in theirs]
        pairs = zip(itertools.chain(*ours), itertools.chain(*theirs), strict=True)
        for one, other in pairs:
            assert one.completion_ids == other.completion_ids
            assert one.log_probs == pytest.approx(other.log_probs, rel=1e-5, abs=1e-5)
            assert (one.text, one.prompt_ids) == (other.text, other.prompt_ids)
            assert one.finish_reason == other.finish_reason


TEAMS = {
    "two": [{}, {}],
    "three": [{}, {}, {}],
    "ranks": [{"r": 2}, {"r": 8, "rank_pattern": {"v_proj": 3}, "alpha_pattern": {"q_proj": 5}}],
    "layers": [{"target_modules": ["q_proj"]}, {"target_modules": ["down_proj", "lm_head"]}],
    "all linear": [{"target_modules": "all-linear"}, {"target_modules": "all-linear", "r": 3}],
    "rslora": [{"use_rslora": True}, {}],
}
SAMPLING = {
    "plain": {},
    "tempered": {"temperature": 0.7, "top_k": 60, "top_p": 0.9},
    "greedy": {"do_sample": False},
    "small batches": {"max_rows": 4},
    "few tokens": {"max_new_tokens": 3},
    "stop strings": {"stop_strings": ("e", "ri")},
}


@pytest.mark.parametrize("settings", TEAMS.values(), ids=TEAMS)
def test_a_mixed_batch_says_what_agents_say_apart(settings: list[dict]) -> None:
    agents = team(tiny_agent(max_new_tokens=40), *settings)
    assert can_mix(agents[0].model, [agent.adapter for agent in agents])
    asked = requests(agents)
    mixed = act_all(asked, 3, pays=lambda *_: True)
    assert_same(mixed, act_all(asked, 3, pays=lambda *_: False))
    texts = {tuple(c.text for group in own for c in group) for own in mixed}
    assert len(texts) == len(agents)
    lengths = {len(c.completion_ids) for own in mixed for group in own for c in group}
    assert len(lengths) > 1, "rows leave the batch at different times"


@pytest.mark.parametrize("sampling", SAMPLING.values(), ids=SAMPLING)
def test_it_does_with_all_kinds_of_sampling(sampling: dict) -> None:
    agents = team(tiny_agent(**{"max_new_tokens": 20, **sampling}), {}, {"r": 2})
    asked = requests(agents)
    mixed = act_all(asked, 2, pays=lambda *_: True)
    assert_same(mixed, act_all(asked, 2, pays=lambda *_: False))


def test_a_mixed_pass_gives_what_that_of_peft_does() -> None:
    _, first, second = team(tiny_agent(), {"target_modules": "all-linear"}, {"r": 2})
    names = ["a1", None, "a0", "a0", "a1"]
    ids = torch.arange(20).view(5, 4)
    with torch.no_grad(), mixed_adapters(first.model, names) as rows:
        rows.use(rows.of)
        ours = first.model(input_ids=ids).logits
    peft = get_peft_model(tiny_llama(), lora(target_modules="all-linear"), adapter_name="a0")
    peft.add_adapter("a1", lora(r=2))
    weights = first.model.state_dict()
    peft.get_base_model().load_state_dict(weights)
    told = [name or "__base__" for name in names]
    with torch.no_grad():
        theirs = peft.eval()(input_ids=ids, adapter_names=told).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert second.adapter == "a1"


def test_adapters_read_one_prompt_each_for_themselves() -> None:
    agents = team(tiny_agent(), {}, {})
    asked = [Request(agent, ["Rain"], 3) for agent in agents]
    mixed = act_all(asked, 4, pays=lambda *_: True)
    assert_same(mixed, act_all(asked, 4, pays=lambda *_: False))
    assert len({own[0][0].log_probs[0] for own in mixed}) == 3


@pytest.mark.parametrize("training", [False, True])
def test_it_leaves_the_model_as_it_was(training: bool) -> None:
    agents = team(tiny_agent(), {}, {})
    model = agents[0].model.train(training)
    state = [(m._active_adapter, m._disable_adapters, "forward" in vars(m)) for m in layers(model)]
    before = {name: (id(w), w.requires_grad) for name, w in model.named_parameters()}
    act_all(requests(agents), 2, pays=lambda *_: True)
    assert model.training is training
    assert [
        (m._active_adapter, m._disable_adapters, "forward" in vars(m)) for m in layers(model)
    ] == state
    assert {name: (id(w), w.requires_grad) for name, w in model.named_parameters()} == before


def layers(model: torch.nn.Module) -> list:
    return [module for module in model.modules() if hasattr(module, "_disable_adapters")]


def test_it_leaves_the_model_as_it_was_when_it_fails() -> None:
    agents = team(tiny_agent(), {}, {})
    with torch.no_grad():
        adapter_parameters(agents[0].model, "a1")[0].fill_(torch.nan)
    with pytest.raises(FloatingPointError, match="finite logits"):
        act_all(requests(agents), 2, pays=lambda *_: True)
    assert not any("forward" in vars(module) for module in agents[0].model.modules())
    assert agents[1].act(["Rain"], seed=0)


def counted(agents: list[LMAgent], monkeypatch: pytest.MonkeyPatch) -> list[int]:
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


def test_who_shares_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    agents = team(tiny_agent(max_new_tokens=4), {}, {})
    base, first, second = agents
    rows = counted(agents, monkeypatch)

    def batches(*asked: object, num_generations: int = 2) -> list[int]:
        rows.clear()
        act_all([Request(agent, ["Rain"], 0) for agent in asked], num_generations)
        return sorted(rows)

    assert batches(*agents) == [6]
    assert batches(first, RandomAgent(["yes"]), second) == [4]
    assert batches(first, first.with_generation(), tiny_agent(1, max_new_tokens=4)) == [2, 4]
    assert batches(first, second.with_generation(max_new_tokens=5)) == [2, 2]
    assert batches(first, second.with_generation(temperature=0.5)) == [2, 2]
    assert batches(first, second, num_generations=MAX_CPU_ROWS) == [2 * MAX_CPU_ROWS]
    assert batches(first, second, num_generations=MAX_CPU_ROWS + 1) == [MAX_CPU_ROWS + 1] * 2

    class Own(LMAgent):
        def act(self, *args, **kwargs):
            return super().act(*args, **kwargs)

    assert batches(first, Own(base.model, base.tokenizer, generation=base.generation)) == [2, 2]


def test_two_views_of_one_model_share_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    first = tiny_agent()
    second = LMAgent(first.model, first.tokenizer, generation=first.generation)
    asked = [Request(first, ["Rain"], 1), Request(second, ["Rain", "x"], 2)]
    apart = act_all(asked, 2, pays=lambda *_: False)
    rows = counted([first], monkeypatch)
    assert_same(act_all(asked, 2), apart)
    assert rows == [6]


CANNOT = {
    "dora": [{}, {"use_dora": True}],
    "embeddings": [{}, {"target_modules": ["embed_tokens", "q_proj"]}],
    "a whole head": [{}, {"modules_to_save": ["lm_head"]}],
    "a bias": [{}, {"lora_bias": True}],
}


@pytest.mark.parametrize("settings", CANNOT.values(), ids=CANNOT)
def test_what_cannot_be_mixed_is_sampled_apart(settings: list[dict]) -> None:
    agents = team(tiny_agent(max_new_tokens=12), *settings)
    model = agents[0].model
    assert not can_mix(model, ["a0", "a1"])
    assert can_mix(model, ["a0", None])
    asked = requests(agents)
    found = act_all(asked, 2)
    for request, answers in zip(asked, found, strict=True):
        assert answers == request.agent.act(request.observations, 2, seed=request.seed)


def test_whoever_watches_an_adapter_sees_it() -> None:
    agents = team(tiny_agent(max_new_tokens=4), {}, {})
    model = agents[0].model
    part = model.model.layers[0].self_attn.q_proj.lora_A["a0"]
    seen: list[int] = []
    handle = part.register_forward_hook(lambda *_: seen.append(1))
    assert not can_mix(model, ["a0", "a1"])
    act_all(requests(agents), 1)
    assert seen
    handle.remove()
    assert can_mix(model, ["a0", "a1"])


def test_other_architectures() -> None:
    gpt2 = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=1, n_head=4, vocab_size=257)).eval()
    base = LMAgent(gpt2, byte_tokenizer(), generation=GenerationConfig(max_new_tokens=20))
    settings = {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True}
    agents = team(base, settings, settings)
    assert can_mix(gpt2, ["a0", "a1"])
    asked = requests(agents)
    mixed = act_all(asked, 2, pays=lambda *_: True)
    assert_same(mixed, act_all(asked, 2, pays=lambda *_: False))

    config = MixtralConfig(
        vocab_size=257, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=2,
    )  # fmt: skip
    mixture = MixtralForCausalLM(config).eval()
    base = LMAgent(mixture, byte_tokenizer(), generation=GenerationConfig(max_new_tokens=4))
    (_, first, second) = team(base, {"target_modules": ["q_proj"]}, {"target_modules": ["q_proj"]})
    assert can_mix(mixture, [first.adapter, second.adapter])
    assert adapter_names(mixture) == ["a0", "a1"]


def test_a_layer_that_flattens_the_batch_is_sampled_apart() -> None:
    base = tiny_agent(max_new_tokens=4)
    inner = base.model.model.layers[0].mlp
    own = inner.forward
    inner.forward = lambda x: own(x.flatten(0, 1)).unflatten(0, x.shape[:2])
    agents = team(base, {"target_modules": ["down_proj"]}, {"target_modules": ["down_proj"]})
    assert not can_mix(base.model, ["a0", "a1"])
    asked = requests(agents)
    found = act_all(asked, 2)
    for request, answers in zip(asked, found, strict=True):
        assert answers == request.agent.act(request.observations, 2, seed=request.seed)


def test_conversations_go_on_side_by_side() -> None:
    base = LMAgent(
        tiny_llama(),
        byte_tokenizer(),
        generation=GenerationConfig(max_new_tokens=12),
        history="append",
    )
    agents = team(base, {}, {})
    first = [agent.act(PROMPTS, 1, seed=i) for i, agent in enumerate(agents)]
    asked = [
        Request(agent, ["and then?"] * 3, 9, [group[0] for group in said])
        for agent, said in zip(agents, first, strict=True)
    ]
    mixed = act_all(asked, 2, pays=lambda *_: True)
    assert_same(mixed, act_all(asked, 2, pays=lambda *_: False))
    assert all(isinstance(c, Completion) for own in mixed for group in own for c in group)
    with base.keeping_caches():
        assert base.keeps_caches
        kept = act_all(asked, 2)
    assert_same(kept, mixed)


def test_16_bits_are_mixed_too() -> None:
    model = tiny_llama().to(torch.bfloat16)
    agents = team(
        LMAgent(model, byte_tokenizer(), generation=GenerationConfig(max_new_tokens=2)), {}, {}
    )
    asked = [Request(agent, ["Rain"], 3) for agent in agents]
    mixed = act_all(asked, 1, pays=lambda *_: True)
    apart = act_all(asked, 1, pays=lambda *_: False)
    for ours, theirs in zip(mixed, apart, strict=True):
        assert ours[0][0].log_probs[0] == pytest.approx(theirs[0][0].log_probs[0], abs=0.1)


def test_mixing_pays_for_few_rows() -> None:
    agents = team(tiny_agent(), {}, {})
    asked = [Request(agent, PROMPTS) for agent in agents]
    assert mixing_pays(asked, MAX_CPU_ROWS // 3)
    assert not mixing_pays(asked, MAX_CPU_ROWS)
