import math
from functools import partial

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from motet.algos import MAGRPOConfig, MAGRPOTrainer

train_dataset = Dataset.from_dict(
    {
        "prompt": [
            "Describe a city in the clouds:",
            "Write a bedtime story for a dragon:",
            "Tell a joke about dinosaurs:",
            "Invent a new type of fruit:",
        ]
    }
)
eval_dataset = Dataset.from_dict(
    {
        "prompt": [
            "Write a scene where the moon talks:",
            "Design a playground on Mars:",
        ]
    }
)

model_name = "Qwen/Qwen2.5-0.5B"
output_dir = "story_length_ratio_two_turns"
tokenizer = AutoTokenizer.from_pretrained(model_name)
agents = [AutoModelForCausalLM.from_pretrained(model_name) for _ in range(2)]


def first_formatter(row):
    return f"Be brief. {row['prompt']}"


def second_formatter(row):
    return f"Take your time. {row['prompt']}"


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


def external_transition(
    prompt,
    agent_completions,
    num_agents,
    prompt_history_per_agent=None,
    response_history_per_agent=None,
):
    """Tell both writers how long their texts were, and what to aim for."""
    lengths = [len(text) for text in agent_completions]
    ratio = lengths[1] / max(lengths[0], 1)
    prompts = []
    for i in range(num_agents):
        drafts = len(response_history_per_agent[i])
        prompts.append(
            f"{prompt}\n\n"
            f"Draft {drafts} of your text has {lengths[i]} characters. "
            f"The second text is {ratio:.2f} times as long as the first; "
            "the goal is 2 to 3 times. Write the next draft:"
        )
    return prompts


config = MAGRPOConfig(
    num_train_epochs=2,
    agent_learning_rate=5e-5,
    logging_steps=4,
    num_generations=4,
    num_turns=2,
    max_new_tokens=64,
    early_termination_threshold=0.9,
)

trainer = MAGRPOTrainer(
    agents=agents,
    reward_func=partial(proper_length_ratio_reward, target_min=2, target_max=3),
    external_transition=external_transition,
    formatters=[first_formatter, second_formatter],
    args=config,
    train_dataset=train_dataset,
    eval_dataset=eval_dataset,
    tokenizer=tokenizer,
)

trainer.train()
trainer.save_model(f"{output_dir}/models")
