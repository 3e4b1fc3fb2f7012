"""Evaluation: the env's own episodes, averaged."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from tiny import Cloned, letter_agent, matching_env, tiny_agent

from motet import algos
from motet.agents import FixedAgent, RandomAgent
from motet.algos import Evaluation, Pipeline, evaluate
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


def goal_env() -> TextEnv:
    """Row 0 reaches its goal in turn 1; rows 1 and 2 play both turns."""
    return TextEnv(
        [{"prompt": "p", "pays": pays} for pays in (1.0, 0.25, 0.5)],
        lambda a, b, pays: list(pays),
        transition=lambda prompt: [prompt, prompt],
        num_turns=2,
        early_termination_threshold=0.9,
    )


def test_intervals_by_hand() -> None:
    played = evaluate(goal_env(), TEAM, num_samples=2)
    # returns 1, 1/2, 1: mean 5/6, of variance 1/12; t of two degrees 4.30265
    half = 4.30265 * math.sqrt(1 / 36)
    assert played.metrics["return_mean"] == pytest.approx(5 / 6)
    assert played.intervals["return_mean"] == pytest.approx((5 / 6 - half, 5 / 6 + half), rel=1e-5)
    # turn 2: 1/4 and 1/2 of the two rows that reached it; t of one degree 12.7062
    half = 12.7062 * 0.125
    expected = pytest.approx((0.375 - half, 0.375 + half), rel=1e-5)
    assert played.intervals["turn_2/reward_mean"] == expected
    # over all turns: sums 1, 1/2, 1 of 1, 2, 2 turns, mean 1/2: residuals 1/2, -1/2, 0
    half = 4.30265 * math.sqrt(3 / 2 * 0.5 / 25)
    assert played.metrics["reward_mean"] == 0.5
    assert played.intervals["reward_mean"] == pytest.approx((0.5 - half, 0.5 + half), rel=1e-5)
    assert played.metrics["frac_ended_early"] == pytest.approx(1 / 3)
    assert played.metrics["episode_length_mean"] == pytest.approx(5 / 3)
    low, high = played.intervals["frac_ended_early"]
    assert 0 < low < 1 / 3 < high < 1


def test_one_row_has_no_interval() -> None:
    played = evaluate(goal_env(), TEAM, [1], num_samples=9)
    assert played.intervals == {}
    assert not [name for name in played.logged() if name.endswith(("_low", "_high"))]


def test_seeds_of_an_env_without_a_dataset_are_rows_of_their_own() -> None:
    env = Cloned(goal_env())
    played = evaluate(env, TEAM, [0], num_samples=3)
    assert [each.row for each in played.episodes] == [0, 1, 2]
    assert "return_mean" in played.intervals
    assert "frac_ended_early" not in played.metrics  # nobody knows how many turns there could be


def test_lengths_and_cuts_are_those_of_what_models_wrote() -> None:
    env = make("story-length-ratio-v0")
    team = {"agent_0": tiny_agent(max_new_tokens=12), "agent_1": FixedAgent("x")}
    played = evaluate(env, team, num_samples=2)
    own = [each.nodes[0].completions["agent_0"][0] for each in played.episodes]
    lengths = [len(completion.completion_ids) for completion in own]
    assert played.metrics["completion_length_mean"] == pytest.approx(np.mean(lengths))
    cut = [completion.finish_reason == "length" for completion in own]
    assert 0 < sum(cut) < len(cut)
    assert played.metrics["frac_cut"] == pytest.approx(np.mean(cut))
    scripted = evaluate(env, TEAM)
    assert scripted.metrics["completion_length_mean"] == scripted.metrics["frac_cut"] == 0
    assert "frac_cut" not in scripted.intervals


def test_agents_that_are_paid_differently_have_returns_of_their_own() -> None:
    env = TextEnv(
        [{"prompt": "p"}, {"prompt": "q"}],
        lambda a, b: {"agent_0": [1.0] * len(a), "agent_1": [4.0] * len(a)},
        transition=lambda prompt: [prompt, prompt],
        num_turns=2,
    )
    played = evaluate(env, TEAM)
    assert played.metrics["return_mean/agent_0"] == 2
    assert played.metrics["return_mean/agent_1"] == 8
    assert played.metrics["return_mean"] == 5
    assert "eval/return_mean/agent_1" in played.logged()
    assert "return_mean/agent_0" not in evaluate(matching_env(), TEAM).metrics


def test_what_is_logged_has_intervals_of_rewards_alone() -> None:
    played = evaluate(goal_env(), TEAM)
    logged = played.logged()
    low, high = played.intervals["turn_1/reward_mean"]
    assert logged["eval/turn_1/reward_mean_low"] == low
    assert logged["eval/turn_1/reward_mean_high"] == high
    assert "eval/frac_ended_early" in logged
    assert "eval/frac_ended_early_low" not in logged
    assert all(math.isfinite(value) for value in logged.values())


def test_an_evaluation_is_saved_and_loads_equal(tmp_path: Path) -> None:
    team = {"agent_0": tiny_agent(max_new_tokens=8), "agent_1": FixedAgent("x" * 20)}
    played = evaluate(make("story-length-ratio-v0", num_turns=2), team, num_samples=2)
    played.save(tmp_path / "deep" / "folder")
    assert Evaluation.load(tmp_path / "deep" / "folder") == played
    assert Evaluation.of(played.rollout, num_turns=2) == played


def test_transcripts_have_a_line_per_episode(tmp_path: Path) -> None:
    says = 'é "\n\u2028'
    played = evaluate(goal_env(), dict.fromkeys(TEAM, FixedAgent(says)), num_samples=2)
    played.save_transcripts(tmp_path / "new" / "transcripts.jsonl")
    text = (tmp_path / "new" / "transcripts.jsonl").read_text(encoding="utf-8")
    assert "é" in text
    lines = [json.loads(line) for line in text.split("\n")[:-1]]
    assert [(line["row"], line["sample"]) for line in lines] == [
        (row, sample) for row in range(3) for sample in range(2)
    ]
    assert lines[2] == {
        "row": 1,
        "sample": 0,
        "return": 0.5,
        "returns": {"agent_0": 0.5, "agent_1": 0.5},
        "turns": [
            {
                "turn": turn,
                "prompts": {"agent_0": "p", "agent_1": "p"},
                "completions": {"agent_0": says, "agent_1": says},
                "rewards": {"agent_0": 0.25, "agent_1": 0.25},
                "finish_reasons": {"agent_0": "stop", "agent_1": "stop"},
            }
            for turn in (1, 2)
        ],
    }


def test_half_a_surrogate_pair_does_not_cost_an_evaluation(tmp_path: Path) -> None:
    class Unchecked(Cloned):
        """Takes any string."""

        def step(self, actions: dict[str, str]) -> tuple:
            return super().step(dict.fromkeys(actions, "x"))

        def clone(self, *, seed: int | None = None) -> "Unchecked":
            return Unchecked(self._env.clone(seed=seed))

    team = dict.fromkeys(TEAM, FixedAgent("\ud800"))
    played = evaluate(Unchecked(matching_env()), team, [0])
    played.save_transcripts(tmp_path / "transcripts.jsonl")
    (line,) = (tmp_path / "transcripts.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["turns"][0]["completions"]["agent_0"] == "\ud800"


def test_drafts_are_in_the_transcript() -> None:
    team = {"agent_0": RandomAgent(["a", "b"], seed=0), "agent_1": FixedAgent("a")}
    (episode,) = evaluate(matching_env(), team, [0], best_of=3).episodes
    (turn,) = episode.transcript()["turns"]
    assert [len(texts) for texts in turn["drafts"].values()] == [2, 2]
    (episode,) = evaluate(matching_env(), Pipeline(team), [0]).episodes
    assert "drafts" not in episode.transcript()["turns"][0]


@pytest.mark.parametrize("name", ["magrpo", "frozen", "sb3-ppo"])
def test_every_kind_of_learner_evaluates_by_the_same_settings(name: str, tmp_path: Path) -> None:
    kind = algos.spec(name).config_class
    settings = {"eval_num_samples": 2, "eval_episodes_per_row": 3, "eval_do_sample": False}
    if name == "sb3-ppo":
        settings |= {"candidates": ["a", "b"]}
    team = {agent: letter_agent(i) for i, agent in enumerate(TEAM)}
    learner = algos.make(name, matching_env(), team, kind(progress_bar=False, **settings))
    played = learner.evaluate()
    assert [(each.row, each.sample) for each in played.episodes] == [
        (row, sample) for row in (0, 1) for sample in range(3)
    ]
    texts = [
        {name: group[0].text for name, group in each.nodes[0].completions.items()}
        for each in played.episodes
    ]
    assert texts[0] == texts[1] == texts[2]  # the most likely ones
    sampled = learner.evaluate(num_samples=40, do_sample=True).episodes
    assert len(sampled) == 80
    assert len({each.nodes[0].completions["agent_0"][0].text for each in sampled}) > 1
    with pytest.raises(ValueError, match="eval_episodes_per_row of at least 1, got 0"):
        kind(eval_episodes_per_row=0)
