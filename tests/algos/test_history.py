"""Conversations through whole trees: what rollouts hand on, and that training is exact on them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from reference import magrpo_loss
from tiny import CountingAgent, byte_tokenizer, tiny_llama, updated_as_expected

from motet.agents import Agent, Completion, FixedAgent, GenerationConfig, LMAgent
from motet.algos import MAGRPOConfig, MAGRPOTrainer, Rollout, collect_rollouts, evaluate
from motet.envs import TextEnv
from motet.envs.wrappers import PromptTemplate

NAMES = ("agent_0", "agent_1")


def remembering(seed: int = 0, **generation: object) -> LMAgent:
    settings = GenerationConfig(**{"max_new_tokens": 10, **generation})
    return LMAgent(tiny_llama(seed), byte_tokenizer(), generation=settings, history="append")


def any_spread(first: list[str], second: list[str]) -> list[float]:
    return [
        (3 * sum(map(ord, a)) + 5 * sum(map(ord, b))) % 101 / 100
        for a, b in zip(first, second, strict=True)
    ]


def told(num_turns: int = 3, **kwargs: object) -> TextEnv:
    """An env that tells each agent how much the other has said."""
    return TextEnv(
        [{"prompt": "p"}, {"prompt": "a longer one"}],
        any_spread,
        transition=lambda agent_completions: [
            f"The other said {len(text)}. " + "!" * (len(text) % 5)
            for text in reversed(agent_completions)
        ],
        num_turns=num_turns,
        **kwargs,
    )


class Telling(CountingAgent):
    """Somebody's own agent around a language model, with its history."""

    history = "append"

    def __init__(self, agent: LMAgent) -> None:
        super().__init__(agent)
        self.num_scopes = 0

    def act(
        self,
        observations: Sequence[str],
        num_generations: int = 1,
        *,
        seed: int | None = None,
        contexts: Sequence[Completion | None] | None = None,
    ) -> list[list[Completion]]:
        self.calls.append(len(observations))
        return self._agent.act(observations, num_generations, seed=seed, contexts=contexts)

    def keeping_caches(self) -> AbstractContextManager[None]:
        self.num_scopes += 1
        return self._agent.keeping_caches()


class Plain(Telling):
    """The same without caches."""

    keeping_caches = None


def ids(text: str) -> tuple[int, ...]:
    return tuple(byte_tokenizer()(text)["input_ids"])


def check_conversations(rollout: Rollout) -> int:
    """Check all prompts of a rollout against its tree; return how many go on from others."""
    checked = 0
    said: list[dict[str, Completion]] = [{} for _ in rollout.levels[0]]
    for level in rollout.levels:
        following: dict[int, dict[str, Completion]] = {}
        for node, last in zip(level, said, strict=True):
            for name, group in node.completions.items():
                before = ()
                if name in last:
                    before = last[name].prompt_ids + last[name].completion_ids
                    checked += 1
                expected = before + ids(node.observations[name])
                assert all(completion.prompt_ids == expected for completion in group)
            for joint, child in zip(node.joint_actions, node.children, strict=True):
                if child is not None:
                    chosen = zip(node.completions.items(), joint, strict=True)
                    following[child] = {**last, **{name: group[k] for (name, group), k in chosen}}
        said = [following[i] for i in range(len(following))]
    return checked


@pytest.mark.parametrize("joint_mode", ["aligned", "cross"])
@pytest.mark.parametrize("shared", [True, False])
def test_each_branch_goes_on_from_its_own_conversation(joint_mode: str, shared: bool) -> None:
    team = {name: remembering(0 if shared else i) for i, name in enumerate(NAMES)}
    if shared:
        team = dict.fromkeys(NAMES, team["agent_0"])
    rollout = collect_rollouts(
        told(), team, [0, 1], num_generations=2, joint_mode=joint_mode, seed=3
    )
    branches = {"aligned": 2 * (2 + 4), "cross": 2 * (4 + 16)}[joint_mode]
    assert check_conversations(rollout) == 2 * branches
    anew = {name: Plain(agent) for name, agent in team.items()}
    if shared:
        anew = dict.fromkeys(NAMES, anew["agent_0"])
    plain = collect_rollouts(told(), anew, [0, 1], num_generations=2, joint_mode=joint_mode, seed=3)
    for one, two in zip(rollout.nodes(), plain.nodes(), strict=True):
        assert one.rewards == two.rewards
        for name in NAMES:
            for kept, read in zip(one.completions[name], two.completions[name], strict=True):
                assert kept.completion_ids == read.completion_ids
                assert kept.log_probs == pytest.approx(read.log_probs, abs=1e-5)


def test_one_act_per_turn_and_policy() -> None:
    shared = Telling(remembering(max_new_tokens=4))
    collect_rollouts(told(), dict.fromkeys(NAMES, shared), [0, 1], num_generations=2, seed=0)
    assert shared.calls == [4, 8, 16]  # over all live nodes of both rows
    assert shared.num_scopes == 1
    separate = {name: Telling(remembering(i, max_new_tokens=4)) for i, name in enumerate(NAMES)}
    collect_rollouts(told(), separate, [0, 1], num_generations=2, seed=0)
    assert [agent.calls for agent in separate.values()] == [[2, 4, 8]] * 2


def test_only_agents_that_ask_for_contexts_get_them() -> None:
    without = CountingAgent(LMAgent(tiny_llama(), byte_tokenizer(), seed=0))  # no such parameter
    team = {"agent_0": without, "agent_1": remembering()}
    rollout = collect_rollouts(told(num_turns=2), team, [0], num_generations=2, seed=0)
    for node in rollout.levels[1]:
        assert node.completions["agent_0"][0].prompt_ids == ids(node.observations["agent_0"])
    with pytest.raises(TypeError, match="contexts"):
        without.act(["x"], contexts=[None])


class Alternating:
    """agent_1 acts at every other turn only."""

    def __init__(self, env: TextEnv, turn: int = 0) -> None:
        self._env = env
        self._turn = turn
        self.possible_agents = env.possible_agents

    @property
    def agents(self) -> list[str]:
        return self._env.agents

    def _marked(self, infos: dict) -> dict:
        infos["agent_1"] = {**infos["agent_1"], "acts": self._turn % 2 == 0}
        return infos

    def reset(self, seed: int | None = None, options: object = None) -> tuple[dict, dict]:
        self._turn = 0
        observations, infos = self._env.reset(options={"row": seed})
        return observations, self._marked(infos)

    def step(self, actions: dict[str, str]) -> tuple[dict, dict, dict, dict, dict]:
        self._turn += 1
        *results, infos = self._env.step(actions)
        return *results, self._marked(infos)

    def clone(self, *, seed: int | None = None) -> "Alternating":
        return Alternating(self._env.clone(seed=seed), self._turn)


@pytest.mark.parametrize("joint_mode", ["aligned", "cross"])
def test_agents_that_pause_keep_their_conversation(joint_mode: str) -> None:
    team = dict.fromkeys(NAMES, remembering())
    rollout = collect_rollouts(
        Alternating(told()), team, [0, 1], num_generations=2, joint_mode=joint_mode, seed=0
    )
    assert [list(level[0].completions) for level in rollout.levels] == [
        ["agent_0", "agent_1"],
        ["agent_0"],
        ["agent_0", "agent_1"],
    ]
    assert check_conversations(rollout) > 0


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"joint_mode": "cross", "num_generations": 2},
        {"shared": True, "num_turns": 3, "num_generations": 2},
        {"temperature": 0.7, "top_k": 60, "top_p": 0.9, "seed": 1},
    ],
    ids=["aligned", "cross", "shared, three turns", "truncated sampling"],
)
def test_loss_and_gradients_equal_the_slow_reference(case: dict) -> None:
    options = {"num_generations": 3, "num_turns": 2, "shared": False, "max_new_tokens": 8, **case}
    env = told(options.pop("num_turns"))
    team: dict[str, Agent] = {name: remembering(i) for i, name in enumerate(NAMES)}
    if options.pop("shared"):
        team = dict.fromkeys(NAMES, team["agent_0"])
    config = MAGRPOConfig(
        max_grad_norm=None, agent_learning_rate=1e-12, progress_bar=False, **options
    )
    trainer = MAGRPOTrainer(env, team, config)
    rollout = trainer.collect([0, 1])
    assert check_conversations(rollout) > 0
    models = {name: agent.model for name, agent in team.items()}
    expected = magrpo_loss(rollout, models, GenerationConfig(**config.generation))
    updated_as_expected(trainer, rollout, models, expected)


def test_each_rollout_is_of_the_weights_it_is_sampled_with() -> None:
    team = dict.fromkeys(NAMES, remembering())
    config = MAGRPOConfig(agent_learning_rate=0.01, num_generations=3, progress_bar=False)
    trainer = MAGRPOTrainer(told(2), team, config)
    for _ in range(2):
        metrics = trainer.update(trainer.collect([0, 1]))
        assert metrics["train/num_optimizer_steps"] == 1
    rollout = trainer.collect([0, 1])
    agent = trainer.agents["agent_0"]
    group = [c for node in rollout.levels[1] for c in node.completions["agent_1"]]
    for completion in group:
        (again,) = _log_probs(agent, [completion])
        assert completion.log_probs == pytest.approx(again, abs=1e-4)


def _log_probs(agent: LMAgent, completions: list[Completion]) -> list[list[float]]:
    import torch

    found = []
    for completion in completions:
        whole = torch.tensor([completion.prompt_ids + completion.completion_ids])
        start = len(completion.prompt_ids) - 1
        with torch.no_grad():
            logits = agent.model(whole).logits[0, start:-1]
        rows = logits.log_softmax(-1)
        found.append([float(rows[i, t]) for i, t in enumerate(completion.completion_ids)])
    return found


def test_evaluation_wrappers_and_files_know_conversations(tmp_path: Path) -> None:
    team = {"agent_0": remembering(), "agent_1": FixedAgent("yes")}
    env = PromptTemplate(told(2, early_termination_threshold=None), "Now: {observation}")
    result = evaluate(env, team, num_samples=2, do_sample=False)
    first, second = result.rollout.levels
    for before, after in zip(first, second, strict=True):
        (said,), (next_said,) = before.completions["agent_0"], after.completions["agent_0"]
        new = ids(after.observations["agent_0"])
        assert after.observations["agent_0"].startswith("Now: The other said 3.")
        assert next_said.prompt_ids == said.prompt_ids + said.completion_ids + new
    result.rollout.save(tmp_path / "rollout.jsonl")
    assert Rollout.load(tmp_path / "rollout.jsonl") == result.rollout
