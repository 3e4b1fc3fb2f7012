"""Returns, credit and advantages are what walking every path from root to leaf comes to.

A path is one way the episode can go when every child's joint action is drawn uniformly. Exact
fractions all the way, so that only the library rounds.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import pytest
import torch
from drawn_rollouts import REPEATABLE, rollouts, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.agents import RandomAgent
from motet.algos import Node, Rollout, collect_rollouts, group_mean, leave_one_out, no_baseline
from motet.algos.group.advantages import group_advantages
from motet.algos.rollouts.returns import credit, rollout_returns
from motet.envs import TextEnv

DISCOUNTS = st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(3, 4), Fraction(0)])

Path = tuple[tuple[Node, int], ...]


def paths(rollout: Rollout, level: int, node: Node, joint: int) -> Iterator[tuple[Fraction, Path]]:
    """Every way to go on from a joint action, with its probability."""
    child = node.children[joint]
    if child is None:
        yield Fraction(1), ((node, joint),)
        return
    below = rollout.levels[level + 1][child]
    size = len(below.joint_actions)
    for j in range(size):
        for probability, rest in paths(rollout, level + 1, below, j):
            yield probability / size, ((node, joint), *rest)


def earned(path: Path, agent: str, discount: Fraction) -> Fraction:
    """The discounted rewards along a path; a credited one counts again in the turns it skips."""
    total = Fraction(0)
    for start, (node, joint) in enumerate(path):
        if agent not in node.rewards:
            break  # the agent has left
        for later in range(node.turns_credited[joint]):
            total += discount ** (start + later) * Fraction(node.rewards[agent][joint])
    return total


def expected_return(
    rollout: Rollout, level: int, node: Node, joint: int, agent: str, discount: Fraction
) -> Fraction:
    walked = list(paths(rollout, level, node, joint))
    assert sum(probability for probability, _ in walked) == 1
    return sum(
        (probability * earned(path, agent, discount) for probability, path in walked), Fraction(0)
    )


def expected_advantages(
    values: list[Fraction], baseline: str, normalize: bool
) -> list[float] | None:
    """By definition, the spread being that of the values around their mean."""
    size = len(values)
    mean = sum(values) / size
    variance = sum((value - mean) ** 2 for value in values) / size
    less = {
        "mean": [value - mean for value in values],
        "others": [value - (sum(values) - value) / (size - 1) for value in values],
        "nothing": values,
    }[baseline]
    if normalize:
        return [float(x) / math.sqrt(variance) for x in less] if variance else None
    return list(map(float, less)) if any(less) else None


BASELINES = {"mean": group_mean, "others": leave_one_out, "nothing": no_baseline}


def check(rollout: Rollout, discount: Fraction, baseline: str, normalize: bool) -> None:
    returns = rollout_returns(rollout, float(discount))
    for depth, level in enumerate(rollout.levels):
        for index, node in enumerate(level):
            assert list(returns[depth][index]) == list(node.rewards)
            for agent in node.rewards:
                expected = [
                    expected_return(rollout, depth, node, j, agent, discount)
                    for j in range(len(node.joint_actions))
                ]
                own = returns[depth][index][agent]
                assert own.tolist() == pytest.approx(list(map(float, expected)), abs=1e-12)
                if agent not in node.completions:
                    continue
                place = list(node.completions).index(agent)
                means = []
                for k in range(len(node.completions[agent])):
                    with_it = [
                        value
                        for value, joint in zip(expected, node.joint_actions, strict=True)
                        if joint[place] == k
                    ]
                    means.append(sum(with_it, Fraction(0)) / len(with_it))
                credits = credit(own, torch.tensor(node.choices(agent)), len(means))
                assert credits.tolist() == pytest.approx(list(map(float, means)), abs=1e-12)
                wanted = expected_advantages(means, baseline, normalize)
                got = group_advantages(credits, BASELINES[baseline], normalize=normalize)
                if wanted is None:
                    assert got is None
                else:
                    assert got is not None
                    assert got.tolist() == pytest.approx(wanted, rel=1e-9, abs=1e-12)


given_drawn = given(
    shapes().flatmap(rollouts), DISCOUNTS, st.sampled_from(sorted(BASELINES)), st.booleans()
)


@settings(REPEATABLE, max_examples=60)
@given_drawn
def test_drawn_trees_equal_the_enumeration_of_paths(
    rollout: Rollout, discount: Fraction, baseline: str, normalize: bool
) -> None:
    check(rollout, discount, baseline, normalize)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=600)
@given_drawn
def test_ten_times_more_drawn_trees_equal_the_enumeration_of_paths(
    rollout: Rollout, discount: Fraction, baseline: str, normalize: bool
) -> None:
    check(rollout, discount, baseline, normalize)


# --- trees as envs grow them --------------------------------------------------------------------


def own_rewards(*texts: list[str], seed: int = 0) -> dict[str, list[float]]:
    """Quarters that differ between agents and joint actions."""
    return {
        f"agent_{own}": [
            sum((own + 2 + i) * len(text) for i, text in enumerate(joint)) * (seed + 3) % 9 / 4 - 1
            for joint in zip(*texts, strict=True)
        ]
        for own in range(len(texts))
    }


@dataclass(frozen=True)
class Grown:
    """A rollout and the rules by which its branches ended."""

    num_turns: int
    threshold: float | None
    mode: Literal["group", "branch"]
    rollout: Rollout


@st.composite
def grown(draw: st.DrawFn) -> Grown:
    num_agents, num_generations = draw(st.sampled_from([(2, 2), (1, 4), (2, 3), (3, 2)]))
    joint_mode: Literal["aligned", "cross"] = draw(st.sampled_from(["aligned", "cross"]))
    num_turns = draw(st.sampled_from([3, 2, 1, 4]))
    if joint_mode == "cross":
        num_turns = min(num_turns, 2)
    threshold = draw(st.sampled_from([-0.25, 0.0, -0.75, 0.25, None]))
    mode: Literal["group", "branch"] = draw(st.sampled_from(["branch", "group"]))
    seed = draw(st.integers(0, 99))
    env = TextEnv(
        [{"prompt": "p"}, {"prompt": "q"}],
        lambda *texts: own_rewards(*texts, seed=seed),
        transition=lambda prompt: [prompt] * num_agents,
        num_agents=num_agents,
        num_turns=num_turns,
        acting=draw(st.sampled_from([None, [["agent_0"], [f"agent_{num_agents - 1}"]]])),
        early_termination_threshold=threshold,
        early_termination=mode,
    )
    agent = RandomAgent(["", "a", "abc", "a longer text"])
    rollout = collect_rollouts(
        env,
        dict.fromkeys(env.possible_agents, agent),
        [0, 1],
        num_generations=num_generations,
        joint_mode=joint_mode,
        seed=seed,
    )
    return Grown(num_turns, threshold, mode, rollout)


def check_ends(tree: Grown) -> None:
    """A branch ends by its own mean reward or with its group's, and is credited what it skips."""
    for node in tree.rollout.nodes():
        means = [sum(values) / len(values) for values in zip(*node.rewards.values(), strict=True)]
        judged = means if tree.mode == "branch" else [sum(means) / len(means)] * len(means)
        last = node.turn == tree.num_turns
        stops = [
            not last and tree.threshold is not None and value > tree.threshold for value in judged
        ]
        assert node.ended == tuple(last or stop for stop in stops)
        left = tree.num_turns - node.turn
        assert node.turns_credited == tuple(
            1 + left if stop and tree.mode == "branch" else 1 for stop in stops
        )


given_grown = given(grown(), DISCOUNTS, st.sampled_from(sorted(BASELINES)), st.booleans())


@settings(REPEATABLE, max_examples=100)
@given_grown
def test_collected_trees_equal_the_enumeration_of_paths(
    tree: Grown, discount: Fraction, baseline: str, normalize: bool
) -> None:
    check_ends(tree)
    check(tree.rollout, discount, baseline, normalize)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=1000)
@given_grown
def test_ten_times_more_collected_trees_equal_the_enumeration_of_paths(
    tree: Grown, discount: Fraction, baseline: str, normalize: bool
) -> None:
    check_ends(tree)
    check(tree.rollout, discount, baseline, normalize)
