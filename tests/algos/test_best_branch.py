"""Best of n: the best of the siblings, what it costs, and that no other branch goes on."""

import numpy as np
import pytest
from tiny import LETTERS, matching_env, tiny_agent

from motet import algos
from motet.agents import RandomAgent
from motet.algos import BestOfNConfig, collect_rollouts, evaluate
from motet.algos.metrics import team_rewards
from motet.envs import TextEnv, make

NAMES = ("agent_0", "agent_1")


def letters(seed: int = 0) -> dict[str, RandomAgent]:
    return {name: RandomAgent(list(LETTERS), seed=seed + i) for i, name in enumerate(NAMES)}


def test_best_of_n_is_the_best_of_the_siblings_of_the_same_seed() -> None:
    env, team = make("story-length-ratio-v0"), {n: tiny_agent(i) for i, n in enumerate(NAMES)}
    rows = [0, 1, 2]
    siblings = collect_rollouts(env, team, rows, num_generations=6, seed=7)
    best = evaluate(env, team, rows, best_of=6, seed=7)
    paid = team_rewards(siblings)[0]
    assert best.metrics["reward_mean"] == pytest.approx(np.mean([max(own) for own in paid]))
    assert best.metrics["reward_mean"] > np.mean(paid)
    for node, tree, own in zip(best.rollout.levels[0], siblings.levels[0], paid, strict=True):
        k = int(np.argmax(own))
        for name in NAMES:
            assert node.completions[name] == (tree.completions[name][k],)
            assert len(node.drafts[name]) == 5
            assert {*node.drafts[name], *node.completions[name]} == {*tree.completions[name]}
    assert best.metrics["num_completions"] == 6 * 2 * 3
    assert best.metrics["num_tokens"] == siblings.num_tokens


def test_best_of_one_is_the_team_itself() -> None:
    team = letters()
    assert evaluate(matching_env(2), team, best_of=1, seed=3) == evaluate(
        matching_env(2), team, seed=3
    )
    learner = algos.make("best-of-n", matching_env(2), team, BestOfNConfig(num_generations=1))
    assert learner.evaluate() == algos.make("frozen", matching_env(2), team).evaluate()


def test_more_completions_match_more_often_by_hand() -> None:
    # four letters: one of n independent pairs matches with probability 1 - (3/4)^n
    for n in (1, 3):
        learner = algos.make(
            "best-of-n", matching_env(), letters(), BestOfNConfig(num_generations=n)
        )
        metrics = learner.evaluate(num_samples=250).metrics
        assert metrics["reward_mean"] == pytest.approx(1 - 0.75**n, abs=0.05)
        assert metrics["num_completions"] == 1000 * 2 * n


def test_the_best_of_each_turn_goes_on_and_no_other() -> None:
    env = TextEnv(
        [{"prompt": "p"}, {"prompt": "q"}],
        lambda first, second: [float(len(a) + len(b)) for a, b in zip(first, second, strict=True)],
        transition=lambda prompt, agent_completions: [prompt + c for c in agent_completions],
        num_turns=3,
    )
    team = {name: RandomAgent(["a", "bb", "ccc"], seed=i) for i, name in enumerate(NAMES)}
    tree = collect_rollouts(env, team, [0, 1], num_generations=4, branches="best", seed=5)
    chains = evaluate(env, team, best_of=4, seed=5).rollout
    assert [len(level) for level in tree.levels] == [2, 2, 2]
    for depth, level in enumerate(tree.levels):
        for index, node in enumerate(level):
            paid = [a + b for a, b in zip(*node.rewards.values(), strict=True)]
            best = paid.index(max(paid))
            last = depth == 2
            assert node.children == tuple(
                index if k == best and not last else None for k in range(4)
            )
            played = chains.levels[depth][index]
            assert played.children == ((None,) if last else (index,))
            if not last:
                for name in NAMES:
                    said = node.completions[name][best].text
                    below = tree.levels[depth + 1][index].observations[name]
                    assert below == "pq"[node.row] + said


def test_a_joint_action_that_is_tried_ends_where_it_would_if_played() -> None:
    # a group that holds one match in four has the mean 0.25, and would go on all together
    kwargs = {"early_termination_threshold": 0.5}
    env = matching_env(2, **kwargs)
    team = letters()
    tree = collect_rollouts(env, team, [0] * 20, num_generations=4, branches="best", seed=0)
    for node in tree.levels[0]:
        assert node.ended == tuple(reward > 0.5 for reward in node.rewards["agent_0"])
    chains = evaluate(env, team, [0] * 20, best_of=4).rollout
    for node in chains.levels[0]:
        actions = {name: group[0].text for name, group in node.completions.items()}
        env.reset(options={"row": 0})
        *_, terminations, _, _ = env.step(actions)
        assert terminations["agent_0"] == node.ended[0]
    grouped = collect_rollouts(env, team, [0] * 20, num_generations=4, seed=0)
    assert any(len(set(node.ended)) == 2 for node in tree.levels[0])
    assert all(len(set(node.ended)) == 1 for node in grouped.levels[0])


def test_the_best_of_equal_texts_is_refused() -> None:
    with pytest.raises(ValueError, match="do_sample=True with best_of=8, got False"):
        algos.make("best-of-n", matching_env(), letters()).evaluate(do_sample=False)
    with pytest.raises(ValueError, match="best_of of at least 1, got 0"):
        evaluate(matching_env(), letters(), best_of=0)
    with pytest.raises(ValueError, match="branches 'all' or 'best', got 'good'"):
        collect_rollouts(matching_env(), letters(), [0], num_generations=2, branches="good")
