"""Actor-critics: late rewards reach the turn that earned them; critics step, save, load, resume."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import letter_agent, matching_env
from transformers import AutoModel, BertConfig, BertModel, T5Config, T5Model

from motet import algos
from motet.agents import Agent, FixedAgent, LMAgent, RandomAgent
from motet.algos import ActorCriticConfig, Critic, PPOConfig
from motet.algos.actor_critics.critic import Read, load_head
from motet.algos.actor_critics.critic_update import CriticUpdater
from motet.envs import TextEnv

NAMES = ("agent_0", "agent_1")


def team(seed: int = 0) -> dict[str, Agent]:
    return {name: letter_agent(seed + i) for i, name in enumerate(NAMES)}


def config(name: str, **changes: Any) -> Any:
    settings = {
        "num_train_epochs": 4,
        "rollout_batch_size": 4,
        "num_generations": 2,
        "agent_learning_rate": 0.01,
        "critic_learning_rate": 0.01,
        "progress_bar": False,
    }
    return algos.spec(name).config_class(**{**settings, **changes})


def late_env(**kwargs: Any) -> TextEnv:
    """Two turns; the second pays 1 where the agents said the same letter in the first."""

    def late(first: list, second: list, turn: list, histories: list) -> list[float]:
        return [
            float(t == 2 and past["agent_0"][0][1] == past["agent_1"][0][1] != "")
            for t, past in zip(turn, histories, strict=True)
        ]

    return TextEnv(
        [{"prompt": letter} for letter in "abcd"],
        late,
        transition=lambda agent_completions: ["".join(agent_completions) or "a"] * 2,
        num_turns=2,
        **kwargs,
    )


@pytest.mark.parametrize("name", ["ippo", "mappo"])
def test_a_reward_of_the_last_turn_reaches_the_first(name: str) -> None:
    given = config(
        name, num_train_epochs=30, num_generations=4, num_iterations=3, train_batch_size=None
    )
    learner = algos.make(name, late_env(), team(), given)
    assert learner.evaluate(num_samples=20).metrics["return_mean"] < 0.5
    learner.train()
    assert learner.evaluate(num_samples=20).metrics["return_mean"] > 0.85


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ippo", {"critic": "shared", "num_iterations": 2}),
        ("mappo", {"value_head_hidden_size": 4, "num_iterations": 2, "token_level": True}),
    ],
)
def test_it_resumes_to_the_bit(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    def trained(epochs: int, **kwargs: Any) -> Any:
        given = config(name, num_train_epochs=epochs, train_batch_size=6, **changes)
        learner = algos.make(name, late_env(), team(), given)
        learner.train(**kwargs)
        return learner

    whole = trained(4)
    trained(2).save_checkpoint(tmp_path)
    resumed = trained(4, resume_from=tmp_path)
    for key in whole.agents:
        pairs = zip(
            whole.agents[key].model.parameters(), resumed.agents[key].model.parameters(),
            strict=True,
        )  # fmt: skip
        assert all(torch.equal(one, other) for one, other in pairs)
    for one, other in zip(whole.critics, resumed.critics, strict=True):
        before, after = one.state_dict(), other.state_dict()
        torch.testing.assert_close(before, after, rtol=0, atol=0)


def test_a_checkpoint_of_another_critic_is_refused(tmp_path: Path) -> None:
    learner = algos.make("iac", matching_env(), team(), config("iac"))
    learner.save_checkpoint(tmp_path)
    other = algos.make("maac", matching_env(), team(), config("maac"))
    with pytest.raises(ValueError, match=r"the critics \['central'\] in the checkpoint, got \['ag"):
        other.train(resume_from=tmp_path)
    state = learner.state_dict()
    del state["critics"]["agent_0"]["critic"]["head.output.bias"]
    with pytest.raises(ValueError, match=r"critic agent_0, whose head\.output\.bias has"):
        learner.load_state_dict(state)


def test_one_step_of_a_critic_for_a_batch_of_nodes_whatever_the_number_of_agents() -> None:
    # 4 rows, two turns, 2 generations: 4 + 8 nodes with two groups each, in 3 batches of 8 groups
    for name, num_critics in (("maac", 1), ("iac", 2)):
        learner = algos.make(name, late_env(), team(), config(name, train_batch_size=8))
        metrics = learner.update(learner.collect([0, 1, 2, 3]))
        assert metrics["train/num_critic_steps"] == 3 * num_critics


def test_batches_of_nodes_have_the_objective_of_all_in_the_mean() -> None:
    losses = []
    for size in (None, 8):
        given = config("maac", train_batch_size=size, critic_learning_rate=1e-12)
        learner = algos.make("maac", spread_env(), team(), given)
        losses.append(learner.update(learner.collect([0, 1, 2, 3]))["train/value_loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_a_central_critic_reads_each_text_once() -> None:
    learner = algos.make("mappo", matching_env(), team(), config("mappo"))
    rollout = learner.collect([0, 1, 1, 2])
    (critic,) = learner.critics
    read: list[int] = []
    critic.critic.trunk.register_forward_hook(
        lambda module, args, kwargs, output: read.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    before = copy.deepcopy(critic.critic.state_dict())
    metrics = learner.update(rollout)
    # three distinct rows: judged once, and once in each of four passes
    assert sum(read) == 3 * 5
    assert metrics["train/num_critic_steps"] == 4
    assert not torch.equal(before["head.output.bias"], critic.critic.head.output.bias)
    assert torch.equal(*critic.critic.head.output.weight)  # paid alike, they stay one value


@pytest.mark.parametrize(("name", "kind"), [("mappo", "separate"), ("ippo", "shared")])
def test_later_passes_clip_values_around_those_of_before(name: str, kind: str) -> None:
    given = config(
        name, critic=kind, num_iterations=2, clip_range_vf=0.03, normalize_values=False,
        max_grad_norm=None, train_batch_size=None, agent_learning_rate=1e-3,
    )  # fmt: skip
    learner = algos.make(name, spread_env(1), one_policy(), given)
    (critic,) = learner.critics
    rollout = learner.collect([0, 1, 2, 3])
    reads = [read for (read,) in learner._judged(critic, rollout).reads.values()]
    # one node each; both agents earn the mean over two joint actions
    targets = torch.tensor([sum(node.rewards["agent_0"]) / 2 for node in rollout.levels[0]])
    targets = targets.repeat_interleave(2)

    def said() -> torch.Tensor:
        outputs = critic.outputs(reads)
        return torch.stack([each[0, i % 2] for i, each in enumerate(outputs)])

    old, later = said(), []
    optimizer = learner.updaters[0].optimizer if kind == "shared" else critic.optimizer
    optimizer.register_step_post_hook(lambda *_: later.append(said()))
    metrics = learner.update(rollout)
    moved = later[0] - old
    assert (moved.abs() > 0.03).any()
    near = old + moved.clamp(-0.03, 0.03)
    # a sum over two agents of the mean over four nodes
    first = (old - targets).square().sum() / 4
    second = (later[0] - targets).square().maximum((near - targets).square()).sum() / 4
    assert second > 1.01 * (later[0] - targets).square().sum() / 4
    assert metrics["train/value_loss"] == pytest.approx((first + second).item() / 2, rel=1e-5)


@pytest.mark.parametrize(("name", "kind"), [("maac", "separate"), ("iac", "shared")])
def test_critics_have_a_learning_rate_of_their_own_and_the_schedule(name: str, kind: str) -> None:
    rates = {"agent_learning_rate": 0.01, "critic_learning_rate": 0.2}
    given = config(name, critic=kind, lr_scheduler_type="linear", **rates)
    learner = algos.make(name, spread_env(), one_policy(), given)
    (critic,), (updater,) = learner.critics, learner.updaters
    optimizer = updater.optimizer if kind == "shared" else critic.optimizer
    learner.set_progress(0.25)
    learner.set_progress(0.75)
    assert updater.learning_rate == pytest.approx(0.0025)
    assert optimizer.param_groups[-1]["lr"] == pytest.approx(0.05)
    learner.update(learner.collect([0]))
    assert critic.head.output.bias.abs().tolist() == pytest.approx([0.05, 0.05], rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({}, 0),
        ({"ent_coef": 0.01}, 1),
        ({"critic": "shared"}, 1),
        ({"advantage_normalization": False}, 1),
    ],
)
def test_where_all_earned_the_same_what_the_critic_gets_wrong_is_not_blown_up(
    changes: dict[str, Any], steps: int
) -> None:
    env = TextEnv([{"prompt": letter} for letter in "abcd"], lambda a, b: [1.0] * len(a))
    learner = algos.make("iac", env, team(), config("iac", **changes))
    for critic in learner.critics:  # one that tells prompts apart where there is nothing to tell
        torch.nn.init.normal_(critic.head.output.weight)
    caught = []
    for updater in learner.updaters:
        weights = updater.policy.model.lm_head.weight
        updater.optimizer.register_step_pre_hook(
            lambda *_, weights=weights: caught.append(float(weights.grad.norm()))
        )
    metrics = learner.update(learner.collect([0, 1, 2, 3]))
    assert metrics["train/num_optimizer_steps"] == len(caught) == 2 * steps
    normalizes = "advantage_normalization" not in changes
    assert metrics["train/frac_zero_std_groups"] == float(normalizes)
    assert metrics["train/value_loss"] > 0
    if "critic" in changes:  # the value loss does not reach the output head, and nothing else is
        assert caught == [0.0, 0.0]


def test_target_kl_leaves_out_later_passes() -> None:
    passes = {}
    for target_kl in (None, 1e-9):
        given = config("ippo", target_kl=target_kl, num_iterations=5)
        learner = algos.make("ippo", matching_env(), team(), given)
        metrics = learner.update(learner.collect([0, 1, 2, 3]))
        passes[target_kl] = metrics["train/num_iterations"], metrics["train/num_optimizer_steps"]
    # the first pass is on the policy that sampled; the second sees that it has moved
    assert passes == {None: (5, 10), 1e-9: (2, 4)}


def test_what_is_saved_judges_as_it_did(tmp_path: Path) -> None:
    for name, folders in (("mappo", ["critic"]), ("ippo", ["critic/agent_0", "critic/agent_1"])):
        given = config(name, num_train_epochs=2, value_head_hidden_size=4)
        learner = algos.make(name, matching_env(), team(), given)
        learner.train()
        learner.save_model(tmp_path / name)
        for folder, critic in zip(folders, learner.critics, strict=True):
            loaded = Critic.from_pretrained(tmp_path / name / folder)
            read = Read(critic.critic.encode("ab"), 1)
            torch.testing.assert_close(
                loaded.outputs([read], 100), critic.outputs([read]), rtol=0, atol=0
            )
            assert loaded.head.agents == critic.head.agents
            assert float(loaded.head.count[0]) > 0
            AutoModel.from_pretrained(tmp_path / name / folder)  # plain transformers too
    given = config("ippo", critic="shared")
    learner = algos.make("ippo", matching_env(), dict.fromkeys(NAMES, letter_agent()), given)
    learner.save_model(tmp_path / "shared")
    assert load_head(tmp_path / "shared" / "critic" / "agent_0").agents == list(NAMES)
    with pytest.raises(FileNotFoundError, match=r"Expected a folder with value_head\.json"):
        load_head(tmp_path)


def adapted() -> dict[str, Agent]:
    from peft import LoraConfig

    base = letter_agent()
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"])
    return {name: base.with_adapter(name, lora) for name in NAMES}


def one_frozen() -> dict[str, Agent]:
    return {"agent_0": letter_agent(), "agent_1": letter_agent(1, frozen=True)}


def one_scripted() -> dict[str, Agent]:
    return {"agent_0": letter_agent(), "agent_1": RandomAgent(["a", "b"])}


def one_policy() -> dict[str, Agent]:
    return dict.fromkeys(NAMES, letter_agent())


def spread_env(num_turns: int = 2) -> TextEnv:
    """Rewards that differ between the agents' letters."""
    return TextEnv(
        [{"prompt": letter} for letter in "abcd"],
        lambda first, second: [
            sum(map(ord, a)) % 5 + 3.0 * (sum(map(ord, b)) % 5)
            for a, b in zip(first, second, strict=True)
        ],
        transition=lambda prompt: [prompt] * 2,
        num_turns=num_turns,
    )


@pytest.mark.parametrize("make_team", [adapted, one_frozen, one_scripted, one_policy])
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("iac", {"joint_mode": "cross"}),
        ("ippo", {"critic": "shared", "num_generations": 1}),
        ("mappo", {"token_level": True, "joint_mode": "cross"}),
    ],
)
def test_any_team(make_team: Callable[[], dict[str, Agent]], name: str, changes: dict) -> None:
    agents = make_team()
    before = {
        key: copy.deepcopy(agent.model.state_dict())
        for key, agent in agents.items()
        if isinstance(agent, LMAgent)
    }
    learner = algos.make(name, spread_env(), agents, config(name, num_train_epochs=2, **changes))
    learner.train()
    for key, state in before.items():
        moved = {
            name for name, weight in agents[key].model.state_dict().items()
            if not torch.equal(weight, state[name])
        }  # fmt: skip
        assert bool(moved) != agents[key].frozen
        assert make_team is not adapted or all("lora" in name for name in moved)
    trained = [key for key in before if not agents[key].frozen]
    assert [each for critic in learner.critics for each in critic.head.agents] == trained


def test_the_plain_base_of_adapters_is_a_critic_that_is_trained() -> None:
    agents = adapted()
    with torch.no_grad():
        for weight in agents["agent_0"].model.parameters():
            weight.add_(0.01)
    learner = algos.make("iac", matching_env(), agents, config("iac"))
    assert [critic.name for critic in learner.critics] == list(NAMES)
    for critic in learner.critics:
        names = [name for name, weight in critic.critic.named_parameters() if weight.requires_grad]
        assert not any("lora" in name for name in names)
        base = agents["agent_0"].model.model.layers[0].self_attn.q_proj.base_layer.weight
        own = critic.critic.trunk.layers[0].self_attn.q_proj.weight
        assert torch.equal(base, own)
        assert base is not own


def test_a_critic_of_16_bit_policies_has_32_bits() -> None:
    agents = team()
    for agent in agents.values():
        agent.model.to(torch.bfloat16)
    learner = algos.make("iac", matching_env(), agents, config("iac"))
    for critic in learner.critics:
        assert {weight.dtype for weight in critic.critic.parameters()} == {torch.float32}
    assert agents["agent_0"].model.dtype == torch.bfloat16
    assert learner.update(learner.collect([0]))["train/num_critic_steps"] == 2


def test_an_agent_is_not_saved_under_the_critics_name() -> None:
    env = matching_env(agent_names=["author", "critic"])
    agents = {"author": letter_agent(), "critic": letter_agent(1)}
    with pytest.raises(ValueError, match="another name for an agent than 'critic'"):
        algos.make("mappo", env, agents, config("mappo"))


def waiting_env() -> TextEnv:
    return TextEnv(
        [{"prompt": letter} for letter in "abcd"],
        lambda first, second: [float(len(a) + len(b)) for a, b in zip(first, second, strict=True)],
        transition=lambda prompt: [prompt] * 2,
        num_turns=3,
        acting=[["agent_0", "agent_1"], ["agent_0"], ["agent_0", "agent_1"]],
    )


@pytest.mark.parametrize("name", ["ippo", "mappo"])
def test_agents_that_wait_are_judged_by_a_central_critic_alone(name: str) -> None:
    learner = algos.make(name, waiting_env(), team(), config(name, num_generations=1))
    rollout = learner.collect([0])
    assert all(node.state for node in rollout.nodes()) == (name == "mappo")
    judged = [
        place for critic in learner.critics for place in learner._judged(critic, rollout).reads
    ]
    waits = (1, 0, "agent_1")
    assert (waits in judged) == (name == "mappo")
    assert len(judged) == (6 if name == "mappo" else 5)
    metrics = learner.update(rollout)
    assert metrics["train/num_optimizer_steps"] > 0


def test_moments_follow_the_targets_and_values_are_of_their_size() -> None:
    env = TextEnv([{"prompt": letter} for letter in "abcd"], lambda a, b: [1000.0] * len(a))
    learner = algos.make("mappo", env, team(), config("mappo"))
    metrics = learner.update(learner.collect([0, 1]))
    (critic,) = learner.critics
    assert critic.head.mean.tolist() == [1000.0, 1000.0]
    assert critic.head.count.tolist() == [2.0, 2.0]
    assert metrics["train/value_loss"] == 0.0  # 0 of the deviation over the mean
    (said,) = learner._judged(critic, learner.collect([2])).values()[0, 0, "agent_0"]
    assert said.tolist() == pytest.approx([1000.0], abs=0.1)


def encoder(context: int = 64) -> BertModel:
    return BertModel(
        BertConfig(
            vocab_size=5, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=8, max_position_embeddings=context,
        )
    )  # fmt: skip


def test_an_encoder_with_the_agents_tokens_judges_and_is_left_as_it_was() -> None:
    model, tokenizer = encoder(), letter_agent().tokenizer
    before = copy.deepcopy(model.state_dict())
    given = {"critic": model, "critic_tokenizer": tokenizer}
    learner = algos.make("maac", late_env(), team(), config("maac"), **given)
    learner.train()
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    (critic,) = learner.critics
    assert isinstance(critic, CriticUpdater)
    own = critic.critic.trunk.state_dict()
    assert any(not torch.equal(weight, before[key]) for key, weight in own.items())


def test_a_critic_is_loaded_by_its_name(tmp_path: Path) -> None:
    encoder().save_pretrained(tmp_path)
    letter_agent().tokenizer.save_pretrained(tmp_path)
    learner = algos.make("iac", matching_env(), team(), config("iac"), critic=str(tmp_path))
    kinds = [type(critic.critic.trunk).__name__ for critic in learner.critics]
    assert kinds == ["BertModel", "BertModel"]
    assert learner.critics[0].critic.trunk is not learner.critics[1].critic.trunk
    learner.update(learner.collect([0]))


def test_critics_that_cannot_be_are_refused() -> None:
    tokenizer = letter_agent().tokenizer

    def made(name: str, changes: dict[str, Any], **kwargs: Any) -> object:
        return algos.make(name, matching_env(), team(), config(name, **changes), **kwargs)

    with pytest.raises(ValueError, match="critic='separate' for a central critic, got 'shared'"):
        made("mappo", {"critic": "shared"})
    with pytest.raises(ValueError, match="critic='separate' together with critic="):
        made("ippo", {"critic": "shared"}, critic=encoder(), critic_tokenizer=tokenizer)
    with pytest.raises(ValueError, match="critic_tokenizer= together with the model BertModel"):
        made("ippo", {}, critic=encoder())
    with pytest.raises(ValueError, match="critic= together with critic_tokenizer="):
        made("ippo", {}, critic_tokenizer=tokenizer)
    with pytest.raises(TypeError, match="a model of transformers, or the name of one, as critic"):
        made("ippo", {}, critic=3)
    with pytest.raises(ValueError, match="no critic_tokenizer with the name 'some'"):
        made("ippo", {}, critic="some", critic_tokenizer=tokenizer)
    with pytest.raises(ValueError, match="reads from left to right for token_level=True, got Bert"):
        made("ippo", {"token_level": True}, critic=encoder(), critic_tokenizer=tokenizer)
    both = T5Model(T5Config(vocab_size=5, d_model=8, d_ff=8, num_layers=1, num_heads=1))
    with pytest.raises(ValueError, match="an encoder or a decoder as critic, got T5Model"):
        made("ippo", {}, critic=both, critic_tokenizer=tokenizer)


def test_tokens_that_differ_are_refused_over_tokens() -> None:
    from tiny import tiny_agent

    agents = {"agent_0": letter_agent(), "agent_1": tiny_agent(max_new_tokens=2)}
    with pytest.raises(ValueError, match="a critic with the tokens of agent_1 for token_level"):
        algos.make("mappo", matching_env(), agents, config("mappo", token_level=True))
    learner = algos.make("mappo", matching_env(), agents, config("mappo"))
    learner.update(learner.collect([0]))


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match=r"gae_lambda from 0 to 1, got 1\.5"):
        ActorCriticConfig(gae_lambda=1.5)
    for name in ("critic_learning_rate", "vf_coef", "clip_range_vf"):
        with pytest.raises(ValueError, match=f"Expected {name} above 0, got 0"):
            ActorCriticConfig(**{name: 0.0})
    with pytest.raises(ValueError, match="value_head_hidden_size of at least 1, got 0"):
        ActorCriticConfig(value_head_hidden_size=0)
    with pytest.raises(ValueError, match=r"num_iterations above 1 with target_kl=0\.1"):
        ActorCriticConfig(target_kl=0.1)
    with pytest.raises(ValueError, match="Expected critic to be one of separate, shared"):
        ActorCriticConfig(critic="both")
    with pytest.raises(ValueError, match="a clip_range for PPO, got None"):
        PPOConfig(clip_range=None, num_iterations=1)
    with pytest.raises(TypeError, match="ActorCriticConfig as config for maac, got a PPOConfig"):
        algos.make("maac", matching_env(), team(), PPOConfig())
    with pytest.raises(TypeError, match="a PPOConfig as config"):
        algos.make("ippo", matching_env(), team(), ActorCriticConfig())
    with pytest.raises(ValueError, match="there is nothing to train"):
        algos.make("iac", matching_env(), dict.fromkeys(NAMES, FixedAgent("a")))


def test_a_text_beyond_the_critics_context_is_refused() -> None:
    env = TextEnv([{"prompt": "a" * 40}], lambda a, b: [0.0] * len(a))
    learner = algos.make("mappo", env, team(), config("mappo"))
    with pytest.raises(ValueError, match=r"at most 64 tokens for the critic, got \d+ for"):
        learner.update(learner.collect([0]))


def test_an_own_prompt_beyond_the_context_of_a_critic_with_the_same_tokens_is_refused() -> None:
    env = TextEnv([{"prompt": "a" * 40}], lambda a, b: [0.0] * len(a))
    options = {"critic": encoder(context=16), "critic_tokenizer": letter_agent().tokenizer}
    learner = algos.make("iac", env, team(), config("iac"), **options)
    with pytest.raises(ValueError, match=r"at most 16 tokens for the critic, got \d+ for 'aaa"):
        learner.update(learner.collect([0]))


def test_a_loss_that_is_not_finite_stops_and_leaves_the_critic() -> None:
    learner = algos.make("maac", matching_env(), team(), config("maac"))
    rollout = learner.collect([0, 1])
    (critic,) = learner.critics
    critic.critic.head.output.bias.data.fill_(float("inf"))
    before = copy.deepcopy(critic.critic.trunk.state_dict())
    with pytest.raises(FloatingPointError, match="Expected a finite"):
        learner.update(rollout)
    torch.testing.assert_close(critic.critic.trunk.state_dict(), before, rtol=0, atol=0)
