"""What an update made of a rollout, noted beside it: for files and viewers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from motet.agents import Agent, LMAgent
from motet.agents.token_offsets import token_offsets
from motet.algos.rollouts.rollout import Advantage, Node, Rollout
from motet.algos.updates.batch import Group


class Annotations:
    """Advantages by completion, as the update that is going on has them."""

    def __init__(self) -> None:
        self._advantages: dict[int, Advantage] = {}
        self._agents: set[str] = set()

    def clear(self) -> None:
        """Forget what was noted."""
        self._advantages.clear()
        self._agents.clear()

    def note(self, groups: Sequence[Group], agents: Iterable[str]) -> None:
        """Keep the advantages of an update, or of a part of one.

        Args:
            groups: what was trained on.
            agents: names of those that are trained, of which there may be no group.
        """
        self._agents.update(agents)
        for group in groups:
            self._advantages.update(zip(map(id, group.completions), group.advantages, strict=True))

    def noted_in(self, rollout: Rollout) -> Rollout:
        """Return a rollout with the advantages that were noted of its completions.

        Args:
            rollout: that the update was of: the same completions, not others that are equal.
        """
        levels = tuple(tuple(self._noted(node) for node in level) for level in rollout.levels)
        return replace(rollout, levels=levels)

    def _noted(self, node: Node) -> Node:
        advantages = {
            name: tuple(self._advantages.get(id(completion)) for completion in group)
            for name, group in node.completions.items()
            if name in self._agents
        }
        return replace(node, advantages=advantages)


def with_token_offsets(rollout: Rollout, agents: Mapping[str, Agent]) -> Rollout:
    """Return a rollout that says which part of a text each token wrote.

    Args:
        rollout: trees.
        agents: who wrote them; of those without a tokenizer nothing is said.
    """

    def told(node: Node) -> Node:
        offsets = {
            name: tuple(token_offsets(agent.tokenizer, c.completion_ids, c.text) for c in group)
            for name, group in node.completions.items()
            if isinstance(agent := agents[name], LMAgent)
        }
        return replace(node, token_offsets=offsets)

    levels = tuple(tuple(map(told, level)) for level in rollout.levels)
    return replace(rollout, levels=levels)
