"""The slow truth of actor-critics: one text at a time, by recursion, nothing shared with the fast.

It counts on what the tests' rollouts have: agents that act at every node, and shared rewards or
not.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from reference import Ratios, token_log_probs
from torch import Tensor, nn

from motet.agents import Completion, GenerationConfig
from motet.algos import ActorCriticConfig, Node, Rollout

Place = tuple[int, int, str]  # level, node, agent


@dataclass
class Slow:
    """Everything that a loss is made of.

    `models` are the policies by agent, `read(node, agent)` are the tokens that the critic reads
    before any completion, `trunks` and `heads` the critics' by agent, `column` which output is an
    agent's.
    """

    rollout: Rollout
    models: Mapping[str, nn.Module]
    generation: GenerationConfig
    config: ActorCriticConfig
    read: Callable[[Node, str], tuple[int, ...]]
    trunks: Mapping[str, Callable[..., Any]]
    heads: Mapping[str, Callable[[Tensor], Tensor]]
    column: Mapping[str, int]
    costs: Callable[[str, Completion], float] = lambda agent, completion: 0.0
    size: float = 0.0  # of the loss's terms, which cancel: what rounding is measured by

    def places(self) -> Iterator[tuple[Place, Node]]:
        for depth, level in enumerate(self.rollout.levels):
            for index, node in enumerate(level):
                for agent in node.completions:
                    if agent in self.heads:
                        yield (depth, index, agent), node

    def output(self, node: Node, agent: str, written: tuple[int, ...]) -> Tensor:
        """What the head says after the prompt and some tokens."""
        ids = torch.tensor([self.read(node, agent) + written])
        hidden = self.trunks[agent](input_ids=ids).last_hidden_state[0, -1]
        return self.heads[agent](hidden)[self.column[agent]]

    def outputs(self, node: Node, agent: str) -> list[list[Tensor]]:
        """By completion and token; without token_level once, the same for all completions."""
        said = node.completions[agent]
        if not self.config.token_level:
            return [[self.output(node, agent, ())]] * len(said)
        return [
            [
                self.output(node, agent, one.completion_ids[:t])
                for t in range(len(one.completion_ids))
            ]
            for one in said
        ]

    def advantage(self, values: dict, place: Place, k: int, t: int) -> float:
        """A by recursion from its definition."""
        depth, index, agent = place
        node = self.rollout.levels[depth][index]
        lam, discount = self.config.gae_lambda, self.config.discount
        own = values[place][k]
        if t + 1 < len(own):
            return own[t + 1] - own[t] + lam * self.advantage(values, place, k, t + 1)
        position = list(node.completions).index(agent)
        mine = []
        for j, joint in enumerate(node.joint_actions):
            if joint[position] != k:
                continue
            total = sum(node.rewards[agent][j] * discount**i for i in range(node.turns_credited[j]))
            total -= self.costs(agent, node.completions[agent][k]) + own[t]
            if node.children[j] is not None:
                below = (depth + 1, node.children[j], agent)
                firsts = [each[0] for each in values[below]]
                ahead = [self.advantage(values, below, i, 0) for i in range(len(firsts))]
                total += discount * (statistics.mean(firsts) + lam * statistics.mean(ahead))
            mine.append(total)
        return statistics.mean(mine)

    def losses(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The policies' loss, and the value loss by agent."""
        tensors = {place: self.outputs(node, place[2]) for place, node in self.places()}
        values = {
            place: [[one.item() for one in each] for each in own] for place, own in tensors.items()
        }
        found = {
            place: [
                [self.advantage(values, place, k, t) for t in range(len(each))]
                for k, each in enumerate(own)
            ]
            for place, own in values.items()
        }
        targets = self.targets(values, found)
        moments = self.moments(targets)
        policy, value = torch.zeros(()), dict.fromkeys(self.heads, torch.zeros(()))
        for place, node in self.places():
            agent = place[2]
            turn_places = [p for p, _ in self.places() if (p[0], p[2]) == (place[0], agent)]
            said = node.completions[agent]
            share = 1 / len(turn_places) / len(said)
            for k, completion in enumerate(said):
                log_probs = token_log_probs(self.models[agent], completion, self.generation)
                for t, (log_prob, old) in enumerate(
                    zip(log_probs, completion.log_probs, strict=True)
                ):
                    own = found[place][k]
                    advantage = own[t] if self.config.token_level else own[0]
                    term = share * Ratios(clip_range=self.config.clip_range).loss(
                        log_prob, old, self.scaled(advantage, found, agent)
                    )
                    policy = policy + term
                    self.size += abs(term.item())
                mean, std = moments[agent]
                errors = [
                    (said_ - (wanted - mean) / std) ** 2
                    for said_, wanted in zip(tensors[place][k], targets[place][k], strict=True)
                ]
                value[agent] = value[agent] + share * sum(errors) / len(errors)
        return policy, value

    def targets(self, values: dict, found: dict) -> dict:
        """V + A; of a node its completions' mean."""
        targets = {}
        for place, own in values.items():
            plain = [
                [v + a for v, a in zip(vs, as_, strict=True)]
                for vs, as_ in zip(own, found[place], strict=True)
            ]
            if not self.config.token_level:
                mean = statistics.mean(each[0] for each in plain)
                plain = [[mean]] * len(plain)
            targets[place] = plain
        return targets

    def moments(self, targets: dict) -> dict[str, tuple[float, float]]:
        """Mean and deviation of each agent's targets."""
        if not self.config.normalize_values:
            return dict.fromkeys(self.heads, (0.0, 1.0))
        found = {}
        for agent in self.heads:
            own = [each for place, each in targets.items() if place[2] == agent]
            if not self.config.token_level:
                own = [each[:1] for each in own]  # once for a node
            every = [value for node in own for each in node for value in each]
            found[agent] = statistics.mean(every), max(statistics.pstdev(every), 1e-4)
        return found

    def scaled(self, advantage: float, found: dict, agent: str) -> float:
        if self.config.advantage_normalization is False:
            return advantage
        every = [a for p, own in found.items() if p[2] == agent for each in own for a in each]
        return (advantage - statistics.mean(every)) / statistics.pstdev(every)
