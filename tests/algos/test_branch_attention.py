"""Attention by branches: what a mask would leave, and nothing of what it would hide."""

from dataclasses import replace

import pytest
import torch
from families import SHARING, model_of
from hypothesis import given
from hypothesis import strategies as st

from motet.agents import Completion, GenerationConfig
from motet.algos.updates import branch_attention
from motet.algos.updates.batch import Sample, collate
from motet.algos.updates.branch_attention import branches_of, branching, computes_branches
from motet.algos.updates.log_probs import completion_log_probs


def row_of(*sequences):
    """Sequences of ids, of which the first is prompt."""
    return [
        Sample("a", Completion("", tuple(ids[:1]), tuple(ids[1:]), (-1.0,) * (len(ids) - 1)), 1, 1)
        for ids in sequences
    ]


# 5 tokens are read of the first, 4 of the second, which shares 2, and 3 of the third, sharing 1
TREE = row_of([1, 2, 3, 4, 5, 6], [1, 2, 7, 8, 9], [1, 10, 11, 12])


def test_branches_by_hand():
    batch = collate([TREE, row_of([1, 20, 21])])
    assert batch.input_ids.tolist() == [
        [1, 2, 3, 4, 5, 7, 8, 10, 11],
        [1, 20, 0, 0, 0, 0, 0, 0, 0],
    ]
    whole, others = batch.branches.parts
    # whole sequences, the shortest first; the second row's places begin at 9
    assert whole.asking.tolist() == [[9, 10, 0, 0, 0], [0, 1, 2, 3, 4]]
    assert whole.seen.tolist() == whole.asking.tolist()
    assert whole.attention is None
    assert others.asking.tolist() == [[5, 6], [7, 8]]
    assert others.seen.tolist() == [[0, 1, 5, 6], [0, 7, 8, 0]]
    assert others.attention.int().tolist() == [
        [[1, 1, 1, 0], [1, 1, 1, 1]],
        [[1, 1, 0, 0], [1, 1, 1, 0]],
    ]
    assert batch.to(torch.device("cpu")).branches is batch.branches
    assert batch.to(torch.device("meta")).branches is None, "others compute with masks"
    assert collate([TREE], by_branches=False).branches is None
    found_at = batch.branches.found_at.unflatten(0, (2, 9)).tolist()
    assert found_at == [[5, 6, 7, 8, 9, 10, 11, 12, 13], [0, 1, 0, 0, 0, 0, 0, 0, 0]]


def test_branches_of_unlike_lengths_are_computed_apart():
    places = torch.arange(100)
    paths = [(places[:50], own) for own in (10, 18, 19, 28, 29)]
    # each part holds those of up to eight tokens, or a half, more than its shortest
    parts = branches_of(paths, 100).parts
    assert [part.asking.shape for part in parts] == [(2, 18), (2, 28), (1, 29)]


@given(
    st.lists(
        st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=30), min_size=1, max_size=8),
        min_size=1,
        max_size=4,
    )
)
def test_each_token_sees_by_branches_what_it_sees_in_the_mask(drawn):
    batch = collate([row_of(*sorted([3, *ids] for ids in row)) for row in drawn])
    if batch.attention is None:
        assert batch.branches is None
        return
    rows, width = batch.input_ids.shape
    seen = torch.zeros((rows * width, rows * width), dtype=torch.bool)
    answers = []
    for part in batch.branches.parts:
        count, most = part.asking.shape
        attention = part.attention
        if attention is None:
            attention = torch.ones((count, most, most), dtype=torch.bool).tril()
        for asking, others, sees in zip(part.asking, part.seen, attention, strict=True):
            answers += [(place, others[row]) for place, row in zip(asking, sees, strict=True)]
    for place in range(rows * width):
        row, column = divmod(place, width)
        if column < batch.lengths[row]:
            who, what = answers[batch.branches.found_at[place]]
            assert who == place
            seen[place, what] = True
            expected = torch.zeros(rows * width, dtype=torch.bool)
            expected[row * width : (row + 1) * width] = batch.attention[row, column]
            assert torch.equal(seen[place], expected)


def compared_pairs(monkeypatch, batch, model):
    """Return log-probabilities, and how many queries were compared with how many keys."""
    pairs, plain = [], branch_attention.scaled_dot_product_attention

    def counted(query, key, *args, **kwargs):
        pairs.append(query.shape[0] * query.shape[1] * query.shape[2] * key.shape[2])
        return plain(query, key, *args, **kwargs)

    monkeypatch.setattr(branch_attention, "scaled_dot_product_attention", counted)
    return completion_log_probs(model, batch, GenerationConfig()), sum(pairs)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt2", "mistral"])
def test_only_a_tokens_own_sequence_is_compared(monkeypatch, family):
    model = model_of(SHARING[family]())
    batch = collate([TREE])
    log_probs, pairs = compared_pairs(monkeypatch, batch, model)
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    # 5 tokens with 5, and 2 branches of 2 tokens with 4; the mask would compare 9 with 9
    assert pairs == layers * heads * (5 * 5 + 2 * 2 * 4)
    by_mask, pairs = compared_pairs(monkeypatch, replace(batch, branches=None), model)
    assert pairs == 0
    torch.testing.assert_close(log_probs, by_mask, rtol=1e-5, atol=1e-5)


def test_in_bfloat16_as_by_the_mask():
    model, batch = model_of(SHARING["llama"]()), collate([TREE])
    generation = GenerationConfig(bf16=True)
    by_branches = completion_log_probs(model, batch, generation)
    by_mask = completion_log_probs(model, replace(batch, branches=None), generation)
    torch.testing.assert_close(by_branches, by_mask, rtol=0.02, atol=0.02)


def test_a_model_that_changes_the_mask_computes_with_it(monkeypatch):
    def changed(module, args, kwargs):
        mask = kwargs["attention_mask"]
        return args, {**kwargs, "attention_mask": None if mask is None else mask * 1}

    model, batch = model_of(SHARING["llama"]()), collate([TREE])
    expected = completion_log_probs(model, batch, GenerationConfig())
    model.base_model.register_forward_pre_hook(changed, with_kwargs=True)
    log_probs, pairs = compared_pairs(monkeypatch, batch, model)
    assert pairs == 0
    torch.testing.assert_close(log_probs, expected, rtol=1e-5, atol=1e-5)


def test_a_models_attention_is_as_before_afterwards():
    model = model_of(SHARING["llama"]())
    with pytest.raises(RuntimeError, match="stop"), branching(model), branching(model):
        assert model.config._attn_implementation == branch_attention.NAME
        raise RuntimeError("stop")
    assert model.config._attn_implementation == "sdpa"
    eager = model_of(SHARING["eager"]())
    with branching(eager):
        assert eager.config._attn_implementation == "eager"
    assert (computes_branches(model), computes_branches(eager)) == (True, False)
