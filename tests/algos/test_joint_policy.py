"""Teams that act together: who reads what, how often agents are asked, and what is refused."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from asymmetric_envs import describe_and_guess
from tiny import LETTERS, CountingAgent, letter_agent, matching_env, tiny_agent

from motet import algos
from motet.agents import Completion, FixedAgent, LMAgent, RandomAgent
from motet.algos import (
    Discussion,
    DiscussionConfig,
    JointAnswers,
    Pipeline,
    PipelineConfig,
    Rollout,
    collect_rollouts,
    evaluate,
)
from motet.envs import TextEnv, make

NAMES = ("agent_0", "agent_1")


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
