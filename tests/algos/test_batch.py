"""Padding and masks: lengths decide, token ids never do."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import END

from motet.agents import Completion
from motet.algos import Node, Rollout
from motet.algos.advantages import group_mean
from motet.algos.batch import (
    Group,
    Sample,
    collate,
    micro_batches,
    rollout_groups,
    samples_by_agent,
    weighted_samples,
)
from motet.algos.returns import rollout_returns


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


def test_groups_with_and_without_spread() -> None:
    two = (completion([1], [2]), completion([1], [3]))
    node = Node(
        row=0,
        turn=1,
        observations={"a": "", "b": ""},
        completions={"a": two, "b": two[::-1]},
        joint_actions=((0, 0), (1, 1)),
        rewards={"a": (1.0, 3.0), "b": (2.0, 2.0)},
        ended=(True, True),
        children=(None, None),
        turns_credited=(1, 1),
    )
    rollout = Rollout(("a", "b"), ((node,),))
    returns = rollout_returns(rollout, 1.0)
    groups, without = rollout_groups(
        rollout, returns, ["a", "b"], baseline=group_mean, normalize=False
    )
    assert groups == [Group("a", 1, two, (-1.0, 1.0))]
    assert without == [Group("b", 1, two[::-1], (0.0, 0.0))]
    only, none = rollout_groups(rollout, returns, ["a"], baseline=group_mean, normalize=False)
    assert (only, none) == (groups, [])


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
