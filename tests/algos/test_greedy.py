"""Greedy episodes beside a rollout: what they earn, what they cost, and that they change none."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny import Cloned, CountingAgent, byte_tokenizer, tiny_agent, tiny_llama

from motet.agents import Agent, Completion, FixedAgent, GenerationConfig, LMAgent, RandomAgent
from motet.agents.agent import wants_contexts
from motet.algos import Node, Pipeline, Rollout, collect_rollouts
from motet.algos.rollouts.joint_policy import greedy_team
from motet.algos.rollouts.returns import rollout_greedy_returns
from motet.algos.team import with_sampling
from motet.envs import TextEnv, make

NAMES = ("agent_0", "agent_1")


def spread(first: list[str], second: list[str]) -> list[float]:
    """Rewards that differ between almost any two joint actions."""
    return [
        (3 * sum(map(ord, a)) + 5 * sum(map(ord, b))) % 101 / 100
        for a, b in zip(first, second, strict=True)
    ]


def talk(num_turns: int = 3, **kwargs: Any) -> TextEnv:
    """Each agent's next prompt is what both said."""
    return TextEnv(
        [{"prompt": "p"}, {"prompt": "q"}],
        spread,
        transition=lambda agent_completions: ["".join(agent_completions)[-8:] + "."] * 2,
        num_turns=num_turns,
        **kwargs,
    )


class Double:
    """Says one thing when it is asked for one answer, as for a greedy episode, else another."""

    def __init__(self, greedy: str, sampled: str) -> None:
        self._texts = greedy, sampled

    def act(
        self, observations: Sequence[str], num_generations: int = 1, *, seed: int | None = None
    ) -> list[list[Completion]]:
        text = self._texts[num_generations > 1]
        return [[Completion(text)] * num_generations for _ in observations]


def team(history: str = "none") -> dict[str, Agent]:
    return {
        name: LMAgent(
            tiny_llama(i),
            byte_tokenizer(),
            generation=GenerationConfig(max_new_tokens=3),
            history=history,
        )
        for i, name in enumerate(NAMES)
    }


Said = dict[str, Completion]


def paths_to(rollout: Rollout) -> list[list[list[Said]]]:
    """By level and node: what was said from the root to it."""
    paths: list[list[list[Said]]] = [[[] for _ in rollout.levels[0]]]
    for level in rollout.levels[:-1]:
        following = []
        for node, path in zip(level, paths[-1], strict=True):
            for joint, child in zip(node.joint_actions, node.children, strict=True):
                if child is not None:
                    picks = zip(node.completions.items(), joint, strict=True)
                    following.append([*path, {name: group[k] for (name, group), k in picks}])
        paths.append(following)
    return paths


def texts(said: Said) -> dict[str, str]:
    return {name: completion.text for name, completion in said.items()}


def played_greedily(
    env: TextEnv, agents: dict[str, Agent], row: int, path: Sequence[Said]
) -> dict[str, float]:
    """What a plain loop earns: the joint actions of the path, then the most likely ones."""
    greedy = with_sampling(agents, do_sample=False)
    observations, _ = env.reset(options={"row": row})
    said: Said = {}
    for said in path:
        observations, *_ = env.step(texts(said))
    earned = dict.fromkeys(env.agents, 0.0)
    while env.agents:
        for name in env.agents:
            told = {"contexts": [said.get(name)]} if wants_contexts(greedy[name]) else {}
            said = {**said, name: greedy[name].act([observations[name]], **told)[0][0]}
        observations, rewards, *_ = env.step(texts(said))
        for name, reward in rewards.items():
            earned[name] += reward
    return earned


@pytest.mark.parametrize(
    ("joint_mode", "num_turns", "history", "early"),
    [
        ("aligned", 3, "none", {}),
        ("cross", 2, "none", {}),
        ("aligned", 3, "append", {}),
        ("aligned", 3, "none", {"early_termination_threshold": 0.8, "early_termination": "branch"}),
    ],
)
def test_greedy_returns_are_those_of_a_plain_loop_from_every_node(
    joint_mode: str, num_turns: int, history: str, early: dict[str, Any]
) -> None:
    env, agents = talk(num_turns, **early), team(history)
    rollout = collect_rollouts(
        env,
        agents,
        [0, 1],
        num_generations=2,
        joint_mode=joint_mode,
        seed=3,
        greedy_baseline=True,
    )
    returns = rollout_greedy_returns(rollout, 1.0)
    assert len(rollout.levels) == num_turns
    if early:
        assert any(node.greedy_turns_credited > 1 for node in rollout.nodes())
    paths = paths_to(rollout)
    for depth, level in enumerate(rollout.levels):
        for index, node in enumerate(level):
            expected = played_greedily(env, agents, node.row, paths[depth][index])
            assert returns[depth][index] == pytest.approx(expected)


@pytest.mark.parametrize("history", ["none", "append"])
def test_what_is_sampled_is_the_same_with_greedy_episodes_and_without(history: str) -> None:
    agents = team(history)
    plain, with_greedy = (
        collect_rollouts(
            talk(), agents, [0, 1], num_generations=2, seed=5, greedy_baseline=greedy_baseline
        )
        for greedy_baseline in (False, True)
    )
    assert plain != with_greedy
    assert all(set(node.greedy_rewards) == set(NAMES) for node in with_greedy.nodes())
    bare = tuple(
        tuple(replace(node, greedy_rewards={}, greedy_turns_credited=1) for node in level)
        for level in with_greedy.levels
    )
    assert Rollout(with_greedy.agents, bare) == plain


def test_clones_earn_what_batched_states_earn() -> None:
    fast, slow = (
        collect_rollouts(env, team(), [0, 1], num_generations=2, seed=4, greedy_baseline=True)
        for env in (talk(), Cloned(talk()))
    )
    assert fast == slow


def test_one_more_act_and_no_more_reward_calls_per_turn() -> None:
    calls = []

    def counted(first: list[str], second: list[str]) -> list[float]:
        calls.append(len(first))
        return spread(first, second)

    env = TextEnv(
        [{"prompt": "p"}] * 3, counted, transition=lambda prompt: [prompt] * 2, num_turns=2
    )
    shared = CountingAgent(tiny_agent(max_new_tokens=2))
    rollout = collect_rollouts(
        env, dict.fromkeys(NAMES, shared), [0, 1, 2], num_generations=2, greedy_baseline=True
    )
    # two agents of three roots; then of their six children, and greedily of the three from before
    assert shared.calls == [6, 6, 12, 18]
    assert calls == [3 * 2 + 3, 6 * 2 + 6 + 3]
    assert rollout.num_joint_actions == 6 + 12
    assert rollout.num_env_steps == sum(calls)


def test_an_episode_may_outlive_the_branches_and_end_before_them() -> None:
    def hits(first: list[str], second: list[str]) -> list[float]:
        return [float(a == b) for a, b in zip(first, second, strict=True)]

    env = TextEnv(
        [{"prompt": "p"}],
        hits,
        transition=lambda prompt: [prompt] * 2,
        num_turns=3,
        early_termination_threshold=0.5,
        early_termination="branch",
    )

    def collected(agents: dict[str, Agent]) -> Rollout:
        return collect_rollouts(env, agents, [0], num_generations=2, seed=0, greedy_baseline=True)

    # branches never hit; the greedy episode does at once, and is over
    rollout = collected({"agent_0": Double("x", "y"), "agent_1": Double("x", "z")})
    root = rollout.levels[0][0]
    assert len(rollout.levels) == 3
    assert root.greedy_rewards == dict.fromkeys(NAMES, (1.0,))
    assert root.greedy_turns_credited == 3
    # 1 for three turns, discounted: 1 + 0.5 + 0.25
    assert rollout_greedy_returns(rollout, 0.5)[0][0] == dict.fromkeys(NAMES, 1.75)

    # the other way round: it goes on through three turns
    rollout = collected({"agent_0": Double("x", "z"), "agent_1": Double("y", "z")})
    (root,) = rollout.nodes()
    assert root.greedy_rewards == dict.fromkeys(NAMES, (0.0, 0.0, 0.0))
    assert (rollout.num_joint_actions, rollout.num_env_steps) == (2, 5)


def test_agents_wait_and_leave_in_greedy_episodes_too() -> None:
    class Leaving(Cloned):
        """Agent 1 waits at the first turn and leaves with the second of three."""

        turn = 0

        def reset(self, seed: int | None = None, options: object = None) -> tuple[dict, dict]:
            observations, infos = super().reset(seed, options)
            infos["agent_1"]["acts"] = False
            return observations, infos

        @property
        def agents(self) -> list[str]:
            return self._env.agents[: 1 if self.turn > 1 else 2]

        def step(self, actions: dict[str, str]) -> tuple[dict, dict, dict, dict, dict]:
            live = self.agents
            self.turn += 1
            full = {**dict.fromkeys(NAMES, ""), **actions}
            observations, _, terminations, truncations, infos = self._env.step(full)
            if self.turn > 1:
                terminations["agent_1"] = True
            results = observations, dict.fromkeys(live, float(self.turn)), terminations
            cut = [{name: each[name] for name in live} for each in (*results, truncations, infos)]
            return tuple(cut)

        def clone(self, *, seed: int | None = None) -> "Leaving":
            twin = Leaving(self._env.clone(seed=seed))
            twin.turn = self.turn
            return twin

    agents = {"agent_0": FixedAgent("x"), "agent_1": RandomAgent(["a", "b"])}
    rollout = collect_rollouts(
        Leaving(talk(3)), agents, [0], num_generations=1, seed=0, greedy_baseline=True
    )
    first, second, third = rollout.nodes()
    assert first.greedy_rewards == {"agent_0": (1.0, 2.0, 3.0), "agent_1": (1.0, 2.0)}
    assert second.greedy_rewards == {"agent_0": (2.0, 3.0), "agent_1": (2.0,)}
    assert third.greedy_rewards == {"agent_0": (3.0,)}
    assert rollout_greedy_returns(rollout, 0.5)[0][0] == {"agent_0": 2.75, "agent_1": 2.0}
    assert rollout.num_env_steps == 3 + 3 + 2 + 1


def test_a_last_reward_counts_only_for_those_who_stayed() -> None:
    node = Node(
        0, 1, {}, {}, ((),), {"a": (0.0,), "b": (0.0,)}, (True,), (None,), (1,),
        greedy_rewards={"a": (1.0, 4.0), "b": (2.0,)}, greedy_turns_credited=3,
    )  # fmt: skip
    returns = rollout_greedy_returns(Rollout(("a", "b"), ((node,),)), 0.5)
    # 1 + 0.5 * 4, and 4 for two more turns: 0.25 * 4 + 0.125 * 4; b has left
    assert returns == [[{"a": 4.5, "b": 2.0}]]


def test_jsonl_keeps_greedy_rewards(tmp_path: Path) -> None:
    env = talk(2, early_termination_threshold=0.3, early_termination="branch")
    rollout = collect_rollouts(env, team(), [0, 1], num_generations=2, seed=0, greedy_baseline=True)
    assert any(node.greedy_turns_credited > 1 for node in rollout.nodes())
    rollout.save(tmp_path / "rollout.jsonl")
    assert Rollout.load(tmp_path / "rollout.jsonl") == rollout


def test_a_rollout_without_them_says_how_to_collect_them() -> None:
    env = make("story-length-ratio-v0")
    rollout = collect_rollouts(env, dict.fromkeys(NAMES, FixedAgent("x")), [3], num_generations=2)
    with pytest.raises(ValueError, match=r"agent_0 at turn 1 of row 3; .*greedy_baseline=True"):
        rollout_greedy_returns(rollout, 1.0)
    assert rollout.num_env_steps == rollout.num_joint_actions == 2


def test_a_team_that_acts_together_has_greedy_episodes_too() -> None:
    policy = Pipeline(team())
    rollout = collect_rollouts(
        talk(1), policy, [0, 1], num_generations=2, seed=0, greedy_baseline=True
    )
    alone = collect_rollouts(talk(1), greedy_team(policy), [0, 1], num_generations=1)
    for node, greedy in zip(rollout.nodes(), alone.nodes(), strict=True):
        assert node.greedy_rewards == greedy.rewards
