"""MADPO: equal to the joint loss written out, learning, loud."""

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from drawn_rollouts import REPEATABLE, rollouts, shapes
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig
from reference import completion_log_prob, node_return
from tiny import (
    byte_tokenizer,
    caught_gradients,
    letter_agent,
    matching_env,
    tiny_agent,
    tiny_llama,
)
from torch.nn.functional import logsigmoid

from motet.agents import Agent, Completion, FixedAgent, GenerationConfig, LMAgent
from motet.agents.adapters import adapter_parameters
from motet.algos import MADPOConfig, MADPOTrainer, Rollout, make
from motet.envs import TextEnv

NAMES = ("agent_0", "agent_1", "agent_2")
QUIET = {"progress_bar": False}

Pair = tuple[int, tuple[str, ...], dict[str, Completion], dict[str, Completion]]


# --- the slow truth -------------------------------------------------------------------------------


def slow_pairs(rollout: Rollout, sides: Sequence[tuple[str, ...]], discount: float) -> list[Pair]:
    """Turn, team, chosen and rejected: the best with the worst, and so on, by recursion."""
    found: list[Pair] = []
    for level, nodes in enumerate(rollout.levels):
        for node in nodes:
            for side in sides:
                if side[0] not in node.rewards:
                    continue
                worth = [
                    node_return(rollout, level, node, side[0], j, discount)
                    for j in range(len(node.joint_actions))
                ]
                order = sorted(range(len(worth)), key=lambda j, worth=worth: -worth[j])
                said = [
                    {
                        name: group[k]
                        for (name, group), k in zip(node.completions.items(), joint, strict=True)
                    }
                    for joint in node.joint_actions
                ]
                while len(order) > 1:
                    best, worst = order.pop(0), order.pop()
                    if worth[best] - worth[worst] > 1e-12:
                        found.append((level, side, said[best], said[worst]))
    return found


def slow_loss(
    pairs: Sequence[Pair],
    team: Mapping[str, LMAgent],
    references: Mapping[str, torch.nn.Module] | None,
    *,
    beta: float = 0.1,
    kind: str = "sigmoid",
    label_smoothing: float = 0.0,
    log_prob_fn: Callable[..., torch.Tensor] = completion_log_prob,
) -> torch.Tensor:
    """The joint loss with a gradient through everything, a completion at a time."""

    @functools.cache
    def log_ratio(name: str, completion: Completion) -> torch.Tensor:
        own = log_prob_fn(team[name].model, completion, team[name].generation)
        if references is None:
            return own.double()
        with torch.no_grad():
            theirs = log_prob_fn(references[name], completion, team[name].generation)
        return own.double() - theirs.double()

    total = torch.zeros((), dtype=torch.float64)
    for turn, side, chosen, rejected in pairs:
        margin = sum(
            log_ratio(name, chosen[name]) - log_ratio(name, rejected[name])
            for name in side
            if name in chosen and name in team
        )
        loss = (margin - 1 / (2 * beta)) ** 2
        if kind == "sigmoid":
            loss = -(1 - label_smoothing) * logsigmoid(beta * margin)
            loss = loss - label_smoothing * logsigmoid(-beta * margin)
        total = total + loss / len([pair for pair in pairs if pair[:2] == (turn, side)])
    return total


def spread(*groups: list[str]) -> list[float]:
    """Rewards that differ between almost any two joint actions."""
    return [
        sum((2 * i + 3) * sum(map(ord, text)) for i, text in enumerate(texts)) % 101 / 100
        for texts in zip(*groups, strict=True)
    ]


def opposed(first: list[str], second: list[str]) -> dict[str, list[float]]:
    values = spread(first, second)
    return {"agent_0": values, "agent_1": [-value for value in values]}


def task(num_agents: int = 2, num_turns: int = 1, reward_func: object = None) -> TextEnv:
    return TextEnv(
        [{"prompt": "Say."}, {"prompt": "Now"}],
        reward_func or spread,
        transition=lambda prompt, agent_completions: [
            f"{prompt} {text}" for text in agent_completions
        ],
        num_agents=num_agents,
        num_turns=num_turns,
    )


def separate(count: int = 2, **generation: float | None) -> dict[str, Agent]:
    return {name: tiny_agent(i, **generation) for i, name in enumerate(NAMES[:count])}


def shared(count: int = 2, **generation: float | None) -> dict[str, Agent]:
    return dict.fromkeys(NAMES[:count], tiny_agent(**generation))


def one_frozen(**generation: float | None) -> dict[str, Agent]:
    frozen = tiny_agent(1, **generation)
    frozen.frozen = True
    return {"agent_0": tiny_agent(0, **generation), "agent_1": frozen}


def move(model: torch.nn.Module, seed: int) -> None:
    """Take a policy away from its reference."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=generator))


CASES = {
    "one turn": {},
    "one agent": {"team": separate, "num_agents": 1},
    "three agents": {"num_agents": 3},
    "two turns": {"num_turns": 2, "num_generations": 3, "discount": 0.5},
    "crossed": {"joint_mode": "cross", "num_generations": 2, "num_turns": 2},
    "shared": {"team": shared, "num_turns": 2, "num_generations": 3},
    "one frozen": {"team": one_frozen},
    "truncated sampling": {"temperature": 0.7, "top_k": 60, "top_p": 0.9},
    "without reference": {"reference_free": True, "dpo_beta": 0.03},
    "smoothed": {"label_smoothing": 0.2, "dpo_beta": 0.5},
    "ipo": {"preference_loss_type": "ipo", "dpo_beta": 0.3},
    "opposed": {"reward_func": opposed, "sides": [("agent_0",), ("agent_1",)]},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_loss_and_gradients_equal_the_joint_loss_written_out(case: dict) -> None:
    options = {"max_new_tokens": 3, "num_generations": 4, **case}
    count, make_team = options.pop("num_agents", 2), options.pop("team", separate)
    env = task(count, options.pop("num_turns", 1), options.pop("reward_func", None))
    team = make_team() if make_team is one_frozen else make_team(count)
    sides = options.pop("sides", [NAMES[:count]])
    config = MADPOConfig(max_grad_norm=None, agent_learning_rate=1e-12, **QUIET, **options)
    trainer = MADPOTrainer(env, team, config)
    trained = {name: a for name, a in trainer.samplers.items() if name in _trained(trainer)}
    references = {name: copy.deepcopy(agent.model) for name, agent in trained.items()}
    for updater in trainer.updaters:
        move(updater.policy.model, seed=7)
    rollout = trainer.collect([0, 1])

    pairs = slow_pairs(rollout, sides, config.discount)
    expected = slow_loss(
        pairs,
        trained,
        None if config.reference_free else references,
        beta=config.dpo_beta,
        kind=config.preference_loss_type,
        label_smoothing=config.label_smoothing,
    )
    for agent in trained.values():
        agent.model.zero_grad()
    expected.backward()
    slow = {
        name: {key: weight.grad.clone() for key, weight in agent.model.named_parameters()}
        for name, agent in trained.items()
    }
    caught = caught_gradients(trainer)
    metrics = trainer.update(rollout)
    assert metrics["train/num_pairs"] == len(pairs) > 1
    assert metrics["train/loss"] == pytest.approx(expected.item(), rel=1e-5)
    for name, gradients in slow.items():
        assert caught[name].keys() == gradients.keys()
        for key, gradient in gradients.items():
            error = float((caught[name][key] - gradient).norm())
            assert error <= 1e-5 * float(gradient.norm()) + 1e-7, (name, key)


def _trained(trainer: MADPOTrainer) -> list[str]:
    return [name for updater in trainer.updaters for name in updater.policy.agents]


@settings(REPEATABLE, max_examples=12)
@given(st.data())
def test_loss_and_gradients_of_any_rollout_equal_the_joint_loss_written_out(
    data: st.DataObject,
) -> None:
    """Ragged trees, agents that wait or leave, equal siblings: see `drawn_rollouts`."""
    shape = data.draw(shapes())
    drawn = data.draw(rollouts(shape))
    one_policy = data.draw(st.booleans())
    seeds = {name: 0 if one_policy else i for i, name in enumerate(NAMES)}
    models = {seed: tiny_llama(seed) for seed in set(seeds.values())}
    team = {name: LMAgent(models[seeds[name]], byte_tokenizer()) for name in shape.agents}
    env = TextEnv([{"prompt": ""}], spread, num_agents=len(team))
    config = _config(max_grad_norm=None, agent_learning_rate=1e-12, discount=0.5)
    trainer = MADPOTrainer(env, team, config)
    references = {seed: copy.deepcopy(model).double() for seed, model in models.items()}
    for updater in trainer.updaters:
        move(updater.policy.model, seed=7)
    exact = {seed: copy.deepcopy(model).double() for seed, model in models.items()}
    rollout = written_by_another_policy(drawn)
    pairs = slow_pairs(rollout, slow_teams(rollout, 0.5), 0.5)
    pairs = [pair for pair in pairs if set(pair[1]) & set(pair[2])]
    expected = slow_loss(
        pairs,
        {name: LMAgent(exact[seeds[name]], byte_tokenizer()) for name in team},
        {name: references[seeds[name]] for name in team},
        log_prob_fn=exact_log_prob,
    )
    caught = caught_gradients(trainer)
    metrics = trainer.update(rollout)
    assert metrics["train/num_pairs"] == len(pairs)
    if not pairs:
        return
    assert metrics["train/loss"] == pytest.approx(expected.item(), rel=1e-5)
    for name in team:
        weights = dict(exact[seeds[name]].named_parameters())
        slow = _gradients(expected, weights)
        # float32 against float64; the two sides of a pair may cancel
        largest = max(float(gradient.norm()) for gradient in slow.values())
        for key, gradient in slow.items():
            error = float((caught.get(name, {}).get(key, torch.zeros(())) - gradient).norm())
            assert error <= 1e-5 * float(gradient.norm()) + 1e-5 * largest + 1e-7, (name, key)


def exact_log_prob(
    model: torch.nn.Module, completion: Completion, generation: GenerationConfig
) -> torch.Tensor:
    """Of a model in float64 that samples from all of its vocabulary: rounding aside, the truth."""
    tokens = completion.completion_ids
    read = torch.tensor([completion.prompt_ids + tokens])
    log_probs = model(input_ids=read).logits[0].log_softmax(-1)
    first = len(completion.prompt_ids) - 1
    picked = [log_probs[first + t, token] for t, token in enumerate(tokens)]
    return sum(picked, torch.zeros((), dtype=torch.float64))


def _gradients(value: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    found = torch.autograd.grad(value, weights.values(), retain_graph=True, materialize_grads=True)
    return dict(zip(weights, found, strict=True))


def written_by_another_policy(rollout: Rollout) -> Rollout:
    """The same completions as if of older weights: what was kept from sampling says nothing."""
    return Rollout(
        rollout.agents,
        tuple(
            tuple(
                replace(
                    node,
                    completions={
                        name: tuple(replace(each, policy_version=-1) for each in group)
                        for name, group in node.completions.items()
                    },
                )
                for node in level
            )
            for level in rollout.levels
        ),
    )


def slow_teams(rollout: Rollout, discount: float) -> list[tuple[str, ...]]:
    """Who has equal returns wherever they are."""

    def worth(name: str) -> list[list[float] | None]:
        return [
            [
                node_return(rollout, level, node, name, j, discount)
                for j in range(len(node.joint_actions))
            ]
            if name in node.rewards
            else None
            for level, nodes in enumerate(rollout.levels)
            for node in nodes
        ]

    sides: list[list[str]] = []
    for name in rollout.agents:
        alike = [side for side in sides if worth(side[0]) == worth(name)]
        alike[0].append(name) if alike else sides.append([name])
    return [tuple(side) for side in sides]


def test_later_minibatches_are_measured_under_the_weights_they_find() -> None:
    """All policies of a minibatch are measured before the first of them steps."""
    team = separate(max_new_tokens=6)
    config = MADPOConfig(
        max_grad_norm=None,
        agent_learning_rate=0.02,
        num_generations=4,
        train_batch_size=2,
        num_iterations=2,
        **QUIET,
    )
    trainer = MADPOTrainer(task(), team, config)
    references = {name: copy.deepcopy(agent.model) for name, agent in team.items()}
    rollout = trainer.collect([0, 1])
    pairs = slow_pairs(rollout, [NAMES[:2]], 1.0)
    assert len(pairs) == 4

    found: list[tuple[str, dict[str, torch.Tensor], dict[str, torch.nn.Module]]] = []
    for updater in trainer.updaters:

        def catch(*_: object, policy=updater.policy) -> None:
            gradients = {k: w.grad.clone() for k, w in policy.model.named_parameters()}
            models = {name: copy.deepcopy(agent.model) for name, agent in team.items()}
            found.append((policy.name, gradients, models))

        updater.optimizer.register_step_pre_hook(catch)
    rng = copy.deepcopy(trainer.rng)
    metrics = trainer.update(rollout)
    assert metrics["train/num_optimizer_steps"] == len(found) == 2 * 2 * 2
    orders = [rng.permutation(4) for _ in range(2)]
    chunks = [[pairs[i] for i in order[s : s + 2]] for order in orders for s in (0, 2)]
    for index, chunk in enumerate(chunks):
        # the first policy of a minibatch finds both as the minibatch did
        name, gradients, models = found[2 * index]
        assert name == "agent_0"
        at_that_time = {
            key: LMAgent(model, team[key].tokenizer, generation=trainer.samplers[key].generation)
            for key, model in models.items()
        }
        for model in models.values():
            model.zero_grad()
        slow_loss(chunk, at_that_time, references).backward()
        for agent, own in ((name, gradients), (found[2 * index + 1][0], found[2 * index + 1][1])):
            for key, weight in models[agent].named_parameters():
                error = float((own[key] - weight.grad).norm())
                assert error <= 2e-5 * float(weight.grad.norm()) + 1e-7, (index, agent, key)


def test_an_adapter_has_its_base_as_reference() -> None:
    base = tiny_agent(max_new_tokens=6)
    settings = LoraConfig(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj"])
    team = {name: base.with_adapter(name, settings) for name in NAMES[:2]}
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for agent in team.values():
            for weight in adapter_parameters(agent.model, agent.adapter):
                weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
    trainer = MADPOTrainer(task(), team, MADPOConfig(agent_learning_rate=1e-12, **QUIET))
    rollout = trainer.collect([0, 1])
    metrics = trainer.update(rollout)
    plain = tiny_agent(max_new_tokens=6)  # the same weights without adapters
    pairs = slow_pairs(rollout, [NAMES[:2]], 1.0)
    margins = [
        sum(
            sign * (sum(side[name].log_probs) - float(_log_prob(plain, side[name])))
            for sign, side in ((1, chosen), (-1, rejected))
            for name in NAMES[:2]
        )
        for _, _, chosen, rejected in pairs
    ]
    assert metrics["train/margin"] == pytest.approx(0.1 * sum(margins) / len(margins), rel=1e-4)
    right = sum(margin > 0 for margin in margins) / len(margins)
    assert metrics["train/preference_accuracy"] == right


@torch.no_grad()
def _log_prob(agent: LMAgent, completion: Completion) -> torch.Tensor:
    return completion_log_prob(agent.model, completion, agent.generation)


def test_the_first_loss_is_log_two_and_grows_with_the_turns() -> None:
    for num_turns in (1, 2):
        trainer = MADPOTrainer(task(num_turns=num_turns), separate(max_new_tokens=4), _config())
        metrics = trainer.update(trainer.collect([0, 1]))
        assert metrics["train/loss"] == pytest.approx(num_turns * 0.693147, rel=1e-4)
        assert metrics["train/margin"] == pytest.approx(0.0, abs=1e-4)


def _config(**changes: object) -> MADPOConfig:
    return MADPOConfig(**{**QUIET, **changes})


def test_what_is_on_both_sides_of_a_pair_is_left_alone() -> None:
    """Crossed, with a reward that one agent alone decides: the other's completion is shared."""
    env = TextEnv(
        [{"prompt": "p"}], lambda a, b: [sum(map(ord, text)) / 100 for text in a], num_agents=2
    )
    config = _config(num_generations=2, joint_mode="cross", pair_selection="reward_gap")
    team = separate(max_new_tokens=4)
    trainer = MADPOTrainer(env, team, config)
    caught = caught_gradients(trainer)
    # over all pairs the second agent's completions are preferred as often as rejected
    trainer.update(trainer.collect([0]))
    own, other = (
        sum(float(gradient.norm()) for gradient in caught.get(name, {}).values())
        for name in NAMES[:2]
    )
    assert own > 1e-3
    assert other < 1e-5


def test_equal_returns_take_no_step() -> None:
    env = TextEnv([{"prompt": "p"}], lambda a, b: [1.0] * len(a))
    trainer = MADPOTrainer(env, separate(max_new_tokens=4), _config())
    metrics = trainer.update(trainer.collect([0]))
    assert metrics["train/num_pairs"] == metrics["train/num_optimizer_steps"] == 0
    assert "train/loss" not in metrics


@pytest.mark.parametrize(
    ("team", "options"),
    [
        ("separate", {"joint_mode": "cross", "num_generations": 4}),
        ("separate", {"reference_free": True}),
        ("separate", {"preference_loss_type": "ipo"}),
        ("shared", {"pair_selection": "random"}),
        ("one frozen", {"pair_selection": "reward_gap", "pairs_per_group": 3}),
    ],
)
def test_it_learns_to_say_the_same(team: str, options: dict) -> None:
    agents: dict[str, Agent] = {name: letter_agent(i) for i, name in enumerate(NAMES[:2])}
    if team == "shared":
        agents = dict.fromkeys(agents, letter_agent())
    if team == "one frozen":
        agents["agent_0"] = FixedAgent("c")
    options = dict(options)
    env = matching_env(options.pop("num_turns", 1))
    settings = {"num_train_epochs": 30, "rollout_batch_size": 4, "num_generations": 8}
    config = _config(**{**settings, "agent_learning_rate": 0.02, **options})
    trainer = make("madpo", env, agents, config)
    before = trainer.evaluate(num_samples=50).metrics["reward_mean"]
    trainer.train()
    assert before < 0.5
    assert trainer.evaluate(num_samples=50).metrics["reward_mean"] > 0.9


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dpo_beta": 0.0}, "dpo_beta above 0"),
        ({"label_smoothing": 0.5}, "label_smoothing from 0 to below 0.5"),
        ({"label_smoothing": 0.1, "preference_loss_type": "ipo"}, "'ipo', which has none"),
        ({"preference_loss_type": "hinge"}, "one of sigmoid, ipo"),
        ({"pair_selection": "all"}, "one of disjoint, random, reward_gap"),
        ({"pairs_per_group": 0}, "pairs_per_group of at least 1"),
        ({"num_generations": 1}, "num_generations of at least 2"),
        ({"clip_range": 0.2}, "clip_range=None with MADPO, got 0.2"),
        ({"importance_sampling_cap": 2.0}, "importance_sampling_cap=None with MADPO"),
        ({"mask_truncated_completions": True}, "mask_truncated_completions=False with MADPO"),
        ({"kl_coef": 0.1}, "kl_coef=0.0 with MADPO"),
        ({"loss_type": "token_mean"}, "loss_type='sequence_sum' with MADPO"),
        ({"advantage_normalization": False}, "advantage_normalization=None with MADPO"),
    ],
)
def test_wrong_settings_are_refused(settings: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MADPOConfig(**settings)
