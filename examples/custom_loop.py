"""Play one episode with a loop of your own: two pocket language models, feedback between turns.

An env of Motet is a PettingZoo `ParallelEnv` whose observations and actions are bare strings. All
that an agent does is `act`: from observations to completions, of which an env needs the text.

Run it with:
    python examples/custom_loop.py
"""

import tyro

from motet import agents, envs


def main(num_turns: int = 2) -> None:
    """Print what two untrained writers read, write and earn in each turn."""
    env = envs.make("story-length-ratio-v0", num_turns=num_turns)
    writers = {name: agents.pocket() for name in env.possible_agents}

    observations, infos = env.reset(seed=0)
    while env.agents:
        actions = {name: writers[name].act([observations[name]])[0][0].text for name in env.agents}
        print(f"--- turn {infos['agent_0']['turn'] + 1} ---\n")
        for name, text in actions.items():
            print(f"{name} reads:  {observations[name]}")
            print(f"{name} writes: {text.strip()}\n")
        observations, rewards, terminations, truncations, infos = env.step(actions)
        print(f"Both earn {rewards['agent_0']:.2f}.\n")


if __name__ == "__main__":
    tyro.cli(main)
