"""Fixed teams by name: what each is paid by hand, and that it offers what a learner does."""

import json
from pathlib import Path

import pytest
from gymnasium import spaces
from tiny import LETTERS, letter_agent, matching_env, tiny_agent

from motet import algos
from motet.agents import FixedAgent, LMAgent, RandomAgent, SpaceAgent
from motet.algos import (
    BestOfNConfig,
    FrozenConfig,
    PipelineConfig,
    RandomConfig,
    ScriptedConfig,
    evaluate,
)
from motet.envs import TextSpace, make

NAMES = ("agent_0", "agent_1")
FIXED = ("random", "scripted", "frozen", "best-of-n", "pipeline", "discussion")


def letters(seed: int = 0) -> dict[str, RandomAgent]:
    return {name: RandomAgent(list(LETTERS), seed=seed + i) for i, name in enumerate(NAMES)}


@pytest.mark.parametrize("name", FIXED)
def test_every_fixed_team_plays_saves_and_resumes_like_a_learner(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    team = {agent: letter_agent(i) for i, agent in enumerate(NAMES)}
    before = [team[agent].model.lm_head.weight.clone() for agent in NAMES]
    kind = algos.spec(name).config_class
    config = kind(seed=3, output_dir=str(tmp_path / "out"))
    learner = algos.make(name, matching_env(2), team, config, eval_env=matching_env(2))
    learner.train()
    assert "eval/reward_mean" in capsys.readouterr().out
    (logged,) = map(json.loads, (tmp_path / "out" / "metrics.jsonl").read_text().splitlines())
    first = learner.evaluate()
    assert logged.pop("time/elapsed_seconds") > 0
    assert logged == {"step": 0, **first.logged(), "time/optimizer_steps": 0}
    kept = algos.Evaluation.of(algos.Rollout.load(tmp_path / "out/evaluations/000000.jsonl"))
    assert [each.transcript() for each in kept.episodes] == [
        each.transcript() for each in first.episodes
    ]
    for weight, agent in zip(before, NAMES, strict=True):
        assert (team[agent].model.lm_head.weight == weight).all()
    # the form of an evaluation is that of a learner's
    trained = algos.make("magrpo", matching_env(2), team).evaluate()
    assert first.metrics.keys() == trained.metrics.keys()
    assert len(first.rollout.levels[0]) == len(LETTERS)
    assert all(len(node.joint_actions) == 1 for node in first.rollout.nodes())
    learner.save_checkpoint(tmp_path / "checkpoint")
    again = algos.make(name, matching_env(2), team, config, eval_env=matching_env(2))
    again.train(resume_from=tmp_path / "checkpoint")
    assert again.evaluate() == first
    folders = {path.name for path in (tmp_path / "out").iterdir() if path.is_dir()}
    assert folders == {"evaluations", "evaluations-1"}  # the earlier run's is kept
    learner.save_model(tmp_path / "model")
    models = [] if name == "random" else list(NAMES)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == models
    for agent in models:
        saved = LMAgent.from_pretrained(tmp_path / "model" / agent).model
        assert (saved.lm_head.weight == team[agent].model.lm_head.weight).all()
    other = algos.make(name, matching_env(2), team, kind(seed=4))
    with pytest.raises(ValueError, match="seed=3 there and 4 here"):
        other.train(resume_from=tmp_path / "checkpoint")


def test_a_checkpoint_of_another_fixed_team_is_refused(tmp_path: Path) -> None:
    algos.make("scripted", matching_env(), letters()).save_checkpoint(tmp_path)
    with pytest.raises(ValueError, match=r"a checkpoint of Frozen, got one of Scripted"):
        algos.make("frozen", matching_env(), letters()).train(resume_from=tmp_path)
    with pytest.raises(FileNotFoundError, match="save_checkpoint wrote"):
        algos.make("frozen", matching_env(), letters()).train(resume_from=tmp_path / "none")


def test_scripted_by_hand() -> None:
    # rows a, b, c, d: an echo and "b" match in one of four
    team = {"agent_0": lambda prompt: prompt, "agent_1": "b"}
    metrics = algos.make("scripted", matching_env(2), team).evaluate(num_samples=2).metrics
    assert metrics["reward_mean"] == 0.25
    assert metrics["return_mean"] == 0.5
    assert (metrics["num_completions"], metrics["num_tokens"]) == (4 * 2 * 2 * 2, 0)


def test_random_by_hand() -> None:
    # two of two letters match half the time; of empty texts nothing is paid
    learner = algos.make("random", matching_env(), {}, RandomConfig(texts=["a", "b"]))
    assert 0.45 < learner.evaluate(num_samples=200).metrics["reward_mean"] < 0.55
    learner = algos.make("random", matching_env(), letters(), RandomConfig(texts=[""]))
    assert learner.evaluate().metrics["reward_mean"] == 0.0


def test_random_draws_from_the_action_spaces() -> None:
    learner = algos.make("random", make("story-length-ratio-v0"), {})
    rollout = learner.evaluate(num_samples=5).rollout
    assert rollout == learner.evaluate(num_samples=5).rollout
    texts = {group[0].text for node in rollout.nodes() for group in node.completions.values()}
    assert len(texts) > 20


def test_a_space_agent_is_seeded_and_leaves_the_space_alone() -> None:
    space = TextSpace(seed=0)
    agent = SpaceAgent(space, seed=1)
    assert agent.act(["x"] * 3, 2, seed=5) == agent.act(["y"] * 3, 2, seed=5)
    assert agent.act(["x"] * 9) != agent.act(["x"] * 9)
    assert SpaceAgent(space, seed=1).act(["x"] * 9) == SpaceAgent(space, seed=1).act(["x"] * 9)
    untouched = TextSpace(seed=0)
    assert [space.sample() for _ in range(5)] == [untouched.sample() for _ in range(5)]


@pytest.mark.parametrize("space", [None, spaces.Discrete(3), spaces.Box(0, 1)])
def test_a_space_agent_wants_texts(space: object) -> None:
    with pytest.raises(TypeError, match=r"Expected a space (with sample and seed|of texts), got"):
        SpaceAgent(space)


def test_frozen_is_what_evaluate_says_of_the_team() -> None:
    team = {name: tiny_agent(i) for i, name in enumerate(NAMES)}
    env = make("story-length-ratio-v0")
    learner = algos.make(
        "frozen", env, team, FrozenConfig(max_new_tokens=5, eval_num_samples=2, seed=1)
    )
    shorter = {name: agent.with_generation(max_new_tokens=5) for name, agent in team.items()}
    assert learner.evaluate() == evaluate(env, shorter, [0, 1], seed=1)
    assert learner.evaluate(do_sample=False) != learner.evaluate()
    assert (
        max(
            len(group[0].completion_ids)
            for node in learner.evaluate().rollout.nodes()
            for group in node.completions.values()
        )
        == 5
    )


@pytest.mark.parametrize("name", FIXED)
def test_configs_and_teams_of_the_wrong_kind_are_refused(name: str) -> None:
    kind = algos.spec(name).config_class
    with pytest.raises(
        TypeError, match=f"Expected a {kind.__name__} as config, got .*its fields are .*seed"
    ):
        algos.make(name, matching_env(), letters(), algos.MAGRPOConfig())
    other = ScriptedConfig if name == "frozen" else FrozenConfig
    with pytest.raises(
        TypeError, match=f"Expected a {kind.__name__} as config, got {other.__name__}"
    ):
        algos.make(name, matching_env(), letters(), other())
    with pytest.raises(ValueError, match="seed of at least 0, got -1"):
        kind(seed=-1)
    for setting in ("eval_num_samples", "eval_episodes_per_row"):
        with pytest.raises(ValueError, match=f"{setting} of at least 1, got 0"):
            kind(**{setting: 0})
    with pytest.raises(ValueError, match=r"an agent for each of .*got \['me'\]"):
        algos.make(name, matching_env(), {"me": FixedAgent("a")})
    with pytest.raises(TypeError, match="as eval_env"):
        algos.make(name, matching_env(), letters(), eval_env="story-length-ratio-v0")
    with pytest.raises(TypeError, match="an env as env, got the text 'story"):
        algos.make(name, "story-length-ratio-v0", letters())


def test_settings_that_do_not_fit_are_refused() -> None:
    env = matching_env()
    with pytest.raises(ValueError, match="temperature above 0"):
        FrozenConfig(temperature=0.0)
    with pytest.raises(ValueError, match="num_generations of at least 1, got 0"):
        BestOfNConfig(num_generations=0)
    with pytest.raises(TypeError, match="num_generations to be int"):
        BestOfNConfig(num_generations="8")
    with pytest.raises(TypeError, match="a list of strings or None as texts, got 'abc'"):
        RandomConfig(texts="abc")
    with pytest.raises(TypeError, match="a list of texts to choose from, got "):
        RandomConfig(texts=["a", 1])
    with pytest.raises(TypeError, match="a list of strings or None as order, got 'agent_0'"):
        PipelineConfig(order="agent_0")
    with pytest.raises(TypeError, match="Expected an agent for agent_0, with a method act, got s"):
        algos.make("frozen", env, dict.fromkeys(NAMES, "a"))
    with pytest.raises(TypeError, match="Expected an agent for agent_0, with a method act, got t"):
        algos.make("scripted", env, dict.fromkeys(NAMES, FixedAgent))
    with pytest.raises(TypeError, match="a text or a function as answer, got 3"):
        algos.make("scripted", env, dict.fromkeys(NAMES, 3))
    with pytest.raises(TypeError, match="agents= as a dict by name, got list"):
        algos.make("scripted", env, ["a", "b"], ScriptedConfig())
