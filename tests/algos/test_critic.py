"""The parts of a critic: value loss, head and moments, what it reads, how it pads."""

import math

import numpy as np
import pytest
import torch
from stable_baselines3.common.running_mean_std import RunningMeanStd
from tiny import byte_tokenizer, tiny_llama
from transformers import BertConfig, BertModel

from motet.algos.actor_critics.critic import Critic, Read, read_batches, trunk_of
from motet.algos.actor_critics.critic_reads import joint_text
from motet.algos.actor_critics.value_head import ValueHead
from motet.algos.actor_critics.value_loss import explained_variance, value_loss
from motet.algos.actor_critics.value_samples import ValueTarget, collate_values

# --- the loss -----------------------------------------------------------------------------------


def test_value_loss_by_hand() -> None:
    values = torch.tensor([1.0, 2.0, -1.0, 0.1], requires_grad=True)
    old = torch.tensor([0.0, 1.9, 0.0, 0.0])
    targets = torch.tensor([3.0, 0.0, 0.0, 1.0])
    weights = torch.tensor([0.5, 0.25, 0.125, 0.125])
    # (1-3)^2 = 4, 2^2 = 4, 1, 0.9^2 = 0.81
    plain = 0.5 * 4 + 0.25 * 4 + 0.125 * 1 + 0.125 * 0.81
    assert value_loss(values, old, targets, weights).item() == pytest.approx(plain)
    # clipped to 0.2, 2, -0.2, 0.1: (0.2-3)^2 = 7.84 counts, for the value came from 0 and has moved
    # too far to the target; 4 is the same; the third has left the wrong way, and its own 1 counts
    clipped = 0.5 * 7.84 + 0.25 * 4 + 0.125 * 1 + 0.125 * 0.81
    loss = value_loss(values, old, targets, weights, clip_range=0.2)
    assert loss.item() == pytest.approx(clipped)
    loss.backward()
    # the first is held; 2 * 0.25 * 2, 2 * 0.125 * -1, 2 * 0.125 * -0.9
    assert values.grad.tolist() == pytest.approx([0.0, 1.0, -0.25, -0.225])
    with pytest.raises(ValueError, match="of one shape"):
        value_loss(values, old, targets[:2], weights)


def test_explained_variance_by_hand() -> None:
    targets = torch.tensor([1.0, 2.0, 3.0])
    assert explained_variance(targets, targets) == 1.0
    assert explained_variance(torch.full((3,), 9.0), targets) == pytest.approx(0.0)
    # differences -1, 0, 1 doubled: Var 8/3 over 2/3
    assert explained_variance(torch.tensor([3.0, 2.0, 1.0]), targets) == pytest.approx(-3.0)
    assert explained_variance(targets, torch.ones(3)) is None
    with pytest.raises(ValueError, match="of one shape"):
        explained_variance(targets, targets[:2])


def test_targets_side_by_side() -> None:
    first = ValueTarget(1, (0.5,), (1.0,), 0.25)
    second = ValueTarget(0, (0.0, -1.0), (2.0, 3.0), 0.5)
    batch = collate_values([(4, first), (7, second)])
    assert batch.positions.tolist() == [4, 7, 8]
    assert batch.outputs.tolist() == [1, 0, 0]
    assert batch.old_values.tolist() == [0.5, 0.0, -1.0]
    assert batch.targets.tolist() == [1.0, 2.0, 3.0]
    assert batch.weights.tolist() == [0.25, 0.5, 0.5]
    assert first.scaled(2.0).weight == 0.5


# --- the head -----------------------------------------------------------------------------------


def test_a_head_begins_with_nothing_and_leaves_the_random_state_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    head = ValueHead(4, ["a", "b"], hidden_size=3, normalize=False, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    hidden = torch.ones(5, 4)
    assert torch.equal(head(hidden), torch.zeros(5, 2))
    again = ValueHead(4, ["a", "b"], hidden_size=3, normalize=False, seed=1)
    other = ValueHead(4, ["a", "b"], hidden_size=3, normalize=False, seed=2)
    assert torch.equal(head.hidden.weight, again.hidden.weight)
    assert not torch.equal(head.hidden.weight, other.hidden.weight)
    # tanh(W x + c), then a row of ones with a bias of 1
    torch.nn.init.ones_(head.output.weight)
    torch.nn.init.ones_(head.output.bias)
    by_hand = torch.tanh(head.hidden.weight.sum(-1) + head.hidden.bias).sum() + 1
    assert head(hidden)[0, 1].item() == pytest.approx(by_hand.item())


def test_running_moments_by_hand_and_as_stable_baselines3() -> None:
    head = ValueHead(2, ["a", "b"], hidden_size=None, normalize=True)
    assert head.in_rewards(torch.tensor([2.0]), "a").tolist() == [2.0]  # before any target
    head.observe(torch.tensor([1.0, 3.0], dtype=torch.float64), "b")
    # mean 2, deviation 1; then 1, 3, 8: mean 4, variance (9 + 1 + 16) / 3
    assert head.in_outputs(torch.tensor([5.0]), "b").tolist() == [3.0]
    head.observe(torch.tensor([8.0], dtype=torch.float64), "b")
    assert head.mean.tolist() == [0.0, 4.0]
    assert head.variance.tolist() == pytest.approx([1.0, 26 / 3])
    values = torch.tensor([-1.0, 0.0, 7.0], dtype=torch.float64)
    back = head.in_rewards(head.in_outputs(values, "b"), "b")
    assert back.tolist() == pytest.approx(values.tolist())

    theirs = RunningMeanStd(epsilon=0.0)
    drawn = np.random.default_rng(0)
    for size in (3, 1, 8):
        targets = drawn.normal(3.0, 2.0, size)
        head.observe(torch.tensor(targets), "a")
        theirs.update(targets)
    assert float(head.mean[0]) == pytest.approx(float(theirs.mean))
    assert float(head.variance[0]) == pytest.approx(float(theirs.var))


def test_equal_targets_have_no_deviation_to_divide_by() -> None:
    head = ValueHead(2, ["a"], hidden_size=None, normalize=True)
    head.observe(torch.tensor([5.0, 5.0], dtype=torch.float64), "a")
    assert head.in_outputs(torch.tensor([5.0], dtype=torch.float64), "a").tolist() == [0.0]
    assert math.isfinite(head.in_outputs(torch.tensor([6.0]), "a").item())


# --- reading ------------------------------------------------------------------------------------


def test_a_joint_text_tells_nothing_twice() -> None:
    seen = {"a": "left", "b": "right"}
    assert joint_text(seen) == "[a]\nleft\n\n[b]\nright"
    assert joint_text(seen, "> left\nx\n> up") == "[b]\nright\n\n[state]\n> left\nx\n> up"
    assert joint_text({"a": ""}) == "[a]\n"


def test_reads_are_batched_by_length_and_once() -> None:
    reads = [Read((1,) * length, 1) for length in (5, 2, 9, 2, 3)]
    batches = [[len(read.ids) for read in batch] for batch in read_batches(reads, 9)]
    assert batches == [[2, 3], [5], [9]]
    assert Read((1, 2, 3), 2).num_values == 2


def trunk(kind: str) -> torch.nn.Module:
    if kind == "decoder":
        return trunk_of(tiny_llama())
    config = BertConfig(
        vocab_size=257, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=32, initializer_range=0.2,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return BertModel(config).eval()


@pytest.mark.parametrize("kind", ["decoder", "encoder"])
def test_padding_changes_nothing(kind: str) -> None:
    head = ValueHead(32, ["a", "b"], hidden_size=None, normalize=False)
    weight = torch.arange(64.0).reshape(2, 32).sin()  # a sum of what was normalised would be 0
    head.output.weight.data.copy_(weight)
    critic = Critic(trunk(kind), byte_tokenizer(), head)
    assert critic.looks_ahead() == (kind == "encoder")
    # the end token, which is the padding token too, at the end and inside
    reads = [Read((5, 6, 0), 3), Read((7, 0, 8, 9, 4), 2), Read((5, 6, 0), 3), Read((3,), 1)]
    together = critic.outputs(reads, 1000)
    assert [len(each) for each in together] == [1, 4, 1, 1]
    for read, outputs in zip(reads, together, strict=True):
        (alone,) = critic.outputs([read], 1)
        torch.testing.assert_close(outputs, alone, rtol=1e-5, atol=1e-5)
    ids = torch.tensor([reads[1].ids])
    hidden = critic.trunk(input_ids=ids).last_hidden_state[0]
    torch.testing.assert_close(together[1], hidden[1:] @ weight.T, rtol=1e-4, atol=1e-4)
