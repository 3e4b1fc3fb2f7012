"""A text env as one of numbers, for learners without a language model: pick one of K texts.

    env = PickOfK(envs.make("story-length-ratio-v0"), ["A tale.", "A longer tale."])
    observations, infos = env.reset(seed=0)               # {agent: float32 vector}
    env.step({agent: 1 for agent in env.agents})          # both say "A longer tale."

What the K choices are:

| argument                               | the pick is                                             |
|----------------------------------------|---------------------------------------------------------|
| `candidates=[...]`                     | one of these texts                                      |
| `candidates={agent: [...]}`            | one of the agent's texts                                |
| `candidates=f, k=K`                    | one of the texts that `f(observation, agent)` returns   |
| `candidates=agent, k=K`                | one of K texts that a frozen agent writes to the prompt |
| `strategies=[...], writer=agent`       | a way to put the prompt: the frozen writer answers that |

A strategy is a template with `{prompt}`, or a function from prompt to prompt; a mapping gives each
agent its own strategies, or its own writer. The observation's layout is in
`motet.envs.wrappers.features`.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Self, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from motet.envs.text_space import TextSpace
from motet.envs.text_state import ResetResult, StepResult
from motet.envs.wrappers.candidates import Question, Strategy, Texts, Writer
from motet.envs.wrappers.choices import Choices, Moment, mask_of
from motet.envs.wrappers.features import TextEncoder, View, mixed_seed
from motet.envs.wrappers.offers import Candidates, Offers
from motet.envs.wrappers.wrapper import Infos, Observations, Wrapper

Space = TypeVar("Space", bound=spaces.Space[Any])


class PickOfK(Wrapper):
    """Let each agent of a text env pick one of K texts, and see its prompt as numbers.

    Actions lie in `Discrete(K)`, observations in a `Box` of float32 in [-1, 1].
    `infos[agent]["text"]` is the text that the last pick became. `infos[agent]["action_mask"]`,
    (K,) of int8, marks the picks that are allowed: where there are fewer than K candidates, the
    first ones. A pick outside raises, so an env with such turns needs a learner that heeds masks,
    such as MaskablePPO. An agent whose turn it is not (`infos[agent]["acts"]` is False) may pick
    anything and says nothing; its mask leaves pick 0 alone, so that there is nothing to learn. An
    agent that is cut from outside sees, and is offered, what the turn that does not come would
    have brought: learners bootstrap from that.

    What a writer writes depends on the episode's seed, the turn and the agent. A writer that
    samples is asked once per turn for all episodes of a batch, and writes other texts in company
    than alone, the same each time; one that decodes greedily does not mind.

    Args:
        env: a text env with `get_state`, `set_state` and `clone`.
        candidates: texts to choose from; see the table of this module.
        k: K; default the length of the longest list, needed where a function or an agent writes.
        strategies: ways to put the prompt, in place of `candidates`.
        writer: a frozen agent that answers the prompt that a strategy made, or one for each agent
            by name.
        encoder: turns prompts, and candidates that vary, into numbers; default `HashingEncoder()`.
        show_progress: whether observations tell the turn and the last reward; where not, both
            entries are 0. An agent of `motet.agents` is told neither.

    Attributes:
        offers: what there is to pick from, and what becomes of it.
        k: K.

    Raises:
        TypeError: where an argument is of another type, or the env's spaces are not of texts.
        ValueError: where the arguments contradict each other, or a candidate lies outside the
            action space.
    """

    def __init__(
        self,
        env: Any,
        candidates: Candidates | None = None,
        *,
        k: int | None = None,
        strategies: Sequence[Strategy] | Mapping[str, Sequence[Strategy]] | None = None,
        writer: Writer | Mapping[str, Writer] | None = None,
        encoder: TextEncoder | None = None,
        show_progress: bool = True,
    ) -> None:
        super().__init__(env)
        names = env.possible_agents
        _check_spaces(env, names)
        self.offers = Offers(
            names, candidates, k=k, strategies=strategies, writer=writer, encoder=encoder
        )
        self.k = self.offers.k
        self.show_progress = show_progress
        if not self.offers.asks_writers and not self.offers.source.varies:
            self._check_candidates(names)
        self._observation_spaces = {
            name: spaces.Box(-1.0, 1.0, (self.offers.size,), np.float32) for name in names
        }
        self._action_spaces = {name: spaces.Discrete(self.k) for name in names}

    def observation_space(self, agent: str) -> spaces.Box:
        """Return the space of feature vectors."""
        return self._observation_spaces[self._known(agent)]

    def action_space(self, agent: str) -> spaces.Discrete:
        """Return the space of picks."""
        return self._action_spaces[self._known(agent)]

    def choices(self, agent: str) -> Texts:
        """Return what an agent can choose from now: candidates, or prompts for the writer.

        Raises:
            gymnasium.error.ResetNeeded: before the first `reset`.
        """
        return self._current().offered.get(self._known(agent), ())

    def action_masks(self) -> dict[str, NDArray[np.int8]]:
        """Return (K,) of 1 for allowed picks and 0 for others, by live agent.

        Raises:
            gymnasium.error.ResetNeeded: before the first `reset`.
        """
        return {agent: mask_of(texts, self.k) for agent, texts in self._current().offered.items()}

    def clone(self, *, seed: int | None = None) -> Self:
        """Return an independent wrapper at the same point; see `Wrapper.clone`."""
        twin = super().clone(seed=seed)
        twin._observation_spaces = {n: _copied(s) for n, s in self._observation_spaces.items()}
        twin._action_spaces = {n: _copied(s) for n, s in self._action_spaces.items()}
        return twin

    # --- hooks --------------------------------------------------------------------------------

    def after_reset_batch(
        self, results: Sequence[ResetResult], seeds: Sequence[int]
    ) -> list[tuple[Choices, Observations, Infos]]:
        """Offer the first choices, and encode what all agents see at once."""
        return self._presented(
            [
                Moment(seed, 0, result.observations, result.live, (), {}, result.infos)
                for result, seed in zip(results, seeds, strict=True)
            ]
        )

    def before_step_batch(
        self, memories: Sequence[Choices], joint_actions: Sequence[Mapping[str, Any]]
    ) -> list[tuple[Choices, Mapping[str, str]]]:
        """Turn picks into texts; with strategies, the writer answers all prompts in one call."""
        played = [
            memory.texts(actions, self.k)
            for memory, actions in zip(memories, joint_actions, strict=True)
        ]
        if self.offers.asks_writers:
            asked = [
                (i, Question(agent, prompt, mixed_seed(memories[i].seed, memories[i].turn, agent)))
                for i, texts in enumerate(played)
                for agent, prompt in texts.items()
                if memories[i].offered[agent]
            ]
            answers = self.offers.answers([question for _, question in asked])
            for (i, question), answer in zip(asked, answers, strict=True):
                played[i][question.agent] = answer.text
        return [
            (replace(memory, played=texts), texts)
            for memory, texts in zip(memories, played, strict=True)
        ]

    def after_step_batch(
        self,
        memories: Sequence[Choices],
        joint_actions: Sequence[Mapping[str, Any]],
        results: Sequence[StepResult],
    ) -> list[tuple[Choices, StepResult]]:
        """Offer the next choices, and say what was played."""
        del joint_actions
        presented = self._presented(
            [
                Moment(
                    memory.seed,
                    memory.turn + 1,
                    result.observations,
                    result.live,
                    [agent for agent in result.observations if _was_cut(agent, result)],
                    result.rewards,
                    {
                        agent: {**info, "text": memory.played[agent]}
                        for agent, info in result.infos.items()
                    },
                )
                for memory, result in zip(memories, results, strict=True)
            ]
        )
        return [
            (
                replace(after, played=memory.played),
                replace(result, observations=observations, infos=infos),
            )
            for memory, result, (after, observations, infos) in zip(
                memories, results, presented, strict=True
            )
        ]

    def with_seed(self, memory: Choices, seed: int) -> Choices:
        """Let writers write other texts from here on; what is offered already stays."""
        return replace(memory, seed=seed)

    # --- parts --------------------------------------------------------------------------------

    def _presented(self, moments: Sequence[Moment]) -> list[tuple[Choices, Observations, Infos]]:
        questions = [
            Question(agent, moment.observations[agent], mixed_seed(moment.seed, moment.turn, agent))
            for moment in moments
            for agent in moment.facing
            if moment.acts(agent)
        ]
        texts = iter(self.offers.offer(questions))
        offered = [
            {agent: next(texts) if moment.acts(agent) else () for agent in moment.facing}
            for moment in moments
        ]
        features = iter(
            self.offers.features(
                [
                    View(
                        self.offers.place(agent),
                        prompt,
                        moment.acts(agent),
                        moment.turn if self.show_progress else 0,
                        moment.rewards.get(agent, 0.0) if self.show_progress else 0.0,
                        choices.get(agent, ()),
                    )
                    for moment, choices in zip(moments, offered, strict=True)
                    for agent, prompt in moment.observations.items()
                ]
            )
        )
        return [
            (
                Choices(moment.seed, moment.turn, {a: choices[a] for a in moment.live}),
                {agent: next(features) for agent in moment.observations},
                {
                    agent: {**info, "action_mask": mask_of(choices.get(agent, ()), self.k)}
                    for agent, info in moment.infos.items()
                },
            )
            for moment, choices in zip(moments, offered, strict=True)
        ]

    def _current(self) -> Choices:
        if not self._started:
            raise gymnasium.error.ResetNeeded("Expected a started episode; call reset() first.")
        memory: Choices = self._memory
        return memory

    def _known(self, agent: str) -> str:
        if agent not in self._action_spaces:
            raise KeyError(f"Expected one of {list(self._action_spaces)}, got {agent!r}.")
        return agent

    def _check_candidates(self, names: Sequence[str]) -> None:
        for name, texts in zip(
            names, self.offers.offer([Question(name, "", 0) for name in names]), strict=True
        ):
            for text in texts:
                if text not in self.env.action_space(name):
                    raise ValueError(
                        f"Expected candidates of {name} in {self.env.action_space(name)}, got "
                        f"{text[:80]!r}."
                    )


def _copied(space: Space) -> Space:
    """Return a space that samples on its own from here; `deepcopy` copies its bounds too."""
    twin = object.__new__(type(space))
    twin.__dict__.update(space.__dict__)
    twin._np_random = deepcopy(space._np_random)
    return twin


def _was_cut(agent: str, result: StepResult) -> bool:
    return result.truncations[agent] and not result.terminations[agent]


def _check_spaces(env: Any, names: Sequence[str]) -> None:
    for name in names:
        for space in (env.observation_space(name), env.action_space(name)):
            if not isinstance(space, TextSpace | spaces.Text):
                raise TypeError(
                    f"Expected an env whose observations and actions are texts, got {space} of "
                    f"{name}."
                )
