"""One round of discussion: all agents draft, read each other's drafts, and write what they play.

The one-round discussion that "LLM Collaboration with Multi-Agent Reinforcement Learning" (Liu et
al. 2025, arXiv 2508.04652) has among its baselines. It comes from "Improving Factuality and
Reasoning in Language Models through Multiagent Debate" (Du et al. 2023, arXiv 2305.14325), and
departs from that:

1. There is one round; the debate has several.
2. Every agent plays its own final text, which the env joins; a debate ends in one answer to one
   question.
3. Drafts and final texts are separate prompts, in which an agent's own draft stands only where the
   template puts it; with `history="append"` the final text goes on from the draft by token ids.

It writes twice as many completions as a team that answers at once; the drafts are in
`Node.drafts`, so that they are counted.

    evaluate(env, Discussion(team))
"""

from collections.abc import Mapping, Sequence

import numpy as np

from motet.agents import Agent, Completion
from motet.algos.fixed.shown_texts import ShownTexts, Template
from motet.algos.rollouts.asking import Question, ask
from motet.algos.rollouts.joint_policy import JointAnswers

DISCUSSION_TEMPLATE = "{observation}\n\n{others}"


def shown_in_discussion(template: Template) -> ShownTexts:
    """Return how an agent is shown the others' drafts; `Discussion` has what is raised."""
    fields = ("observation", "agent", "others", "draft")
    return ShownTexts(template, fields, ("observation", "others"))


class Discussion:
    """Let agents read each other's drafts before they write; a `JointPolicy`.

    Agents whose turn it is not are left out. An agent that is alone has nothing to read, and plays
    its draft. Each of the G answers is a discussion of its own, about the k-th drafts.

    Args:
        agents: agent by name.
        template: what an agent reads before it writes: text with the fields `{observation}`,
            `{others}` (the others' drafts, by name), `{draft}` (its own) and `{agent}`, the first
            two of which must occur; or a function `f(observation, agent, others, draft) -> str`.

    Attributes:
        agents: agent by name.

    Raises:
        TypeError: where the template is neither text nor a function.
        ValueError: where it has other fields, or lacks one.
    """

    def __init__(
        self, agents: Mapping[str, Agent], *, template: Template = DISCUSSION_TEMPLATE
    ) -> None:
        self.agents: Mapping[str, Agent] = dict(agents)
        self._shown = shown_in_discussion(template)

    def with_agents(self, agents: Mapping[str, Agent]) -> "Discussion":
        """Return the same discussion of other agents; see `JointPolicy`."""
        return Discussion(agents, template=self._shown.template)

    def act_together(
        self,
        observations: Sequence[Mapping[str, str]],
        num_generations: int = 1,
        *,
        seed: int | None = None,
        contexts: Sequence[Mapping[str, Completion]] | None = None,
    ) -> list[JointAnswers]:
        """Answer for all agents, in two acts; see `JointPolicy.act_together`."""
        drafting, writing = np.random.SeedSequence(seed).spawn(2)
        before: Sequence[Mapping[str, Completion]] = contexts or [{}] * len(observations)
        questions = [
            Question(name, text, past.get(name))
            for seen, past in zip(observations, before, strict=True)
            for name, text in seen.items()
        ]
        groups = iter(ask(self.agents, questions, num_generations, drafting))
        drafts = [{name: next(groups) for name in seen} for seen in observations]
        asked = [
            question
            for seen, own in zip(observations, drafts, strict=True)
            if len(seen) > 1
            for k in range(num_generations)
            for question in self._questions(seen, {name: group[k] for name, group in own.items()})
        ]
        written = iter(ask(self.agents, asked, 1, writing))
        answers = []
        for seen, own in zip(observations, drafts, strict=True):
            if len(seen) <= 1:
                answers.append(JointAnswers(own))
                continue
            final = [{name: next(written)[0] for name in seen} for _ in range(num_generations)]
            played = {name: tuple(each[name] for each in final) for name in seen}
            answers.append(JointAnswers(played, drafts=own))
        return answers

    def _questions(
        self, seen: Mapping[str, str], drafts: Mapping[str, Completion]
    ) -> list[Question]:
        """Return what each agent is asked after the drafts, in the order of `seen`."""
        questions = []
        for name, observation in seen.items():
            others = {other: draft.text for other, draft in drafts.items() if other != name}
            prompt = self._shown(observation, name, others, drafts[name].text)
            questions.append(Question(name, prompt, drafts[name]))
        return questions
