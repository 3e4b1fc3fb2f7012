"""Real pretrained weights: SmolLM2-135M-Instruct, whose pad token is its end token."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from motet.agents import GenerationConfig, LMAgent
from motet.algos import MAGRPOConfig, MAGRPOTrainer
from motet.algos.updates.batch import Sample, collate
from motet.algos.updates.log_probs import completion_log_probs
from motet.envs import make

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "smollm2.py"


@pytest.fixture(scope="module")
def folder() -> Path:
    spec = importlib.util.spec_from_file_location("smollm2", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.smollm2_folder()


def load(folder: Path) -> LMAgent:
    generation = GenerationConfig(max_new_tokens=24)
    return LMAgent.from_pretrained(folder, generation=generation, chat_template=True, device="cpu")


def test_its_pad_token_is_its_end_token_and_its_prompts_hold_it(folder: Path) -> None:
    agent = load(folder)
    end = agent.tokenizer.eos_token_id
    assert agent.tokenizer.pad_token_id == end
    assert agent.stop_ids == {end}
    assert end in agent.encode("Tell a joke about dinosaurs:")


def test_kept_log_probs_are_those_of_the_update(folder: Path) -> None:
    agent = load(folder)
    prompts = ["Tell a joke about dinosaurs:", "Say yes."]
    completions = [c for group in agent.act(prompts, 2, seed=0) for c in group]
    batch = collate([(Sample("a", completion, 1.0, 1.0),) for completion in completions])
    with torch.no_grad():
        log_probs = completion_log_probs(agent.model, batch, agent.generation)
    torch.testing.assert_close(log_probs, batch.old_log_probs, rtol=1e-3, atol=1e-3)


def test_greedy_text_is_that_of_plain_generate(folder: Path) -> None:
    agent = load(folder).with_generation(do_sample=False, max_new_tokens=12)
    ids = torch.tensor([agent.encode("Name a colour.")])
    expected = agent.model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False
    )
    (completion,) = agent.act(["Name a colour."])[0]
    assert list(completion.completion_ids) == expected[0, ids.shape[1] :].tolist()
    assert completion.text.strip()


def test_two_agents_take_a_two_turn_rollout_and_an_update(folder: Path, tmp_path: Path) -> None:
    team = {name: load(folder) for name in ("agent_0", "agent_1")}
    before = team["agent_0"].model.model.layers[0].self_attn.q_proj.weight.clone()
    config = MAGRPOConfig(num_generations=2, agent_learning_rate=1e-5, progress_bar=False)
    trainer = MAGRPOTrainer(make("story-length-ratio-v0", num_turns=2), team, config)
    rollout = trainer.collect([0])
    assert [len(level) for level in rollout.levels] == [1, 2]
    metrics = trainer.update(rollout)
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["train/num_optimizer_steps"] == 2

    trainer.save_model(tmp_path)
    for name, agent in team.items():
        trained = agent.model.model.layers[0].self_attn.q_proj.weight
        assert not torch.equal(trained, before)
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / name)
        assert torch.equal(loaded.model.layers[0].self_attn.q_proj.weight, trained)
        assert len(AutoTokenizer.from_pretrained(tmp_path / name)) == len(agent.tokenizer)
