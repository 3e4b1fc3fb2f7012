"""Evaluation: the env's own episodes, averaged."""

import numpy as np
import pytest
from tiny import letter_agent, matching_env, tiny_agent

from motet.agents import FixedAgent, RandomAgent
from motet.algos import evaluate
from motet.envs import TextEnv, make
from motet.envs.wrappers import Wrapper

TEAM = {"agent_0": FixedAgent("xx"), "agent_1": FixedAgent("xxx")}


def test_metrics_by_hand() -> None:
    # ratio 1.5: exp(-0.5) at both turns
    env = make("story-length-ratio-v0", num_turns=2)
    metrics = evaluate(env, TEAM).metrics
    assert metrics["turn_1/reward_mean"] == pytest.approx(0.60653, abs=1e-5)
    assert metrics["return_mean"] == pytest.approx(2 * 0.60653, abs=1e-5)
    for name in ("reward_mean", "final_reward_mean", "turn_2/reward_mean"):
        assert metrics[name] == pytest.approx(0.60653, abs=1e-5)


def test_an_episode_that_the_env_ends_has_no_later_turns() -> None:
    env = TextEnv(
        [{"prompt": "good"}, {"prompt": "bad"}],
        lambda a, b, prompts: [1.0 if prompt == "good" else 0.25 for prompt in prompts],
        transition=lambda prompt: [prompt, prompt],
        num_turns=2,
        early_termination_threshold=0.9,
    )
    metrics = evaluate(env, TEAM, num_samples=3).metrics
    # good: 1; bad: 0.25 + 0.25
    assert metrics["turn_1/reward_mean"] == 0.625
    assert metrics["turn_2/reward_mean"] == 0.25
    assert metrics["reward_mean"] == pytest.approx(0.5)
    assert metrics["return_mean"] == pytest.approx(0.75)
    assert metrics["final_reward_mean"] == pytest.approx(0.625)


def test_greedy_repeats_itself_and_sampling_is_seeded() -> None:
    env = make("story-length-ratio-v0")
    team = {"agent_0": tiny_agent(max_new_tokens=12), "agent_1": FixedAgent("x" * 20)}
    greedy = evaluate(env, team, [0], num_samples=3, do_sample=False).rollout
    assert len({node.completions["agent_0"][0].text for node in greedy.levels[0]}) == 1
    assert team["agent_0"].generation.do_sample
    assert evaluate(env, team, seed=1) == evaluate(env, team, seed=1)
    assert evaluate(env, team, seed=1) != evaluate(env, team, seed=2)


def test_teams_of_shared_and_scripted_agents_play() -> None:
    env = matching_env(num_turns=2)
    shared = evaluate(env, dict.fromkeys(TEAM, letter_agent()), num_samples=50).metrics
    assert 0.05 < shared["turn_1/reward_mean"] < 0.5
    scripted = evaluate(env, dict.fromkeys(TEAM, FixedAgent("a"))).metrics
    assert scripted["return_mean"] == 2.0
    mixed = {"agent_0": FixedAgent("a"), "agent_1": RandomAgent(["a", "b"], seed=0)}
    assert 0.3 < evaluate(env, mixed, num_samples=50).metrics["reward_mean"] < 0.7


@pytest.mark.parametrize("override", [False, True])
def test_samples_of_a_row_do_not_share_what_wrappers_draw(override: bool) -> None:
    class Numbered(Wrapper):
        """Puts a random number behind the prompts."""

        def after_reset(self, observations: dict, infos: dict, *, seed: int) -> tuple:
            drawn = int(np.random.default_rng(seed).integers(10**9))
            return None, {name: f"{text} {drawn}" for name, text in observations.items()}, infos

    class Foreign(Numbered):
        """Overrides `step`, and is cloned for every branch."""

        def step(self, actions: dict) -> tuple:
            return super().step(actions)

    env = (Foreign if override else Numbered)(make("story-length-ratio-v0"))
    rollout = evaluate(env, TEAM, [0, 1], num_samples=5).rollout
    assert len({node.observations["agent_0"] for node in rollout.levels[0]}) == 10
    assert rollout == evaluate(env, TEAM, [0, 1], num_samples=5).rollout
    for row, first in ((0, 0), (1, 5)):  # the first episode of a row has the row as its seed
        seen, _ = env.reset(seed=row, options={"row": row})
        assert rollout.levels[0][first].observations == seen


def test_an_env_without_a_dataset_needs_seeds() -> None:
    class Other:
        possible_agents = ("agent_0", "agent_1")

    with pytest.raises(ValueError, match="rows=, the seeds"):
        evaluate(Other(), TEAM)
    with pytest.raises(ValueError, match="num_samples of at least 1, got 0"):
        evaluate(make("story-length-ratio-v0"), TEAM, num_samples=0)
