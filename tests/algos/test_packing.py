"""Siblings in one row: the same log-probabilities and gradients as apart, for fewer tokens."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
)

from motet.agents import Completion, GenerationConfig
from motet.algos.batch import Sample, collate, micro_batches
from motet.algos.log_probs import completion_log_probs
from motet.algos.packing import attention_window, pack, shared_mask, shares_prompts_exactly

SIZES = {"vocab_size": 97, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LLAMA_LIKE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
SHARING = {
    "llama": lambda: LlamaConfig(**LLAMA_LIKE, **SIZES),
    "qwen2": lambda: Qwen2Config(**LLAMA_LIKE, **SIZES),
    "gpt2": lambda: GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=128, **SIZES),
    "mistral": lambda: MistralConfig(sliding_window=64, **LLAMA_LIKE, **SIZES),
    "gemma2": lambda: Gemma2Config(head_dim=8, sliding_window=64, **LLAMA_LIKE, **SIZES),
    "eager": lambda: LlamaConfig(attn_implementation="eager", **LLAMA_LIKE, **SIZES),
}


def model_of(config):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).eval()


def sample(prompt, ids, advantage=1.0):
    log_probs = tuple(-0.5 * (k + 1) for k in range(len(ids)))
    return Sample("a", Completion("", tuple(prompt), tuple(ids), log_probs), advantage, 0.5)


# two prompts, of unlike lengths; the end token within, at the end and cut off; one token alone
SIBLINGS = [
    sample([5, 2, 7, 8, 9, 11, 12], [20, 21, 2], 1.0),
    sample([5, 2, 7, 8, 9, 11, 12], [22], -0.5),
    sample([5, 2, 7, 8, 9, 11, 12], [23, 2, 24, 25, 26], 2.0),
    sample([6, 30], [31, 32], -1.0),
    sample([6, 30], [33, 0, 34, 2], 0.25),
]


def gradients(model, rows, generation):
    """Return summed log-probabilities by completion, and each weight's gradient."""
    model.zero_grad()
    sums = {}
    for batch_rows in micro_batches(rows, 64):
        batch = collate(batch_rows)
        own = completion_log_probs(model, batch, generation).sum(-1)
        (own * batch.advantages).sum().backward()
        samples = [one for row in batch_rows for one in row]
        totals = own.tolist()
        sums |= {one.completion: x for one, x in zip(samples, totals, strict=True)}
    return sums, {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize(
    "generation", [GenerationConfig(), GenerationConfig(temperature=0.6, top_k=20)]
)
@pytest.mark.parametrize("family", SHARING)
def test_siblings_in_one_row_are_those_apart(family, generation):
    model = model_of(SHARING[family]())
    assert shares_prompts_exactly(model)
    together = pack(SIBLINGS, hidden_size=1_000, max_tokens=64)
    assert sorted(map(len, together)) == [2, 3]
    apart = [(one,) for one in SIBLINGS]
    sums, gradient = gradients(model, apart, generation)
    packed_sums, packed_gradient = gradients(model, together, generation)
    assert packed_sums == pytest.approx(sums, rel=1e-5, abs=1e-5)
    for name, expected in gradient.items():
        error = float((packed_gradient[name] - expected).norm())
        assert error <= 1e-5 * float(expected.norm()) + 1e-6, name


def test_models_that_compute_something_else_are_found_out():
    bloom = model_of(BloomConfig(hidden_size=32, n_layer=2, n_head=4, **SIZES))
    assert not shares_prompts_exactly(bloom)

    class OwnPositions(type(model_of(SHARING["llama"]()))):
        """Takes positions and does not heed them."""

        def forward(self, *args, position_ids=None, **kwargs):
            count = kwargs["input_ids"].shape[1]
            return super().forward(*args, position_ids=torch.arange(count)[None], **kwargs)

    assert not shares_prompts_exactly(OwnPositions(SHARING["llama"]()).eval())


def test_the_window_of_sliding_attention():
    assert attention_window(model_of(SHARING["mistral"]())) == 64
    assert attention_window(model_of(SHARING["llama"]())) is None


def test_a_shared_row_by_hand():
    batch = collate([SIBLINGS[:2], SIBLINGS[3:4]])
    assert batch.input_ids.tolist() == [
        [5, 2, 7, 8, 9, 11, 12, 20, 21, 2, 22],
        [0, 0, 0, 0, 0, 6, 30, 31, 32, 0, 0],
    ]
    assert batch.segments.tolist() == [
        [1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3],
        [0, 0, 0, 0, 0, 1, 1, 2, 2, 0, 0],
    ]
    assert batch.position_ids[0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 7]
    assert batch.position_ids[1, 5:9].tolist() == [0, 1, 2, 3]
    assert (batch.prompt_width, batch.num_tokens, batch.shares_prompts) == (7, 15, True)
    # the logits' column 0 is the prompt's last token: it predicts each sibling's first
    assert batch.rows.tolist() == [0, 0, 0, 0, 1, 1]
    assert batch.columns.tolist() == [0, 1, 2, 0, 0, 1]
    assert batch.completion_ids.tolist() == [[20, 21, 2], [22, 0, 0], [31, 32, 0]]
    assert batch.mask.sum(-1).tolist() == [3, 1, 2]


def test_who_sees_whom_by_hand():
    # padding, a prompt of two, completions of two and one
    mask = shared_mask(torch.tensor([[0, 1, 1, 2, 2, 3]]), torch.float32)[0, 0]
    assert (mask == 0).int().tolist() == [
        [0, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0],
        [0, 1, 1, 0, 0, 0],
        [0, 1, 1, 1, 0, 0],
        [0, 1, 1, 1, 1, 0],
        [0, 1, 1, 0, 0, 1],
    ]
    assert mask.min() == torch.finfo(torch.float32).min


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40)), min_size=1, max_size=30),
    st.sampled_from([1, 16, 256]),
    st.integers(8, 300),
)
def test_packing_loses_nothing_and_keeps_the_budget(drawn, hidden_size, budget):
    prompts = [[1] * 3, [2] * 3, [3] * 20, [4] * 60]
    samples = [sample(prompts[which], [7] * length) for which, length in drawn]
    rows = pack(samples, hidden_size, budget)
    assert sorted(map(id, samples)) == sorted(id(one) for row in rows for one in row)
    for row in rows:
        assert len({one.completion.prompt_ids for one in row}) == 1
        assert len(row) == 1 or collate([row]).num_tokens <= budget


def test_rows_are_as_long_as_it_pays():
    siblings = [sample([1] * 10, [7] * 10) for _ in range(8)]
    # a prompt of 10 is worth 60 * hidden_size comparisons; the k-th sibling of 10 tokens adds
    # (10 + 10 k)^2 - (10 k)^2 - 20^2 = 200 k - 300 of them
    assert [len(row) for row in pack(siblings, 1_000, 1_000)] == [8]
    assert [len(row) for row in pack(siblings, 6, 1_000)] == [3, 3, 2]
    assert [len(row) for row in pack(siblings, 1_000, 50)] == [4, 4]
