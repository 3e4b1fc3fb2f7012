"""A sequential pipeline: in each turn the agents write one after the other and read on.

The first sees its observation alone, the second also what the first has just written, and so on:
the sequential pipeline that "LLM Collaboration with Multi-Agent Reinforcement Learning" (Liu et al.
2025, arXiv 2508.04652) has among its baselines, here for any env and any agents, in every turn, and
with the prompt as a parameter. It costs as many stages per turn as there are agents, one behind the
other, and as many completions as a team that writes at the same time.

    evaluate(env, Pipeline(team))
    collect_rollouts(env, Pipeline(team), rows, num_generations=4)

Pitfall: a completion's `prompt_ids` hold what it has read, and the observation of its node does
not. What trains on tokens is right without further ado; what reads observations sees less.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from motet.agents import Agent, Completion
from motet.algos.fixed.shown_texts import ShownTexts, Template
from motet.algos.rollouts.asking import Question, ask
from motet.algos.rollouts.joint_policy import JointAnswers

PIPELINE_TEMPLATE = "{observation}\n\n{others}"


def shown_in_pipeline(template: Template) -> ShownTexts:
    """Return how an agent is shown what was written before it; `Pipeline` has what is raised."""
    return ShownTexts(template, ("observation", "agent", "others"), ("observation", "others"))


class Pipeline:
    """Let agents write one after the other; a `JointPolicy`.

    Agents whose turn it is not are left out. Each of the G answers is a pipeline of its own: the
    second agent's k-th completion has read the first one's k-th.

    Args:
        agents: agent by name.
        template: what an agent reads that is not the first: text with the fields `{observation}`,
            `{others}` (what was written before it in this turn, by name) and `{agent}`, the first
            two of which must occur; or a function `f(observation, agent, others) -> str`.
        order: names in the order in which they write; default: that of `agents`.

    Attributes:
        agents: agent by name.
        order: names in the order in which they write.

    Raises:
        TypeError: where the template is neither text nor a function.
        ValueError: where it has other fields or lacks one, or the order is not of the agents.
    """

    def __init__(
        self,
        agents: Mapping[str, Agent],
        *,
        template: Template = PIPELINE_TEMPLATE,
        order: Sequence[str] | None = None,
    ) -> None:
        self.agents: Mapping[str, Agent] = dict(agents)
        self.order = tuple(agents if order is None else order)
        if len(self.order) != len(self.agents) or set(self.order) != set(self.agents):
            raise ValueError(f"Expected an order of {list(agents)}, each once, got {order!r}.")
        self._shown = shown_in_pipeline(template)

    def with_agents(self, agents: Mapping[str, Agent]) -> "Pipeline":
        """Return the same pipeline over other agents; see `JointPolicy`."""
        return Pipeline(agents, template=self._shown.template, order=self.order)

    def act_together(
        self,
        observations: Sequence[Mapping[str, str]],
        num_generations: int = 1,
        *,
        seed: int | None = None,
        contexts: Sequence[Mapping[str, Completion]] | None = None,
    ) -> list[JointAnswers]:
        """Answer for all agents, one act after the other; see `JointPolicy.act_together`."""
        seeds = np.random.SeedSequence(seed)
        before: Sequence[Mapping[str, Completion]] = contexts or [{}] * len(observations)
        said: list[list[dict[str, Completion]]] = [
            [{} for _ in range(num_generations)] for _ in observations
        ]
        for name in self.order:
            asked = [
                (Question(name, self._prompt(name, seen[name], own), past.get(name)), own)
                for seen, past, answers in zip(observations, before, said, strict=True)
                if name in seen
                for own in answers
            ]
            groups = ask(self.agents, [question for question, _ in asked], 1, seeds.spawn(1)[0])
            for (_, own), (completion,) in zip(asked, groups, strict=True):
                own[name] = completion
        return [
            JointAnswers({name: tuple(own[name] for own in answers) for name in seen})
            for seen, answers in zip(observations, said, strict=True)
        ]

    def _prompt(self, name: str, observation: str, said: Mapping[str, Completion]) -> str:
        if not said:
            return observation
        return self._shown(observation, name, {other: own.text for other, own in said.items()})
