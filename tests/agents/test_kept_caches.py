"""Keys and values kept across turns, and the memory they may take: the same results, less work."""

from collections.abc import Sequence
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import END, byte_tokenizer, tiny_llama
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    MptConfig,
    PreTrainedModel,
    Qwen2Config,
)

from motet.agents import Completion, GenerationConfig, LMAgent
from motet.agents.cache_traits import bytes_per_token, extends_exactly
from motet.agents.kept_caches import KeptCaches

SIZES = {"vocab_size": 257, "eos_token_id": END, "pad_token_id": END, "bos_token_id": None}
LIKE_LLAMA = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.2, **SIZES,
}  # fmt: skip
ROPE = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}
CONFIGS = {
    "llama": LlamaConfig(**LIKE_LLAMA),
    "qwen2": Qwen2Config(**LIKE_LLAMA),
    "gpt2": GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=256, **SIZES),
    "bloom": BloomConfig(hidden_size=32, n_layer=2, n_head=4, initializer_range=0.2, **SIZES),
    "mistral": MistralConfig(sliding_window=8, **LIKE_LLAMA),
    "gemma2": Gemma2Config(head_dim=8, sliding_window=8, **LIKE_LLAMA),
    "dynamic rope": LlamaConfig(rope_parameters=ROPE, **LIKE_LLAMA),
    "mpt": MptConfig(d_model=32, n_heads=4, n_layers=2, max_seq_len=256, vocab_size=257),
}
EXTENDED = {"llama", "qwen2", "gpt2", "bloom"}
FIRST = ["Rain", "Describe a city in the clouds:", "x"]


def remembering(
    model: PreTrainedModel, *, overflow: str = "raise", **generation: object
) -> LMAgent:
    config = GenerationConfig(**{"max_new_tokens": 12, **generation})
    return LMAgent(
        model, byte_tokenizer(), generation=config, history="append", overflow=overflow, seed=0
    )


def observation(turn: int, branch: int) -> str:
    return f"turn {turn}? " + "and more " * (branch % 3)


def play(
    agent: LMAgent, num_generations: int, *, num_turns: int = 3, keep: bool = True
) -> list[list[Completion]]:
    """Grow trees from three prompts; return the completions of each turn."""
    levels: list[list[Completion]] = []
    with agent.keeping_caches() if keep else nullcontext():
        seen: Sequence[str] = FIRST
        contexts: list[Completion | None] = [None] * len(FIRST)
        for turn in range(num_turns):
            groups = agent.act(seen, num_generations, seed=turn, contexts=contexts)
            contexts = [completion for group in groups for completion in group]
            levels.append(contexts)
            seen = [observation(turn, branch) for branch in range(len(contexts))]
    return levels


def assert_equal(plain: list[list[Completion]], other: list[list[Completion]]) -> None:
    for ours, theirs in zip(plain, other, strict=True):
        for one, two in zip(ours, theirs, strict=True):
            assert one.prompt_ids == two.prompt_ids
            assert one.completion_ids == two.completion_ids
            assert one.log_probs == pytest.approx(two.log_probs, abs=1e-5, rel=1e-5)


class Work:
    """What a model is asked to compute: calls, tokens read of prompts, and cells of cache."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.calls = 0
        self.read = 0
        self.cells: list[int] = []
        model.register_forward_pre_hook(self._count, with_kwargs=True)
        model.register_forward_hook(self._weigh, with_kwargs=True)

    def _count(self, model: PreTrainedModel, args: object, kwargs: dict) -> None:
        self.calls += 1
        if kwargs["input_ids"].shape[1] > 1:
            mask = kwargs["attention_mask"]
            width = kwargs["input_ids"].shape[1]
            self.read += (
                kwargs["input_ids"].numel() if mask is None else int(mask[:, -width:].sum())
            )

    def _weigh(self, model: PreTrainedModel, args: object, kwargs: dict, output: object) -> None:
        cache = kwargs.get("past_key_values", kwargs.get("cache"))
        keys = cache.layers[0].keys
        self.cells.append(keys.shape[0] * keys.shape[2])


@pytest.mark.parametrize("kind", CONFIGS)
def test_results_are_those_of_reading_everything_anew(kind: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(CONFIGS[kind]).eval()
    assert extends_exactly(model) == (kind in EXTENDED)
    agent = remembering(model)
    assert_equal(play(agent, 2, keep=False), play(agent, 2))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "bloom", "mpt"])
def test_trials_in_bfloat16_find_the_same(kind: str, autocast: bool) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(CONFIGS[kind]).eval()
    model = model if autocast else model.to(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        assert extends_exactly(model) == (kind in EXTENDED)


@pytest.mark.parametrize("num_generations", range(1, 9))
def test_any_number_of_generations(num_generations: int) -> None:
    agent = remembering(tiny_llama(), max_new_tokens=20)
    plain = play(agent, num_generations, keep=False, num_turns=2)
    assert_equal(plain, play(agent, num_generations, num_turns=2))
    if num_generations == 8:
        assert {len(completion.completion_ids) for completion in plain[0]} > {20}
        assert {completion.finish_reason for completion in plain[0]} == {"stop", "length"}


@settings(max_examples=10)
@given(
    num_generations=st.integers(1, 3),
    max_new_tokens=st.integers(1, 14),
    max_rows=st.sampled_from([2, 7, 512]),
    cells=st.sampled_from([None, 130, 300, 2000]),
    do_sample=st.booleans(),
)
def test_splitting_and_keeping_never_change_results(
    num_generations: int, max_new_tokens: int, max_rows: int, cells: int | None, do_sample: bool
) -> None:
    agent = remembering(tiny_llama(), max_new_tokens=max_new_tokens, do_sample=do_sample)
    plain = play(agent, num_generations, keep=False)
    limit = None if cells is None else cells * bytes_per_token(agent.model) / 2**30
    split = agent.with_generation(max_rows=max_rows, max_cache_gib=limit)
    assert_equal(plain, play(split, num_generations))


def test_every_token_of_a_conversation_is_read_once() -> None:
    agent = remembering(tiny_llama())
    extends_exactly(agent.model)  # its trial is over before counting
    work = Work(agent.model)
    levels = play(agent, 2)
    last_of_context_and_new = [
        {completion.prompt_ids: len(byte_tokenizer()(seen)["input_ids"]) + 1}
        for turn, level in enumerate(levels[1:])
        for completion, seen in zip(
            level, [observation(turn, i // 2) for i in range(len(level))], strict=True
        )
    ]
    distinct = {prompt: new for each in last_of_context_and_new for prompt, new in each.items()}
    read = work.read
    assert read == sum(map(len, FIRST)) + sum(distinct.values())
    anew = Work(agent.model)
    play(agent, 2, keep=False)
    assert anew.read > 2 * read
    assert anew.read == sum(
        map(len, {completion.prompt_ids for level in levels for completion in level})
    )


def test_nothing_outlives_the_context() -> None:
    agent = remembering(tiny_llama())
    extends_exactly(agent.model)
    with agent.keeping_caches():
        (first,) = agent.act(["Rain"], seed=0)[0]
        with agent.keeping_caches():  # an inner one shares the outer one's
            work = Work(agent.model)
            agent.act(["Snow"], seed=0, contexts=[first])
            assert work.read == 5
        assert agent.with_generation(max_new_tokens=3)._kept is None
    work = Work(agent.model)
    agent.act(["Snow"], seed=0, contexts=[first])
    assert work.read == len(first.prompt_ids) + len(first.completion_ids) + 4


@pytest.mark.parametrize("fused", [False, True])
def test_changed_weights_are_noticed(fused: bool) -> None:
    agent = remembering(tiny_llama())
    optimizer = torch.optim.AdamW(agent.model.parameters(), lr=0.05, fused=fused)
    with agent.keeping_caches():
        (first,) = agent.act(["Rain"], seed=0)[0]
        agent.model(torch.tensor([[1, 2, 3]])).logits.std().backward()
        optimizer.step()
        agent.version.value += fused  # as learners count
        kept = agent.act(["Snow"], 3, seed=1, contexts=[first])
    assert_equal(agent.act(["Snow"], 3, seed=1, contexts=[first]), kept)


def test_agents_without_history_keep_nothing() -> None:
    agent = LMAgent(tiny_llama(), byte_tokenizer())
    with agent.keeping_caches():
        assert agent._kept is None


def test_a_conversation_that_has_lost_its_beginning_is_read_anew() -> None:
    agent = remembering(tiny_llama(context=60), overflow="truncate_left", max_new_tokens=16)
    plain = play(agent, 2, keep=False)
    assert max(len(completion.prompt_ids) for completion in plain[-1]) == 44
    assert_equal(plain, play(agent, 2))


@pytest.mark.parametrize("cells", [130, 400, 1500])
def test_keys_and_values_stay_within_their_budget(cells: int) -> None:
    agent = remembering(tiny_llama())
    plain = play(agent, 3, keep=False)
    size = bytes_per_token(agent.model)
    assert size == 2 * 2 * 2 * 8 * 4  # keys and values, layers, heads, their size, float32
    limited = agent.with_generation(max_cache_gib=cells * size / 2**30)
    extends_exactly(agent.model)
    most = 0
    work = Work(agent.model)

    def watch(model: object, args: object, kwargs: dict, output: object) -> None:
        nonlocal most
        kept = 0 if limited._kept is None else limited._kept.num_bytes // size
        most = max(most, kept + work.cells[-1])
        if kwargs["input_ids"].shape[1] > 1:  # a batch begins beside at most half
            assert kept <= cells / 2

    agent.model.register_forward_hook(watch, with_kwargs=True)
    assert_equal(plain, play(limited, 3))
    calls = work.calls
    assert cells / 2 < most <= cells
    unlimited = Work(agent.model)
    play(agent, 3)
    assert max(unlimited.cells) > cells
    assert unlimited.calls < calls


def test_budgets_that_no_row_fits_into_are_refused() -> None:
    size = bytes_per_token(tiny_llama()) / 2**30
    agent = remembering(tiny_llama(), max_cache_gib=15 * size)
    with pytest.raises(ValueError, match=r"max_cache_gib of at least .* completion of 16 tokens"):
        agent.act(["Rain"])
    agent.with_generation(max_cache_gib=16 * size).act(["Rain"])
    for length in range(1, 40):  # what it says is enough
        longer = agent.with_generation(max_new_tokens=length, max_cache_gib=size / 2)
        with pytest.raises(ValueError, match="max_cache_gib of at least") as said:
            longer.act(["Rain"])
        advised = float(str(said.value).split("at least ")[1].split()[0])
        assert (4 + length) * size <= advised <= 1.01 * (4 + length) * size
        longer.with_generation(max_cache_gib=advised).act(["Rain"])
    for wrong in (0.0, -1):
        with pytest.raises(ValueError, match="max_cache_gib above 0 or None"):
            GenerationConfig(max_cache_gib=wrong)
    with pytest.raises(TypeError, match="max_cache_gib to be float, got '1'"):
        GenerationConfig(max_cache_gib="1")


def test_the_oldest_rows_are_dropped_first_and_used_ones_forgotten() -> None:
    agent = remembering(tiny_llama())
    with agent.keeping_caches():
        kept = agent._kept
        assert isinstance(kept, KeptCaches)
        contexts = [agent.act([text], seed=0)[0][0] for text in FIRST]
        prompts = [agent.encode("go on", context) for context in contexts]
        lengths = [kept.find(prompt) for prompt in prompts]
        assert lengths == [len(c.prompt_ids) + len(c.completion_ids) - 1 for c in contexts]
        kept.shrink(kept.num_bytes - 1)
        assert [kept.find(prompt) for prompt in prompts] == [0, *lengths[1:]]
        agent.act(["go on"], seed=0, contexts=[contexts[1]])
        assert [kept.find(prompt) for prompt in prompts] == [0, 0, lengths[2]]
        kept.shrink(0)
        assert kept.num_bytes == 0


def test_modes_are_only_set_where_they_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = remembering(tiny_llama())
    calls: list[str] = []
    for name in ("eval", "train"):
        method = getattr(agent.model, name)
        monkeypatch.setattr(
            agent.model, name, lambda *a, name=name, method=method: (calls.append(name), method(*a))
        )
    agent.act(["Rain"])
    assert calls == []
    torch.nn.Module.train(agent.model)
    agent.act(["Rain"])
    assert calls[0] == "eval"
    assert "train" in calls
    assert all(module.training for module in agent.model.modules())
