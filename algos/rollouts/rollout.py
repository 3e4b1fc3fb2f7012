"""What a team did and what it was paid: a tree for every row, stored by levels.

Every learner, evaluation and viewer reads this record. It saves to JSONL and loads back equal.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from motet.agents import Completion

Advantage = float | tuple[float, ...]
"""Of a completion: the same for all of its tokens, or (T,) one for each."""


@dataclass(frozen=True, slots=True)
class Node:
    """One state of the tree, all answers sampled from it, and what their combinations earned.

    N acting agents, G generations, J joint actions.

    Attributes:
        row: dataset row of the tree; for envs without a dataset, the seed of its reset.
        turn: turn of the episode, 1 for the first.
        observations: prompt by acting agent.
        completions: (G,) answers by acting agent.
        joint_actions: (J, N) which answer of each acting agent, in the order of `completions`.
        rewards: (J,) by agent.
        ended: (J,) whether the episode ended with that joint action.
        children: (J,) index of the child in the next level, None where the episode ended, or where
            only the best joint action went on and this is another.
        turns_credited: (J,) how many turns the reward counts for: more than one where a branch
            that ended early is credited for the turns it did not need (`TextEnv`).
        state: the env's global view as text, for central critics; "" where nobody asked for it.
        greedy_rewards: by agent, the rewards of the most likely joint completion from here on, turn
            by turn to the end of its episode; empty where nobody asked for them.
        greedy_turns_credited: how many turns the last of these counts for, as `turns_credited`.
        drafts: by agent, completions that were written on the way and are in no joint action: what
            a `JointPolicy` let its agents read, or samples that were rejected.
        advantages: by agent, (G,) what each completion was trained with: a number, (T,) numbers of
            its tokens, or None where it was not trained; of the agents that are trained, and empty
            before an update.
        token_offsets: by agent, (G,) lists of (T,): where the text of each token ends in the text
            of its completion; empty where nobody asked for them.
    """

    row: int
    turn: int
    observations: dict[str, str]
    completions: dict[str, tuple[Completion, ...]]
    joint_actions: tuple[tuple[int, ...], ...]
    rewards: dict[str, tuple[float, ...]]
    ended: tuple[bool, ...]
    children: tuple[int | None, ...]
    turns_credited: tuple[int, ...]
    state: str = ""
    greedy_rewards: dict[str, tuple[float, ...]] = field(default_factory=dict)
    greedy_turns_credited: int = 1
    drafts: dict[str, tuple[Completion, ...]] = field(default_factory=dict)
    advantages: dict[str, tuple[Advantage | None, ...]] = field(default_factory=dict)
    token_offsets: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    def choices(self, agent: str) -> list[int]:
        """Return (J,) which of the agent's own answers is in each joint action."""
        position = list(self.completions).index(agent)
        return [joint[position] for joint in self.joint_actions]


@dataclass(frozen=True, slots=True)
class Rollout:
    """Trees of several rows.

    Attributes:
        agents: (N,) names of the env's agents.
        levels: nodes by turn; a node's `children` are indices into the next level.
    """

    agents: tuple[str, ...]
    levels: tuple[tuple[Node, ...], ...]

    def nodes(self) -> Iterator[Node]:
        """Iterate over all nodes, level by level."""
        for level in self.levels:
            yield from level

    @property
    def num_joint_actions(self) -> int:
        """Number of joint actions in the trees."""
        return sum(len(node.joint_actions) for node in self.nodes())

    @property
    def num_completions(self) -> int:
        """Number of completions written by all agents, drafts included."""
        return sum(1 for _ in self._written())

    @property
    def num_tokens(self) -> int:
        """Number of tokens written by all agents, drafts included; greedy episodes keep none."""
        return sum(len(completion.completion_ids) for completion in self._written())

    @property
    def num_env_steps(self) -> int:
        """Number of env steps taken: the joint actions, and the turns of greedy episodes."""
        greedy = sum(
            max(map(len, node.greedy_rewards.values()), default=0) for node in self.nodes()
        )
        return self.num_joint_actions + greedy

    def save(self, path: str | Path) -> None:
        """Write JSONL: a header with the agents, then a line per node."""
        with Path(path).open("w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in self.to_lines())

    def to_lines(self) -> Iterator[str]:
        """Yield the lines of JSON that `save` writes, and `from_lines` reads."""
        yield json.dumps({"agents": self.agents})
        for depth, level in enumerate(self.levels):
            for node in level:
                yield json.dumps({"level": depth, **asdict(node)})

    @classmethod
    def load(cls, path: str | Path) -> "Rollout":
        """Read what `save` wrote."""
        with Path(path).open(encoding="utf-8") as file:
            return cls.from_lines(file)

    @classmethod
    def from_lines(cls, texts: Iterable[str]) -> "Rollout":
        """Read what `to_lines` yielded."""
        header, *lines = (json.loads(text) for text in texts)
        depth = max((line["level"] for line in lines), default=-1) + 1
        levels: list[list[Node]] = [[] for _ in range(depth)]
        for line in lines:
            levels[line.pop("level")].append(_node(line))
        return cls(tuple(header["agents"]), tuple(map(tuple, levels)))

    def _written(self) -> Iterator[Completion]:
        for node in self.nodes():
            for groups in (node.completions, node.drafts):
                for group in groups.values():
                    yield from group


def _node(line: Mapping[str, Any]) -> Node:
    return Node(
        row=line["row"],
        turn=line["turn"],
        observations=line["observations"],
        completions=_completions(line["completions"]),
        joint_actions=tuple(map(tuple, line["joint_actions"])),
        rewards={name: tuple(values) for name, values in line["rewards"].items()},
        ended=tuple(line["ended"]),
        children=tuple(line["children"]),
        turns_credited=tuple(line["turns_credited"]),
        state=line["state"],
        greedy_rewards={name: tuple(own) for name, own in line["greedy_rewards"].items()},
        greedy_turns_credited=line["greedy_turns_credited"],
        drafts=_completions(line["drafts"]),
        advantages={name: tuple(map(_frozen, own)) for name, own in line["advantages"].items()},
        token_offsets={
            name: tuple(map(_frozen, own)) for name, own in line["token_offsets"].items()
        },
    )


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _completions(groups: Mapping[str, Any]) -> dict[str, tuple[Completion, ...]]:
    return {name: tuple(_completion(item) for item in group) for name, group in groups.items()}


def _completion(item: Mapping[str, Any]) -> Completion:
    return Completion(**{key: _frozen(value) for key, value in item.items()})
