"""Before fine-tuning: how far does choosing among six ways to ask a frozen language model get?

No weight of the language model moves: PPO of stable-baselines3 picks one of six openings for each
writer, and the pocket model goes on from there. Some openings lead to the end of a story, others to
a long one, and the second story should be two to three times as long as the first. What fine-tuning
reaches on the same task, `examples/story_len_ratio.py` shows.

Run it with:
    python examples/sb3_choices.py
"""

from collections import Counter
from typing import Literal

import tyro

from motet import agents, algos, envs

OPENINGS = ("", "Some time ago,", "Once,", "Then", "At last,", "In the end,")


def main(
    algo: Literal["sb3-ppo", "sb3-a2c", "sb3-dqn"] = "sb3-ppo",
    num_steps: int = 4096,
    num_samples: int = 32,
    seed: int = 0,
) -> None:
    """Train one policy that both agents share, and compare it with what it was.

    Args:
        algo: which learner picks.
        num_steps: picks to learn from; each agent's counts.
        num_samples: stories of each writer to each held-out instruction, before and after.
        seed: seed of the policy, the order of instructions and the stories.
    """
    short = agents.GenerationConfig(max_new_tokens=64)
    writer = agents.pocket(generation=short, frozen=True)
    config = algos.SB3Config(
        strategies=[f"{{prompt}} {opening}".strip() for opening in OPENINGS],
        total_timesteps=num_steps,
        num_envs=32,
        learning_rate=2e-3,
        n_steps=1 if algo == "sb3-dqn" else 4,
        eval_interval=0,
        seed=seed,
    )
    env = envs.make("story-length-ratio-v0", shuffle=True)
    held_out = envs.make("story-length-ratio-v0", split="eval")
    trainer = algos.make(algo, env, writer, config)

    before = algos.evaluate(held_out, trainer.agents, num_samples=num_samples, seed=seed)
    trainer.train()
    after = algos.evaluate(
        held_out, trainer.agents, num_samples=num_samples, do_sample=False, seed=seed
    )
    print(
        f"Mean reward on held-out instructions {before.metrics['reward_mean']:.3f} before, "
        f"{after.metrics['reward_mean']:.3f} after."
    )

    for name, agent in trainer.agents.items():
        assert isinstance(agent, algos.PickAgent)
        prompts = [node.observations[name] for node in after.rollout.nodes()]
        pick, times = Counter(agent.picks(prompts)).most_common(1)[0]
        print(f"{name} mostly begins with {OPENINGS[pick]!r}: {times} times of {len(prompts)}.")


if __name__ == "__main__":
    tyro.cli(main)
