"""What critics read of a rollout: an agent's own prompt, or what all of them and the env see."""

import functools
from collections.abc import Callable, Collection, Mapping

from motet.agents import LMAgent
from motet.algos.actor_critics.critic import Read
from motet.algos.actor_critics.value_targets import Place
from motet.algos.rollouts.rollout import Node, Rollout

Prefix = Callable[[Node, str], tuple[int, ...]]
"""The tokens that a critic reads at a node for an agent, before any completion."""


def rollout_reads(
    rollout: Rollout,
    agents: Collection[str],
    prefix: Prefix,
    *,
    token_level: bool,
    waiting: bool,
) -> dict[Place, tuple[Read, ...]]:
    """Return what a critic reads to judge a rollout.

    Args:
        rollout: the trees.
        agents: whom it judges.
        prefix: what it reads at a node.
        token_level: whether it is asked before each token of each completion, or once for a node.
        waiting: whether it also judges nodes for agents that wait there, which write no tokens.

    Returns:
        By place: one read; over tokens one for each completion.
    """
    reads: dict[Place, tuple[Read, ...]] = {}
    for depth, level in enumerate(rollout.levels):
        for index, node in enumerate(level):
            for agent in node.rewards:
                acts = agent in node.completions
                if agent not in agents or not (acts or (waiting and not token_level)):
                    continue
                ids = prefix(node, agent)
                told = (
                    [()]
                    if not token_level
                    else [completion.completion_ids[:-1] for completion in node.completions[agent]]
                )
                reads[Place(depth, index, agent)] = tuple(
                    Read(ids + written, len(ids)) for written in told
                )
    return reads


def own_prompt(node: Node, agent: str) -> tuple[int, ...]:
    """Return the tokens of an agent's own prompt, as its model read them."""
    return node.completions[agent][0].prompt_ids


def retold_prompt(
    encode: Callable[[str], tuple[int, ...]], agents: Mapping[str, LMAgent]
) -> Prefix:
    """Return how a critic with another tokenizer reads an agent's own prompt.

    Args:
        encode: from a text to the critic's tokens.
        agents: those that are judged, by name.
    """

    def prefix(node: Node, agent: str) -> tuple[int, ...]:
        prompt = agents[agent].tokenizer.decode(own_prompt(node, agent), skip_special_tokens=True)
        return encode(joint_text({agent: prompt}))

    return prefix


def joint_prompt(encode: Callable[[str], tuple[int, ...]]) -> Prefix:
    """Return how a central critic reads a node: all prompts, and the env's state.

    Args:
        encode: from a text to the critic's tokens.
    """
    encoded = functools.lru_cache(maxsize=1)(encode)  # the agents of a node come in a row
    return lambda node, agent: encoded(joint_text(node.observations, node.state))


def joint_text(observations: Mapping[str, str], state: str = "") -> str:
    """Return the text of what several agents see and of the env's global view.

    An observation that the state has in it is not told twice: the transcripts of a `TextEnv` end in
    the prompts of the coming turn.

    Args:
        observations: by agent that acts.
        state: the env's global view, "" for none.
    """
    parts = [
        f"[{name}]\n{text}" for name, text in observations.items() if not state or text not in state
    ]
    if state:
        parts.append(f"[state]\n{state}")
    return "\n\n".join(parts)
