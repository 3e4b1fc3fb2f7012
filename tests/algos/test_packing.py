"""Sequences in one row: the same log-probabilities and gradients as apart, for fewer tokens."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from families import LLAMA_LIKE, SHARING, SIZES, model_of
from hypothesis import given
from hypothesis import strategies as st
from transformers import BloomConfig, GPTNeoConfig, Lfm2Config

from motet.agents import Completion, GenerationConfig
from motet.algos.updates.batch import Sample, collate, micro_batches, num_shared, row_length
from motet.algos.updates.branch_attention import attention_mask
from motet.algos.updates.log_probs import completion_log_probs
from motet.algos.updates.packing import (
    attention_window,
    pack,
    shares_prompts_exactly,
)


def sample(prompt, ids, advantage=1.0):
    log_probs = tuple(-0.5 * (k + 1) for k in range(len(ids)))
    return Sample("a", Completion("", tuple(prompt), tuple(ids), log_probs), advantage, 0.5)


# two prompts, of unlike lengths; the end token within, at the end and cut off; one token alone;
# completions that begin alike, the same one twice, and a second turn that goes on from the first
PROMPT = [5, 2, 7, 8, 9, 11, 12]
SAMPLES = [
    sample(PROMPT, [20, 21, 2], 1.0),
    sample(PROMPT, [22], -0.5),
    sample([6, 30], [31, 32], -1.0),
    sample(PROMPT, [20, 2, 24, 25, 26], 2.0),
    sample([6, 30], [33, 0, 34, 2], 0.25),
    sample(PROMPT, [22], 0.75),
    sample([*PROMPT, 20, 21, 2, 40, 41], [42, 43], 1.5),
    sample([*PROMPT, 20, 21, 2, 40, 41], [44, 2], -0.7),
    sample([*PROMPT, 22, 40], [42], 0.3),
]


def gradients(model, rows, generation, *, by_branches=True):
    """Return summed log-probabilities by completion, and each weight's gradient."""
    model.zero_grad()
    sums = {}
    for batch_rows in micro_batches(rows, 64):
        batch = collate(batch_rows)
        if not by_branches:
            batch = replace(batch, branches=None)
        own = completion_log_probs(model, batch, generation)
        (own * batch.advantages).sum().backward()
        samples = [one for row in batch_rows for one in row]
        totals = own.sum(-1).tolist()
        sums |= {one.completion: x for one, x in zip(samples, totals, strict=True)}
    return sums, {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize(
    "generation", [GenerationConfig(), GenerationConfig(temperature=0.6, top_k=20)]
)
@pytest.mark.parametrize("by_branches", [True, False], ids=["by branches", "by mask"])
@pytest.mark.parametrize("family", SHARING)
def test_sequences_in_one_row_are_those_apart(family, by_branches, generation):
    model = model_of(SHARING[family]())
    assert shares_prompts_exactly(model)
    together = pack(SAMPLES, hidden_size=1_000, max_tokens=64)
    assert sorted(map(len, together)) == [2, 7]
    apart = [(one,) for one in SAMPLES]
    sums, gradient = gradients(model, apart, generation)
    packed_sums, packed_gradient = gradients(model, together, generation, by_branches=by_branches)
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_convolution_over_the_row_is_found_out_in_any_precision(dtype):
    config = Lfm2Config(layer_types=["conv", "full_attention"], **LLAMA_LIKE, **SIZES)
    assert not shares_prompts_exactly(model_of(config).to(dtype))
    assert shares_prompts_exactly(model_of(SHARING["llama"]()).to(dtype))


def test_a_window_that_is_counted_in_columns_is_no_window_of_a_sequence():
    config = GPTNeoConfig(
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=18,
        max_position_embeddings=128,
        **SIZES,
    )
    assert not shares_prompts_exactly(model_of(config))


def test_the_same_answer_many_times_is_cut_at_once():
    samples = [sample([1] * 10, [7]) for _ in range(20_000)]
    (row,) = pack(samples, 32, 1_024)
    assert len(row) == 20_000
    batch = collate([row[:100]])
    assert (batch.num_tokens, batch.attention) == (10, None)


def test_the_window_of_sliding_attention():
    assert attention_window(model_of(SHARING["mistral"]())) == 64
    assert attention_window(model_of(SHARING["llama"]())) is None


def test_a_shared_row_by_hand():
    batch = collate([[SAMPLES[0], SAMPLES[6], SAMPLES[1]], [SAMPLES[2]]])
    # the second goes on from the first; the third needs no token beyond the prompt
    assert batch.input_ids.tolist() == [
        [5, 2, 7, 8, 9, 11, 12, 20, 21, 2, 40, 41, 42],
        [6, 30, 31, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert batch.position_ids.tolist() == [[*range(13)], [0, 1, 2] + [0] * 10]
    assert (batch.lengths.tolist(), batch.num_tokens) == ([13, 3], 16)
    assert batch.rows.tolist() == [0, 0, 0, 0, 0, 0, 1, 1]
    assert batch.columns.tolist() == [6, 7, 8, 11, 12, 6, 1, 2]
    assert batch.completion_ids.tolist() == [[20, 21, 2], [42, 43, 0], [22, 0, 0], [31, 32, 0]]
    assert batch.mask.sum(-1).tolist() == [3, 2, 1, 2]


def test_who_sees_whom_by_hand():
    # one prompt token, then branches 3 4 | 3 5 | 6 7, of which the first two share the 3
    row = [sample([1], ids) for ids in ([3, 4, 9], [3, 5, 9], [6, 7, 9])]
    batch = collate([row, row[:1]])
    assert batch.input_ids.tolist() == [[1, 3, 4, 5, 6, 7], [1, 3, 4, 0, 0, 0]]
    assert batch.position_ids[0].tolist() == [0, 1, 2, 2, 1, 2]
    mask = attention_mask(batch.attention, torch.float32)[0, 0]
    assert (mask == 0).int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 0, 0, 0, 1, 0],
        [1, 0, 0, 0, 1, 1],
    ]
    assert mask.min() == torch.finfo(torch.float32).min
    assert batch.attention[1].tolist() == torch.ones((6, 6)).tril().bool().tolist()


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
        assert len({one.read for one in row}) == 1 or collate([row]).num_tokens <= budget


@given(st.lists(st.lists(st.integers(0, 2), min_size=2, max_size=8), min_size=1, max_size=20))
def test_each_beginning_is_computed_once(sequences):
    row = pack([sample(ids[:1], ids[1:]) for ids in sequences], 10_000, 10_000)
    beginnings = {tuple(ids[:end]) for ids in sequences for end in range(1, len(ids))}
    assert sum(collate([each]).num_tokens for each in row) == len(beginnings)


def test_rows_are_as_long_as_it_pays():
    siblings = [sample([1] * 10, [7, k] + [8] * 9) for k in range(20, 28)]
    # 11 tokens are shared, 9 are a sibling's own: k in a row cost 6 * hidden_size * (11 + 9 k)
    # and (11 + 9 k)^2 comparisons, of which one alone needs half; with a hidden size of 5 that is
    # 800, 856, 868 and 910 for each of one to four siblings in a row, and with 10 it is 1,400,
    # 1,291, 1,241 and 1,257
    assert [len(row) for row in pack(siblings, 1_000, 1_000)] == [8]
    assert [len(row) for row in pack(siblings, 5, 1_000)] == [1] * 8
    assert [len(row) for row in pack(siblings, 10, 1_000)] == [3, 3, 2]
    assert [len(row) for row in pack(siblings, 1_000, 50)] == [4, 4]
    # by branches one alone is compared 20 * 20 / 2 times, and a further one 9 * 20 times
    assert [len(row) for row in pack(siblings, 5, 1_000, by_branches=True)] == [8]


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=2, max_size=9), min_size=1, max_size=7),
    st.integers(1, 4),
    st.integers(8, 40),
    st.booleans(),
)
def test_the_cut_into_rows_is_the_cheapest(sequences, hidden_size, budget, by_branches):
    samples = sorted((sample(ids[:1], ids[1:]) for ids in sequences), key=lambda one: one.read)

    def compared(row):
        reads = sorted({one.read for one in row})
        if len(reads) > 1 and not by_branches:
            return row_length(row) ** 2
        later = ((len(b) - num_shared(a, b)) * len(b) for a, b in itertools.pairwise(reads))
        return len(reads[0]) ** 2 / 2 + sum(later)

    def cost(rows):
        total = 0
        for row in rows:
            length, alone = row_length(row), len({one.read for one in row}) == 1
            if not alone and (length > budget or len({one.read[0] for one in row}) > 1):
                return math.inf
            total += 6 * hidden_size * length + compared(row)
        return total

    def cuts(rest):
        if not rest:
            yield []
        for end in range(1, len(rest) + 1):
            yield from ([rest[:end], *more] for more in cuts(rest[end:]))

    found = pack(samples, hidden_size, budget, by_branches=by_branches)
    assert cost(found) == min(map(cost, cuts(samples)))


def test_whole_trees_where_the_context_is_the_conversation():
    """Three turns of four branches: at least four times fewer tokens than apart."""
    prompt, feedback, length = [3] * 80, [4] * 12, 16
    ids = itertools.count(10)

    def branches(context, turn):
        made = []
        for _ in range(4):
            completion = [next(ids) for _ in range(length)]
            made.append(sample(context, completion))
            if turn < 3:
                made += branches([*context, *completion, *feedback], turn + 1)
        return made

    samples = branches(prompt, 1)
    assert len(samples) == 4 + 16 + 64
    apart = sum(len(one.read) for one in samples)
    packed = sum(collate([row]).num_tokens for row in pack(samples, 128, 2_048))
    assert apart / packed > 4
