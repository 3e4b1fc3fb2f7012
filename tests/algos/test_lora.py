"""MAGRPO with adapters: exact, learning, and nothing moves but the adapter's own weights."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel
from reference import KL, completion_log_prob, magrpo_loss, with_lora
from tiny import (
    byte_tokenizer,
    caught_gradients,
    letter_agent,
    matching_env,
    tiny_agent,
    tiny_llama,
)

from motet.agents import Agent, GenerationConfig, LMAgent
from motet.agents.adapters import activated, adapter_parameters, without_adapters
from motet.algos import MAGRPOConfig, MAGRPOTrainer
from motet.algos.team import trainable_policies, with_sampling
from motet.algos.updates.batch import Sample, collate
from motet.algos.updates.log_probs import completion_log_probs
from motet.algos.updates.packing import shares_prompts_exactly
from motet.envs import make

NAMES = ("agent_0", "agent_1")
QUIET = {"progress_bar": False}
Factors = dict[str, tuple[torch.Tensor, torch.Tensor]]


def settings(**changes: object) -> LoraConfig:
    return LoraConfig(
        **{"r": 3, "lora_alpha": 6, "target_modules": ["q_proj", "v_proj"], **changes}
    )


def perturb(agent: LMAgent, seed: int) -> LMAgent:
    """Give B a value: it begins at zero, and A has no gradient then."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in adapter_parameters(agent.model, agent.adapter):
            weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
    return agent


def two_adapters(**changes: object) -> dict[str, Agent]:
    base = tiny_agent()
    return {
        name: perturb(base.with_adapter(name, settings(**changes)), i)
        for i, name in enumerate(NAMES)
    }


def one_adapter() -> dict[str, Agent]:
    return dict.fromkeys(NAMES, perturb(tiny_agent().with_adapter("both", settings()), 0))


def two_views_of_one_adapter() -> dict[str, Agent]:
    agent = perturb(tiny_agent().with_adapter("both", settings()), 0)
    return {"agent_0": agent, "agent_1": LMAgent(agent.model, agent.tokenizer, adapter="both")}


def beside_full_weights() -> dict[str, Agent]:
    return {
        "agent_0": perturb(tiny_agent(0).with_adapter("a", settings()), 0),
        "agent_1": tiny_agent(1),
    }


def head_and_all() -> dict[str, Agent]:
    base = tiny_agent()
    head = settings(target_modules=["lm_head", "q_proj"])
    # scaled by more, logits are so large that float32 alone, the reference's too, is off by 1e-5
    every = settings(target_modules="all-linear", use_rslora=True, r=2, lora_alpha=2)
    return {
        "agent_0": perturb(base.with_adapter("head", head), 0),
        "agent_1": perturb(base.with_adapter("all", every), 1),
    }


def factors_of(agent: LMAgent) -> Factors:
    """Copies of A and B by layer, as leaves with a gradient."""
    weights = dict(agent.model.named_parameters())
    ends = {kind: f".lora_{kind}.{agent.adapter}.weight" for kind in "AB"}
    layers = [name.removesuffix(ends["A"]) for name in weights if name.endswith(ends["A"])]
    return {
        layer: tuple(weights[layer + ends[kind]].detach().clone().requires_grad_() for kind in "AB")
        for layer in layers
    }


def slow_models(
    team: dict[str, LMAgent], plain: dict[str, torch.nn.Module], scaling: dict[str, float]
) -> tuple[dict[str, Callable[..., Any]], dict[str, Factors]]:
    """Models of the definition by agent, and the factors of those with an adapter."""
    factors: dict[tuple[int, str | None], Factors] = {}
    models, own = {}, {}
    for name, agent in team.items():
        if agent.adapter is None:
            models[name] = plain[name]
            continue
        key = id(agent.model), agent.adapter
        own[name] = factors.setdefault(key, factors_of(agent))
        models[name] = with_lora(plain[name], own[name], scaling[name])
    return models, own


CASES = {
    "one turn": {},
    "two turns": {"num_turns": 2},
    "crossed": {"joint_mode": "cross", "num_generations": 2, "num_turns": 2, "max_new_tokens": 8},
    "truncated sampling": {"temperature": 0.7, "top_k": 60, "top_p": 0.9},
    "one shared adapter": {"team": one_adapter, "num_turns": 2},
    "two views of one adapter": {"team": two_views_of_one_adapter},
    "beside full weights": {"team": beside_full_weights, "num_turns": 2},
    "the head, and all layers": {"team": head_and_all},
    "small micro-batches": {"num_turns": 2, "max_tokens_per_batch": 200},
    "near the base": {"num_turns": 2, "kl_coef": 0.3},
    "near the base, in the return": {"num_turns": 2, "kl_coef": 0.3, "kl_in": "return"},
    "checkpointed": {"num_turns": 2, "gradient_checkpointing": True},
}
SCALING = {head_and_all: {"agent_0": 2.0, "agent_1": 2 / 2**0.5}}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_loss_and_gradients_equal_the_slow_reference(case: dict) -> None:
    options = {"num_turns": 1, "num_generations": 3, "max_new_tokens": 12, **case}
    make_team = options.pop("team", two_adapters)
    team = make_team()
    plain = {"agent_0": tiny_llama(0), "agent_1": tiny_llama(0)}
    if make_team is beside_full_weights:
        plain["agent_1"] = copy.deepcopy(team["agent_1"].model)
    env = make(
        "story-length-ratio-v0",
        num_turns=options.pop("num_turns"),
        reward_func=lambda first, second: [
            (3 * sum(map(ord, a)) + 5 * sum(map(ord, b))) % 101 / 100
            for a, b in zip(first, second, strict=True)
        ],
    )
    config = MAGRPOConfig(max_grad_norm=None, agent_learning_rate=1e-12, **QUIET, **options)
    trainer = MAGRPOTrainer(env, team, config)
    rollout = trainer.collect([0, 4])
    scaling = SCALING.get(make_team, dict.fromkeys(NAMES, 2.0))
    models, factors = slow_models(team, plain, scaling)
    base = dict.fromkeys(NAMES, tiny_llama(0))  # what adapters are held near
    kl = KL(config.kl_coef, config.kl_estimator, config.kl_in, base) if config.kl_coef else None
    expected = magrpo_loss(rollout, models, GenerationConfig(**config.generation), kl=kl)
    expected.backward()

    caught = caught_gradients(trainer)
    metrics = trainer.update(rollout)
    steps = metrics["train/num_optimizer_steps"]
    assert steps == len({(id(agent.model), agent.adapter) for agent in team.values()})
    assert metrics["train/loss"] * steps == pytest.approx(expected.item(), rel=1e-5, abs=1e-5)
    compared = 0
    for name, agent in team.items():
        gradients = caught[name]
        pairs = [
            (gradients[f"{layer}.lora_{kind}.{agent.adapter}.weight"], weight)
            for layer, both in factors.get(name, {}).items()
            for kind, weight in zip("AB", both, strict=True)
        ]
        if agent.adapter is None:
            pairs = [(gradients[key], weight) for key, weight in plain[name].named_parameters()]
        else:
            assert len(pairs) == len(adapter_parameters(agent.model, agent.adapter))
        for ours, slow in pairs:
            error = float((ours - slow.grad).norm())
            assert float(slow.grad.norm()) > 1e-4
            assert error <= 1e-5 * float(slow.grad.norm()) + 1e-7
            compared += 1
    assert compared >= 8


def test_nothing_moves_but_the_adapters_of_the_team() -> None:
    base = tiny_agent(max_new_tokens=8)
    trained, frozen, outside = (
        perturb(base.with_adapter(name, settings()), i)
        for i, name in enumerate(("trained", "frozen", "outside"))
    )
    frozen.frozen = True
    before = {name: weight.clone() for name, weight in base.model.named_parameters()}
    config = MAGRPOConfig(rollout_batch_size=5, agent_learning_rate=1e-2, **QUIET)
    trainer = MAGRPOTrainer(
        make("story-length-ratio-v0"), {"agent_0": trained, "agent_1": frozen}, config
    )
    caught = caught_gradients(trainer)
    trainer.train()
    for name, weight in base.model.named_parameters():
        own = ".trained." in name
        assert torch.equal(weight, before[name]) != own, name
        assert (name in caught["agent_0"]) == own, name
        assert weight.requires_grad == ("lora_" in name)
    versions = [a.policy_version for a in (trained, frozen, outside, base)]
    assert versions == [2, 0, 0, 0]


def test_each_optimizer_holds_its_own_adapter() -> None:
    team = two_adapters()
    trainer = MAGRPOTrainer(make("story-length-ratio-v0"), team, MAGRPOConfig(**QUIET))
    held = [
        {id(w) for group in updater.optimizer.param_groups for w in group["params"]}
        for updater in trainer.updaters
    ]
    own = [{id(w) for w in adapter_parameters(a.model, a.adapter)} for a in team.values()]
    assert held == own
    assert not held[0] & held[1]


def test_the_gradient_norm_is_clipped_by_adapter() -> None:
    team = two_adapters()
    config = MAGRPOConfig(max_grad_norm=1e-3, num_generations=3, max_new_tokens=8, **QUIET)
    trainer = MAGRPOTrainer(make("story-length-ratio-v0"), team, config)
    caught = caught_gradients(trainer)
    trainer.update(trainer.collect([0, 1]))
    for name in team:
        gradients = [gradient.norm() for gradient in caught[name].values()]
        assert float(torch.stack(gradients).norm()) == pytest.approx(1e-3, rel=1e-2)


@pytest.mark.parametrize("shared", [False, True], ids=["an adapter each", "one adapter"])
def test_it_learns_to_say_the_same(shared: bool) -> None:
    base = letter_agent()
    # the head as well: the base's is so small that nothing before it could make it sure
    layers = ["q_proj", "v_proj", "down_proj", "lm_head"]
    first = base.with_adapter("first", LoraConfig(r=4, target_modules=layers))
    second = first if shared else first.with_adapter("second")
    before = {name: w.clone() for name, w in base.model.named_parameters() if "lora_" not in name}
    env = matching_env()
    config = MAGRPOConfig(
        num_train_epochs=60,
        rollout_batch_size=4,
        num_generations=8,
        agent_learning_rate=0.03,
        **QUIET,
    )
    trainer = MAGRPOTrainer(env, {"agent_0": first, "agent_1": second}, config)
    start = trainer.evaluate(num_samples=50).metrics["reward_mean"]
    trainer.train()
    assert start < 0.5
    assert trainer.evaluate(num_samples=50).metrics["reward_mean"] > 0.9
    weights = dict(base.model.named_parameters())
    assert all(torch.equal(weights[name], weight) for name, weight in before.items())


def test_kept_log_probs_equal_those_of_the_update_while_agents_alternate() -> None:
    team = with_sampling(two_adapters(), temperature=0.7, top_k=60, top_p=0.9)
    policies = trainable_policies(team)
    assert [policy.adapter for policy in policies] == list(NAMES)
    for seed in range(2):
        completions = {
            name: [c for group in agent.act(["a", "a longer prompt"], 4, seed=seed) for c in group]
            for name, agent in team.items()
        }
        assert completions["agent_0"] != completions["agent_1"]
        for policy in policies:
            own = completions[policy.name]
            batch = collate([(Sample(policy.name, c, 1.0, 1.0),) for c in own])
            generation = team[policy.name].generation
            with policy.activated():
                log_probs = completion_log_probs(policy.model, batch, generation)
            torch.testing.assert_close(
                log_probs.detach(), batch.old_log_probs, rtol=1e-4, atol=1e-5
            )


def test_the_base_is_at_hand_as_a_reference() -> None:
    agent = two_adapters()["agent_1"]
    (completion,) = agent.act(["Rain"], seed=0)[0]
    batch = collate([(Sample("agent_1", completion, 1.0, 1.0),)])
    with torch.no_grad(), activated(agent.model, agent.adapter), without_adapters(agent.model):
        log_probs = completion_log_probs(agent.model, batch, agent.generation)
        expected = completion_log_prob(tiny_llama(), completion, agent.generation)
    assert float(log_probs.sum()) == pytest.approx(float(expected), rel=1e-5, abs=1e-4)


def test_siblings_share_their_prompt_with_adapters_too() -> None:
    team = head_and_all()
    for agent in team.values():
        with activated(agent.model, agent.adapter):
            assert shares_prompts_exactly(agent.model)
    config = MAGRPOConfig(num_generations=4, max_new_tokens=4, **QUIET)
    trainer = MAGRPOTrainer(make("story-length-ratio-v0"), team, config)
    rollout = trainer.collect([0])
    beginnings = {
        (name, (own.prompt_ids + own.completion_ids)[:end])
        for name, group in completions(rollout).items()
        for own in group
        for end in range(1, len(own.prompt_ids + own.completion_ids))
    }
    assert trainer.update(rollout)["train/tokens_computed"] == len(beginnings)


def completions(rollout: Any) -> dict:
    (node,) = rollout.levels[0]
    return node.completions


def test_models_are_saved_by_agent_and_loaded_by_peft(tmp_path: Path) -> None:
    base = tiny_agent(max_new_tokens=4)
    team = {
        "agent_0": base.with_adapter("x", settings()),
        "agent_1": base.with_adapter("y", settings(r=2)),
    }
    config = MAGRPOConfig(rollout_batch_size=5, agent_learning_rate=1e-2, **QUIET)
    trainer = MAGRPOTrainer(make("story-length-ratio-v0"), team, config)
    trainer.train()
    trainer.save_model(tmp_path)
    for name, agent in team.items():
        loaded = PeftModel.from_pretrained(tiny_llama(), tmp_path / name)
        theirs = adapter_parameters(loaded.get_base_model(), "default")
        ours = adapter_parameters(agent.model, agent.adapter)
        assert any(bool(w.any()) for w in ours)
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_peft_models_are_trained_from_parts() -> None:
    agent = tiny_agent()
    model = PeftModel(agent.model, settings())
    trainer = MAGRPOTrainer(
        agents=[model, model],
        tokenizer=byte_tokenizer(),
        reward_func=lambda first, second: [float(sum(map(ord, a))) for a in first],
        train_dataset=[{"prompt": "p"}],
        args=MAGRPOConfig(max_new_tokens=4, **QUIET),
    )
    assert trainer.agents["agent_0"] is trainer.agents["agent_1"]
    trainer.train()
    weights = dict(model.named_parameters())
    assert any("lora_B" in name and bool(weight.any()) for name, weight in weights.items())


def test_the_base_of_adapters_is_not_trained() -> None:
    env, base = make("story-length-ratio-v0"), tiny_agent()
    earlier = MAGRPOTrainer(env, dict.fromkeys(NAMES, base), MAGRPOConfig(**QUIET))
    rollout = earlier.collect([0])
    agent = base.with_adapter("a", settings())
    with pytest.raises(ValueError, match=r"an adapter for agent_0, or frozen=True, .* \['a'\]"):
        MAGRPOTrainer(env, {"agent_0": base, "agent_1": agent})
    with pytest.raises(ValueError, match="an adapter for agent_0"):
        MAGRPOTrainer(env, dict.fromkeys(NAMES, base))
    with pytest.raises(ValueError, match="an adapter was added to its model"):
        earlier.update(rollout)
    base.frozen = True
    trainer = MAGRPOTrainer(env, {"agent_0": base, "agent_1": agent}, MAGRPOConfig(**QUIET))
    agent.model.get_submodule("model.layers.0.self_attn.q_proj").set_adapter([])
    with pytest.raises(ValueError, match="set_adapter was called"):
        trainer.update(rollout)


def test_agents_with_one_adapter_are_all_frozen_or_none() -> None:
    env = make("story-length-ratio-v0")
    team = two_views_of_one_adapter()
    team["agent_1"].frozen = True
    with pytest.raises(ValueError, match="all agents with one model to be frozen or none"):
        MAGRPOTrainer(env, team)
    for agent in (team := two_adapters()).values():
        agent.frozen = True
    with pytest.raises(ValueError, match="nothing to train"):
        MAGRPOTrainer(env, team)
