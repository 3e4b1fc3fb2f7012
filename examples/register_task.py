"""Make a task of your own: rows, prompts, a reward and a transition in one file.

In `unison-v0` two voices that cannot hear each other write about one subject, the first a story,
the second a joke. They are to open with the same word. If there is a second turn, each is told
how the other began.

Run it with:
    python examples/register_task.py
"""

from typing import Any

import tyro

from motet import agents, algos, envs

SUBJECTS = ("dragon", "robot", "knight", "pirate", "penguin", "wizard", "ghost", "giant")


def opening(text: str) -> str:
    return (text.split(maxsplit=1) or [""])[0]


def unison_reward(first: list[str], second: list[str], subject: list[str]) -> list[float]:
    """Pay 0.5 for opening alike, 0.25 for each text with the row's `subject`, a dataset column."""
    return [
        0.5 * (opening(a) == opening(b) != "") + 0.25 * ((noun in a) + (noun in b))
        for a, b, noun in zip(first, second, subject, strict=True)
    ]


def tell_openings(agent_completions: list[str], prompt_history_per_agent: Any) -> list[str]:
    """Repeat each voice's first prompt, with the word that the other one opened with."""
    heard = [opening(text) for text in reversed(agent_completions)]
    return [
        f"{prompts[0]}\n\nThe other voice began with '{word}'. Begin alike:"
        for prompts, word in zip(prompt_history_per_agent, heard, strict=True)
    ]


@envs.register("unison-v0", num_turns=1)
def unison(**kwargs: Any) -> envs.TextEnv:
    return envs.TextEnv(
        dataset=[{"prompt": f"Tell me about a {noun}:", "subject": noun} for noun in SUBJECTS],
        reward_func=unison_reward,
        transition=tell_openings,
        formatters=[
            lambda row: f"Write a bedtime story for a {row['subject']}:",
            lambda row: f"Tell a joke about {row['subject']}s:",
        ],
        **kwargs,
    )


def main(num_updates: int = 16) -> None:
    """Check the task, play it for two turns, then let the two voices practise one turn."""
    envs.check_env("unison-v0", num_turns=2)

    env = envs.make("unison-v0", num_turns=2, render_mode="ansi")
    short = agents.GenerationConfig(max_new_tokens=24)
    team = {name: agents.pocket(generation=short) for name in env.possible_agents}
    observations, _ = env.reset(seed=0)
    while env.agents:
        actions = {name: team[name].act([observations[name]])[0][0].text for name in env.agents}
        observations, *_ = env.step(actions)
    print(env.render())

    config = algos.MAGRPOConfig(
        num_train_epochs=num_updates, rollout_batch_size=8, num_generations=8,
        agent_learning_rate=5e-4,
    )  # fmt: skip
    trainer = algos.make("magrpo", envs.make("unison-v0"), team, config)
    before = trainer.evaluate(num_samples=8).metrics["reward_mean"]
    trainer.train()
    after = trainer.evaluate(num_samples=8).metrics["reward_mean"]
    print(f"Mean reward {before:.2f} before {num_updates} updates, {after:.2f} after.")


if __name__ == "__main__":
    tyro.cli(main)
