import math
from functools import partial

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from motet.algos import MAGRPOConfig, MAGRPOTrainer
from motet.envs import RewardProcessors

train_dataset = Dataset.from_dict(
    {
        "prompt": [
            "Describe a city in the clouds:",
            "Invent a new holiday and explain it:",
            "Write a bedtime story for a dragon:",
            "Explain how teleportation might work:",
            "Tell a joke about dinosaurs:",
            "Describe a world without electricity:",
            "Create a superhero with a unique power:",
            "Write a scene where the moon talks:",
            "Invent a new type of fruit:",
            "Design a playground on Mars:",
        ]
    }
)

model_name = "Qwen/Qwen2.5-0.5B"
output_dir = "story_length_ratio"
tokenizer = AutoTokenizer.from_pretrained(model_name)
agents = [AutoModelForCausalLM.from_pretrained(model_name) for _ in range(2)]


def proper_length_ratio_reward(completions1, completions2, target_min=2.0, target_max=3.0):
    """1 where the second text is target_min to target_max times as long, less further away."""
    rewards = []
    for first, second in zip(completions1, completions2):
        if not first:
            rewards.append(0.0)
            continue
        ratio = len(second) / len(first)
        distance = max(target_min - ratio, ratio - target_max, 0.0)
        rewards.append(math.exp(-distance))
    return rewards


config = MAGRPOConfig(
    num_train_epochs=3,
    agent_learning_rate=5e-5,
    logging_steps=10,
    num_generations=8,
    num_turns=1,
    max_new_tokens=128,
)

wandb_config = {
    "project": "story-length-ratio",
    "entity": "your-team",
    "name": "two-writers",
}

trainer = MAGRPOTrainer(
    agents=agents,
    reward_func=partial(proper_length_ratio_reward, target_min=2, target_max=3),
    reward_processor=RewardProcessors.scale(factor=100.0),
    args=config,
    train_dataset=train_dataset,
    tokenizer=tokenizer,
    wandb_config=wandb_config,
)

trainer.train()
trainer.save_model(f"{output_dir}/models")
