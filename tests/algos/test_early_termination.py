"""MAGRPO misses on purpose where success ends a branch and turns before it pay, and what helps.

Two agents say one letter each, for three turns. Both saying "a" pays 1, all else nearly as much.
docs/early_termination.md tells the story with the means of this test's numbers over three seeds:

    python -m pytest -s tests/algos/test_early_termination.py
"""

from dataclasses import replace

import pytest
from tiny import letter_agent

from motet import algos
from motet.envs import TextEnv
from motet.envs.wrappers import RewardShaping, Wrapper

NEAR_MISS = 0.7
THRESHOLD = 0.9
NUM_EPISODES = 200
SEEDS = range(3)


def reward(first, second):
    return [1.0 if a == b == "a" else NEAR_MISS for a, b in zip(first, second, strict=True)]


def task(**kwargs):
    return TextEnv(
        [{"prompt": "a"}], reward, transition=lambda prompt: [prompt] * 2, num_turns=3, **kwargs
    )


class EndsAtSuccess(Wrapper):
    """Ends each branch at its own success, and credits it nothing: what `TextEnv` does not do."""

    def after_step(self, memory, actions, result):
        if result.ended or result.rewards["agent_0"] <= THRESHOLD:
            return memory, result
        return memory, replace(result, terminations=dict.fromkeys(result.terminations, True))


RULES = {
    "never": task,
    "each branch, no credit": lambda: EndsAtSuccess(task()),
    "each branch, credited": lambda: task(
        early_termination_threshold=THRESHOLD, early_termination="branch"
    ),
    "by groups": lambda: task(early_termination_threshold=THRESHOLD),
    "each branch, pays improvement": lambda: RewardShaping(EndsAtSuccess(task()), "improvement"),
}


def learnt(rule, seed):
    """Return the share of episodes that hit in turn 1 after training, and the turns they take."""
    env = RULES[rule]()
    team = {name: letter_agent(10 * seed + i) for i, name in enumerate(env.possible_agents)}
    config = algos.MAGRPOConfig(
        num_train_epochs=60,
        num_generations=4,
        agent_learning_rate=1e-2,
        seed=seed,
        progress_bar=False,
        logging_steps=60,
    )
    algos.make("magrpo", env, team, config).train()
    rollout = algos.evaluate(env, team, num_samples=NUM_EPISODES).rollout
    hits = [node.rewards["agent_0"] == (1.0,) for node in rollout.levels[0]]
    return sum(hits) / NUM_EPISODES, rollout.num_joint_actions / NUM_EPISODES


@pytest.mark.parametrize("rule", RULES)
def test_what_is_learnt_under_each_rule(rule):
    runs = [learnt(rule, seed) for seed in SEEDS]
    hits, turns = (sum(each) / len(runs) for each in zip(*runs, strict=True))
    print(f"\n{rule}: hits in turn 1 {hits:.2f}, turns used {turns:.2f}")
    if rule == "each branch, no credit":
        assert hits < 0.25, "missing on purpose is what pays here"
        assert turns > 2.5
    else:
        assert hits > 0.8
        assert turns == 3 if rule == "never" else turns < 1.3
