"""Lambda-returns over trees: numbers by hand, chains as others compute them, and enumeration."""

import itertools

import numpy as np
import pytest
import torch
from drawn_rollouts import REPEATABLE, rollouts, shapes
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import credits, node_return
from stable_baselines3.common.buffers import RolloutBuffer

from motet.agents import Completion
from motet.algos import Node, Rollout
from motet.algos.actor_critics.value_targets import (
    Place,
    joint_advantages,
    standardized,
    token_advantages,
    tree_targets,
    without_spread,
)
from motet.algos.rollouts.returns import rollout_returns


def said(length: int = 1, text: str = "") -> Completion:
    return Completion(text, (1,), tuple(range(2, 2 + length)), (-1.0,) * length)


def node(rewards: list[float], children: list[int | None], *, turn: int = 1, lengths=None) -> Node:
    """One agent, as many joint actions as generations."""
    size = len(rewards)
    own = tuple(said(length) for length in lengths or [1] * size)
    return Node(
        row=0,
        turn=turn,
        observations={"a": "p"},
        completions={"a": own},
        joint_actions=tuple((k,) for k in range(size)),
        rewards={"a": tuple(rewards)},
        ended=tuple(child is None for child in children),
        children=tuple(children),
        turns_credited=(1,) * size,
    )


def numbers(tensors: tuple[torch.Tensor, ...]) -> list[float]:
    return [value for tensor in tensors for value in tensor.tolist()]


def one(value: float) -> tuple[torch.Tensor]:
    return (torch.tensor([value]),)


def test_golden_tree_of_two_turns() -> None:
    root = node([1.0, 0.5, 0.0], [0, None, 1])
    leaves = node([0.0, 1.0], [None, None], turn=2), node([3.0, 2.0], [None, None], turn=2)
    rollout = Rollout(("a",), ((root,), leaves))
    values = {Place(0, 0, "a"): one(0.5), Place(1, 0, "a"): one(0.25), Place(1, 1, "a"): one(2.0)}
    targets = tree_targets(rollout, values, discount=0.5, gae_lambda=0.8)
    # leaves: r - V; their means are 0.25 and 0.5
    assert numbers(targets[1, 0, "a"].advantages) == pytest.approx([-0.25, 0.75])
    assert numbers(targets[1, 1, "a"].advantages) == pytest.approx([1.0, 0.0])
    assert numbers(targets[1, 0, "a"].values) == pytest.approx([0.5])
    # delta: 1 + 0.5 * 0.25 - 0.5 = 0.625, 0.5 - 0.5 = 0, 0 + 0.5 * 2 - 0.5 = 0.5
    # A: 0.625 + 0.4 * 0.25 = 0.725, 0, 0.5 + 0.4 * 0.5 = 0.7; their mean is 0.475
    assert numbers(targets[0, 0, "a"].advantages) == pytest.approx([0.725, 0.0, 0.7])
    assert numbers(targets[0, 0, "a"].values) == pytest.approx([0.975])


def test_golden_tokens_of_two_turns() -> None:
    root, leaf = node([1.0], [0], lengths=[3]), node([2.0], [None], turn=2, lengths=[2])
    rollout = Rollout(("a",), ((root,), (leaf,)))
    values = {
        Place(0, 0, "a"): (torch.tensor([0.5, 1.0, 0.0]),),
        Place(1, 0, "a"): (torch.tensor([1.0, 3.0]),),
    }
    targets = tree_targets(rollout, values, discount=0.9, gae_lambda=0.5, token_level=True)
    # last turn: A_1 = 2 - 3 = -1, A_0 = 3 - 1 + 0.5 * -1 = 1.5
    assert numbers(targets[1, 0, "a"].advantages) == pytest.approx([1.5, -1.0])
    assert numbers(targets[1, 0, "a"].values) == pytest.approx([2.5, 2.0])
    # A_2 = 1 + 0.9 * 1 - 0 + 0.5 * 0.9 * 1.5 = 2.575, A_1 = 0 - 1 + 0.5 * 2.575 = 0.2875,
    # A_0 = 1 - 0.5 + 0.5 * 0.2875 = 0.64375
    assert numbers(targets[0, 0, "a"].advantages) == pytest.approx([0.64375, 0.2875, 2.575])


def test_a_crossed_completion_is_credited_the_mean_over_its_joint_actions() -> None:
    own = (said(), said())
    crossed = Node(
        row=0, turn=1, observations={"a": "p", "b": "p"}, completions={"a": own, "b": own},
        joint_actions=tuple(itertools.product(range(2), repeat=2)),
        rewards={"a": (0.0, 1.0, 2.0, 5.0), "b": (4.0, 0.0, 0.0, 0.0)},
        ended=(True,) * 4, children=(None,) * 4, turns_credited=(1, 1, 1, 2),
    )  # fmt: skip
    values = {Place(0, 0, "a"): one(1.0), Place(0, 0, "b"): one(0.0)}
    rollout = Rollout(("a", "b"), ((crossed,),))
    targets = tree_targets(rollout, values, discount=0.5, gae_lambda=0.95)
    # a, its last reward for two turns: 0, 1, 2, 7.5; halves (0 + 1) / 2 - 1 and (2 + 7.5) / 2 - 1
    assert numbers(targets[0, 0, "a"].advantages) == pytest.approx([-0.5, 3.75])
    # b: (0,0) and (1,0); (0,1) and (1,1)
    assert numbers(targets[0, 0, "b"].advantages) == pytest.approx([2.0, 0.0])
    assert numbers(targets[0, 0, "a"].values) == pytest.approx([2.625])


def waiting_chain() -> Rollout:
    """Two agents, of which b acts at turns 1 and 3; one joint action a turn."""
    levels = []
    for turn, acting in enumerate((("a", "b"), ("a",), ("a", "b")), start=1):
        levels.append((
            Node(
                row=0, turn=turn, observations=dict.fromkeys(acting, "p"),
                completions={name: (said(),) for name in acting},
                joint_actions=((0,) * len(acting),),
                rewards={"a": (0.0,), "b": (float(turn),)},
                ended=(turn == 3,), children=(None if turn == 3 else 0,), turns_credited=(1,),
            ),
        ))  # fmt: skip
    return Rollout(("a", "b"), tuple(levels))


def test_a_node_where_an_agent_waits_passes_on_what_it_earned_and_what_follows() -> None:
    values = {Place(0, 0, "b"): one(1.0), Place(2, 0, "b"): one(2.5)}
    targets = tree_targets(waiting_chain(), values, discount=0.5, gae_lambda=0.8)
    # turn 3: 3 - 2.5 = 0.5; turn 2: outcome 2 + 0.5 * 2.5 = 3.25, ahead 0.5 * 0.5 = 0.25
    # turn 1: 1 + 0.5 * 3.25 - 1 = 1.625, and 0.8 * 0.5 * 0.25 = 0.1
    assert numbers(targets[0, 0, "b"].advantages) == pytest.approx([1.725])
    assert list(targets) == list(values)
    values = {**values, Place(1, 0, "b"): one(3.0)}
    targets = tree_targets(waiting_chain(), values, discount=0.5, gae_lambda=0.8)
    # judged at turn 2 as well: 3.25 - 3 + 0.8 * 0.25 = 0.45; then 1 + 0.5 * 3 - 1 + 0.4 * 0.45
    assert targets[1, 0, "b"].advantages == ()
    assert numbers(targets[1, 0, "b"].values) == pytest.approx([3.45])
    assert numbers(targets[0, 0, "b"].advantages) == pytest.approx([1.68])


def test_costs_are_paid_by_the_completion_that_has_them() -> None:
    rollout = Rollout(("a",), ((node([1.0, 1.0], [None, None]),),))
    own = rollout.levels[0][0].completions["a"]
    assert own[0] == own[1]  # equal completions cost the same
    targets = tree_targets(
        rollout,
        {Place(0, 0, "a"): one(0.0)},
        discount=1.0,
        gae_lambda=1.0,
        costs={"a": {own[0]: 0.25}},
    )
    assert numbers(targets[0, 0, "a"].advantages) == [0.75, 0.75]


@pytest.mark.parametrize("gae_lambda", [0.0, 0.7, 0.95, 1.0])
def test_a_chain_is_what_stable_baselines3_computes(gae_lambda: float) -> None:
    drawn = np.random.default_rng(0)
    rewards, values = drawn.normal(size=5), drawn.normal(size=5)
    space = spaces.Box(-1, 1, (1,))
    buffer = RolloutBuffer(5, space, space, gae_lambda=gae_lambda, gamma=0.9)
    for t in range(5):
        buffer.add(
            np.zeros((1, 1)), np.zeros((1, 1)), rewards[t : t + 1], np.array([t == 0]),
            torch.tensor(values[t : t + 1]), torch.zeros(1),
        )  # fmt: skip
    buffer.compute_returns_and_advantage(torch.zeros(1), np.array([True]))

    levels = [(node([r], [None if t == 4 else 0], turn=t + 1),) for t, r in enumerate(rewards)]
    targets = tree_targets(
        Rollout(("a",), tuple(levels)),
        {Place(t, 0, "a"): one(value) for t, value in enumerate(values)},
        discount=0.9,
        gae_lambda=gae_lambda,
    )
    advantages = [numbers(own.advantages) for own in targets.values()]
    np.testing.assert_allclose(advantages, buffer.advantages, rtol=1e-5, atol=1e-6)
    returns = [numbers(own.values) for own in targets.values()]
    np.testing.assert_allclose(returns, buffer.returns, rtol=1e-5, atol=1e-6)


def naive(
    rollout: Rollout, values: dict, place: Place, joint: int, discount: float, lam: float
) -> float:
    """A_j by recursion from its definition, for agents that are judged wherever they are."""
    here = rollout.levels[place.level][place.node]
    times = sum(discount**k for k in range(here.turns_credited[joint]))
    total = here.rewards[place.agent][joint] * times - float(values[place][0])
    child = here.children[joint]
    below = None if child is None else Place(place.level + 1, child, place.agent)
    if below in values:
        joints = range(len(rollout.levels[below.level][child].joint_actions))
        ahead = [naive(rollout, values, below, k, discount, lam) for k in joints]
        total += discount * (float(values[below][0]) + lam * sum(ahead) / len(ahead))
    return total


@settings(REPEATABLE, max_examples=40)
@given(st.data(), st.floats(0, 1), st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_any_tree_is_as_by_recursion(data: st.DataObject, discount: float, lam: float) -> None:
    rollout = data.draw(shapes().flatmap(rollouts))
    values = {
        Place(depth, index, agent): one((7 * depth + 3 * index + len(agent)) % 5 - 2.0)
        for depth, level in enumerate(rollout.levels)
        for index, each in enumerate(level)
        for agent in each.rewards
    }
    targets = tree_targets(rollout, values, discount=discount, gae_lambda=lam)
    for place, found in targets.items():
        here = rollout.levels[place.level][place.node]
        joints = range(len(here.joint_actions))
        expected = [naive(rollout, values, place, j, discount, lam) for j in joints]
        mean = float(values[place][0]) + sum(expected) / len(expected)
        assert numbers(found.values) == pytest.approx([mean])
        acts = place.agent in here.completions
        own = credits(here, place.agent, expected) if acts else []
        assert numbers(found.advantages) == pytest.approx(own)
        if lam == 1.0 and acts:  # the return less the value, whatever was said later
            plain = [
                node_return(rollout, place.level, here, place.agent, j, discount) for j in joints
            ]
            less = [value - float(values[place][0]) for value in plain]
            assert numbers(found.advantages) == pytest.approx(credits(here, place.agent, less))


def test_one_token_a_turn_is_a_turn() -> None:
    levels = ((node([1.0, 0.5], [0, None]),), (node([2.0, 0.0], [None, None], turn=2),))
    rollout = Rollout(("a",), levels)
    values = {Place(0, 0, "a"): one(0.5), Place(1, 0, "a"): one(0.25)}
    settings_ = {"discount": 0.9, "gae_lambda": 0.8}
    by_turn = tree_targets(rollout, values, **settings_)
    tokens = {place: own * 2 for place, own in values.items()}
    by_token = tree_targets(rollout, tokens, **settings_, token_level=True)
    for place, own in by_turn.items():
        assert numbers(by_token[place].advantages) == pytest.approx(numbers(own.advantages))
        mean = sum(numbers(by_token[place].values)) / 2
        assert mean == pytest.approx(numbers(own.values)[0])


def test_over_tokens_the_whole_return_less_the_value() -> None:
    rollout = Rollout(("a",), ((node([1.0], [0], lengths=[2]),), (node([2.0], [None]),)))
    values = {
        Place(0, 0, "a"): (torch.tensor([0.5, -1.0]),),
        Place(1, 0, "a"): (torch.tensor([7.0]),),
    }
    targets = tree_targets(rollout, values, discount=0.5, gae_lambda=1.0, token_level=True)
    assert numbers(targets[0, 0, "a"].advantages) == pytest.approx([1.5, 3.0])


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="of one shape"):
        joint_advantages(torch.zeros(2), torch.zeros(3), 0.0, 0.9)
    with pytest.raises(ValueError, match="one token or more"):
        token_advantages(torch.zeros(0), 1.0, 0.0, 0.9)
    rollout = Rollout(("a",), ((node([1.0], [None]),),))
    where, common = Place(0, 0, "a"), {"discount": 1.0, "gae_lambda": 1.0}
    with pytest.raises(ValueError, match=r"one value of shape \(1,\) for a"):
        tree_targets(rollout, {where: (torch.zeros(2),)}, **common)
    with pytest.raises(ValueError, match=r"of lengths \[1\], got \[\(2,\)\]"):
        tree_targets(rollout, {where: (torch.zeros(2),)}, **common, token_level=True)


def test_agents_whose_completions_earned_the_same_by_hand() -> None:
    def of(rewards: list[float], turn: int) -> Node:
        children = [0] * len(rewards) if turn == 1 else [None] * len(rewards)
        return node(rewards, children, turn=turn)

    def found(*rewards: list[float]) -> frozenset[str]:
        levels = tuple((of(own, turn),) for turn, own in enumerate(rewards, start=1))
        rollout = Rollout(("a",), levels)
        return without_spread(rollout, rollout_returns(rollout, 1.0))

    assert found([1.0, 1.0], [1.0, 1.0]) == {"a"}  # 2 and 2, then 1 and 1
    assert found([0.1 + 0.2, 0.3], [0.0, 0.0]) == {"a"}  # but for rounding
    assert found([1.0, 1.0], [1.0, 0.0]) == frozenset()
    assert found([1.0, 0.0], [1.0, 1.0]) == frozenset()
    assert found([1.0], [1.0]) == frozenset()  # nothing to compare with
    assert found([0.0, 0.0], [0.0]) == {"a"}


def test_standardized_by_hand_and_alone() -> None:
    # 1, 3, 5: mean 3, population variance 8 / 3
    found = standardized([torch.tensor([1.0, 3.0]), torch.tensor([5.0])])
    assert numbers(tuple(found)) == pytest.approx([-2 / (8 / 3) ** 0.5, 0.0, 2 / (8 / 3) ** 0.5])
    alone = torch.tensor([2.0])
    assert standardized([alone]) == [alone]
    assert numbers(tuple(standardized([alone, alone.clone()]))) == [2.0, 2.0]
    assert standardized([]) == []
