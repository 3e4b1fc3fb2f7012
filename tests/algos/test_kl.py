"""KL to a reference: numbers by hand, what it does to a tree, and equality with the slow truth."""

import copy
import itertools
import math

import pytest
import torch
from reference import KL, distribution, magrpo_loss, token_log_probs
from tiny import letter_agent, matching_env, tiny_agent, updated_as_expected
from transformers import AutoModelForCausalLM, GPT2Config

from motet.agents import Completion, GenerationConfig, RandomAgent
from motet.algos import MAGRPOConfig, MAGRPOTrainer, Node, Rollout
from motet.algos.rollouts.returns import rollout_returns
from motet.algos.team import Policy, trainable_policies
from motet.algos.updates.batch import Sample, collate
from motet.algos.updates.kl import (
    kl_costs,
    kl_loss,
    mean_token_kl,
    token_kl,
)
from motet.algos.updates.log_probs import completion_log_probs
from motet.algos.updates.reference_policy import ReferencePolicy
from motet.envs import make

NAMES = ("agent_0", "agent_1")
QUIET = {"progress_bar": False}

# ratios of reference to policy: 2, 1/2, then padding; 1, 3, 1/4
LOG_PROBS = torch.tensor([[-2.0, -1.0, -9.0], [-0.5, -3.0, -0.25]])
RATIOS = torch.tensor([[2.0, 0.5, 7.0], [1.0, 3.0, 0.25]])
MASK = torch.tensor([[True, True, False], [True, True, True]])


@pytest.mark.parametrize(
    ("estimator", "by_hand"),
    [
        # -log r
        ("k1", [[-math.log(2), math.log(2), 0.0], [0.0, -math.log(3), math.log(4)]]),
        # log(r)^2 / 2
        (
            "k2",
            [
                [math.log(2) ** 2 / 2, math.log(2) ** 2 / 2, 0.0],
                [0.0, math.log(3) ** 2 / 2, math.log(4) ** 2 / 2],
            ],
        ),
        # r - 1 - log r
        (
            "k3",
            [
                [1 - math.log(2), -0.5 + math.log(2), 0.0],
                [0.0, 2 - math.log(3), -0.75 + math.log(4)],
            ],
        ),
    ],
)
def test_estimates_by_hand(estimator: str, by_hand: list[list[float]]) -> None:
    estimates = token_kl(LOG_PROBS, LOG_PROBS + RATIOS.log(), MASK, estimator)
    torch.testing.assert_close(estimates, torch.tensor(by_hand))
    # 0.5 * (row 0) + 0.25 * (row 1)
    loss = kl_loss(estimates, torch.tensor([0.5, 0.25]))
    assert loss.item() == pytest.approx(0.5 * sum(by_hand[0]) + 0.25 * sum(by_hand[1]))


@pytest.mark.parametrize(
    ("estimator", "slope"),
    # by log pi: 1; -d = -log r; 1 - r
    [("k1", lambda r: 1.0), ("k2", lambda r: -math.log(r)), ("k3", lambda r: 1 - r)],
)
def test_gradients_by_hand_and_none_at_padding(estimator, slope) -> None:
    log_probs = LOG_PROBS.clone().requires_grad_()
    reference = LOG_PROBS + RATIOS.log()
    reference[0, 2] = -math.inf
    token_kl(log_probs, reference, MASK, estimator).sum().backward()
    expected = [[slope(2), slope(0.5), 0.0], [slope(1), slope(3), slope(0.25)]]
    torch.testing.assert_close(log_probs.grad, torch.tensor(expected))


def test_the_estimators_are_what_their_table_says_in_the_mean() -> None:
    """By enumeration of four tokens: means, and means of the gradients by the logits."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        logits, theirs = torch.randn(2, 4, dtype=torch.float64)
    logits.requires_grad_()
    own, reference = logits.log_softmax(-1), theirs.log_softmax(-1)
    probs = own.exp().detach()
    forward = (own.exp() * (own - reference)).sum()
    backward = (reference.exp() * (reference - own)).sum()
    mask = torch.ones((1, 4), dtype=torch.bool)
    means, gradients = {}, {}
    for name in ("k1", "k2", "k3"):
        mean = (probs * token_kl(own[None], reference[None], mask, name)[0]).sum()
        means[name] = mean.item()
        (gradients[name],) = torch.autograd.grad(mean, logits, retain_graph=True)
    assert means["k1"] == pytest.approx(forward.item())
    assert means["k3"] == pytest.approx(forward.item())
    torch.testing.assert_close(gradients["k1"], torch.zeros_like(logits))
    for name, divergence in (("k2", forward), ("k3", backward)):
        (expected,) = torch.autograd.grad(divergence, logits, retain_graph=True)
        torch.testing.assert_close(gradients[name], expected)


def test_digits_survive_where_the_policies_are_close() -> None:
    log_probs = torch.tensor([[-1.0]])
    reference = torch.tensor([[-1.0 + 2**-12]])
    estimate = token_kl(log_probs, reference, torch.tensor([[True]]), "k3").item()
    assert estimate == pytest.approx(2.0**-25, rel=1e-2)  # d^2 / 2


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="of one shape"):
        token_kl(LOG_PROBS, LOG_PROBS[:, :2], MASK, "k3")
    with pytest.raises(ValueError, match=r"weights of shape \(B,\)"):
        kl_loss(LOG_PROBS, torch.ones(3))


def completion(*ids: int) -> Completion:
    return Completion("", (1,), ids, (-1.0,) * len(ids))


def node(
    turn: int,
    rewards: tuple[float, ...],
    children: tuple[int | None, ...],
    turns_credited: tuple[int, ...],
    first: int,
) -> Node:
    """A node of two agents, crossed, whose completions are `first`, `first + 1` and so on."""
    return Node(
        0,
        turn,
        {"a": "p", "b": "p"},
        {
            "a": (completion(first), completion(first + 1)),
            "b": (completion(first + 2), completion(first + 3, first)),
        },
        ((0, 0), (0, 1), (1, 0), (1, 1)),
        {"a": rewards, "b": rewards},
        tuple(child is None for child in children),
        children,
        turns_credited,
    )


def test_an_agent_pays_for_its_own_completions_at_its_own_turn() -> None:
    root = node(1, (1.0, 2.0, 3.0, 4.0), (0, None, None, None), (1, 1, 1, 2), 10)
    leaf = node(2, (5.0, 6.0, 7.0, 8.0), (None,) * 4, (1,) * 4, 20)
    rollout = Rollout(("a", "b"), ((root,), (leaf,)))
    kl = {"a": {completion(10): 1.0, completion(11): 2.0, completion(20): 4.0, completion(21): 8.0}}
    costs = kl_costs(kl, 0.1)
    returns = rollout_returns(rollout, 0.5, costs)
    assert returns[1][0]["a"].tolist() == pytest.approx([4.6, 5.6, 6.2, 7.2])
    # 1 - 0.1 + 0.5 * 5.9; 2 - 0.1; 3 - 0.2; 4 * (1 + 0.5) - 0.2, which is paid once
    assert returns[0][0]["a"].tolist() == pytest.approx([3.85, 1.9, 2.8, 5.8])
    assert returns[0][0]["b"].tolist() == rollout_returns(rollout, 0.5)[0][0]["b"].tolist()
    assert mean_token_kl(rollout, kl) == pytest.approx(15 / 4)


def team(**generation: float | None) -> dict:
    return {name: tiny_agent(i, **generation) for i, name in enumerate(NAMES)}


def move(agents: dict, scale: float = 0.03) -> None:
    """Move the weights, so that policies are no longer their references."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for model in {id(agent.model): agent.model for agent in agents.values()}.values():
            for weight in model.parameters():
                weight.add_(scale * torch.randn(weight.shape, generator=generator))


def any_spread(first: list[str], second: list[str]) -> list[float]:
    return [
        (3 * sum(map(ord, a)) + 5 * sum(map(ord, b))) % 101 / 100
        for a, b in zip(first, second, strict=True)
    ]


def no_spread(first: list[str], second: list[str]) -> list[float]:
    return [1.0] * len(first)


def assert_equals_the_reference(agents: dict, num_turns: int, reward_func, **settings) -> dict:
    env = make("story-length-ratio-v0", num_turns=num_turns, reward_func=reward_func)
    config = MAGRPOConfig(
        max_grad_norm=None,
        agent_learning_rate=1e-12,
        num_generations=2,
        max_new_tokens=3,
        **QUIET,
        **settings,
    )
    references = {name: copy.deepcopy(agent.model) for name, agent in agents.items()}
    trainer = MAGRPOTrainer(env, agents, config)
    move(agents)
    rollout = trainer.collect([0, 4] if num_turns == 1 else [0])
    models = {name: agent.model for name, agent in agents.items()}
    expected = magrpo_loss(
        rollout,
        models,
        GenerationConfig(**config.generation),
        loss_type=config.loss_type,
        kl=KL(config.kl_coef, config.kl_estimator, config.kl_in, references),
    )
    return updated_as_expected(trainer, rollout, models, expected)


@pytest.mark.parametrize("loss_type", ["sequence_sum", "sequence_mean", "token_mean", "constant"])
@pytest.mark.parametrize("num_turns", [1, 2])
@pytest.mark.parametrize("kl_in", ["loss", "return"])
@pytest.mark.parametrize("kl_estimator", ["k1", "k2", "k3"])
def test_loss_and_gradients_equal_the_slow_reference(
    kl_estimator: str, kl_in: str, num_turns: int, loss_type: str
) -> None:
    assert_equals_the_reference(
        team(),
        num_turns,
        any_spread,
        kl_coef=0.3,
        kl_estimator=kl_estimator,
        kl_in=kl_in,
        loss_type=loss_type,
    )


@pytest.mark.parametrize("kl_in", ["loss", "return"])
@pytest.mark.parametrize(
    "case",
    {
        "truncated": {"temperature": 0.7, "top_k": 6, "top_p": 0.8},
        "crossed": {"joint_mode": "cross"},
        "small micro-batches": {"max_tokens_per_batch": 100},
        "checkpointed": {"gradient_checkpointing": True},
        "shared": {},
    }.items(),
    ids=lambda case: case[0],
)
def test_it_goes_with_the_other_settings(case: tuple[str, dict], kl_in: str) -> None:
    agents = dict.fromkeys(NAMES, tiny_agent()) if case[0] == "shared" else team()
    settings = {"kl_coef": 0.3, "kl_in": kl_in, **case[1]}
    assert_equals_the_reference(agents, 2, any_spread, **settings)


def test_a_token_that_the_reference_does_not_keep_is_counted_in() -> None:
    generation = GenerationConfig(max_new_tokens=6, top_k=6)
    agents = {"agent_0": tiny_agent(max_new_tokens=6, top_k=6)}
    reference = ReferencePolicy(trainable_policies(agents)[0])
    slow = copy.deepcopy(agents["agent_0"].model)
    move(agents)
    (group,) = agents["agent_0"].act(["a prompt"], 8, seed=0)
    batch = collate([(Sample("agent_0", own, 1.0, 1.0),) for own in group])
    found = reference.log_probs(batch, generation)
    expected = [torch.stack(token_log_probs(slow, own, generation)) for own in group]
    torch.testing.assert_close(found[batch.mask], torch.cat(expected), rtol=1e-5, atol=1e-5)
    logits = slow(input_ids=torch.tensor([group[0].prompt_ids])).logits[0, -1]
    kept = distribution(logits, generation)
    assert any(kept[own.completion_ids[0]] == -math.inf for own in group)
    assert not found.requires_grad


@pytest.mark.parametrize("kl_in", ["loss", "return"])
def test_groups_without_spread_are_trained_on_their_kl(kl_in: str) -> None:
    settings = {"kl_coef": 0.3, "kl_in": kl_in}
    metrics = assert_equals_the_reference(team(), 2, no_spread, **settings)
    # in the return the KL is what differs
    assert metrics["train/frac_zero_std_groups"] == (1.0 if kl_in == "loss" else 0.0)
    assert metrics["train/num_optimizer_steps"] == 2


@pytest.mark.parametrize("kl_in", ["loss", "return"])
def test_the_metric_is_the_mean_over_tokens_and_zero_at_the_start(kl_in: str) -> None:
    agents = team(max_new_tokens=6)
    references = {name: copy.deepcopy(agent.model) for name, agent in agents.items()}
    env = make("story-length-ratio-v0", num_turns=2, reward_func=any_spread)
    config = MAGRPOConfig(
        kl_coef=0.1, kl_in=kl_in, num_generations=2, agent_learning_rate=1e-12, **QUIET
    )
    trainer = MAGRPOTrainer(env, agents, config)
    assert trainer.update(trainer.collect([0]))["train/kl"] == pytest.approx(0.0, abs=1e-6)
    move(agents)
    rollout = trainer.collect([0])
    kl = KL(1.0, "k3", kl_in, references)
    estimates = [
        value.item()
        for one, name in itertools.product(rollout.nodes(), NAMES)
        for own in one.completions[name]
        for value in kl.of(
            name, own, [torch.tensor(x) for x in own.log_probs], agents[name].generation
        )
    ]
    metrics = trainer.update(rollout)
    assert metrics["train/kl"] == pytest.approx(sum(estimates) / len(estimates), rel=1e-4)
    # of the env's rewards: what a penalty takes is no one's reward
    returns = rollout_returns(rollout, 1.0)
    assert metrics["turn_1/expected_return"] == pytest.approx(
        sum(float(own.mean()) for own in returns[0][0].values()) / 2
    )


def test_without_a_penalty_there_is_no_reference() -> None:
    trainer = MAGRPOTrainer(matching_env(), dict.fromkeys(NAMES, letter_agent()))
    (updater,) = trainer.updaters
    assert updater._reference is None
    rollout = trainer.collect([0])
    assert "train/kl" not in trainer.update(rollout)
    with pytest.raises(ValueError, match="kl_coef above 0"):
        updater.sampled_kl(rollout)


def test_a_reference_has_no_dropout_and_leaves_the_policy_as_it_is() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = GPT2Config(n_embd=32, n_layer=1, n_head=2, n_positions=32, vocab_size=50)
        model = AutoModelForCausalLM.from_config(config).train()
    reference = ReferencePolicy(Policy("a", model, {}))
    assert model.training
    assert all(weight.requires_grad for weight in model.parameters())
    batch = collate([(Sample("a", completion(3, 4, 5), 1.0, 1.0),)])
    with torch.no_grad():
        expected = completion_log_probs(model.eval(), batch, GenerationConfig())
    assert torch.equal(reference.log_probs(batch, GenerationConfig()), expected)


@pytest.mark.parametrize("settings", [{"kl_in": "loss"}, {"kl_in": "return", "kl_estimator": "k1"}])
def test_a_penalty_holds_the_policy_near_its_reference(settings: dict) -> None:
    kept = {}
    for kl_coef in (1e-6, 3.0):
        agents = {name: letter_agent(i) for i, name in enumerate(NAMES)}
        config = MAGRPOConfig(
            num_train_epochs=15,
            rollout_batch_size=4,
            num_generations=8,
            agent_learning_rate=0.02,
            advantage_normalization=False,
            kl_coef=kl_coef,
            **settings,
            **QUIET,
        )
        trainer = MAGRPOTrainer(matching_env(), agents, config)
        trainer.train()
        kept[kl_coef] = trainer.update(trainer.collect([0, 1, 2, 3] * 8))["train/kl"]
    assert kept[1e-6] > 0.3
    assert abs(kept[3.0]) < 0.1


def test_partners_that_are_not_trained_have_no_kl() -> None:
    agents = {"agent_0": tiny_agent(max_new_tokens=4), "agent_1": RandomAgent(["", "a", "bc"])}
    config = MAGRPOConfig(kl_coef=0.1, kl_in="return", rollout_batch_size=10, **QUIET)
    trainer = MAGRPOTrainer(make("story-length-ratio-v0", num_turns=2), agents, config)
    rollout = trainer.collect([0, 1])
    (updater,) = trainer.updaters
    assert list(updater.sampled_kl(rollout)) == ["agent_0"]
    assert math.isfinite(trainer.update(rollout)["train/kl"])


def test_a_kl_that_is_not_finite_stops_the_run() -> None:
    agents = team(max_new_tokens=4)
    config = MAGRPOConfig(kl_coef=0.1, kl_in="return", **QUIET)
    trainer = MAGRPOTrainer(make("story-length-ratio-v0"), agents, config)
    rollout = trainer.collect([0])
    with torch.no_grad():
        trainer.updaters[0]._reference._model.lm_head.weight[3, 3] = math.nan
    with pytest.raises(FloatingPointError, match="finite KL to the reference"):
        trainer.update(rollout)


@pytest.mark.parametrize("settings", [{"kl_in": "return"}, {"kl_estimator": "k1"}])
def test_settings_of_no_kl_are_refused(settings: dict) -> None:
    with pytest.raises(ValueError, match="kl_coef above 0"):
        MAGRPOConfig(**settings)
