"""Show that learners miss on purpose where success ends the episode, and three ways out.

Each turn of `story-length-ratio-v0` pays up to 1, near misses nearly as much. If an episode ends at
success, one hit at once is worth 1, and two near misses before the hit are worth nearly 3: a
learner that adds up rewards learns to miss. PPO picks one of eight texts for each of the two
writers, on the same three-turn task under four rules; docs/early_termination.md has the results.

Run it with:
    python examples/early_termination.py            # 4 rules, 3 discounts, 5 seeds: 10 minutes
    python examples/early_termination.py --seeds 0 --gammas 1.0 --num-timesteps 4096
"""

import statistics
from collections.abc import Callable
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table
from stable_baselines3 import PPO

from motet import envs
from motet.envs.story_length_ratio import length_ratio_reward

LENGTHS = (10, 13, 16, 19, 22, 25, 40, 60)  # 10 and 19 nearly hit; 10 and 22 hit
NUM_TURNS = 3
THRESHOLD = 0.99


def story(**kwargs: Any) -> envs.TextEnv:
    env: envs.TextEnv = envs.make("story-length-ratio-v0", num_turns=NUM_TURNS, **kwargs)
    return env


RULES: dict[str, Callable[[], Any]] = {
    "never ends early": story,
    "ends at success": lambda: story(early_termination_threshold=THRESHOLD),
    "ends at success, credited": lambda: story(
        early_termination_threshold=THRESHOLD, early_termination="branch"
    ),
    "ends at success, pays improvement": lambda: envs.wrappers.RewardShaping(
        story(early_termination_threshold=THRESHOLD), "improvement"
    ),
}


def picking(rule: str) -> Any:
    return envs.wrappers.PickOfK(RULES[rule](), ["x" * length for length in LENGTHS])


def trained(rule: str, gamma: float, num_timesteps: int, seed: int) -> PPO:
    venv = envs.to_sb3_vec_env(picking(rule), num_envs=8)
    model = PPO(
        "MlpPolicy", venv, n_steps=128, batch_size=256, gamma=gamma, seed=seed, device="cpu"
    )
    return model.learn(num_timesteps)


def played(model: PPO, rule: str, num_episodes: int = 100) -> tuple[float, float, float]:
    """Return means over sampled episodes: turns, hits in turn 1, and the best reward."""
    turns, hits, best = [], [], []
    env = picking(rule)
    for episode in range(num_episodes):
        observations, _ = env.reset(seed=episode)
        earned = []
        while env.agents:
            actions = {name: int(model.predict(seen)[0]) for name, seen in observations.items()}
            observations, _, _, _, infos = env.step(actions)
            texts = [[infos[name]["text"]] for name in env.possible_agents]
            earned += length_ratio_reward(*texts)
        turns.append(len(earned))
        hits.append(earned[0] > THRESHOLD)
        best.append(max(earned))
    return statistics.mean(turns), statistics.mean(hits), statistics.mean(best)


def main(
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4),
    gammas: tuple[float, ...] = (1.0, 0.9, 0.5),
    num_timesteps: int = 40_000,
) -> None:
    """Train PPO under each rule and print what it learned to do."""
    table = Table("rule", "discount", "turns used", "hits in turn 1", "best reward")
    for rule in RULES:
        for gamma in gammas:
            runs = [played(trained(rule, gamma, num_timesteps, seed), rule) for seed in seeds]
            table.add_row(
                rule,
                f"{gamma:g}",
                *(f"{statistics.mean(each):.2f}" for each in zip(*runs, strict=True)),
            )
    Console().print(table)


if __name__ == "__main__":
    tyro.cli(main)
