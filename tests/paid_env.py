"""An environment whose agents say what they earn: rewards of a wrapper can be computed by hand."""

from motet.envs import TextEnv

NAMES = ("agent_0", "agent_1")


def as_said(first, second):
    """Pay each agent the number that it says."""
    return {"agent_0": [float(text) for text in first], "agent_1": [float(text) for text in second]}


def next_prompts(prompt, agent_completions, num_agents, turn):
    return [f"{prompt} after {turn}: {text}" for text in agent_completions]


def paid_env(num_turns=3, **kwargs):
    rows = [{"prompt": "p"}, {"prompt": "q"}]
    return TextEnv(rows, as_said, transition=next_prompts, num_turns=num_turns, **kwargs)


def said(first, second):
    return {"agent_0": str(first), "agent_1": str(second)}


def paid(env, *turns, seed=0):
    """Play turns of numbers and return each turn's rewards, as many as there are agents left."""
    env.reset(seed=seed)
    rewards = []
    for first, second in turns:
        result = env.step({a: x for a, x in said(first, second).items() if a in env.agents})
        rewards.append(tuple(result[1].values()))
    return rewards
