"""Train two writers that share one model, each with a LoRA adapter of its own.

The model is in memory once and stays as it is; a writer is the few weights of its adapter, and
those are all that is trained and saved. Needs `pip install "motet[lora]"`.

Run it with:
    python examples/lora_team.py
    python examples/lora_team.py --model Qwen/Qwen2.5-0.5B --agent-learning-rate 1e-4
    python examples/lora_team.py --load-in-4bit    # needs `pip install "motet[quantization]"`
"""

from pathlib import Path

import tyro
from peft import LoraConfig
from transformers import BitsAndBytesConfig

from motet import agents, algos, envs
from motet.agents.adapters import adapter_parameters


def main(
    model: str = "pocket",
    num_updates: int = 8,
    rank: int = 8,
    agent_learning_rate: float = 1e-2,
    load_in_4bit: bool = False,
    output_dir: Path | None = None,
) -> None:
    """Train the adapters, and compare the writers with what they were on held-out instructions.

    Args:
        model: hub id or folder of the base; "pocket" is the embedded model.
        num_updates: updates of each adapter, every one on all ten instructions.
        rank: of the adapters; a layer's weight gets rank * (inputs + outputs) new numbers.
        agent_learning_rate: about ten times that of training all weights.
        load_in_4bit: hold the base in 4 bits.
        output_dir: where to put a folder for each adapter, which peft loads.
    """
    env = envs.make("story-length-ratio-v0")
    held_out = envs.make("story-length-ratio-v0", split="eval")
    short = agents.GenerationConfig(max_new_tokens=64)
    path = agents.pocket_path() if model == "pocket" else model
    base = agents.LMAgent.from_pretrained(
        path,
        quantization_config=BitsAndBytesConfig(load_in_4bit=True) if load_in_4bit else None,
        generation=short,
        seed=0,
    )
    size = base.model.num_parameters()

    lora = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    team = {name: base.with_adapter(name, lora) for name in env.possible_agents}
    for name in team:
        trained = sum(weight.numel() for weight in adapter_parameters(base.model, name))
        print(f"{name} trains {trained:,} weights, beside {size:,} of the base.")

    config = algos.MAGRPOConfig(
        num_train_epochs=num_updates,
        rollout_batch_size=10,
        num_generations=8,
        agent_learning_rate=agent_learning_rate,
    )
    trainer = algos.MAGRPOTrainer(env, team, config)

    before = algos.evaluate(held_out, trainer.agents, num_samples=8)
    trainer.train()
    after = algos.evaluate(held_out, trainer.agents, num_samples=8)
    print(
        f"Mean reward on held-out instructions {before.metrics['reward_mean']:.3f} before, "
        f"{after.metrics['reward_mean']:.3f} after."
    )
    if output_dir is not None:
        trainer.save_model(output_dir)


if __name__ == "__main__":
    tyro.cli(main)
