"""Losses and gradients of policies and critics are those of the slow reference."""

import copy
from typing import Any

import pytest
import torch
from actor_critic_reference import Slow
from reference import KL
from tiny import byte_tokenizer, caught_gradients, tiny_agent
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from motet.agents import Agent, GenerationConfig
from motet.algos import ActorCriticConfig, ActorCriticTrainer, Node
from motet.algos.actor_critics.critic_update import CriticUpdater
from motet.algos.actor_critics.shared_critic import SharedCritic
from motet.envs import make

NAMES = ("agent_0", "agent_1")


def any_spread(first: list[str], second: list[str]) -> list[float]:
    """Rewards that differ between almost any two joint actions."""
    return [
        (3 * sum(map(ord, a)) + 5 * sum(map(ord, b))) % 101 / 100
        for a, b in zip(first, second, strict=True)
    ]


def own_spread(first: list[str], second: list[str]) -> dict[str, list[float]]:
    """Rewards of each agent's own."""
    return {"agent_0": any_spread(first, second), "agent_1": any_spread(second, first)}


def separate() -> dict[str, Agent]:
    return {name: tiny_agent(i) for i, name in enumerate(NAMES)}


def one_policy() -> dict[str, Agent]:
    return dict.fromkeys(NAMES, tiny_agent())


def remembering() -> dict[str, Agent]:
    from tiny import tiny_llama

    from motet.agents import LMAgent

    return {
        name: LMAgent(tiny_llama(i), byte_tokenizer(), history="append", seed=i)
        for i, name in enumerate(NAMES)
    }


def capped() -> dict[str, Agent]:
    """Models whose output head is no plain matrix: the logits are capped after it."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    from motet.agents import LMAgent

    config = Gemma2Config(
        vocab_size=257, hidden_size=16, intermediate_size=16, num_hidden_layers=1, head_dim=8,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=512, eos_token_id=0,
        pad_token_id=0, bos_token_id=None, initializer_range=0.2,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = Gemma2ForCausalLM(config).eval()
    return dict.fromkeys(NAMES, LMAgent(model, byte_tokenizer(), seed=0))


def encoder(vocabulary: int = 257) -> BertModel:
    config = BertConfig(
        vocab_size=vocabulary, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=512, initializer_range=0.2,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return BertModel(config, add_pooling_layer=False).eval()


def letters_tokenizer() -> PreTrainedTokenizerFast:
    """Other tokens than the agents': one for each of some letters."""
    vocabulary = {letter: i for i, letter in enumerate("?etaoinshr []\n>_01")}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?", pad_token="?")


GAE = {"gae_lambda": 0.7, "discount": 0.5}
TWO = {"num_turns": 2, "num_generations": 2, **GAE}
CASES: dict[str, dict[str, Any]] = {
    "one turn": {"num_generations": 3, "rows": [0, 4]},
    "one generation": {"num_turns": 3, "num_generations": 1, **GAE},
    "two turns": TWO,
    "crossed": {**TWO, "joint_mode": "cross"},
    "one policy": {**TWO, "team": one_policy},
    "not standardised": {**TWO, "advantage_normalization": False},
    "tokens": {**TWO, "token_level": True, "value_head_hidden_size": 8},
    "normalised values": {**TWO, "normalize_values": True, "clip_range": 0.2},
    "small batches": {**TWO, "max_tokens_per_batch": 150, "token_level": True},
    "an encoder": {**TWO, "critic_model": encoder, "critic_tokenizer": byte_tokenizer},
    "an encoder with other tokens": {
        **TWO, "critic_model": lambda: encoder(18), "critic_tokenizer": letters_tokenizer,
    },
    "shared": {**TWO, "critic": "shared"},
    "shared, one policy, crossed": {
        **TWO, "critic": "shared", "team": one_policy, "joint_mode": "cross",
    },
    "shared, tokens": {
        **TWO, "critic": "shared", "token_level": True, "normalize_values": True,
        "value_head_hidden_size": 8,
    },
    "shared, history": {**TWO, "critic": "shared", "team": remembering, "clip_range": 0.2},
    "shared, KL": {**TWO, "critic": "shared", "kl_coef": 0.3, "kl_in": "return"},
    "shared, checkpointed": {**TWO, "critic": "shared", "gradient_checkpointing": True},
    "shared, capped logits": {**TWO, "critic": "shared", "team": capped},
    "checkpointed": {**TWO, "gradient_checkpointing": True},
    "central": {**TWO, "central": True, "reward_func": own_spread},
    "central, tokens": {**TWO, "central": True, "token_level": True, "normalize_values": True},
    "central, an encoder with other tokens": {
        **TWO, "central": True, "critic_model": lambda: encoder(18),
        "critic_tokenizer": letters_tokenizer,
    },
}  # fmt: skip


def joint_ids(node: Node, tokenizer: PreTrainedTokenizerFast) -> tuple[int, ...]:
    """What a central critic reads of a `TextEnv`: its state, which ends in all prompts."""
    for prompt in node.observations.values():
        assert node.state.count(f"> {prompt}") >= 1
    return tuple(tokenizer("[state]\n" + node.state)["input_ids"])


def slow_of(
    trainer: ActorCriticTrainer, rollout: Any, team: dict[str, Any], began: dict[str, nn.Module]
) -> Slow:
    """The reference on copies of all weights; `began` are the policies as training began."""
    twins: dict[int, nn.Module] = {}

    def twin(module: nn.Module) -> Any:
        if id(module) not in twins:
            twins[id(module)] = copy.deepcopy(module)
        return twins[id(module)]

    trunks, heads, column, tokenizers = {}, {}, {}, {}
    for critic in trainer.critics:
        for index, name in enumerate(critic.head.agents):
            shared = isinstance(critic, SharedCritic)
            trunks[name] = twin(team[name].model).model if shared else twin(critic.critic).trunk
            heads[name] = twin(critic.head) if shared else twin(critic.critic).head
            column[name] = index
            tokenizers[name] = team[name].tokenizer if shared else critic.critic.tokenizer

    def read(node: Node, agent: str) -> tuple[int, ...]:
        tokenizer = tokenizers[agent]
        if trainer.with_state:
            return joint_ids(node, tokenizer)
        if tokenizer.vocab_size == team[agent].tokenizer.vocab_size:
            return node.completions[agent][0].prompt_ids
        return tuple(tokenizer(f"[{agent}]\n{node.observations[agent]}")["input_ids"])

    config = trainer.config
    models = {name: twin(agent.model) for name, agent in team.items()}
    kl = KL(config.kl_coef, config.kl_estimator, config.kl_in, began)
    generation = GenerationConfig(**config.generation)

    def cost(agent: str, completion: Any) -> float:
        if not config.kl_coef:
            return 0.0
        sampled = [torch.tensor(value) for value in completion.log_probs]
        return config.kl_coef * float(sum(kl.of(agent, completion, sampled, generation)))

    return Slow(rollout, models, generation, config, read, trunks, heads, column, cost)


def caught_by(optimizer: torch.optim.Optimizer, module: nn.Module) -> dict[str, Tensor]:
    """A module's gradients by name, filled in by a step."""
    caught: dict[str, Tensor] = {}

    def catch(*_: object) -> None:
        for name, weight in module.named_parameters():
            if weight.grad is not None:
                caught[name] = weight.grad.clone()

    optimizer.register_step_pre_hook(catch)
    return caught


def assert_equal(caught: dict[str, Tensor], slow: nn.Module) -> None:
    largest = max(float(gradient.norm()) for gradient in caught.values())
    assert largest > 1e-3
    for name, weight in slow.named_parameters():
        gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
        error = float((caught.get(name, torch.zeros(())) - gradient).norm())
        # some gradients are zero but for rounding: the bias of an encoder's keys
        assert error <= 1e-5 * float(gradient.norm()) + 1e-6 * largest, (name, gradient.norm())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_losses_and_gradients_equal_the_slow_reference(case: dict[str, Any]) -> None:
    options = {"num_turns": 1, "team": separate, "max_new_tokens": 4, **case}
    reward_func = options.pop("reward_func", any_spread)
    env = make("story-length-ratio-v0", num_turns=options.pop("num_turns"), reward_func=reward_func)
    team = options.pop("team")()
    given = {
        "central": options.pop("central", False),
        "critic": options.pop("critic_model", lambda: None)(),
        "critic_tokenizer": options.pop("critic_tokenizer", lambda: None)(),
    }
    rows = options.pop("rows", [0])
    config = ActorCriticConfig(
        max_grad_norm=None, agent_learning_rate=1e-12, critic_learning_rate=1e-12,
        progress_bar=False, **options,
    )  # fmt: skip
    trainer = ActorCriticTrainer(env, team, config, **given)
    began = {name: copy.deepcopy(agent.model) for name, agent in team.items()}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        for critic in trainer.critics:  # else all values are 0
            nn.init.normal_(critic.head.output.weight, std=0.3)
            nn.init.normal_(critic.head.output.bias, std=0.3)
    if config.kl_coef:  # else the policy is the reference
        for updater in trainer.updaters:
            updater.policy.model.lm_head.weight.data *= 1.1
    rollout = trainer.collect(rows)

    slow = slow_of(trainer, rollout, team, began)
    policy, value = slow.losses()
    shared = config.critic == "shared"
    total = sum(value.values(), torch.zeros(()))
    (policy + config.vf_coef * total).backward()

    policies = caught_gradients(trainer)
    critics = {}
    for critic, updater in zip(trainer.critics, trainer.updaters, strict=False):
        own = critic.head if shared else critic.critic
        optimizer = updater.optimizer if shared else critic.optimizer
        critics[critic.name] = caught_by(optimizer, own)
    metrics = trainer.update(rollout)

    num_critics = 1 if given["central"] else len(trainer.updaters)
    assert metrics["train/num_critic_steps"] == (0 if shared else num_critics)
    expected = policy + config.vf_coef * total if shared else policy
    loss = metrics["train/loss"] * metrics["train/num_optimizer_steps"]
    assert loss == pytest.approx(expected.item(), abs=1e-5 * (slow.size + expected.abs().item()))
    assert metrics["train/value_loss"] * num_critics == pytest.approx(total.item(), rel=1e-5)
    for name in team:
        assert_equal(policies[name], slow.models[name])
    for critic in trainer.critics:
        name = critic.head.agents[0]
        assert_equal(critics[critic.name], _module(slow, critic, name))


def _module(slow: Slow, critic: CriticUpdater | SharedCritic, name: str) -> nn.Module:
    if isinstance(critic, SharedCritic):
        return slow.heads[name]
    return nn.ModuleDict({"trunk": slow.trunks[name], "head": slow.heads[name]})
