"""Rollouts: the shape of the trees, how often agents and rewards are asked, and the slow path."""

from pathlib import Path

import numpy as np
import pytest
from good_env import Good
from pettingzoo.utils import BaseParallelWrapper
from tiny import Cloned, CountingAgent, tiny_agent

from motet.agents import FixedAgent, RandomAgent
from motet.algos import Rollout, collect_rollouts
from motet.algos.rollouts.returns import rollout_returns
from motet.envs import TextEnv, make

NAMES = ("agent_0", "agent_1")


def lengths(first: list[str], second: list[str]) -> list[float]:
    return [len(b) - len(a) for a, b in zip(first, second, strict=True)]


def three_turns(**kwargs: object) -> TextEnv:
    return TextEnv(
        [{"prompt": "p"}, {"prompt": "q"}],
        lengths,
        transition=lambda prompt, agent_completions: [prompt + c for c in agent_completions],
        num_turns=3,
        **kwargs,
    )


def test_aligned_trees_have_g_to_the_t_leaves() -> None:
    team = dict.fromkeys(NAMES, RandomAgent(["a", "bb", "ccc"]))
    rollout = collect_rollouts(three_turns(), team, [0, 1], num_generations=2, seed=0)
    assert [len(level) for level in rollout.levels] == [2, 4, 8]
    assert rollout.num_joint_actions == 4 + 8 + 16
    for node in rollout.nodes():
        assert node.joint_actions == ((0, 0), (1, 1))
    for depth, level in enumerate(rollout.levels[:-1]):
        children = [child for node in level for child in node.children]
        assert children == list(range(len(rollout.levels[depth + 1])))


def test_crossed_trees_join_all_with_all() -> None:
    team = {name: RandomAgent(["a", "bb", "ccc"], seed=i) for i, name in enumerate(NAMES)}
    env = make("story-length-ratio-v0", num_turns=2)
    rollout = collect_rollouts(env, team, [0], num_generations=2, joint_mode="cross", seed=0)
    assert [len(level) for level in rollout.levels] == [1, 4]
    root = rollout.levels[0][0]
    assert root.joint_actions == ((0, 0), (0, 1), (1, 0), (1, 1))
    assert (root.choices("agent_0"), root.choices("agent_1")) == ([0, 0, 1, 1], [0, 1, 0, 1])


def test_a_child_sees_what_its_own_branch_said() -> None:
    team = dict.fromkeys(NAMES, RandomAgent(["a", "bb", "ccc", "dddd"]))
    rollout = collect_rollouts(three_turns(), team, [0], num_generations=3, seed=1)
    for depth, level in enumerate(rollout.levels[:-1]):
        for node in level:
            for joint, child in zip(node.joint_actions, node.children, strict=True):
                below = rollout.levels[depth + 1][child]
                for name, k in zip(NAMES, joint, strict=True):
                    assert below.observations[name] == "p" + node.completions[name][k].text


def test_one_act_per_turn_for_a_shared_policy_and_one_per_agent_for_separate_ones() -> None:
    env = make("story-length-ratio-v0", num_turns=2)
    shared = CountingAgent(tiny_agent(max_new_tokens=4))
    collect_rollouts(env, dict.fromkeys(NAMES, shared), [0, 1, 2], num_generations=2, seed=0)
    assert shared.calls == [6, 12]  # two agents of three rows, then of their six branches
    separate = {
        name: CountingAgent(tiny_agent(i, max_new_tokens=4)) for i, name in enumerate(NAMES)
    }
    collect_rollouts(env, separate, [0, 1, 2], num_generations=2, seed=0)
    assert [agent.calls for agent in separate.values()] == [[3, 6], [3, 6]]


def test_one_reward_call_per_turn() -> None:
    calls = []

    def reward(first: list[str], second: list[str]) -> list[float]:
        calls.append(len(first))
        return lengths(first, second)

    env = TextEnv(
        [{"prompt": "p"}] * 3, reward, transition=lambda prompt: [prompt, prompt], num_turns=2
    )
    team = dict.fromkeys(NAMES, RandomAgent(["a", "bb"]))
    collect_rollouts(env, team, [0, 1, 2], num_generations=4, seed=0)
    assert calls == [12, 48]


def test_early_termination_judges_groups_of_siblings() -> None:
    env = make("story-length-ratio-v0", num_turns=2, early_termination_threshold=0.9)
    team = {"agent_0": FixedAgent("xx"), "agent_1": FixedAgent("x" * 5)}
    assert len(collect_rollouts(env, team, [0], num_generations=4, seed=0).levels) == 1
    team["agent_1"] = FixedAgent("x" * 3)
    assert len(collect_rollouts(env, team, [0], num_generations=4, seed=0).levels) == 2


@pytest.mark.parametrize("joint_mode", ["aligned", "cross"])
def test_stepping_clones_gives_the_same_trees_as_batched_states(joint_mode: str) -> None:
    env = make("story-length-ratio-v0", num_turns=2)
    team = dict.fromkeys(NAMES, RandomAgent(["a", "bb", "ccc"]))
    fast, slow = (
        collect_rollouts(e, team, [1, 2], num_generations=2, joint_mode=joint_mode, seed=4)
        for e in (env, Cloned(env))
    )
    assert fast == slow


def test_agents_that_do_not_act_are_not_asked() -> None:
    class Alternating(Cloned):
        def reset(self, seed: int | None = None, options: object = None) -> tuple[dict, dict]:
            observations, infos = super().reset(seed, options)
            infos["agent_1"]["acts"] = False
            return observations, infos

        def clone(self, *, seed: int | None = None) -> "Alternating":
            return Alternating(self._env.clone(seed=seed))

    env = Alternating(make("story-length-ratio-v0", num_turns=2))
    team = {"agent_0": FixedAgent("xx"), "agent_1": FixedAgent("yyyy")}
    rollout = collect_rollouts(env, team, [0], num_generations=2, seed=0)
    first, second = rollout.levels[0][0], rollout.levels[1][0]
    assert list(first.completions) == ["agent_0"]
    assert first.joint_actions == ((0,), (1,))
    assert set(first.rewards) == set(NAMES)
    assert list(second.completions) == list(NAMES)


def test_the_episode_of_the_env_is_left_alone() -> None:
    env = make("story-length-ratio-v0", num_turns=2)
    env.reset(seed=0)
    before = env.get_state()
    collect_rollouts(env, dict.fromkeys(NAMES, FixedAgent("x")), [3], num_generations=2, seed=0)
    assert env.get_state() == before


def test_the_same_seed_gives_the_same_rollout() -> None:
    env = make("story-length-ratio-v0", num_turns=2)
    team = {name: tiny_agent(i, max_new_tokens=8) for i, name in enumerate(NAMES)}
    rollouts = [
        collect_rollouts(env, team, [0, 1], num_generations=2, seed=seed) for seed in (3, 3, 4)
    ]
    assert rollouts[0] == rollouts[1] != rollouts[2]


def test_jsonl_loads_back_equal(tmp_path: Path) -> None:
    env = make("story-length-ratio-v0", num_turns=2)
    team = {"agent_0": tiny_agent(max_new_tokens=8), "agent_1": RandomAgent(['🐉\n"', "", "x"])}
    rollout = collect_rollouts(env, team, [0, 1], num_generations=3, seed=0)
    rollout.save(tmp_path / "rollout.jsonl")
    assert Rollout.load(tmp_path / "rollout.jsonl") == rollout


def test_impossible_requests_are_refused() -> None:
    env = make("story-length-ratio-v0")
    agent = FixedAgent("x")
    with pytest.raises(ValueError, match=r"agent for each of .*'agent_1'.*got .'me'"):
        collect_rollouts(env, {"me": agent}, [0], num_generations=2)
    team = dict.fromkeys(NAMES, agent)
    with pytest.raises(ValueError, match="num_generations of at least 1"):
        collect_rollouts(env, team, [0], num_generations=0)
    with pytest.raises(ValueError, match="'aligned' or 'cross', got 'crossed'"):
        collect_rollouts(env, team, [0], num_generations=2, joint_mode="crossed")
    with pytest.raises(ValueError, match="at most 1000000 joint actions"):
        collect_rollouts(env, team, [0], num_generations=1001, joint_mode="cross")


class Raised(BaseParallelWrapper):
    """A wrapper that changes rewards, and clones itself as it should."""

    def step(self, actions: dict[str, str]) -> tuple[dict, dict, dict, dict, dict]:
        observations, rewards, *rest = self.env.step(actions)
        return observations, {name: reward + 100 for name, reward in rewards.items()}, *rest

    def clone(self, *, seed: int | None = None) -> "Raised":
        return type(self)(self.env.clone(seed=seed))


class Forgetful(Raised):
    """A wrapper whose clone() is the inner env's, as PettingZoo forwards it."""

    def clone(self, *, seed: int | None = None) -> TextEnv:
        return self.env.clone(seed=seed)


def test_a_wrapped_text_env_is_played_on_its_rows_with_its_wrapper() -> None:
    env = Raised(make("story-length-ratio-v0"))
    team = dict.fromkeys(NAMES, FixedAgent("x"))
    rollout = collect_rollouts(env, team, [2, 5], num_generations=1, seed=0)
    prompts = [node.observations["agent_0"] for node in rollout.levels[0]]
    assert prompts == [env.unwrapped.dataset[row]["prompt"] for row in (2, 5)]
    assert rollout.levels[0][0].rewards["agent_0"][0] > 100
    with pytest.raises(TypeError, match="a wrapper that forwards clone"):
        collect_rollouts(Forgetful(env.env), team, [2], num_generations=1)
    grouped = Raised(make("story-length-ratio-v0", early_termination_threshold=0.9))
    with pytest.raises(ValueError, match="early_termination='branch' for a TextEnv inside Raised"):
        collect_rollouts(grouped, team, [2], num_generations=1)


def test_branches_that_stop_early_keep_their_own_reward_and_are_credited_for_later_turns() -> None:
    env = make(
        "story-length-ratio-v0",
        num_turns=3,
        early_termination_threshold=0.9,
        early_termination="branch",
    )
    team = {"agent_0": FixedAgent("xx"), "agent_1": FixedAgent("x" * 5)}
    rollout = collect_rollouts(env, team, [0], num_generations=1, seed=0)
    (node,) = rollout.nodes()
    assert node.rewards == {"agent_0": (1.0,), "agent_1": (1.0,)}
    assert node.turns_credited == (3,)
    assert rollout_returns(rollout, 0.5)[0][0]["agent_0"].tolist() == [1.75]
    env.reset()
    _, rewards, *_ = env.step({"agent_0": "xx", "agent_1": "x" * 5})
    assert rewards["agent_0"] == 3.0  # a loop of one's own needs no credit of its own


def test_answers_of_the_wrong_shape_are_refused() -> None:
    class Wordy(FixedAgent):
        def act(self, observations, num_generations=1, *, seed=None):
            return super().act(observations, num_generations + 1)

    team = dict.fromkeys(NAMES, Wordy("x"))
    with pytest.raises(TypeError, match=r"Expected 2 lists of 3 Completions from Wordy.act"):
        collect_rollouts(make("story-length-ratio-v0"), team, [0], num_generations=3)
    with pytest.raises(TypeError, match=r"Expected an agent for agent_0.*wrap a model as LMAgent"):
        collect_rollouts(
            make("story-length-ratio-v0"), dict.fromkeys(NAMES, "pocket"), [0], num_generations=1
        )
    with pytest.raises(ValueError, match="at least one row"):
        collect_rollouts(make("story-length-ratio-v0"), team, [], num_generations=3)


def test_numpy_rows_save(tmp_path: Path) -> None:
    team = dict.fromkeys(NAMES, FixedAgent("x"))
    rollout = collect_rollouts(
        make("story-length-ratio-v0"), team, np.array([1]), num_generations=1
    )
    rollout.save(tmp_path / "r.jsonl")
    assert Rollout.load(tmp_path / "r.jsonl") == rollout


class Pause(Good):
    """The second turn is nobody's."""

    def inform(self, agents):
        return {name: {"acts": self.turn != 1} for name in agents}


@pytest.mark.parametrize(("joint_mode", "sizes"), [("aligned", [1, 3, 3]), ("cross", [1, 9, 9])])
def test_a_turn_that_is_nobodys_is_played_once(joint_mode: str, sizes: list[int]) -> None:
    team = {name: RandomAgent(["a", "b"], seed=i) for i, name in enumerate(("ann", "bob"))}
    rollout = collect_rollouts(Pause(), team, [0], num_generations=3, joint_mode=joint_mode, seed=0)
    assert [len(level) for level in rollout.levels] == sizes
    assert {node.joint_actions for node in rollout.levels[1]} == {((),)}
