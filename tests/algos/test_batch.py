"""Padding and masks: lengths decide, token ids never do."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import END

from motet.agents import Completion
from motet.algos.updates.batch import (
    Group,
    Sample,
    collate,
    micro_batches,
    samples_by_agent,
    weighted_samples,
)


def completion(prompt: list[int], ids: list[int]) -> Completion:
    return Completion("", tuple(prompt), tuple(ids), tuple(-0.1 * (i + 1) for i in range(len(ids))))


def test_masks_come_from_lengths_where_pad_is_the_end_token() -> None:
    # the prompt holds the end token, one completion ends in it and one is cut
    batch = collate(
        [
            (Sample("a", completion([7, END, 8], [5, END]), 1.0, 0.5),),
            (Sample("a", completion([9], [6, 6, 6]), -1.0, 0.5),),
        ]
    )
    # the last token of a completion predicts nothing and is not read
    assert batch.input_ids.tolist() == [[7, END, 8, 5], [9, 6, 6, 0]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3]] * 2
    assert (batch.lengths.tolist(), batch.num_tokens, batch.attention) == ([4, 3], 7, None)
    assert list(zip(batch.rows.tolist(), batch.columns.tolist(), strict=True)) == [
        (0, 2), (0, 3), (1, 0), (1, 1), (1, 2),
    ]  # fmt: skip
    assert batch.mask.tolist() == [[True, True, False], [True, True, True]]
    assert batch.completion_ids.tolist() == [[5, END, 0], [6, 6, 6]]
    torch.testing.assert_close(
        batch.old_log_probs, torch.tensor([[-0.1, -0.2, 0.0], [-0.1, -0.2, -0.3]])
    )


GROUPS = [
    Group("a", 1, (completion([1], [2, 3]), completion([1], [2, 3, 4, 5])), (1.0, -1.0)),
    Group("a", 2, (completion([1], [2]), completion([1], [3])), (1.0, -1.0)),
    Group("a", 2, (completion([1], [2, 2]), completion([1], [])), (1.0, -1.0)),
    Group("b", 1, (completion([1], [2]), completion([1], [3, 3])), (1.0, -1.0)),
]


@pytest.mark.parametrize(
    ("loss_type", "weights"),
    [
        # agent a: one group at turn 1 and two at turn 2, each of two completions
        ("sequence_sum", [1 / 2, 1 / 2, 1 / 4, 1 / 4, 1 / 4]),
        ("sequence_mean", [1 / 4, 1 / 8, 1 / 4, 1 / 4, 1 / 8]),
        ("token_mean", [1 / 6, 1 / 6, 1 / 4, 1 / 4, 1 / 4]),
        ("constant", [1 / 20, 1 / 20, 1 / 40, 1 / 40, 1 / 40]),
    ],
)
def test_weights_by_hand(loss_type: str, weights: list[float]) -> None:
    weighted = weighted_samples(GROUPS, loss_type, max_new_tokens=10)
    assert [len(group) for group in weighted] == [2, 2, 1, 2]
    samples = samples_by_agent(weighted, scale=1.0)
    assert [sample.weight for sample in samples["a"]] == pytest.approx(weights)
    assert all(sample.completion.completion_ids for sample in samples["a"])
    assert [sample.agent for sample in samples["b"]] == ["b", "b"]


def test_cut_completions_are_left_out_and_their_tokens_not_averaged_over() -> None:
    cut = replace(completion([1], [2, 3]), finish_reason="length")
    group = Group("a", 1, (cut, completion([1], [2]), completion([1], [2, 3, 4])), (1.0, -1.0, 0.0))
    for loss_type, weights in {
        # a mean over three completions all the same, but over the four tokens that are left
        "sequence_sum": [1 / 3, 1 / 3],
        "sequence_mean": [1 / 3, 1 / 9],
        "token_mean": [1 / 4, 1 / 4],
        "constant": [1 / 30, 1 / 30],
    }.items():
        (samples,) = weighted_samples([group], loss_type, 10, mask_truncated=True)
        assert [sample.weight for sample in samples] == pytest.approx(weights)
        assert [sample.completion for sample in samples] == list(group.completions[1:])
    assert weighted_samples([replace(group, completions=(cut,) * 3)], "token_mean", 10) != [[]]
    whole = weighted_samples(
        [replace(group, completions=(cut,) * 3)], "token_mean", 10, mask_truncated=True
    )
    assert whole == [[]]


def test_the_steps_of_a_rollout_have_its_objective_in_the_mean() -> None:
    weighted = weighted_samples(GROUPS, "sequence_sum", max_new_tokens=10)
    whole = sum(sample.weight for group in weighted for sample in group)
    steps = [samples_by_agent([group], scale=len(GROUPS)) for group in weighted]
    total = sum(sample.weight for step in steps for own in step.values() for sample in own)
    assert total / len(steps) == pytest.approx(whole)


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=40),
    st.integers(10, 200),
)
def test_micro_batches_keep_the_budget_and_lose_nothing(
    lengths: list[tuple[int, int]], budget: int
) -> None:
    rows = [(Sample("a", completion([1] * p, [2] * t), 1.0, 1.0),) for p, t in lengths]
    batches = list(micro_batches(rows, budget))
    assert sorted(map(id, rows)) == sorted(id(row) for batch in batches for row in batch)
    for batch in batches:
        assert len(batch) == 1 or collate(batch).input_ids.numel() <= budget
