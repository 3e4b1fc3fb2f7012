"""Train the same team on the same env with another learner: one name changes.

All learners are called alike, so that a comparison is a loop over names; `algos.registry` has them.

Run it with:
    python examples/swap_algorithm.py --algo marloo
"""

from dataclasses import replace
from typing import Any

import tyro

from motet import agents, algos, envs


def settings(algo: str, num_updates: int) -> Any:
    """Return a learner's own settings, with those that all learners of rollouts share.

    Args:
        algo: its name.
        num_updates: passes over the instructions.
    """
    config = algos.spec(algo).config_class()
    if not isinstance(config, algos.TrainerConfig):
        return config  # teams that are not trained, say
    return replace(
        config,
        num_train_epochs=num_updates,
        rollout_batch_size=10,
        num_generations=8,
        agent_learning_rate=1e-3,
    )


def main(algo: str = "magrpo", num_updates: int = 4) -> None:
    """Train two pocket models, and compare them with what they were on held-out instructions.

    Args:
        algo: name of the learner, such as marloo, ippo, madpo or best-of-n.
        num_updates: updates of each model, every one on all ten instructions.
    """
    env = envs.make("story-length-ratio-v0")
    held_out = envs.make("story-length-ratio-v0", split="eval")
    short = agents.GenerationConfig(max_new_tokens=64)
    team = {name: agents.pocket(generation=short) for name in env.possible_agents}
    trainer = algos.make(algo, env, team, settings(algo, num_updates), eval_env=held_out)

    before = trainer.evaluate(num_samples=8)
    trainer.train()
    after = trainer.evaluate(num_samples=8)
    print(
        f"{algo}: mean reward on held-out instructions "
        f"{before.metrics['reward_mean']:.3f} before, {after.metrics['reward_mean']:.3f} after."
    )


if __name__ == "__main__":
    tyro.cli(main)
