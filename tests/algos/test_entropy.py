"""The entropy bonus: numbers by hand, equality with the slow truth, and what it does."""

import copy
import math

import pytest
import torch
from families import LLAMA_LIKE, SIZES, model_of
from reference import KL, entropy, magrpo_loss, token_distributions
from tiny import byte_tokenizer, letter_agent, matching_env, tiny_agent, updated_as_expected
from transformers import Gemma2Config

from motet.agents import Completion, GenerationConfig, LMAgent, RandomAgent
from motet.agents.distribution import token_log_probs_and_entropies
from motet.algos import MAGRPOConfig, MAGRPOTrainer
from motet.algos.updates import head, log_probs
from motet.algos.updates.entropy import entropy_estimate, entropy_loss
from motet.algos.updates.head import has_plain_head
from motet.envs import make

NAMES = ("agent_0", "agent_1")
QUIET = {"progress_bar": False}
LOG_2 = math.log(2)


def any_spread(first: list[str], second: list[str]) -> list[float]:
    return [
        (3 * sum(map(ord, a)) + 5 * sum(map(ord, b))) % 101 / 100
        for a, b in zip(first, second, strict=True)
    ]


def no_spread(first: list[str], second: list[str]) -> list[float]:
    return [1.0] * len(first)


@pytest.mark.parametrize(
    ("sampling", "token", "by_hand"),
    [
        # 1/2, 1/4, 1/8, 1/8: (1 * 1/2 + 2 * 1/4 + 3 * 1/4) log 2
        ({}, 0, 1.75 * LOG_2),
        # squared and renormalised: 16/22, 4/22, 1/22, 1/22; log 22 - (16 * 4 + 4 * 2) log 2 / 22
        ({"temperature": 0.5}, 0, math.log(22) - 72 / 22 * LOG_2),
        # 2/3, 1/3: log 3 - 2/3 log 2
        ({"top_k": 2}, 1, math.log(3) - 2 / 3 * LOG_2),
        ({"top_p": 0.7}, 1, math.log(3) - 2 / 3 * LOG_2),
        # the third is no longer kept and counted in: 4/7, 2/7, 1/7
        ({"top_k": 2}, 2, math.log(7) - (4 * 2 + 2) / 7 * LOG_2),
        ({"top_k": 1}, 0, 0.0),
    ],
)
def test_entropies_by_hand(sampling: dict, token: int, by_hand: float) -> None:
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log() + 3
    found = token_log_probs_and_entropies(logits, torch.tensor(token), GenerationConfig(**sampling))
    assert found[1].item() == pytest.approx(by_hand, abs=1e-6)


def test_a_gradient_by_hand() -> None:
    """Of 1/2, 1/4, 1/4: H = 1.5 log 2, and -p (log p + H) is -1/4 log 2 once, 1/8 log 2 twice."""
    logits = torch.tensor([0.5, 0.25, 0.25]).log().requires_grad_()
    found = token_log_probs_and_entropies(logits, torch.tensor(0), GenerationConfig())
    found[1].backward()
    torch.testing.assert_close(logits.grad, LOG_2 * torch.tensor([-0.25, 0.125, 0.125]))


def test_the_loss_and_the_estimate_by_hand() -> None:
    entropies = torch.tensor([[1.0, 2.0, 0.0], [0.5, 0.25, 3.0]])
    # -(0.5 * 3 + 0.25 * 3.75)
    assert entropy_loss(entropies, torch.tensor([0.5, 0.25])).item() == pytest.approx(-2.4375)
    written = [Completion("", (1,), (2, 3), (-1.0, -2.0)), Completion("", (1,), (4,), (-6.0,))]
    assert entropy_estimate(written) == 3.0  # a mean over tokens
    with pytest.raises(ValueError, match=r"weights of shape \(B,\)"):
        entropy_loss(entropies, torch.ones(3))


def team(**generation: float | None) -> dict:
    return {name: tiny_agent(i, **generation) for i, name in enumerate(NAMES)}


def capped() -> LMAgent:
    """An agent whose logits are not its last hidden states times its head."""
    sizes = {**LLAMA_LIKE, **SIZES, "vocab_size": 257, "max_position_embeddings": 512}
    model = model_of(Gemma2Config(head_dim=8, initializer_range=0.2, **sizes))
    assert not has_plain_head(model)
    return LMAgent(model, byte_tokenizer())


def move(agents: dict) -> None:
    """Move the weights, so that policies are no longer their references."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for model in {id(agent.model): agent.model for agent in agents.values()}.values():
            for weight in model.parameters():
                weight.add_(0.03 * torch.randn(weight.shape, generator=generator))


def assert_equals_the_reference(agents: dict, num_turns: int, reward_func, **settings) -> dict:
    env = make("story-length-ratio-v0", num_turns=num_turns, reward_func=reward_func)
    options = {"num_generations": 2, "max_new_tokens": 3, "ent_coef": 0.7, **settings}
    config = MAGRPOConfig(max_grad_norm=None, agent_learning_rate=1e-12, **options, **QUIET)
    references = {name: copy.deepcopy(agent.model) for name, agent in agents.items()}
    trainer = MAGRPOTrainer(env, agents, config)
    move(agents)
    rollout = trainer.collect([0, 4] if num_turns == 1 else [0])
    models = {name: agent.model for name, agent in agents.items()}
    kl = KL(config.kl_coef, config.kl_estimator, config.kl_in, references)
    expected = magrpo_loss(
        rollout,
        models,
        GenerationConfig(**config.generation),
        loss_type=config.loss_type,
        clip_range=config.clip_range,
        kl=kl if config.kl_coef else None,
        ent_coef=config.ent_coef,
    )
    return updated_as_expected(trainer, rollout, models, expected)


@pytest.mark.parametrize("loss_type", ["sequence_sum", "sequence_mean", "token_mean", "constant"])
@pytest.mark.parametrize("num_turns", [1, 2])
def test_loss_and_gradients_equal_the_slow_reference(num_turns: int, loss_type: str) -> None:
    assert_equals_the_reference(team(), num_turns, any_spread, loss_type=loss_type)


@pytest.mark.parametrize(
    ("kind", "settings"),
    {
        "truncated": {"temperature": 0.7, "top_k": 6, "top_p": 0.8},
        "crossed": {"joint_mode": "cross"},
        "small micro-batches": {"max_tokens_per_batch": 100},
        "checkpointed": {"gradient_checkpointing": True},
        "clipped": {"clip_range": 0.2},
        "held by a KL too": {"kl_coef": 0.3},
        "paying for a KL": {"kl_coef": 0.3, "kl_in": "return"},
        "shared": {},
        "capped": {"temperature": 0.7, "top_k": 6},
    }.items(),
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_it_goes_with_the_other_settings(kind: str, settings: dict) -> None:
    agents = team()
    if kind == "shared":
        agents = dict.fromkeys(NAMES, tiny_agent())
    if kind == "capped":
        agents = dict.fromkeys(NAMES, capped())
    assert_equals_the_reference(agents, 2, any_spread, **settings)


def test_groups_without_spread_are_trained_on_their_entropy() -> None:
    metrics = assert_equals_the_reference(team(), 2, no_spread)
    assert metrics["train/frac_zero_std_groups"] == 1.0
    assert metrics["train/num_optimizer_steps"] == 2


def test_the_metric_is_the_mean_over_tokens() -> None:
    agents = {"agent_0": tiny_agent(max_new_tokens=6), "agent_1": RandomAgent(["", "a", "bc"])}
    env = make("story-length-ratio-v0", num_turns=2, reward_func=any_spread)
    config = MAGRPOConfig(ent_coef=0.1, agent_learning_rate=1e-12, **QUIET)
    trainer = MAGRPOTrainer(env, agents, config)
    rollout = trainer.collect([0])
    agent = agents["agent_0"]
    entropies = [
        entropy(each).item()
        for node in rollout.nodes()
        for own in node.completions["agent_0"]
        for each in token_distributions(agent.model, own, agent.generation)
    ]
    metrics = trainer.update(rollout)
    assert metrics["train/entropy"] == pytest.approx(sum(entropies) / len(entropies), rel=1e-5)


def test_what_samples_tell_of_it_is_near_it() -> None:
    agent = tiny_agent(max_new_tokens=2, temperature=0.7, top_k=20)
    (written,) = agent.act(["a prompt"], 2000, seed=0)
    entropies = [
        entropy(each).item()
        for own in written[:100]
        for each in token_distributions(agent.model, own, agent.generation)
    ]
    # standard deviations of about 1 over 4000 and of about 0.5 over 200 tokens
    assert entropy_estimate(written) == pytest.approx(sum(entropies) / len(entropies), abs=0.15)


class Kept:
    """A logger that keeps what it gets."""

    def __init__(self) -> None:
        self.entries: list[dict[str, float]] = []

    def log(self, metrics: dict[str, float], step: int) -> None:
        self.entries.append(dict(metrics))

    def close(self) -> None: ...


def test_without_it_nothing_is_computed_and_an_estimate_is_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unexpected(*args: object) -> None:
        raise AssertionError("nobody asked")

    monkeypatch.setattr(head, "_entropy", unexpected)
    monkeypatch.setattr(log_probs, "token_log_probs_and_entropies", unexpected)
    agents = {"agent_0": capped(), "agent_1": tiny_agent(max_new_tokens=4)}
    env = make("story-length-ratio-v0", reward_func=any_spread)
    kept = Kept()
    config = MAGRPOConfig(rollout_batch_size=10, max_new_tokens=2, **QUIET)
    MAGRPOTrainer(env, agents, config, loggers=[kept]).train()
    (entry,) = kept.entries
    assert "train/entropy" not in entry
    assert 3 < entry["rollout/entropy_estimate"] < math.log(257)


def test_a_bonus_keeps_the_policy_from_settling() -> None:
    kept = {}
    for ent_coef in (0.0, 1e-6, 3.0):
        agents = {name: letter_agent(i) for i, name in enumerate(NAMES)}
        config = MAGRPOConfig(
            num_train_epochs=15,
            rollout_batch_size=4,
            num_generations=8,
            agent_learning_rate=0.02,
            ent_coef=ent_coef,
            **QUIET,
        )
        log = Kept()
        MAGRPOTrainer(matching_env(), agents, config, loggers=[log]).train()
        last = log.entries[-1]
        kept[ent_coef] = last["train/entropy" if ent_coef else "rollout/entropy_estimate"]
    assert kept[0.0] < 0.7
    assert kept[1e-6] < 0.7
    assert 0.95 * math.log(5) < kept[3.0] <= math.log(5) + 1e-6


@pytest.mark.parametrize("ent_coef", [-0.1, math.nan, math.inf, "much", None])
def test_wrong_settings_are_refused(ent_coef: object) -> None:
    with pytest.raises((ValueError, TypeError), match="ent_coef"):
        MAGRPOConfig(ent_coef=ent_coef)
