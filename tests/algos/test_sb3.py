"""Learners of stable-baselines3: what is learnt in numbers plays in texts."""

import functools
import json
import math
import pickle
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from good_env import Good
from stable_baselines3 import A2C, DQN, PPO
from tiny import LETTERS, letter_agent, matching_env, tiny_agent

from motet import algos
from motet.agents import Completion, FixedAgent, RandomAgent
from motet.algos import PickAgent, SB3Config, load_pick_agents
from motet.algos.choices.sb3_policy import SB3Policy
from motet.algos.choices.turn_meter import TurnMeter
from motet.envs import PickOfK, TextEnv, make, to_sb3_vec_env
from motet.envs.wrappers import HashingEncoder, RecordEpisodeStatistics, TimeLimit

NAMES = ["agent_0", "agent_1"]
LEARNERS = ["sb3-a2c", "sb3-dqn", "sb3-maskable-ppo", "sb3-ppo"]
MODES = ["shared", "centralised"]
LENGTHS = ["x" * 10 * (i + 1) for i in range(8)]
# With these each learns in a second or two.
FAST: dict[str, dict[str, Any]] = {
    "sb3-ppo": {"total_timesteps": 2048, "learning_rate": 1e-2, "n_steps": 8, "n_epochs": 4},
    "sb3-a2c": {"total_timesteps": 4096, "learning_rate": 2e-3},
    "sb3-dqn": {"total_timesteps": 4096, "learning_rate": 1e-3, "exploration_fraction": 0.5},
}
FAST["sb3-maskable-ppo"] = FAST["sb3-ppo"]


class Kept:
    """A logger that keeps what it gets, but for time and memory; killed after some entries."""

    def __init__(self, limit: int | None = None) -> None:
        self.entries: list[tuple[int, dict[str, float]]] = []
        self._limit = limit

    def log(self, metrics: dict[str, float], step: int) -> None:
        if len(self.entries) == self._limit:
            raise KeyboardInterrupt
        self.entries.append(
            (step, {k: v for k, v in metrics.items() if not k.startswith(("time/", "memory/"))})
        )

    def close(self) -> None: ...


def config(name: str = "sb3-ppo", **changes: Any) -> SB3Config:
    settings = {"candidates": list(LETTERS), "progress_bar": False, **FAST[name], **changes}
    return SB3Config(**settings)


def shout(prompt: str) -> str:
    return prompt.upper()


def two_turns(**kwargs: Any) -> TextEnv:
    """Reward the length of what is said; the next prompt is what the other one said."""

    def lengths(first: list[str], second: list[str]) -> list[float]:
        return [float(len(a) + len(b)) for a, b in zip(first, second, strict=True)]

    parts = {
        "reward_func": lengths,
        "transition": lambda agent_completions: list(reversed(agent_completions)),
        "num_turns": 2,
    }
    return TextEnv([{"prompt": f"prompt {i}"} for i in range(6)], **{**parts, **kwargs})


def learnt(name: str, mode: str = "shared") -> Any:
    """Has learnt the matching task."""
    return _learnt(name, mode)


@functools.cache
def _learnt(name: str, mode: str) -> Any:
    learner = algos.make(name, matching_env(), None, config(name, mode=mode))
    learner.train()
    return learner


# --- it learns, saves, loads and plays ----------------------------------------------------------


@pytest.mark.parametrize("name", LEARNERS)
def test_one_policy_for_both_learns_to_say_the_same(name: str) -> None:
    learner = learnt(name)
    played = algos.evaluate(matching_env(), learner.agents, num_samples=50)
    assert played.metrics["reward_mean"] > 0.9  # 0.25 by chance
    assert learner.evaluate(do_sample=False).metrics["reward_mean"] == 1


@pytest.mark.parametrize("name", ["sb3-ppo", "sb3-dqn"])
def test_one_policy_of_the_team_learns_lengths(name: str) -> None:
    env, held_out = make("story-length-ratio-v0"), make("story-length-ratio-v0", split="eval")
    kept = Kept()
    settings = config(name, candidates=LENGTHS, mode="centralised")
    learner = algos.make(name, env, None, settings, eval_env=held_out, loggers=[kept])
    learner.train()
    after = algos.evaluate(held_out, learner.agents, do_sample=False).metrics["reward_mean"]
    assert after > 0.9
    rewards = [
        entry["eval/reward_mean"] for _, entry in kept.entries if "eval/reward_mean" in entry
    ]
    assert rewards[0] < 0.7
    assert rewards[-1] > 0.9


@pytest.mark.parametrize(
    ("name", "mode"),
    [*((name, "shared") for name in LEARNERS), ("sb3-ppo", "centralised")],
)
def test_what_it_saves_plays_as_it_does(name: str, mode: str, tmp_path: Path) -> None:
    learner = learnt(name, mode)
    learner.save_model(tmp_path)
    folders = NAMES if mode == "shared" else ["team"]
    assert sorted(path.name for path in tmp_path.iterdir()) == folders
    before = torch.get_rng_state()
    team = load_pick_agents(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    assert list(team) == NAMES
    for do_sample in (False, True):
        played, again = (
            algos.evaluate(matching_env(), agents, num_samples=5, do_sample=do_sample).rollout
            for agents in (learner.agents, team)
        )
        assert played == again


@pytest.mark.parametrize("kind", [PPO, A2C, DQN])
def test_the_saved_model_is_one_of_stable_baselines3(kind: Any, tmp_path: Path) -> None:
    learner = learnt(f"sb3-{kind.__name__.lower()}")
    learner.save_model(tmp_path)
    model = kind.load(tmp_path / "agent_0" / "policy.zip", device="cpu")
    view = PickOfK(matching_env(), list(LETTERS), show_progress=False)
    observations, _ = view.reset(options={"row": 2})
    pick, _ = model.predict(observations["agent_0"], deterministic=True)
    assert [int(pick)] == learner.agents["agent_0"].picks(["c"])


def test_it_plays_in_a_plain_loop() -> None:
    agents = learnt("sb3-ppo").agents
    env = matching_env()
    total = 0.0
    for row in range(4):
        observations, _ = env.reset(options={"row": row})
        actions = {n: agents[n].greedy().act([observations[n]])[0][0].text for n in env.agents}
        total += env.step(actions)[1]["agent_0"]
    assert total == 4
    together = learnt("sb3-ppo", "centralised").agents["agent_1"]
    observations, _ = env.reset(options={"row": 1})
    said = [answers[0].text for answers in together.greedy().act(list(observations.values()))]
    assert env.step(dict(zip(NAMES, said, strict=True)))[1]["agent_0"] == 1


def test_it_is_a_partner_of_a_language_model() -> None:
    team = {"agent_0": letter_agent(), "agent_1": learnt("sb3-ppo").agents["agent_1"]}
    settings = algos.MAGRPOConfig(num_train_epochs=1, num_generations=3, progress_bar=False)
    trainer = algos.make("magrpo", matching_env(), team, settings)
    rollout = trainer.collect([0, 1])
    assert {c.text for node in rollout.nodes() for c in node.completions["agent_1"]} <= {*LETTERS}
    trainer.train()


# --- an agent sees and says what the view shows and plays ----------------------------------------


class Watched:
    """A policy that keeps what it sees."""

    def __init__(self, policy: SB3Policy) -> None:
        self.policy = policy
        self.seen: list[Any] = []

    def pick(self, features: Any, *arguments: Any) -> Any:
        self.seen.append(features)
        return self.policy.pick(features, *arguments)


class Echo:
    """Says the prompt, with a mark for each further answer."""

    def act(
        self, observations: Any, num_generations: int = 1, *, seed: int | None = None
    ) -> list[list[Completion]]:
        return [
            [Completion(text + "!" * g) for g in range(num_generations)] for text in observations
        ]


FORMS: dict[str, Callable[[], dict[str, Any]]] = {
    "texts": lambda: {"candidates": LENGTHS},
    "texts by agent": lambda: {"candidates": {"agent_0": LENGTHS, "agent_1": LENGTHS[::-1]}},
    "function": lambda: {"candidates": lambda seen, agent: [seen, seen + agent, seen[:3]], "k": 3},
    "strategies": lambda: {
        "strategies": ["{prompt}", "{prompt}, please", shout],
        "writer": {"agent_0": FixedAgent(lambda seen: seen + "!"), "agent_1": FixedAgent(shout)},
    },
    "one writer": lambda: {"strategies": ["{prompt}", shout], "writer": FixedAgent(shout)},
    "language model": lambda: {
        "strategies": ["{prompt}", shout],
        "writer": tiny_agent(do_sample=False, max_new_tokens=3),
    },
    "written": lambda: {"candidates": {"agent_0": Echo(), "agent_1": Echo()}, "k": 3},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["sb3-ppo", "sb3-dqn", "sb3-maskable-ppo"])
@pytest.mark.parametrize("form", FORMS)
def test_it_plays_in_texts_what_the_model_plays_in_the_view(
    form: str, name: str, mode: str
) -> None:
    parts = FORMS[form]()
    view = PickOfK(two_turns(), **parts)
    trainer = algos.make(name, view, None, SB3Config(mode=mode, progress_bar=False))
    assert view.show_progress, "the env given is left alone"
    drawn = torch.Generator().manual_seed(0)
    for weights in trainer.model.policy.parameters():  # as made, it picks the same almost always
        torch.nn.init.normal_(weights, std=1.0 if weights.dim() > 1 else 0.0, generator=drawn)
    team = {key: agent.greedy() for key, agent in trainer.agents.items()}
    watched = Watched(team["agent_0"].policy)
    for agent in team.values():
        agent.policy = watched
    if mode == "centralised":
        team = dict.fromkeys(team, team["agent_0"])
    played = algos.evaluate(two_turns(), team, do_sample=False).rollout
    one_number = name == "sb3-dqn" and mode == "centralised"
    slots = to_sb3_vec_env(
        PickOfK(two_turns(), **parts, show_progress=False),
        1,
        mode,
        joint_action="discrete" if one_number else "multi_discrete",
    )
    texts, seen = [], []
    for row in range(6):
        slots.set_options({"row": row})
        observations = slots.reset()
        for _ in range(2):
            seen += list(observations)
            actions, _ = trainer.model.predict(observations, deterministic=True)
            observations, _, _, infos = slots.step(actions)
            by_agent = infos if mode == "shared" else [infos[0][agent] for agent in NAMES]
            texts.append([info["text"] for info in by_agent])
    said = [
        [node.completions[agent][0].text for agent in NAMES]
        for pair in zip(*played.levels, strict=True)
        for node in pair
    ]
    assert said == texts
    assert len({text for pair in said for text in pair}) > 1, "a policy that tells prompts apart"
    rows = np.concatenate(watched.seen)
    assert len(rows) == len(seen)
    assert sorted(map(tuple, rows)) == sorted(map(tuple, seen))


def test_samples_follow_the_policys_distribution() -> None:
    trainer = algos.make("sb3-ppo", matching_env(), None, config())
    with torch.no_grad():
        trainer.model.policy.action_net.bias.copy_(torch.tensor([0.0, 1.0, -1.0, 0.5]))
    agent = trainer.agents["agent_0"]
    view = PickOfK(matching_env(), list(LETTERS), show_progress=False)
    seen = torch.from_numpy(view.reset(options={"row": 0})[0]["agent_0"])[None]
    expected = trainer.model.policy.get_distribution(seen).distribution.probs[0].detach().numpy()
    (answers,) = agent.act(["a"], 20_000, seed=1)
    counts = np.array([sum(c.text == letter for c in answers) for letter in LETTERS])
    deviations = np.sqrt(20_000 * expected * (1 - expected))
    assert (np.abs(counts - 20_000 * expected) < 4 * deviations).all()
    assert agent.act(["a"], 20, seed=1) == agent.act(["a"], 20, seed=1)
    assert agent.act(["a"], 20, seed=1) != agent.act(["a"], 20, seed=2)
    assert agent.act(["a"], 20) != agent.act(["a"], 20)
    (likeliest,) = agent.picks(["a"])
    assert likeliest == expected.argmax()
    assert {c.text for c in agent.greedy().act(["a"], 9)[0]} == {LETTERS[likeliest]}
    assert agent.act([]) == []


def test_each_generation_of_a_team_is_of_the_agents_own() -> None:
    own = {"agent_0": ["a", "b"], "agent_1": ["c", "d"]}
    settings = config(candidates=own, mode="centralised")
    agent = algos.make("sb3-ppo", matching_env(), None, settings).agents["agent_0"]
    answers = agent.act(["a", "b"] * 3, 20, seed=0)
    assert [{c.text for c in group} for group in answers] == [{"a", "b"}, {"c", "d"}] * 3
    with torch.no_grad():  # agent_0's second candidate, and agent_1's first
        agent.policy.model.policy.action_net.bias.copy_(torch.tensor([0.0, 9.0, 9.0, 0.0]))
    answers = agent.greedy().act(["a", "b"] * 3, 4)
    assert [[c.text for c in group] for group in answers] == [["b"] * 4, ["c"] * 4] * 3


def test_each_generation_asks_a_writer_that_samples_anew() -> None:
    writer = RandomAgent([str(i) for i in range(100)])
    settings = config(candidates=None, strategies=["{prompt}"])
    agent = algos.make("sb3-ppo", matching_env(), writer, settings).agents["agent_0"]
    answers = agent.act(["a", "a"], 10, seed=3)
    assert len({c.text for group in answers for c in group}) > 10
    assert agent.act(["a", "a"], 10, seed=3) == answers


def test_the_turn_and_the_last_reward_are_hidden() -> None:
    seen = []
    for show_progress in (True, False):
        view = PickOfK(two_turns(), LENGTHS, show_progress=show_progress)
        first, _ = view.reset(options={"row": 0})
        second = view.step({"agent_0": 1, "agent_1": 2})[0]
        seen.append((first["agent_0"], second["agent_0"]))
    np.testing.assert_array_equal(seen[0][0], seen[1][0])
    (place,) = np.flatnonzero(seen[0][1][:-1] != seen[1][1][:-1])
    assert place == 64 + 1 + 2 + 1
    assert seen[0][1][-2:].tolist() == [0.5, np.float32(50 / 51)]  # a turn, and 20 + 30
    assert seen[1][1][-2:].tolist() == [0, 0]


# --- what to pick from ---------------------------------------------------------------------------


def test_frozen_agents_answer_the_strategies_of_the_config() -> None:
    writers = {"agent_0": FixedAgent(lambda seen: seen[-1]), "agent_1": FixedAgent("b")}
    settings = config(candidates=None, strategies=[f"{{prompt}}{letter}" for letter in LETTERS])
    trainer = algos.make("sb3-ppo", matching_env(), writers, settings)
    trainer.train()
    assert trainer.evaluate(do_sample=False).metrics["reward_mean"] == 1
    assert trainer.agents["agent_0"].act(["a"])[0][0].text == "b"


def test_what_a_language_model_wrote_is_counted_as_its_cost() -> None:
    writer = tiny_agent(max_new_tokens=3)
    settings = config(candidates=None, strategies=["{prompt}", shout])
    trainer = algos.make("sb3-ppo", two_turns(), writer, settings)
    played = trainer.evaluate()
    assert played.metrics["num_completions"] == 6 * 2 * 2
    assert 24 <= played.metrics["num_tokens"] <= 72
    (completion,) = trainer.agents["agent_0"].act(["a"])[0]
    assert completion.prompt_ids in (tuple(writer.encode("a")), tuple(writer.encode("A")))
    assert len(completion.log_probs) == len(completion.completion_ids) > 0


def test_without_candidates_and_strategies_the_agents_write_k() -> None:
    writer = RandomAgent(list(LETTERS))
    trainer = algos.make("sb3-ppo", matching_env(), writer, config(candidates=None, k=3))
    agent = trainer.agents["agent_0"]
    assert agent.offers.k == 3
    assert {c.text for c in agent.act(["a"] * 20, 4)[0]} <= {*LETTERS}
    trainer.model.learn(32)


def test_what_surrounds_an_env_of_picks_stays_around_its_texts() -> None:
    view = RecordEpisodeStatistics(TimeLimit(PickOfK(TimeLimit(two_turns(), 5), LENGTHS), 1))
    trainer = algos.make("sb3-a2c", view, None, SB3Config(total_timesteps=80, progress_bar=False))
    assert str(trainer.env) == "RecordEpisodeStatistics(TimeLimit(TimeLimit(text_env)))"
    trainer.train()
    played = trainer.evaluate()
    assert len(played.rollout.levels) == 1, "the limit of one turn holds"
    held_out = algos.make("sb3-a2c", view, None, SB3Config(), eval_env=view).eval_env
    assert str(held_out) == str(trainer.env)
    assert isinstance(view.env.env, PickOfK), "the env given is left alone"


def test_a_learner_that_knows_masks_takes_fewer_candidates() -> None:
    ragged = {"agent_0": ["a", "b", "c"], "agent_1": ["d", "b"]}
    settings = config("sb3-maskable-ppo", candidates=ragged, mode="centralised")
    trainer = algos.make("sb3-maskable-ppo", matching_env(), None, settings)
    before = algos.evaluate(matching_env(), trainer.agents, num_samples=50)
    said = {node.completions["agent_1"][0].text for node in before.rollout.nodes()}
    assert said == {"d", "b"}
    assert before.metrics["reward_mean"] < 0.4
    trainer.train()
    assert trainer.evaluate(do_sample=False).metrics["reward_mean"] == 1
    for name in ("sb3-ppo", "sb3-dqn"):
        with pytest.raises(ValueError, match=r"4 candid|3 candidates for each agent with sb3-"):
            algos.make(name, matching_env(), None, config(name, candidates=ragged))


def test_a_policy_without_masks_that_picks_what_is_not_there() -> None:
    settings = config(candidates=lambda seen, agent: list("abc")[: 3 - (seen == "d")], k=3)
    agent = algos.make("sb3-ppo", matching_env(), None, settings).agents["agent_0"]
    with torch.no_grad():
        agent.policy.model.policy.action_net.bias.copy_(torch.tensor([0.0, 0.0, 9.0]))
    assert agent.act(["a"])[0][0].text == "c"
    with pytest.raises(ValueError, match=r"from 0 to 1, .* got 2 .*train with sb3-maskable-ppo"):
        agent.act(["d"], seed=0)


# --- runs ----------------------------------------------------------------------------------------


def assert_same(one: Any, other: Any, place: str = "") -> None:
    """Compare two states to the bit; what is pickled by what it is of."""
    if place.endswith("/objects"):
        one, other = (pickle.loads(each.numpy().tobytes()) for each in (one, other))
    assert type(one) is type(other), place
    if isinstance(one, torch.Tensor | np.ndarray):
        assert one.dtype == other.dtype, place
        assert np.array_equal(one, other), place
    elif isinstance(one, dict):
        assert list(one) == list(other), place
        for key in one:
            assert_same(one[key], other[key], f"{place}/{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), place
        for i, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            assert_same(mine, theirs, f"{place}/{i}")
    else:
        assert one == other, place


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("sb3-a2c", "shared"),
        ("sb3-dqn", "centralised"),
        ("sb3-ppo", "centralised"),
        ("sb3-maskable-ppo", "shared"),
    ],
)
def test_a_run_that_is_killed_goes_on_to_the_bit(name: str, mode: str, tmp_path: Path) -> None:
    own = {
        "sb3-a2c": {},
        "sb3-dqn": {
            "learning_starts": 20,
            "buffer_size": 90,  # it is full in the end
            "train_freq": 3,
            "target_update_interval": 21,
        },
    }.get(name, {"batch_size": 15})
    own = {"n_steps": 5, **own} if name != "sb3-dqn" else own  # rollouts end within episodes

    def run(folder: str, kept: Kept, resume_from: Path | None = None) -> Any:
        settings = config(
            name,
            **{**own, "total_timesteps": 160},
            candidates=None,
            strategies=["{prompt}", lambda prompt: prompt.upper(), "longer: {prompt}"],
            policy_kwargs={"net_arch": [8], "activation_fn": torch.nn.ReLU},
            num_envs=3,
            mode=mode,
            logging_steps=40,  # checkpoints are between two entries
            eval_interval=50,
            checkpoint_interval=50,
            output_dir=str(tmp_path / folder),
        )
        env, writer = two_turns(shuffle=True), RandomAgent(["a", "bcd", "efghij"])
        env.reset(seed=0)  # states of episodes hold the env's own order of rows, which nobody reads
        trainer = algos.make(name, env, writer, settings, eval_env=two_turns(), loggers=[kept])
        trainer.train(resume_from=resume_from)
        return trainer

    whole, resumed = Kept(), Kept()
    expected = run("whole", whole)
    first = next(
        i for i, (step, entry) in enumerate(whole.entries) if step and "eval/return_mean" in entry
    )
    killed = Kept(limit=first + 2)
    with pytest.raises(KeyboardInterrupt):
        run("killed", killed)
    found = run("killed", resumed, tmp_path / "killed")
    assert_same(found.state_dict(), expected.state_dict())
    assert killed.entries == whole.entries[: first + 2]
    assert resumed.entries == whole.entries[first + 1 :]
    logs = [(tmp_path / each / "metrics.jsonl").read_text() for each in ("whole", "killed")]
    assert logs[0].count("\n") == logs[1].count("\n") == len(whole.entries)


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    env = matching_env()
    algos.make("sb3-dqn", env, None, config("sb3-dqn")).save_checkpoint(tmp_path)
    with pytest.raises(ValueError, match="a checkpoint of sb3-ppo, got one of sb3-dqn"):
        algos.make("sb3-ppo", env, None, config()).train(resume_from=tmp_path)
    with pytest.raises(ValueError, match="activation_fn': 'ReLU'} here"):
        other = config("sb3-dqn", policy_kwargs={"activation_fn": torch.nn.ReLU})
        algos.make("sb3-dqn", env, None, other).train(resume_from=tmp_path)
    with pytest.raises(ValueError, match=r"settings of the run .* seed=42 there and 3 here"):
        algos.make("sb3-dqn", env, None, config("sb3-dqn", seed=3)).train(resume_from=tmp_path)
    longer = config("sb3-dqn", total_timesteps=9000)
    with pytest.raises(ValueError, match="total_timesteps=4096 there and 9000 here"):
        algos.make("sb3-dqn", env, None, longer).train(resume_from=tmp_path)
    scheduled = {"algo_kwargs": {"clip_range_vf": abs}}
    algos.make("sb3-ppo", env, None, config(**scheduled)).save_checkpoint(tmp_path)
    longer = config(total_timesteps=9000, **scheduled)
    with pytest.raises(ValueError, match="total_timesteps=2048 there and 9000 here"):
        algos.make("sb3-ppo", env, None, longer).train(resume_from=tmp_path)
    with pytest.raises(FileNotFoundError, match="a folder that save_checkpoint wrote"):
        algos.make("sb3-ppo", env, None, config()).train(resume_from=tmp_path / "none")
    lengths, names = make("story-length-ratio-v0"), make("story-name-match-v0")  # ten rows each
    algos.make("sb3-ppo", lengths, None, config()).save_checkpoint(tmp_path)
    with pytest.raises(ValueError, match="task: story-length-ratio-v0 there, story-name-match"):
        algos.make("sb3-ppo", names, None, config()).train(resume_from=tmp_path)
    ask = {"candidates": None}
    algos.make("sb3-ppo", PickOfK(env, ["a", "b"]), None, config(**ask)).save_checkpoint(tmp_path)
    with pytest.raises(ValueError, match=r"texts: .*'b'.* there, .*'c'.* here"):
        other = algos.make("sb3-ppo", PickOfK(env, ["a", "c"]), None, config(**ask))
        other.train(resume_from=tmp_path)


def test_a_longer_run_begins_as_a_shorter_one_and_a_second_one_goes_on(tmp_path: Path) -> None:
    short, long, twice, whole = (
        algos.make("sb3-ppo", matching_env(), None, config(total_timesteps=steps))
        for steps in (128, 256, 128, 256)
    )
    short.train()
    short.save_checkpoint(tmp_path)
    long.train(resume_from=tmp_path)
    twice.train()
    twice.train()
    whole.train()
    for other in (long, twice):
        assert other.num_env_steps == whole.num_env_steps == 128
        assert_same(other.model.get_parameters(), whole.model.get_parameters())


def test_a_run_that_was_interrupted_can_begin_anew() -> None:
    calls = []

    def interrupted(first: list[str], second: list[str]) -> list[float]:
        calls.append(len(first))
        if len(calls) == 12:  # in the middle of the second rollout
            raise KeyboardInterrupt
        return [1.0] * len(first)

    env = two_turns(reward_func=interrupted)
    trainer = algos.make("sb3-ppo", env, None, config(total_timesteps=256))
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    steps = trainer.model.num_timesteps
    trainer.train()
    assert trainer.model.num_timesteps == steps + 256


def test_it_keeps_to_random_streams_of_its_own() -> None:
    parameters = []

    def noisy(first: list[str], second: list[str]) -> list[float]:
        return [float(np.random.rand()) for _ in first]

    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        before = (
            random.getstate(),
            np.random.get_state()[1].tolist(),
            torch.get_rng_state().tolist(),
        )
        settings = config("sb3-dqn", total_timesteps=300, eval_interval=100 * (seed - 1))
        held_out = two_turns(reward_func=noisy) if seed == 2 else None
        trainer = algos.make("sb3-dqn", matching_env(), None, settings, eval_env=held_out)
        trainer.train()
        after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
        assert before == after
        parameters.append(trainer.model.get_parameters())
    assert_same(*parameters)
    other = algos.make("sb3-dqn", matching_env(), None, config("sb3-dqn", seed=1))
    weights = [t.model.policy.state_dict()["q_net.q_net.0.weight"] for t in (trainer, other)]
    assert not torch.equal(*weights)


def test_metrics_are_those_of_the_glossary_over_env_steps(tmp_path: Path) -> None:
    settings = SB3Config(
        candidates=["abc"],
        total_timesteps=96,
        num_envs=3,
        n_steps=4,
        batch_size=24,
        logging_steps=48,
        eval_interval=0,
        output_dir=str(tmp_path),
        progress_bar=False,
    )
    trainer = algos.make("sb3-ppo", two_turns(), None, settings, eval_env=two_turns())
    trainer.train()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 24, 48, 48]
    for line in lines[1:3]:
        assert line["turn_1/reward_mean"] == line["turn_2/reward_mean"] == 6  # "abc" and "abc"
        assert line["rollout/reward_mean"] == 6
        assert {"train/loss", "train/approx_kl", "train/value_loss"} <= line.keys()
        assert {"time/rollout_seconds", "time/update_seconds"} <= line.keys()
    for line in (lines[0], lines[3]):
        assert line["eval/return_mean"] == 12
    assert trainer.num_env_steps == 48


def test_the_meter_counts_turns_of_slots() -> None:
    meter = TurnMeter(2)
    rewards, no, yes = np.array([1.0, 3.0]), np.array([False, False]), np.array([True, True])
    meter.record(rewards, no, [{}, {"turn_reward": 1.0}])  # of 3, 1 is the turn's own
    meter.record(rewards, np.array([False, True]), [{}, {}])
    meter.record(rewards, yes, [{}, {"idle": True}])
    meter.record(rewards, no, [{}, {}])
    first = (1 + 1 + 1 + 3) / 4
    assert meter.metrics() == pytest.approx(
        {
            "turn_1/reward_mean": first,
            "turn_1/reward_std": math.sqrt(3 * 0.5**2 + 1.5**2) / 2,
            "turn_2/reward_mean": (1 + 3) / 2,
            "turn_2/reward_std": 1,
            "turn_3/reward_mean": 1,
            "turn_3/reward_std": 0,
            "rollout/reward_mean": (4 * first + 4 + 1) / 7,
            "rollout/reward_std": math.sqrt(23 / 7 - (11 / 7) ** 2),  # of 1 1 1 3, 1 3, 1
        }
    )


def test_the_meter_counts_agents_of_teams() -> None:
    team = TurnMeter(1, NAMES)
    told = {"agent_0": {"turn_reward": 1.0}, "agent_1": {"turn_reward": 2.0}}
    team.record(np.array([9.0]), np.array([False]), [told])
    team.record(np.array([9.0]), np.array([True]), [{"agent_1": {}}])
    assert team.metrics()["turn_1/reward_mean"] == 1.5
    assert team.metrics()["turn_1/reward_mean/agent_1"] == 2
    assert team.metrics()["turn_2/reward_mean"] == 9
    assert "turn_2/reward_mean/agent_1" not in team.metrics()  # it was not told of both
    other = TurnMeter(1, NAMES)
    other.set_state(team.get_state())
    assert other.metrics() == team.metrics()
    team.clear()
    assert team.metrics() == {}


def test_the_meter_counts_agents_in_slots_of_their_own() -> None:
    meter = TurnMeter(4, agents=NAMES)  # two episodes
    no = np.array([False] * 4)
    meter.record(np.array([1.0, 3.0, 5.0, 5.0]), no, [{}] * 4)
    left = np.array([False, True, False, False])
    meter.record(np.array([1.0, 3.0, 5.0, 5.0]), left, [{}] * 4)
    # agent_1 of the first episode waits for its end, and then begins with agent_0 again
    idle = [{}, {"idle": True}, {}, {}]
    meter.record(np.array([1.0, 0.0, 5.0, 5.0]), np.array([True] * 4), idle)
    meter.record(np.array([2.0, 4.0, 5.0, 5.0]), no, [{}] * 4)
    metrics = meter.metrics()
    assert metrics["turn_1/reward_mean"] == (2 + 5 + 3 + 5) / 4
    assert metrics["turn_1/reward_std"] == pytest.approx(math.sqrt(63 / 4 - 3.75**2))
    assert metrics["turn_1/reward_mean/agent_0"] == (1 + 5 + 2 + 5) / 4
    assert metrics["turn_1/reward_mean/agent_1"] == (3 + 5 + 4 + 5) / 4
    assert metrics["turn_3/reward_mean"] == (1 + 5) / 2
    assert metrics["turn_3/reward_mean/agent_1"] == 5
    assert metrics["rollout/reward_std/agent_1"] == pytest.approx(
        math.sqrt(134 / 7 - (30 / 7) ** 2)
    )
    alike = TurnMeter(2, agents=NAMES)
    alike.record(np.array([1.0, 1.0]), no[:2], [{}] * 2)
    assert alike.metrics().keys() == {
        f"{group}/reward_{name}" for group in ("turn_1", "rollout") for name in ("mean", "std")
    }


def test_a_loss_that_is_not_finite_stops_the_run() -> None:
    trainer = algos.make("sb3-dqn", two_turns(), None, config("sb3-dqn", learning_starts=0))
    with torch.no_grad():
        trainer.model.policy.q_net.q_net[-1].bias.fill_(math.inf)
    with pytest.raises(FloatingPointError, match=r"train/loss=nan .*lower the learning rate"):
        trainer.train()


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "exception", "sentence"),
    [
        ({"candidates": None}, ValueError, "candidates in the config, or agents that write"),
        ({"strategies": ["{prompt}"]}, ValueError, "candidates or strategies, got both"),
        ({"candidates": None, "strategies": ["{prompt}"]}, ValueError, "or agents that write"),
        ({"candidates": "abcd"}, TypeError, "a list of texts, .* as candidates, got 'abcd'"),
        ({"candidates": ["a", 3]}, TypeError, "strings as candidates of agent_0, got 3"),
        ({"buffer_size": 9}, ValueError, "settings of PPO for sb3-ppo, got buffer_size; leave"),
        ({"algo_kwargs": {"gama": 1}}, ValueError, "arguments of PPO in algo_kwargs, got gama; it"),
        ({"algo_kwargs": {"gamma": 1}}, ValueError, "no gamma in algo_kwargs; set gamma in the"),
        ({"algo_kwargs": {"tensorboard_log": ""}}, ValueError, "no tensorboard_log .* loggers="),
        ({"policy": "Mlp"}, ValueError, "policy as one of MlpPolicy, .* got 'Mlp'"),
        ({"mode": "joint"}, ValueError, "mode to be one of shared, centralised"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate above 0, got 0.0"),
        ({"gamma": 1.5}, ValueError, "gamma from 0 to 1, got 1.5"),
        ({"num_envs": 0}, ValueError, "num_envs of at least 1, got 0"),
        ({"policy_kwargs": [64]}, TypeError, r"a mapping .* as policy_kwargs, got \[64\]"),
        ({"checkpoint_interval": 5}, ValueError, "an output_dir with checkpoint_interval=5"),
    ],
)
def test_settings_that_do_not_fit(changes: Any, exception: type[Exception], sentence: str) -> None:
    with pytest.raises(exception, match=sentence):
        algos.make("sb3-ppo", matching_env(), None, config(**changes))


def test_settings_of_the_learner_reach_it() -> None:
    settings = config(
        policy_kwargs={"net_arch": [5]}, algo_kwargs={"clip_range_vf": 0.3}, gamma=0.5
    )
    model = algos.make("sb3-ppo", matching_env(), None, settings).model
    assert model.gamma == 0.5
    assert model.clip_range_vf(1.0) == 0.3
    assert model.policy.action_net.in_features == 5
    assert (model.n_steps, model.learning_rate) == (8, 1e-2)
    assert (
        algos.make("sb3-ppo", matching_env(), None, SB3Config(candidates=["a"])).model.n_steps == 32
    )
    dqn = algos.make("sb3-dqn", matching_env(), None, SB3Config(candidates=["a"])).model
    assert (dqn.buffer_size, dqn.target_update_interval, dqn.learning_rate) == (100_000, 500, 1e-4)


def test_what_a_learner_cannot_be_made_of() -> None:
    env, picks = matching_env(), PickOfK(matching_env(), list(LETTERS))
    team = {name: letter_agent() for name in NAMES}
    with pytest.raises(TypeError, match=r"SB3Config as config.*, got \{'seed': 3\}"):
        algos.make("sb3-ppo", env, None, {"seed": 3})
    with pytest.raises(ValueError, match=r"an agent for each of .*, got \['agent_0'\]"):
        algos.make("sb3-ppo", env, {"agent_0": letter_agent()}, config())
    with pytest.raises(TypeError, match="an agent for agent_1, with a method act, got str"):
        algos.make("sb3-ppo", env, {**team, "agent_1": "pocket"}, config())
    with pytest.raises(ValueError, match="candidates, strategies or k in the config"):
        algos.make("sb3-ppo", env, team, config(candidates=None))
    assert algos.make("sb3-ppo", picks, {}, SB3Config()).env.possible_agents == NAMES
    with pytest.raises(ValueError, match="no agents with an env of picks"):
        algos.make("sb3-ppo", picks, team, SB3Config())
    with pytest.raises(ValueError, match="no candidates with an env of picks"):
        algos.make("sb3-ppo", picks, None, config())
    with pytest.raises(TypeError, match="an env, got the text 'story"):
        algos.make("sb3-ppo", "story-length-ratio-v0", None, config())
    with pytest.raises(TypeError, match=r"with reset, step, .* got int without reset"):
        algos.make("sb3-ppo", 3, None, config())
    with pytest.raises(ValueError, match=r"eval_env with the agents .*, got \['a', 'b'\]"):
        algos.make("sb3-ppo", env, None, config(), eval_env=two_turns(agent_names=["a", "b"]))
    with pytest.raises(TypeError, match="an env with clone"):
        algos.make("sb3-ppo", env, None, config(), eval_env="held out")
    with pytest.raises(TypeError, match="list of loggers"):
        algos.make("sb3-ppo", env, None, config(), loggers=Kept())


def test_a_policy_of_the_team_needs_all_of_it_in_every_turn() -> None:
    for acting in ([["agent_0"], NAMES], [NAMES, ["agent_0"]], lambda turn: NAMES[:turn]):
        env = two_turns(acting=acting)
        trainer = algos.make("sb3-a2c", env, None, config("sb3-a2c", mode="centralised"))
        with pytest.raises(
            ValueError, match=r"to act in every turn, .* without agent_1; use mode="
        ):
            trainer.train()
        shared = algos.make("sb3-a2c", env, None, config("sb3-a2c", total_timesteps=160))
        shared.train()
        assert len(shared.evaluate().rollout.levels) == 2


def test_an_env_stepped_by_clones_learns_but_cannot_be_saved(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"total_timesteps": 80, "output_dir": str(tmp_path)}
    trainer = algos.make("sb3-a2c", Good(), None, config("sb3-a2c", **settings))
    trainer.train()
    assert trainer.evaluate().metrics["return_mean"] > 0
    with pytest.raises(TypeError, match="a TextEnv, bare or in Wrappers, to save its episodes"):
        trainer.save_checkpoint(tmp_path)
    with pytest.raises(TypeError, match="a TextEnv, bare or in Wrappers, to save its episodes"):
        algos.make("sb3-a2c", Good(), None, config("sb3-a2c", checkpoint_interval=9, **settings))


def test_requests_that_an_agent_does_not_understand() -> None:
    together = learnt("sb3-ppo", "centralised").agents["agent_0"]
    with pytest.raises(ValueError, match=r"observations of \['agent_0', 'agent_1'\] together.* 1 "):
        together.act(["a"])
    agent = learnt("sb3-ppo").agents["agent_0"]
    with pytest.raises(TypeError, match="a list of observations, got the text 'abc'"):
        agent.act("abc")
    with pytest.raises(ValueError, match="num_generations of at least 1, got 0"):
        agent.act(["a"], 0)


def test_a_policy_of_the_team_is_not_asked_for_some_of_it() -> None:
    """Two prompts of one agent are not one of each."""
    together, env = learnt("sb3-ppo", "centralised").agents["agent_0"], two_turns()
    wrong: list[tuple[Any, Any]] = [
        (env, {"agent_0": FixedAgent("a"), "agent_1": together}),
        (two_turns(acting=lambda turn: ["agent_0"]), dict.fromkeys(NAMES, together)),
        (env, algos.Pipeline(dict.fromkeys(NAMES, together))),
        (two_turns(agent_names=NAMES[::-1]), dict.fromkeys(NAMES, together)),
    ]
    for each, team in wrong:
        with pytest.raises(ValueError, match=r"acts for \['agent_0', 'agent_1'\] to be asked for"):
            algos.evaluate(each, team)
    renamed = two_turns(agent_names=["x", "y"])
    assert algos.evaluate(renamed, dict.fromkeys("xy", together)).metrics["reward_mean"] > 0


def test_a_team_that_was_saved_in_part_is_not_loaded(tmp_path: Path) -> None:
    learnt("sb3-ppo").save_model(tmp_path)
    (tmp_path / "agent_1").rename(tmp_path.parent / "elsewhere")
    with pytest.raises(ValueError, match=r"a policy for each of .*, got none for \['agent_1'\]"):
        load_pick_agents(tmp_path)


def test_parts_that_cannot_be_saved_are_asked_for(tmp_path: Path) -> None:
    def save(folder: str, **parts: Any) -> Path:
        view = PickOfK(matching_env(), **parts)
        algos.make("sb3-a2c", view, None, SB3Config()).save_model(tmp_path / folder)
        return tmp_path / folder

    writer = FixedAgent("a")
    templates = save("templates", strategies=["{prompt}", "{prompt}!"], writer=writer)
    with pytest.raises(ValueError, match="Expected writer=, which is part of what was trained"):
        load_pick_agents(templates)
    with pytest.raises(ValueError, match="Expected no candidates=, which was saved or not used"):
        load_pick_agents(templates, writer=writer, candidates=["a"])
    team = load_pick_agents(templates, writer=writer)
    assert team["agent_1"].act(["a"])[0][0].text == "a"
    functions = save("functions", strategies=[shout, str], writer=writer)
    with pytest.raises(ValueError, match="Expected strategies="):
        load_pick_agents(functions, writer=writer)
    assert load_pick_agents(functions, writer=writer, strategies=[shout, str])
    written = save("written", candidates=writer, k=2)
    assert load_pick_agents(written, writer=writer)["agent_0"].offers.k == 2

    class Encoder(HashingEncoder): ...

    own = save("encoder", candidates=["a"], encoder=Encoder(7))
    with pytest.raises(ValueError, match="Expected encoder="):
        load_pick_agents(own)
    with pytest.raises(ValueError, match=r"observations of 13 entries, .* got one that gives 15"):
        load_pick_agents(own, encoder=Encoder(9))
    assert load_pick_agents(own, encoder=Encoder(7))
    learnt("sb3-ppo", "centralised").save_model(tmp_path / "both")
    learnt("sb3-ppo").save_model(tmp_path / "both")
    with pytest.raises(ValueError, match=r"one policy for agent_0, got another in .*team"):
        load_pick_agents(tmp_path / "both")
    with pytest.raises(FileNotFoundError, match="a folder that save_model wrote"):
        load_pick_agents(tmp_path)


@pytest.mark.parametrize(
    ("name", "module", "install"),
    [
        ("sb3-ppo", "stable_baselines3", "pip install stable-baselines3"),
        ("sb3-maskable-ppo", "sb3_contrib", r'pip install "motet\[sb3-contrib\]"'),
    ],
)
def test_a_missing_library_is_told_before_anything_else(
    name: str, module: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"Expected {module} for {name}.*; {install}"):
        algos.make(name, "no env", None, config(name))


def test_its_agents_are_pick_agents_of_their_names() -> None:
    agents = learnt("sb3-ppo").agents
    assert [agents[name].names for name in NAMES] == [("agent_0",), ("agent_1",)]
    together = learnt("sb3-ppo", "centralised").agents
    assert together["agent_0"] is together["agent_1"]
    assert isinstance(together["agent_0"], PickAgent)
