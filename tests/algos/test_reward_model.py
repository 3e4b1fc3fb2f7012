"""The reward model of joint actions: what it reads, what it says, what it learns."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig
from tiny import END, byte_tokenizer, tiny_agent, tiny_llama
from tiny_families import FAMILIES, tiny_model, tiny_tokenizer
from torch.nn.functional import logsigmoid
from transformers import AutoModel, BertConfig, BertModel

from motet.agents import Completion
from motet.agents.adapters import adapter_parameters
from motet.algos import MARLHFConfig, Node, RewardModel, Rollout
from motet.algos.preferences.pairs import Preference, rollout_preferences, turn_rewards
from motet.algos.preferences.reward_learner import RewardLearner, normalized
from motet.algos.preferences.reward_model import _longest_that_fits

NAMES = ("agent_0", "agent_1")


def reward_model(seed: int = 0, context: int = 512) -> RewardModel:
    return RewardModel(tiny_llama(seed, context=context), byte_tokenizer(), NAMES)


def letters(text: str) -> list[int]:
    return byte_tokenizer()(text)["input_ids"]


def said(*texts: str) -> dict[str, str]:
    return dict(zip(("agent_0", "agent_1", "agent_2"), texts, strict=False))


# --- what it reads --------------------------------------------------------------------------------


def test_a_joint_action_is_prompts_then_answers_with_an_end_after_each() -> None:
    ids = reward_model().encode(said("p", "q"), said("no", ""), "raise")
    assert list(ids) == [*letters("p"), END, *letters("q"), END, *letters("no"), END, END]


def test_what_all_see_is_there_once() -> None:
    ids = reward_model().encode(said("pq", "pq", "pq"), said("a", "b", "c"), "raise")
    parts = [letters("pq"), letters("a"), letters("b"), letters("c")]
    assert list(ids) == [token for part in parts for token in (*part, END)]


def test_an_end_token_that_is_spelt_out_is_no_end() -> None:
    ids = reward_model().encode(said("p"), said("<|end|>"), "raise")
    assert ids.count(END) == 2
    assert len(ids) == 1 + 7 + 2


def test_lengths_that_fit_by_hand() -> None:
    # 2 + 6 + 6 of 2, 10, 10; 3 + 3 + 3 of the same in 10; all in 22
    assert [_longest_that_fits([2, 10, 10], room) for room in (14, 10, 22)] == [6, 4, 10]
    assert _longest_that_fits([5, 5, 5], 10) == 3
    assert _longest_that_fits([0, 0], 0) == 0


def test_a_long_joint_action_is_refused_or_cut_in_all_parts_alike() -> None:
    model = reward_model(context=16)
    seen, answers = said("0123456789"), said("abcdef", "xy")
    with pytest.raises(ValueError, match="at most 13 tokens for the reward model, got 18"):
        model.encode(seen, answers, "raise")
    # 13 tokens for lengths 10, 6 and 2: 5, 5 and 2; a prompt loses its beginning
    ids = model.encode(seen, answers, "truncate")
    assert list(ids) == [
        *letters("56789"), END, *letters("abcde"), END, *letters("xy"), END,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="at most 2 tokens"):
        reward_model(context=5).encode(seen, answers, "truncate")


# --- what it says ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_neither_padding_nor_company_changes_a_rating(family: str) -> None:
    model = RewardModel(tiny_model(family, 0), tiny_tokenizer(), NAMES, seed=3)
    texts = [(5,), (7, 0, 9, 0), (4, 4, 4, 0, 0, 2, 30, 11, 0, 0), (0,)]
    together = model(texts)
    for text, rating in zip(texts, together, strict=True):
        hidden = model.trunk(input_ids=torch.tensor([text])).last_hidden_state[0, -1]
        torch.testing.assert_close(rating, model.heads @ hidden, rtol=1e-5, atol=1e-5)
        assert rating[0] == rating[1]  # the heads begin alike


def test_an_encoder_is_a_trunk_too() -> None:
    config = BertConfig(
        vocab_size=257, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=32,
    )  # fmt: skip
    model = RewardModel(BertModel(config, add_pooling_layer=False), byte_tokenizer(), NAMES)
    short, long = (model.encode(said("p"), said(text), "raise") for text in ("a", "abc"))
    torch.testing.assert_close(model([short, long])[0], model([short])[0])


def test_it_saves_and_loads(tmp_path: Path) -> None:
    model = reward_model()
    with torch.no_grad():
        model.heads[1] += 1
    model.save_pretrained(tmp_path)
    loaded = RewardModel.from_pretrained(tmp_path)
    assert loaded.agents == NAMES
    text = model.encode(said("p", "q"), said("no", "yes"), "raise")
    assert text == loaded.encode(said("p", "q"), said("no", "yes"), "raise")
    assert torch.equal(model([text]), loaded([text]))
    plain = AutoModel.from_pretrained(tmp_path)
    assert torch.equal(plain.embed_tokens.weight, model.trunk.embed_tokens.weight)


def test_it_begins_as_a_copy_of_the_base_of_an_agent() -> None:
    base = tiny_agent()
    settings = LoraConfig(r=3, target_modules=["q_proj", "embed_tokens", "lm_head"])
    adapted = base.with_adapter("own", settings)
    with torch.no_grad():
        for weight in adapter_parameters(adapted.model, "own"):
            weight.add_(1.0)
    state = torch.get_rng_state()
    model = RewardModel.from_agent(adapted, NAMES)
    assert torch.equal(state, torch.get_rng_state())
    own, plain = dict(model.trunk.named_parameters()), dict(tiny_llama().model.named_parameters())
    assert own.keys() == plain.keys()
    for key, weight in own.items():
        assert torch.equal(weight, plain[key])
        assert weight.requires_grad
    frozen = tiny_agent()
    frozen.model.requires_grad_(False)
    model = RewardModel.from_agent(frozen, NAMES)
    assert model.trunk.embed_tokens.weight.requires_grad
    assert not frozen.model.model.embed_tokens.weight.requires_grad


def test_parts_of_another_kind_are_refused() -> None:
    tokenizer = byte_tokenizer()
    with pytest.raises(TypeError, match="a model of transformers, got 'gpt2'"):
        RewardModel("gpt2", tokenizer, NAMES)
    with pytest.raises(TypeError, match="a tokenizer of transformers, got None"):
        RewardModel(tiny_llama(), None, NAMES)
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match="with an eos or a sep token"):
        RewardModel(tiny_llama(), tokenizer, NAMES)


# --- what it learns -------------------------------------------------------------------------------


def node(rewards: dict[str, tuple[float, ...]], first: str = "a") -> Node:
    size = len(next(iter(rewards.values())))
    groups = {
        name: tuple(Completion(chr(ord(first) + 2 * i + k) * (k + 1)) for k in range(size))
        for i, name in enumerate(NAMES)
    }
    return Node(
        0, 1, dict.fromkeys(NAMES, "prompt"), groups, tuple((k, k) for k in range(size)),
        rewards, (True,) * size, (None,) * size, (1,) * size,
    )  # fmt: skip


def rollout() -> Rollout:
    shared = (1.0, 0.0, 0.5, 0.25)
    return Rollout(
        NAMES,
        ((node(dict.fromkeys(NAMES, shared)), node(dict.fromkeys(NAMES, shared[::-1]), "p")),),
    )


def opposed() -> Rollout:
    return Rollout(NAMES, ((node({"agent_0": (1.0, 0.0), "agent_1": (0.0, 1.0)}),),))


def preferences(of: Rollout) -> list[Preference]:
    return rollout_preferences(of, turn_rewards(of), of.agents)


def text_of(model: RewardModel, pair: Preference, joint: int) -> tuple[int, ...]:
    answers = {name: group[joint].text for name, group in pair.node.completions.items()}
    return model.encode(pair.node.observations, answers, "raise")


@pytest.mark.parametrize("of", [rollout(), opposed()], ids=["shared", "opposed"])
def test_a_step_is_that_of_the_bradley_terry_loss_written_out(of: Rollout) -> None:
    model = reward_model()
    slow, pairs = copy.deepcopy(model), preferences(of)
    total = torch.zeros(())
    for pair in pairs:
        margin = torch.zeros(())
        for name in pair.agents:
            chosen, rejected = (
                slow([text_of(slow, pair, joint)])[0, NAMES.index(name)]
                for joint in (pair.chosen, pair.rejected)
            )
            margin = margin + (chosen - rejected) / len(pair.agents)
        total = total - logsigmoid(margin) / len(pairs)
    total.backward()
    caught: dict[str, torch.Tensor] = {}
    settings = MARLHFConfig(reward_learning_rate=1e-12, max_grad_norm=None)
    learner = RewardLearner(model, settings)
    learner._optimizer.register_step_pre_hook(
        lambda *_: caught.update({k: w.grad.clone() for k, w in model.named_parameters()})
    )
    learnt = learner.train(pairs, np.random.default_rng(0))
    assert learnt["loss"] == pytest.approx(total.item(), rel=1e-5)
    for key, weight in slow.named_parameters():
        error = float((caught[key] - weight.grad).norm())
        assert error <= 1e-5 * float(weight.grad.norm()) + 1e-7, key


def test_accuracy_is_measured_before_it_learns() -> None:
    learner = RewardLearner(
        reward_model(), MARLHFConfig(reward_learning_rate=0.01, reward_num_epochs=10)
    )
    pairs, rng = preferences(rollout()), np.random.default_rng(0)
    # opposite orders of the same lengths: it cannot be right about all by chance
    first, second = (learner.train(pairs, rng) for _ in range(2))
    assert first["accuracy"] < 1.0
    assert second["accuracy"] == 1.0
    assert second["loss"] < first["loss"]
    assert learner.train([], rng) == {}


def test_agents_rewarded_alike_are_rated_alike_and_others_apart() -> None:
    for of, alike in ((rollout(), True), (opposed(), False)):
        learner = RewardLearner(
            reward_model(), MARLHFConfig(reward_learning_rate=0.01, reward_num_epochs=20)
        )
        learner.train(preferences(of), np.random.default_rng(0))
        rewards = learner.rated(of).levels[0][0].rewards
        assert (rewards["agent_0"] == rewards["agent_1"]) is alike
        assert rewards["agent_0"][0] > rewards["agent_0"][1]
        assert (rewards["agent_1"][0] > rewards["agent_1"][1]) is alike


def test_ratings_stand_in_the_place_of_rewards_and_nothing_else_changes() -> None:
    of, model = rollout(), reward_model()
    plain = RewardLearner(model, MARLHFConfig(reward_normalization=False)).rated(of)
    for own, rated in zip(of.nodes(), plain.nodes(), strict=True):
        assert (own.completions, own.children) == (rated.completions, rated.children)
        for j, reward in enumerate(rated.rewards["agent_1"]):
            answers = {name: group[j].text for name, group in own.completions.items()}
            alone = model([model.encode(own.observations, answers, "raise")])[0, 1]
            assert reward == pytest.approx(alone.item(), rel=1e-5, abs=1e-5)
    scaled = RewardLearner(model, MARLHFConfig()).rated(of)
    values = [reward for each in scaled.nodes() for reward in each.rewards["agent_0"]]
    assert np.mean(values) == pytest.approx(0.0, abs=1e-9)
    assert np.std(values) == pytest.approx(1.0)


def test_values_without_spread_are_not_blown_up() -> None:
    values = torch.tensor([[1.0, 0.1], [3.0, np.nextafter(0.1, 1)]], dtype=torch.float64)
    # mean 2, deviation 1; a difference by rounding
    assert normalized(values)[:, 0].tolist() == [-1.0, 1.0]
    assert normalized(values)[:, 1].abs().max() < 1e-15


def test_a_broken_model_stops_the_run() -> None:
    model = reward_model()
    with torch.no_grad():
        model.heads[0, 0] = torch.nan
    with pytest.raises(FloatingPointError, match="finite loss and gradient of the reward model"):
        RewardLearner(model, MARLHFConfig()).train(preferences(rollout()), np.random.default_rng(0))
