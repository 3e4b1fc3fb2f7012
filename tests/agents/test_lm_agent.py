"""The language-model agent: what it samples, what it records, and what it refuses."""

from pathlib import Path

import pytest
import torch
from reference import completion_log_prob, distribution
from tiny import END, byte_tokenizer, letter_agent, tiny_agent, tiny_llama
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BloomConfig,
    GPT2Config,
    MambaConfig,
    MistralConfig,
    Qwen2Config,
)

from motet.agents import (
    Agent,
    FixedAgent,
    GenerationConfig,
    LMAgent,
    RandomAgent,
    ReplayAgent,
)

PROMPTS = ["Rain", "Describe a city in the clouds:", "Rain", "a\nb", "héllo 🐉", "x"]


@pytest.mark.parametrize(
    "generation",
    [{}, {"temperature": 0.7, "top_k": 40, "top_p": 0.9}, {"top_p": 0.5}],
    ids=["plain", "truncated", "nucleus"],
)
def test_log_probs_are_those_of_a_token_by_token_forward(generation: dict[str, float]) -> None:
    agent = tiny_agent(**generation)
    for group in agent.act(PROMPTS, 3, seed=5):
        for completion in group:
            with torch.no_grad():
                expected = completion_log_prob(agent.model, completion, agent.generation)
            assert sum(completion.log_probs) == pytest.approx(float(expected), rel=1e-4, abs=1e-4)
            assert len(completion.log_probs) == len(completion.completion_ids)


def test_greedy_equals_generate_of_transformers() -> None:
    agent = tiny_agent(do_sample=False, max_new_tokens=16)
    for prompt, (completion,) in zip(PROMPTS, agent.act(PROMPTS), strict=True):
        ids = torch.tensor([agent.tokenizer(prompt)["input_ids"]])
        expected = agent.model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False
        )
        assert list(completion.completion_ids) == expected[0, ids.shape[1] :].tolist()
        assert completion.log_probs == (0.0,) * len(completion.completion_ids)


def test_sampled_tokens_follow_the_models_distribution() -> None:
    agent = tiny_agent(max_new_tokens=1, top_k=4)
    drawn = [c.completion_ids[0] for c in agent.act(["Rain"], 4000, seed=1)[0]]
    prompt = torch.tensor([agent.tokenizer("Rain")["input_ids"]])
    expected = distribution(agent.model(prompt).logits[0, -1].detach(), agent.generation).exp()
    shares = torch.bincount(torch.tensor(drawn), minlength=257) / 4000
    torch.testing.assert_close(shares, expected, atol=0.03, rtol=0)


def test_completions_end_with_their_stop_token_although_it_is_the_pad_token() -> None:
    agent = tiny_agent(max_new_tokens=40)
    completions = [c for group in agent.act(PROMPTS, 8, seed=2) for c in group]
    stopped = [c for c in completions if c.finish_reason == "stop"]
    cut = [c for c in completions if c.finish_reason == "length"]
    assert stopped and cut
    for completion in stopped:
        assert completion.completion_ids[-1] == END
        assert END not in completion.completion_ids[:-1]
    for completion in cut:
        assert END not in completion.completion_ids
        assert len(completion.completion_ids) == 40
    for completion in completions:
        assert "<|end|>" not in completion.text
        ids = [token for token in completion.completion_ids if token != END]
        assert completion.text == agent.tokenizer.decode(ids)


def test_a_rows_tokens_do_not_depend_on_how_the_batch_is_split() -> None:
    whole = tiny_agent().act(PROMPTS, 4, seed=3)
    split = tiny_agent(max_rows=3).act(PROMPTS, 4, seed=3)
    assert [[c.completion_ids for c in group] for group in whole] == [
        [c.completion_ids for c in group] for group in split
    ]


def test_the_same_seed_gives_the_same_completions_and_another_gives_others() -> None:
    agent = tiny_agent()
    first, again, other = (agent.act(PROMPTS, 2, seed=s) for s in (7, 7, 8))
    assert first == again
    assert first != other
    assert agent.act(["Rain"]) != agent.act(["Rain"])  # its own stream goes on
    assert tiny_agent().act(["Rain"], 2) == tiny_agent().act(["Rain"], 2)


def test_global_random_state_and_modes_are_left_alone() -> None:
    agent = tiny_agent()
    agent.model.train()
    before = torch.get_rng_state()
    agent.act(["Rain"], 2)
    assert torch.equal(before, torch.get_rng_state())
    assert agent.model.training
    assert all(weight.requires_grad for weight in agent.model.parameters())


def test_prompts_that_contain_the_pad_token_are_read_whole() -> None:
    agent = tiny_agent(max_new_tokens=4)
    prompt = "a<|end|>b"
    (completion,) = agent.act([prompt], seed=0)[0]
    assert completion.prompt_ids == tuple(agent.tokenizer(prompt)["input_ids"])
    assert completion.prompt_ids[1] == END
    with torch.no_grad():
        expected = completion_log_prob(agent.model, completion, agent.generation)
    assert sum(completion.log_probs) == pytest.approx(float(expected), abs=1e-4)


def test_an_empty_prompt_starts_from_the_end_token() -> None:
    (completion,) = tiny_agent().act([""], seed=0)[0]
    assert completion.prompt_ids == (END,)
    assert tiny_agent().act([], 3) == []


def test_a_prompt_longer_than_the_context_is_refused_before_compute() -> None:
    agent = tiny_agent(context=64)
    with pytest.raises(ValueError, match=r"at most 40 tokens .context 64 .* got 50"):
        agent.act(["x" * 50])
    cutting = LMAgent(
        agent.model, agent.tokenizer, generation=agent.generation, overflow="truncate_left"
    )
    (completion,) = cutting.act(["y" * 10 + "x" * 40], seed=0)[0]
    assert completion.prompt_ids == tuple(agent.tokenizer("x" * 40)["input_ids"])


def test_other_sampling_settings_share_the_weights_and_the_version() -> None:
    agent = tiny_agent()
    twin = agent.with_generation(temperature=0.5)
    assert twin.model is agent.model
    assert (twin.generation.temperature, agent.generation.temperature) == (0.5, 1.0)
    twin.version.value += 1
    assert agent.policy_version == 1
    assert agent.act(["Rain"])[0][0].policy_version == 1


def test_chat_templates_wrap_the_observation() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    agent = LMAgent(tiny_llama(), tokenizer, chat_template=True, system_prompt="Be brief.")
    text = tokenizer.decode(agent.encode("Rain"))
    assert text == "[system]Be brief.[user]Rain[assistant]"
    with pytest.raises(ValueError, match="chat_template=True"):
        LMAgent(tiny_llama(), tokenizer, system_prompt="Be brief.")


def test_models_of_several_stop_tokens_stop_at_each() -> None:
    agent = tiny_agent()
    agent.model.generation_config.eos_token_id = [5, END]
    assert agent.stop_ids == {5, END}
    agent.model.generation_config.eos_token_id = None
    assert agent.stop_ids == {END}


def test_a_saved_agent_is_loaded_by_plain_transformers_and_by_us(tmp_path: Path) -> None:
    agent = tiny_agent()
    agent.save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    for name, weight in agent.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight)
    assert AutoTokenizer.from_pretrained(tmp_path)("Rain")["input_ids"] == list(
        agent.encode("Rain")
    )
    loaded = LMAgent.from_pretrained(tmp_path, generation=agent.generation, device="cpu")
    assert loaded.act(["Rain"], 2, seed=1) == agent.act(["Rain"], 2, seed=1)


@pytest.mark.parametrize("generation", [{}, {"top_p": 0.9}, {"do_sample": False}])
def test_broken_weights_are_not_sampled_from(generation: dict[str, float]) -> None:
    agent = tiny_agent(**generation)
    with torch.no_grad():
        agent.model.lm_head.weight[7, 7] = float("nan")
    agent.model.train()
    with pytest.raises(FloatingPointError, match="finite logits to sample from"):
        agent.act(["Rain"])
    assert agent.model.training


def test_it_is_an_agent() -> None:
    assert isinstance(tiny_agent(), Agent)
    with pytest.raises(ValueError, match="overflow"):
        LMAgent(tiny_llama(), byte_tokenizer(), overflow="drop")
    assert LMAgent(tiny_llama(), byte_tokenizer()).generation == GenerationConfig()


def test_a_bare_text_is_no_list_of_observations() -> None:
    for agent in (tiny_agent(), FixedAgent("x"), RandomAgent(["x"]), ReplayAgent(["x"])):
        with pytest.raises(TypeError, match=r"got the text 'Rain'; pass \[text\]"):
            agent.act("Rain")
        with pytest.raises(TypeError, match="strings as observations, got 3"):
            agent.act([3])
        with pytest.raises(ValueError, match="num_generations of at least 1, got 0"):
            agent.act(["Rain"], 0)


@pytest.mark.parametrize(
    ("parts", "error", "words"),
    [
        (("pocket", byte_tokenizer()), TypeError, "LMAgent.from_pretrained"),
        ((tiny_llama(), None), TypeError, "tokenizer of transformers, got None"),
        ((tiny_llama().model, byte_tokenizer()), TypeError, "language-model head"),
        ((letter_agent().model, byte_tokenizer()), ValueError, "at most 5 tokens"),
    ],
)
def test_wrong_parts_are_refused(parts: tuple, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        LMAgent(*parts)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(TypeError, match=r"motet\.agents\.GenerationConfig"):
        LMAgent(tiny_llama(), byte_tokenizer(), generation={"temperature": 1})
    with pytest.raises(ValueError, match="a tokenizer with a chat template"):
        LMAgent(tiny_llama(), byte_tokenizer(), chat_template=True)
    with pytest.raises(ValueError, match="max_new_tokens below the context of 64"):
        tiny_agent(context=64, max_new_tokens=64).act(["x"])
    with pytest.raises(TypeError, match=r"max_new_tokens to be int, got 2.5"):
        GenerationConfig(max_new_tokens=2.5)
    with pytest.raises(TypeError, match="do_sample to be bool"):
        GenerationConfig(do_sample="yes")


def test_a_folder_without_a_model_is_named_with_those_inside(tmp_path: Path) -> None:
    tiny_agent().save_pretrained(tmp_path / "agent_0")
    with pytest.raises(FileNotFoundError, match=r"the folders \['agent_0'\] in it have one"):
        LMAgent.from_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match="which is not there"):
        LMAgent.from_pretrained(tmp_path / "missing")


def small(kind: str) -> LMAgent:
    """Architectures with other positions, windows and caches than Llama's."""
    sizes = {"vocab_size": 257, "eos_token_id": END, "pad_token_id": END, "bos_token_id": None}
    llama_like = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    }  # fmt: skip
    config = {
        "gpt2": lambda: GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=128, **sizes),
        "qwen2": lambda: Qwen2Config(**llama_like, **sizes),
        "mistral": lambda: MistralConfig(sliding_window=8, **llama_like, **sizes),
        "bloom": lambda: BloomConfig(hidden_size=32, n_layer=2, n_head=4, **sizes),
    }[kind]()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).eval()
    return LMAgent(model, byte_tokenizer(), generation=GenerationConfig(max_new_tokens=12))


@pytest.mark.parametrize("kind", ["gpt2", "qwen2", "mistral", "bloom"])
def test_other_architectures_are_exact_too(kind: str) -> None:
    agent = small(kind)
    for (completion,) in agent.act(["a", "a prompt longer than the window"], seed=0):
        with torch.no_grad():
            expected = completion_log_prob(agent.model, completion, agent.generation)
        assert sum(completion.log_probs) == pytest.approx(float(expected), rel=1e-4, abs=1e-4)


def test_a_model_without_a_key_value_cache_is_refused() -> None:
    config = MambaConfig(vocab_size=257, hidden_size=32, num_hidden_layers=2, state_size=4)
    agent = LMAgent(AutoModelForCausalLM.from_config(config), byte_tokenizer())
    with pytest.raises(TypeError, match="state-space and linear-attention models"):
        agent.act(["a"])
