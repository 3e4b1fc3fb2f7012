"""Train two writers that have little in common: models, sampling, stop strings, learning rates.

The first writes one sentence, which a stop string ends; the second goes on with its conversation
from turn to turn, and learns to write two to three times as much. With a model that has a chat
template, its observations are messages of a user. A scripted writer can take the first's place.

Run it with:
    python examples/mixed_team.py
    python examples/mixed_team.py --second-model HuggingFaceTB/SmolLM2-135M-Instruct
"""

import tyro

from motet import agents, algos, envs


def load(model: str, generation: agents.GenerationConfig, system_prompt: str) -> agents.LMAgent:
    """Return a writer that remembers, with its chat template where its tokenizer has one."""
    path = agents.pocket_path() if model == "pocket" else model
    writer = agents.LMAgent.from_pretrained(path, generation=generation, history="append")
    if writer.tokenizer.chat_template is None:
        return writer
    return agents.LMAgent(
        writer.model,
        writer.tokenizer,
        generation=generation,
        history="append",
        chat_template=True,
        system_prompt=system_prompt,
    )


def main(
    first_model: str = "pocket",
    second_model: str = "pocket",
    first_learning_rate: float = 2e-4,
    second_learning_rate: float = 1e-3,
    num_updates: int = 4,
    scripted: bool = False,
) -> None:
    """Train the team over two turns, and compare it with what it was on held-out instructions.

    Args:
        first_model: hub id or folder; "pocket" is the embedded model.
        second_model: as `first_model`.
        first_learning_rate: of the first writer.
        second_learning_rate: of the second writer.
        num_updates: updates of each model, every one on all ten instructions.
        scripted: let the first writer always say the same sentence instead.
    """
    env = envs.make("story-length-ratio-v0", num_turns=2)
    held_out = envs.make("story-length-ratio-v0", split="eval", num_turns=2)
    sentence = agents.GenerationConfig(max_new_tokens=40, stop_strings=(".", "!", "?"))
    story = agents.GenerationConfig(max_new_tokens=80, temperature=0.8, top_p=0.95)
    first: agents.Agent = agents.FixedAgent("A dragon lived beside the sea")
    if not scripted:
        first = load(first_model, sentence, "Answer with one sentence.")
    second = load(second_model, story, "Answer with two or three sentences.")
    team = {"agent_0": first, "agent_1": second}

    rates = {"agent_0": first_learning_rate, "agent_1": second_learning_rate}
    config = algos.MAGRPOConfig(
        num_train_epochs=num_updates,
        rollout_batch_size=10,
        num_generations=4,
        # of those that are trained
        agent_learning_rate={"agent_1": second_learning_rate} if scripted else rates,
    )
    trainer = algos.MAGRPOTrainer(env, team, config)

    before = algos.evaluate(held_out, trainer.agents, num_samples=4)
    trainer.train()
    after = algos.evaluate(held_out, trainer.agents, num_samples=4)
    for name, (said, *_) in after.rollout.levels[0][0].completions.items():
        print(f"{name} writes {len(said.text)} characters: {said.text.strip()}")
    print(
        f"Mean reward on held-out instructions {before.metrics['reward_mean']:.3f} before, "
        f"{after.metrics['reward_mean']:.3f} after."
    )


if __name__ == "__main__":
    tyro.cli(main)
