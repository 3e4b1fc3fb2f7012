"""Let PPO of stable-baselines3 choose how two frozen language models begin their stories.

No weight of a language model moves: a small policy picks one of six openings for each writer, and
the pocket model goes on from there. Some openings lead to the end of a story, others to a long
one, and the second story should be two to three times as long as the first.

Run it with:
    python examples/sb3_choices.py
"""

from collections import Counter
from typing import Any

import tyro
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

from motet import agents, envs

OPENINGS = ("", "Some time ago,", "Once,", "Then", "At last,", "In the end,")
NUM_EPISODES = 32


def choosing(split: str, writer: agents.LMAgent) -> VecEnv:
    """Return episodes side by side, in which a pick is an opening that the writer goes on from."""
    env = envs.make("story-length-ratio-v0", split=split, shuffle=True)
    strategies = [f"{{prompt}} {opening}".strip() for opening in OPENINGS]
    env = envs.PickOfK(env, strategies=strategies, writer=writer)
    return VecMonitor(envs.to_sb3_vec_env(env, NUM_EPISODES))


def main(num_steps: int = 4096, seed: int = 0) -> None:
    """Train one policy that both agents share, and compare it with what it was.

    Args:
        num_steps: picks to learn from; each agent's counts.
        seed: seed of the policy, the order of instructions and the stories.
    """
    writer = agents.pocket(generation=agents.GenerationConfig(max_new_tokens=64))
    train, held_out = choosing("train", writer), choosing("eval", writer)
    model = PPO(
        "MlpPolicy", train, n_steps=4, batch_size=64, learning_rate=2e-3, seed=seed, device="cpu"
    )

    held_out.seed(seed)
    before, _ = evaluate_policy(model, held_out, n_eval_episodes=256, deterministic=False)
    model.learn(num_steps)
    held_out.seed(seed)
    after, _ = evaluate_policy(model, held_out, n_eval_episodes=256)
    print(f"Mean reward on held-out instructions {before:.3f} before, {after:.3f} after.")

    observations: Any = held_out.reset()
    picked, _ = model.predict(observations, deterministic=True)
    for i, agent in enumerate(held_out.get_attr("possible_agents")[0]):
        pick, times = Counter(picked[i::2].tolist()).most_common(1)[0]
        print(f"{agent} mostly begins with {OPENINGS[pick]!r}: {times} times of {NUM_EPISODES}.")


if __name__ == "__main__":
    tyro.cli(main)
