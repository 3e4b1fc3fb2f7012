"""Fixed teams: what each is paid by hand, what it costs, and who reads what."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from asymmetric_envs import describe_and_guess
from gymnasium import spaces
from tiny import LETTERS, CountingAgent, letter_agent, matching_env, tiny_agent

from motet import algos
from motet.agents import Completion, FixedAgent, LMAgent, RandomAgent, SpaceAgent
from motet.algos import (
    BestOfNConfig,
    Discussion,
    DiscussionConfig,
    FrozenConfig,
    JointAnswers,
    Pipeline,
    PipelineConfig,
    RandomConfig,
    Rollout,
    ScriptedConfig,
    collect_rollouts,
    evaluate,
)
from motet.algos.metrics import team_rewards
from motet.envs import TextEnv, TextSpace, make

NAMES = ("agent_0", "agent_1")
FIXED = ("random", "scripted", "frozen", "best-of-n", "pipeline", "discussion")


def letters(seed: int = 0) -> dict[str, RandomAgent]:
    return {name: RandomAgent(list(LETTERS), seed=seed + i) for i, name in enumerate(NAMES)}


class Recording:
    """Answers with a function of the prompt and its own count, and keeps what it was asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[list[str]] = []
        self._count = itertools.count()

    def act(
        self, observations: Sequence[str], num_generations: int = 1, *, seed: int | None = None
    ) -> list[list[Completion]]:
        self.asked.append(list(observations))
        return [
            [
                Completion(f"{self.name}{next(self._count)}", completion_ids=(1, 2))
                for _ in range(num_generations)
            ]
            for _ in observations
        ]


# --- by name ---------------------------------------------------------------------------------


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
    assert logged == {"step": 0, **{f"eval/{key}": value for key, value in first.metrics.items()}}
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
    assert max(len(c.completion_ids) for c in written(learner.evaluate().rollout)) == 5


# --- best of n -------------------------------------------------------------------------------


def written(rollout: Rollout) -> list[Completion]:
    return [c for node in rollout.nodes() for group in node.completions.values() for c in group]


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


# --- pipeline --------------------------------------------------------------------------------


def test_the_second_reads_what_the_first_has_written_this_turn() -> None:
    team = {name: Recording(name[-1]) for name in NAMES}
    env = TextEnv(
        [{"prompt": "p"}, {"prompt": "q"}],
        lambda first, second: [0.0] * len(first),
        transition=lambda prompt, turn: [f"{prompt} {turn}"] * 2,
        num_turns=2,
    )
    rollout = collect_rollouts(env, Pipeline(team), [0, 1], num_generations=2, seed=0)
    first, second = (team[name].asked for name in NAMES)
    assert first == [["p", "p", "q", "q"], ["p 1"] * 4 + ["q 1"] * 4]
    assert second[0] == [
        f"{prompt}\n\nagent_0 wrote:\n0{k}" for prompt, k in zip("ppqq", range(4), strict=True)
    ]
    assert second[1] == [
        f"{p} 1\n\nagent_0 wrote:\n0{k}" for p, k in zip("ppppqqqq", range(4, 12), strict=True)
    ]
    for node in rollout.nodes():  # the k-th completions belong together
        assert node.joint_actions == ((0, 0), (1, 1))
        assert [c.text[1:] for c in node.completions["agent_0"]] == [
            c.text[1:] for c in node.completions["agent_1"]
        ]
        assert node.observations["agent_0"] == node.observations["agent_1"]
        assert node.drafts == {}
    assert rollout.num_completions == 2 * 2 * 2 + 4 * 2 * 2
    assert rollout.num_tokens == 2 * rollout.num_completions


def test_whoever_copies_wins_in_a_pipeline_only() -> None:
    team = {"agent_0": RandomAgent(list(LETTERS)), "agent_1": lambda text: text[-1]}
    alone = algos.make("scripted", matching_env(), team).evaluate(num_samples=100)
    assert 0.15 < alone.metrics["reward_mean"] < 0.35
    team["agent_1"] = FixedAgent(team["agent_1"])
    copied = algos.make("pipeline", matching_env(2), team).evaluate()
    assert copied.metrics["return_mean"] == 2.0
    assert copied.metrics["num_completions"] == alone.metrics["num_completions"] / 100 * 2


def test_the_order_and_the_template_are_the_users() -> None:
    team = {name: Recording(name[-1]) for name in ("x0", "y1", "z2")}
    env = TextEnv(
        [{"prompt": "p {agent}"}],
        lambda a, b, c: [0.0] * len(a),
        num_agents=3,
        agent_names=list(team),
    )
    config = PipelineConfig(template="{agent}: {observation} | {others}", order=["z2", "x0", "y1"])
    algos.make("pipeline", env, team, config).evaluate()
    assert team["z2"].asked == [["p {agent}"]]
    assert team["x0"].asked == [["x0: p {agent} | z2 wrote:\n20"]]
    assert team["y1"].asked == [["y1: p {agent} | z2 wrote:\n20\n\nx0 wrote:\n00"]]

    def shown(observation: str, agent: str, others: dict[str, str]) -> str:
        return f"{agent} {sorted(others.items())}"

    algos.make("pipeline", env, team, PipelineConfig(template=shown)).evaluate()
    assert team["z2"].asked[1] == ["z2 [('x0', '01'), ('y1', '11')]"]


def test_agents_whose_turn_it_is_not_are_left_out() -> None:
    for policy in (Pipeline, Discussion):
        team = {name: Recording(name[0]) for name in ("speaker", "listener")}
        rollout = collect_rollouts(
            describe_and_guess(), policy(team), [0], num_generations=2, seed=0
        )
        assert [list(node.completions) for node in rollout.nodes()] == [
            ["speaker"],
            ["listener"],
            ["listener"],
        ]
        # whoever is alone has nobody to read, and writes once
        assert [len(asked) for asked in team["speaker"].asked] in ([2], [1])
        assert all("wrote" not in text for asked in team["listener"].asked for text in asked)
        assert rollout.num_completions == 2 + 4


# --- discussion ------------------------------------------------------------------------------


def test_all_read_the_others_drafts_and_write_again() -> None:
    team = {name: Recording(name[-1]) for name in NAMES}
    env = matching_env()
    policy = Discussion(team, template="{agent} {observation} {draft} {others}")
    rollout = collect_rollouts(env, policy, [0, 1], num_generations=2, seed=0)
    first, second = (team[name].asked for name in NAMES)
    assert first[0] == second[0] == ["a", "b"]
    assert first[1] == [
        f"agent_0 {p} 0{k} agent_1 wrote:\n1{k}" for p, k in zip("aabb", range(4), strict=True)
    ]
    assert second[1] == [
        f"agent_1 {p} 1{k} agent_0 wrote:\n0{k}" for p, k in zip("aabb", range(4), strict=True)
    ]
    assert len(first) == len(second) == 2
    for i, node in enumerate(rollout.levels[0]):
        for name in NAMES:
            assert [c.text[1:] for c in node.drafts[name]] == [f"{2 * i}", f"{2 * i + 1}"]
            assert [c.text[1:] for c in node.completions[name]] == [f"{2 * i + 4}", f"{2 * i + 5}"]
    assert rollout.num_completions == 2 * 2 * 2 * 2
    assert rollout.num_tokens == 32
    metrics = algos.make("discussion", env, {n: Recording("x") for n in NAMES}).evaluate().metrics
    assert (metrics["num_completions"], metrics["num_tokens"]) == (4 * 4, 4 * 4 * 2)


def test_one_who_follows_the_other_matches_after_a_discussion() -> None:
    # the first keeps to its own draft, the second takes over the first's
    def follow(observation: str, agent: str, others: dict[str, str], draft: str) -> str:
        return draft if agent == "agent_0" else others["agent_0"]

    class Echo:
        """Drafts a letter at random, and then repeats what it is shown."""

        def __init__(self, seed: int) -> None:
            self._drafts = RandomAgent(list(LETTERS), seed=seed)
            self._shows = FixedAgent(lambda text: text)
            self._turn = itertools.count()

        def act(self, observations: Sequence[str], num_generations: int = 1, **options: int):
            agent = self._shows if next(self._turn) % 2 else self._drafts
            return agent.act(observations, num_generations, **options)

    team = {name: Echo(i) for i, name in enumerate(NAMES)}
    learner = algos.make("discussion", matching_env(2), team, DiscussionConfig(template=follow))
    assert learner.evaluate(num_samples=5).metrics["return_mean"] == 2.0


# --- acting together -------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [Pipeline, Discussion])
def test_one_act_for_a_shared_model_at_each_stage_and_one_reward_call(policy: type) -> None:
    calls = []

    def reward(first: list[str], second: list[str]) -> list[float]:
        calls.append(len(first))
        return [0.0] * len(first)

    env = TextEnv(
        [{"prompt": "p"}] * 3, reward, transition=lambda prompt: [prompt, prompt], num_turns=2
    )
    shared = CountingAgent(tiny_agent(max_new_tokens=4))
    collect_rollouts(env, policy(dict.fromkeys(NAMES, shared)), [0, 1, 2], num_generations=2)
    assert calls == [6, 12]
    # a pipeline asks six branches twice; a discussion three nodes twice over, then their branches
    assert shared.calls == ([6, 6, 12, 12] if policy is Pipeline else [6, 12, 12, 24])


@pytest.mark.parametrize("policy", [Pipeline, Discussion])
def test_seeds_and_files(policy: type, tmp_path: Path) -> None:
    env = make("story-length-ratio-v0", num_turns=2)
    team = policy({name: tiny_agent(i, max_new_tokens=6) for i, name in enumerate(NAMES)})
    rollouts = [
        collect_rollouts(env, team, [0, 1], num_generations=2, seed=seed) for seed in (3, 3, 4)
    ]
    assert rollouts[0] == rollouts[1] != rollouts[2]
    rollouts[0].save(tmp_path / "rollout.jsonl")
    assert Rollout.load(tmp_path / "rollout.jsonl") == rollouts[0]
    greedy = [evaluate(env, team, [0], do_sample=False, seed=seed).rollout for seed in (1, 2)]
    assert greedy[0] == greedy[1]
    assert all(agent.generation.do_sample for agent in team.agents.values())


@pytest.mark.parametrize("policy", [Pipeline, Discussion])
def test_histories_go_on_from_what_was_said_on_the_branch(policy: type) -> None:
    agent = tiny_agent(max_new_tokens=4)
    team = {
        name: LMAgent(agent.model, agent.tokenizer, generation=agent.generation, history="append")
        for name in NAMES
    }
    env = make("story-length-ratio-v0", num_turns=2)
    rollout = collect_rollouts(env, policy(team), [0], num_generations=2, seed=0)
    ((root,), level) = rollout.levels
    for k, node in enumerate(level):
        for name in NAMES:
            said = root.completions[name][k]
            began = (said.prompt_ids + said.completion_ids,)
            for own in (*node.completions[name], *node.drafts.get(name, ())):
                assert own.prompt_ids[: len(began[0])] == began[0]
            if policy is Discussion:  # what is played goes on from the agent's own draft
                for draft, final in zip(node.drafts[name], node.completions[name], strict=True):
                    whole = draft.prompt_ids + draft.completion_ids
                    assert final.prompt_ids[: len(whole)] == whole


def test_a_pipeline_is_trained_on_what_its_agents_read() -> None:
    team = {name: letter_agent(i) for i, name in enumerate(NAMES)}
    rollout = collect_rollouts(
        matching_env(),
        Pipeline(team, template=lambda o, a, others: others["agent_0"]),
        [0],
        num_generations=4,
    )
    (node,) = rollout.levels[0]
    for first, second in zip(*node.completions.values(), strict=True):
        read = team["agent_1"].encode(first.text)
        assert second.prompt_ids == read


def test_requests_that_do_not_fit_are_refused() -> None:
    team, env = letters(), matching_env()
    with pytest.raises(ValueError, match="joint_mode='aligned' for Pipeline, got 'cross'"):
        collect_rollouts(env, Pipeline(team), [0], num_generations=2, joint_mode="cross")
    with pytest.raises(ValueError, match=r"an agent for each of .*got \['me'\]"):
        collect_rollouts(env, Pipeline({"me": team["agent_0"]}), [0], num_generations=2)
    with pytest.raises(ValueError, match=r"an order of \['agent_0', 'agent_1'\], each once, got"):
        Pipeline(team, order=["agent_0", "agent_0"])
    with pytest.raises(ValueError, match=r"without \{others\}"):
        PipelineConfig(template="{observation}")
    with pytest.raises(ValueError, match=r"with \{draft\}"):
        Pipeline(team, template="{observation} {others} {draft}")
    with pytest.raises(TypeError, match=r"Expected a function of \(observation, agent, others\)"):
        Pipeline(team, template=lambda others: "")
    with pytest.raises(TypeError, match=r"f\(observation, agent, others, draft\) as template"):
        Discussion(team, template=3)
    with pytest.raises(TypeError, match="Expected a string from the template for agent_1, got N"):
        evaluate(env, Pipeline(team, template=lambda *seen: None))


def test_a_joint_policy_of_somebody_elses_is_checked() -> None:
    class Same:
        """All agents say the same, which nobody can who acts alone."""

        def __init__(self, agents: dict, groups: int) -> None:
            self.agents = agents
            self._groups = groups

        def with_agents(self, agents: dict) -> "Same":
            return Same(agents, self._groups)

        def act_together(
            self, observations, num_generations=1, *, seed=None, contexts=None
        ) -> list[JointAnswers]:
            said = tuple(Completion("a") for _ in range(self._groups))
            return [JointAnswers(dict.fromkeys(seen, said)) for seen in observations]

    assert evaluate(matching_env(2), Same(letters(), 1)).metrics["return_mean"] == 2.0
    sentence = "4 JointAnswers with 1 completions of each acting agent from Same.act_together"
    with pytest.raises(TypeError, match=sentence):
        evaluate(matching_env(), Same(letters(), 2))


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
    with pytest.raises(ValueError, match="eval_num_samples of at least 1, got 0"):
        kind(eval_num_samples=0)
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
