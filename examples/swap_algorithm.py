"""Train the same team on the same env with another learner: one name changes.

All learners are called alike, so that a comparison is a loop over names; `algos.registry` has them.

Run it with:
    python examples/swap_algorithm.py --algo marloo
"""

from typing import Literal

import tyro

from motet import agents, algos, envs


def main(algo: Literal["magrpo", "marloo", "mareinforce"] = "magrpo", num_updates: int = 4) -> None:
    """Train two pocket models, and compare them with what they were on held-out instructions.

    Args:
        algo: what is subtracted from a completion's return: the mean of its group, the mean of
            the others in it, or nothing.
        num_updates: updates of each model, every one on all ten instructions.
    """
    env = envs.make("story-length-ratio-v0")
    held_out = envs.make("story-length-ratio-v0", split="eval")
    short = agents.GenerationConfig(max_new_tokens=64)
    team = {name: agents.pocket(generation=short) for name in env.possible_agents}

    config = algos.MAGRPOConfig(
        num_train_epochs=num_updates,
        rollout_batch_size=10,
        num_generations=8,
        agent_learning_rate=1e-3,
        advantage_normalization=algo == "magrpo",  # its relatives do without
    )
    trainer = algos.make(algo, env, team, config)

    before = algos.evaluate(held_out, trainer.agents, num_samples=8)
    trainer.train()
    after = algos.evaluate(held_out, trainer.agents, num_samples=8)
    print(
        f"{algo}: mean reward on held-out instructions "
        f"{before.metrics['reward_mean']:.3f} before, {after.metrics['reward_mean']:.3f} after."
    )


if __name__ == "__main__":
    tyro.cli(main)
