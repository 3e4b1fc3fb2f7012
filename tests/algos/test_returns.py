"""Returns and credit: golden numbers, and equality with enumeration."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import node_return

from motet.agents import RandomAgent
from motet.algos import Node, Rollout, collect_rollouts
from motet.algos.rollouts.returns import credit, joint_returns, rollout_returns
from motet.envs import make


def test_a_return_is_its_reward_plus_the_discounted_mean_of_its_child() -> None:
    rewards = torch.tensor([1.0, 2.0, 0.0])
    children = torch.tensor([4.0, 0.0, 2.0])
    assert joint_returns(rewards, children, 0.5).tolist() == [3.0, 2.0, 1.0]
    with pytest.raises(ValueError, match="one shape"):
        joint_returns(rewards, children[:2], 1.0)


def test_credit_is_the_mean_over_the_joint_actions_that_contain_a_completion() -> None:
    # two agents, two generations, crossed: (0,0) (0,1) (1,0) (1,1)
    returns = torch.tensor([11.0, 12.0, 21.0, 22.0])
    assert credit(returns, torch.tensor([0, 0, 1, 1]), 2).tolist() == [11.5, 21.5]
    assert credit(returns, torch.tensor([0, 1, 0, 1]), 2).tolist() == [16.0, 17.0]
    with pytest.raises(ValueError, match="one shape"):
        credit(returns, torch.tensor([0, 1]), 2)


def _leaf(rewards: tuple[float, ...]) -> Node:
    size = len(rewards)
    return Node(
        0,
        2,
        {"a": "p"},
        {"a": ()},
        ((0,),) * size,
        {"a": rewards},
        (True,) * size,
        (None,) * size,
        (1,) * size,
    )


def test_golden_tree_of_two_turns() -> None:
    root = Node(
        0, 1, {"a": "p"}, {"a": ()}, ((0,), (1,), (2,)), {"a": (1.0, 0.5, 0.0)},
        (False, True, False), (0, None, 1), (1, 2, 1),
    )  # fmt: skip
    rollout = Rollout(("a",), ((root,), (_leaf((0.0, 1.0)), _leaf((3.0, 3.0)))))
    returns = rollout_returns(rollout, discount=0.9)
    # 1 + 0.9 * mean(0, 1); 0.5 for two turns, 0.5 * (1 + 0.9); 0 + 0.9 * 3
    assert returns[0][0]["a"].tolist() == pytest.approx([1.45, 0.95, 2.7])
    assert returns[1][1]["a"].tolist() == [3.0, 3.0]


@settings(max_examples=25)
@given(
    joint_mode=st.sampled_from(["aligned", "cross"]),
    num_generations=st.integers(1, 3),
    num_turns=st.integers(1, 3),
    discount=st.floats(0, 1),
    threshold=st.none() | st.floats(0, 1),
    early_termination=st.sampled_from(["group", "branch"]),
    seed=st.integers(0, 999),
)
def test_equals_enumeration(
    joint_mode: str,
    num_generations: int,
    num_turns: int,
    discount: float,
    threshold: float | None,
    early_termination: str,
    seed: int,
) -> None:
    if joint_mode == "cross":
        num_turns = min(num_turns, 2)
    env = make(
        "story-length-ratio-v0",
        num_turns=num_turns,
        early_termination_threshold=threshold,
        early_termination=early_termination,
    )
    agent = RandomAgent(["", "a", "abc", "a longer text"])
    rollout = collect_rollouts(
        env,
        {"agent_0": agent, "agent_1": agent},
        [0, 3],
        num_generations=num_generations,
        joint_mode=joint_mode,
        seed=seed,
    )
    returns = rollout_returns(rollout, discount)
    for depth, level in enumerate(rollout.levels):
        for index, node in enumerate(level):
            for name, j in itertools.product(rollout.agents, range(len(node.joint_actions))):
                expected = node_return(rollout, depth, node, name, j, discount)
                assert float(returns[depth][index][name][j]) == pytest.approx(expected)
