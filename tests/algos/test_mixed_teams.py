"""Teams of agents that have nothing in common: models, tokenizers, settings, learning rates.

Two are trained: one reads and writes bytes, raw, and remembers what it said; the other has pairs of
bytes, a chat template and a system prompt. A third, of a third kind, is frozen, and a fourth says
what it is told to.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from chat import agent_with, as_llamas, chatml
from reference import magrpo_loss
from resuming import Kept, assert_goes_on_to_the_bit
from tiny import byte_tokenizer, tiny_llama, updated_as_expected
from transformers import Olmo2Config

from motet import algos
from motet.agents import Agent, FixedAgent, GenerationConfig, LMAgent
from motet.algos import MAGRPOConfig, Rollout, collect_rollouts
from motet.algos.trainer import Trainer
from motet.envs import TextEnv

RAW, CHAT, FROZEN, SCRIPTED = NAMES = ("raw", "chat", "frozen", "scripted")
LEARNERS = ("magrpo", "marloo", "mappo", "madpo")
RATES = {RAW: 1e-3, CHAT: 4e-3}
QUIET = {"progress_bar": False}
OF_RAW: dict[str, Any] = {"history": "append"}
OF_CHAT: dict[str, Any] = {"chat_template": True, "system_prompt": "Be brief."}
STOPS = {RAW: tuple("aeiou~é "), CHAT: (" the", "e", ".")}
GENERATION = {
    RAW: GenerationConfig(max_new_tokens=9, temperature=0.8, stop_strings=STOPS[RAW]),
    CHAT: GenerationConfig(max_new_tokens=5, top_p=0.9, top_k=200, stop_strings=STOPS[CHAT]),
    FROZEN: GenerationConfig(max_new_tokens=3, temperature=2.0),
}


def mixed_team() -> dict[str, Agent]:
    raw = LMAgent(tiny_llama(), byte_tokenizer(), generation=GENERATION[RAW], **OF_RAW)
    return {
        RAW: raw,
        CHAT: agent_with(chatml(), Olmo2Config, GENERATION[CHAT], **OF_CHAT),
        FROZEN: agent_with(as_llamas(), generation=GENERATION[FROZEN], frozen=True),
        SCRIPTED: FixedAgent(lambda observation: observation[:7]),
    }


def any_spread(*texts: list[str]) -> list[float]:
    return [
        sum((3 + 2 * k) * sum(map(ord, text)) for k, text in enumerate(said)) % 101 / 100
        for said in zip(*texts, strict=True)
    ]


def task(num_turns: int = 2) -> TextEnv:
    return TextEnv(
        [{"prompt": "Describe a city:"}, {"prompt": "A tale"}],
        any_spread,
        transition=lambda prompt, agent_completions: [
            f"{prompt} The others said {''.join(agent_completions)[:9]!r}." for _ in NAMES
        ],
        num_turns=num_turns,
        agent_names=NAMES,
        num_agents=len(NAMES),
    )


def config_of(learner: str, **settings: Any) -> Any:
    own = {"num_generations": 3, "agent_learning_rate": RATES, **QUIET, **settings}
    if learner == "mappo":
        own |= {"critic_learning_rate": 1e-3, "num_iterations": 1}
    return algos.spec(learner).config_class(**own)


def trainer_of(learner: str, **settings: Any) -> Trainer:
    trainer = algos.make(learner, task(), mixed_team(), config_of(learner, **settings))
    assert isinstance(trainer, Trainer)
    return trainer


def weights_of(team: Mapping[str, Agent]) -> dict[str, dict[str, torch.Tensor]]:
    return {
        name: {key: weight.detach().clone() for key, weight in agent.model.named_parameters()}
        for name, agent in team.items()
        if isinstance(agent, LMAgent)
    }


def largest_move(
    before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]
) -> dict[str, float]:
    return {key: float((after[key] - before[key]).abs().max()) for key in before}


# --- what is sampled ------------------------------------------------------------------------------


def check_own_settings(rollout: Rollout, team: Mapping[str, Agent]) -> dict[str, set[str]]:
    """Check that each agent spoke by its own settings; return how completions ended, by agent."""
    ends: dict[str, set[str]] = {}
    for node in rollout.nodes():
        for name, group in node.completions.items():
            agent = team[name]
            if not isinstance(agent, LMAgent):
                assert {c.text for c in group} == {node.observations[name][:7]}
                continue
            settings = agent.generation
            for completion in group:
                ids = completion.completion_ids
                assert len(ids) <= settings.max_new_tokens
                assert all(token < len(agent.tokenizer) for token in ids)
                strings = settings.stop_strings or ()
                whole = agent.tokenizer.decode(ids, skip_special_tokens=True)
                assert not any(string in completion.text for string in strings)
                by = "length"
                if ids[-1] in agent.stop_ids:
                    by = "stop token"
                elif any(string in whole for string in strings):
                    by = "stop string"
                    assert whole.startswith(completion.text)
                    earlier = agent.tokenizer.decode(ids[:-1], skip_special_tokens=True)
                    assert not any(string in earlier for string in strings)
                assert completion.finish_reason == ("length" if by == "length" else "stop")
                ends.setdefault(name, set()).add(by)
    return ends


@pytest.mark.parametrize(("joint_mode", "num_generations"), [("aligned", 6), ("cross", 2)])
def test_each_agent_speaks_by_its_own_settings(joint_mode: str, num_generations: int) -> None:
    team = mixed_team()
    sampling: dict[str, Any] = {"num_generations": num_generations, "joint_mode": joint_mode}
    rollout = collect_rollouts(task(), team, [0, 1], **sampling, seed=1)
    assert len(rollout.levels) == 2
    ends = check_own_settings(rollout, team)
    assert ends[RAW] >= {"stop string", "length"}
    assert ends[CHAT] >= {"stop token", "stop string"}
    assert "length" in ends[FROZEN]
    assert "stop string" not in ends[FROZEN]
    for node in rollout.levels[1]:
        prompts = {name: group[0].prompt_ids for name, group in node.completions.items()}
        raw, chat, frozen = (agent for agent in team.values() if isinstance(agent, LMAgent))
        # one goes on from what it said, the others begin anew
        told = raw.tokenizer(node.observations[RAW])["input_ids"]
        assert prompts[RAW][-len(told) :] == tuple(told)
        opening = raw.tokenizer("Describe a city:" if node.row == 0 else "A tale")["input_ids"]
        assert prompts[RAW][: len(opening)] == tuple(opening)
        assert len(prompts[RAW]) > len(opening) + len(told)
        rendered = chat.tokenizer.decode(prompts[CHAT])
        assert rendered == (
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"
            f"{node.observations[CHAT]}<|im_end|>\n<|im_start|>assistant\n"
        )
        assert prompts[FROZEN] == tuple(frozen.tokenizer(node.observations[FROZEN])["input_ids"])


def test_settings_of_the_config_are_everyones_and_none_leaves_each_its_own() -> None:
    own = trainer_of("magrpo").samplers
    everyones = trainer_of("magrpo", max_new_tokens=4, temperature=1.5).samplers
    for name, generation in GENERATION.items():
        agent, other = own[name], everyones[name]
        assert isinstance(agent, LMAgent)
        assert isinstance(other, LMAgent)
        assert agent.generation == generation
        assert (other.generation.max_new_tokens, other.generation.temperature) == (4, 1.5)
        assert other.generation.stop_strings == generation.stop_strings
        assert (other.generation.top_p, other.generation.top_k) == (
            generation.top_p,
            generation.top_k,
        )


# --- what is learnt -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        {"num_generations": 3},
        {"joint_mode": "cross", "num_generations": 2},
        {"num_generations": 3, "mask_truncated_completions": True, "loss_type": "token_mean"},
        {"learner": "marloo", "num_generations": 3},
    ],
    ids=["aligned", "cross", "without those that were cut", "the others' mean"],
)
def test_loss_and_gradients_equal_the_slow_reference(case: dict[str, Any]) -> None:
    case = dict(case)
    learner, rates = case.pop("learner", "magrpo"), {RAW: 1e-12, CHAT: 2e-12}
    trainer = trainer_of(learner, max_grad_norm=None, agent_learning_rate=rates, **case)
    rollout = trainer.collect([0, 1])
    team = trainer.samplers
    assert check_own_settings(rollout, team)[RAW] > {"length"}
    models = {
        name: agent.model
        for name, agent in team.items()
        if isinstance(agent, LMAgent) and not agent.frozen
    }
    assert list(models) == [RAW, CHAT]
    expected = magrpo_loss(
        rollout,
        models,
        GENERATION,
        normalize=learner == "magrpo",
        baseline="mean" if learner == "magrpo" else "mean of the others",
        loss_type=case.get("loss_type", "sequence_sum"),
        mask_truncated=case.get("mask_truncated_completions", False),
    )
    updated_as_expected(trainer, rollout, models, expected)


@pytest.mark.parametrize("joint_mode", ["aligned", "cross"])
@pytest.mark.parametrize("learner", LEARNERS)
def test_the_trained_move_at_rates_of_their_own_and_the_frozen_do_not(
    learner: str, joint_mode: str
) -> None:
    trainer = trainer_of(learner, num_generations=2, joint_mode=joint_mode, weight_decay=0.0)
    before = weights_of(trainer.agents)
    metrics = trainer.update(trainer.collect([0, 1]))
    assert all(math.isfinite(value) for value in metrics.values())
    after = weights_of(trainer.agents)
    assert set(largest_move(before[FROZEN], after[FROZEN]).values()) == {0.0}
    steps = {each.policy.name: _num_steps(each.optimizer) for each in trainer.updaters}
    assert list(steps) == [RAW, CHAT]
    for name, rate in RATES.items():
        moves = largest_move(before[name], after[name]).values()
        # the first step of Adam is its learning rate, wherever there is a gradient
        assert 0.95 * rate <= max(moves) <= 1.05 * rate * steps[name]
    assert [each.learning_rate for each in trainer.updaters] == list(RATES.values())


def _num_steps(optimizer: torch.optim.Optimizer) -> int:
    (steps,) = {int(state["step"]) for state in optimizer.state.values()}
    return steps


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_run_that_is_killed_goes_on_to_the_bit(learner: str, tmp_path: Path) -> None:
    def make_again(output: dict[str, Any], kept: Kept) -> Any:
        config = config_of(
            learner,
            num_generations=2,
            num_train_epochs=2,  # four rollouts
            rollout_batch_size=1,
            lr_scheduler_type="linear",
            eval_interval=0,
            checkpoint_interval=2,
            **output,
        )
        options: dict[str, Any] = {"eval_env": task(), "loggers": [kept]}
        return algos.make(learner, task(), mixed_team(), config, **options)

    # an evaluation, rollouts 1 and 2, the checkpoint, rollout 3; killed at 4
    found = assert_goes_on_to_the_bit(make_again, tmp_path, entries=4, done=3)
    rates = [each.optimizer.param_groups[0]["initial_lr"] for each in found.updaters]
    assert rates == list(RATES.values())


def test_another_rate_or_stop_string_is_another_run(tmp_path: Path) -> None:
    trainer = trainer_of("magrpo")
    trainer.save_checkpoint(tmp_path)
    with pytest.raises(ValueError, match="agent_learning_rate"):
        trainer_of("magrpo", agent_learning_rate={**RATES, CHAT: 1e-5}).train(resume_from=tmp_path)
    team = mixed_team()
    raw = team[RAW]
    assert isinstance(raw, LMAgent)
    team[RAW] = raw.with_generation(stop_strings=("z",))
    other = algos.make("magrpo", task(), team, config_of("magrpo"))
    with pytest.raises(ValueError, match="stop_strings"):
        other.train(resume_from=tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"system_prompt": "Be long."},
            "system_prompt of chat: 'Be brief.' there, 'Be long.' here",
        ),
        ({"chat_template": False, "system_prompt": None}, "chat_template of chat: True there"),
        ({"history": "append"}, "history of chat: none there, append here"),
        ({"overflow": "truncate_left"}, "overflow of chat: raise there, truncate_left here"),
    ],
)
def test_another_way_to_read_prompts_is_another_run(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    trainer_of("magrpo").save_checkpoint(tmp_path)
    team = mixed_team()
    team[CHAT] = agent_with(chatml(), Olmo2Config, GENERATION[CHAT], **{**OF_CHAT, **changes})
    other = algos.make("magrpo", task(), team, config_of("magrpo"))
    with pytest.raises(ValueError, match=words):
        other.train(resume_from=tmp_path)


def test_what_is_saved_plays_as_it_did(tmp_path: Path) -> None:
    trainer = trainer_of("magrpo", num_train_epochs=1)
    trainer.train()
    trainer.save_model(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {RAW, CHAT, FROZEN}
    options = {RAW: OF_RAW, CHAT: OF_CHAT, FROZEN: {}}
    loaded: dict[str, Agent] = {
        name: LMAgent.from_pretrained(
            tmp_path / name, device="cpu", generation=GENERATION[name], **options[name]
        )
        for name in options
    }
    loaded[SCRIPTED] = trainer.agents[SCRIPTED]
    one, other = (
        collect_rollouts(task(), team, [0, 1], num_generations=2, seed=5)
        for team in (trainer.agents, loaded)
    )
    for mine, theirs in zip(one.nodes(), other.nodes(), strict=True):
        assert mine.observations == theirs.observations
        assert mine.rewards == theirs.rewards


# --- learning rates by agent ----------------------------------------------------------------------


def shared_team(*, frozen: bool = False) -> dict[str, Agent]:
    """Two that share their weights, one of its own, and one that says what it is told to."""
    team = mixed_team()
    frozen_one = team[FROZEN]
    assert isinstance(frozen_one, LMAgent)
    frozen_one.frozen = frozen
    return {**team, CHAT: team[RAW]}


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ({RAW: 1e-3, "chatt": 1e-3}, r"\['raw', 'chat'\], got 'chatt'. Did you mean 'chat'\?"),
        ({RAW: 1e-3, CHAT: 1e-3, FROZEN: 1e-3}, r"got one for 'frozen', which is not; leave it"),
        ({RAW: 1e-3, CHAT: 1e-3, SCRIPTED: 1e-3}, r"got one for 'scripted', which is not"),
        ({CHAT: 1e-3}, r"each policy that is trained, got none for 'raw'; add it, or give one"),
    ],
)
def test_rates_of_others_than_the_trained_are_refused(rates: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        trainer_of("magrpo", agent_learning_rate=rates)


def test_agents_that_share_weights_have_one_rate() -> None:
    def rates_of(rates: dict[str, float]) -> list[float]:
        config = config_of("magrpo", agent_learning_rate=rates)
        trainer = algos.make("magrpo", task(), shared_team(), config)
        assert isinstance(trainer, Trainer)
        return [each.learning_rate for each in trainer.updaters]

    assert rates_of({FROZEN: 0.1, RAW: 0.2, CHAT: 0.2}) == [0.2, 0.1]
    assert rates_of({FROZEN: 0.1, CHAT: 0.2}) == [0.2, 0.1]
    with pytest.raises(ValueError, match=r"for \['raw', 'chat'\], which share their weights"):
        rates_of({RAW: 0.1, CHAT: 0.2, FROZEN: 0.1})
    with pytest.raises(ValueError, match="got none for 'raw'"):
        rates_of({FROZEN: 0.1})


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({}, ValueError, "at least one agent, got an empty dict"),
        ({"a": 0.0}, ValueError, "agent_learning_rate of a above 0"),
        ({"a": math.nan}, ValueError, "finite agent_learning_rate of a"),
        ({"a": "1e-3"}, TypeError, "agent_learning_rate of a to be float, got '1e-3'"),
        ({"a": True}, TypeError, "agent_learning_rate of a to be float"),
        ({0: 1e-3}, TypeError, "agents' names in agent_learning_rate, got 0"),
        ([1e-3], TypeError, "agent_learning_rate to be float, got"),
    ],
)
def test_rates_that_are_none_are_refused(wrong: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        MAGRPOConfig(agent_learning_rate=wrong)


def test_rates_are_the_configs_own_in_one_order() -> None:
    given = {"b": 2e-3, "a": 1e-3}
    config = MAGRPOConfig(agent_learning_rate=given)
    given["b"] = 1.0
    assert config == MAGRPOConfig(agent_learning_rate={"a": 1e-3, "b": 2e-3})
    assert str(config) == str(MAGRPOConfig(agent_learning_rate={"a": 1e-3, "b": 2e-3}))
