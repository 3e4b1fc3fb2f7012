"""Where the texts come from that an agent of `PickOfK` chooses from.

A source is asked by all agents of all episodes of a batch at once, so that a language model writes
for all of them in one call.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from motet.envs.task.parts import check_takes, checked_count
from motet.envs.wrappers.features import mixed_seed

Texts = tuple[str, ...]
Strategy = str | Callable[[str], str]
PLACEHOLDER = "{prompt}"


class Writer(Protocol):
    """Answer observations: every agent of `motet.agents` does, and so may anything else."""

    def act(
        self, observations: Sequence[str], num_generations: int = 1, *, seed: int | None = None
    ) -> Sequence[Sequence[Any]]:
        """Return, for each observation, `num_generations` answers with a `text`."""


@dataclass(frozen=True, slots=True)
class Question:
    """One agent that has to choose.

    Attributes:
        agent: its name.
        prompt: its prompt of this turn.
        seed: of the episode, the turn and the agent.
    """

    agent: str
    prompt: str
    seed: int


class Source(Protocol):
    """Offer texts to choose from.

    Attributes:
        k: greatest number of texts.
        varies: whether the text behind a number differs in ways that its number and the prompt do
            not tell.
    """

    k: int
    varies: bool

    def offer(self, questions: Sequence[Question]) -> list[Texts]:
        """Return the texts for each question."""


class FixedCandidates:
    """Offer the same texts in every turn.

    Args:
        texts: a list for all agents, or one for each agent by name.
        agent_names: (N,) names.
        k: K; None for the length of the longest list.

    Attributes:
        texts: by agent.
    """

    varies = False

    def __init__(self, texts: Any, agent_names: Sequence[str], k: int | None) -> None:
        self.texts = _by_agent("candidates", texts, agent_names)
        for agent, offered in self.texts.items():
            for text in offered:
                if not isinstance(text, str):
                    raise TypeError(f"Expected strings as candidates of {agent}, got {text!r}.")
        self.k = _checked_k(k, max(len(offered) for offered in self.texts.values()))

    def offer(self, questions: Sequence[Question]) -> list[Texts]:
        """Return the texts for each question."""
        return [self.texts[question.agent] for question in questions]


class FunctionCandidates:
    """Let a function write them.

    Args:
        function: `f(observation, agent) -> texts`.
        k: K.
    """

    varies = True

    def __init__(self, function: Callable[[str, str], Sequence[str]], k: int | None) -> None:
        self._function = function
        self.k = _needed_k(k, "a function writes the candidates")

    def offer(self, questions: Sequence[Question]) -> list[Texts]:
        """Return the texts for each question."""
        return [self._of(question) for question in questions]

    def _of(self, question: Question) -> Texts:
        texts = self._function(question.prompt, question.agent)
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise TypeError(
                f"Expected a list of texts as the candidates of {question.agent}, got {texts!r}."
            )
        if not 1 <= len(texts) <= self.k:
            raise ValueError(
                f"Expected 1 to {self.k} candidates for {question.agent}, got {len(texts)}."
            )
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(
                    f"Expected strings as candidates of {question.agent}, got {text!r}."
                )
        return tuple(texts)


class Writers:
    """Who writes for each agent.

    Args:
        writers: one for all agents, or one for each agent by name.
        agent_names: (N,) names.

    Raises:
        TypeError: where one cannot write.
        ValueError: where names are missing or unknown.
    """

    def __init__(self, writers: Any, agent_names: Sequence[str]) -> None:
        given = writers if isinstance(writers, Mapping) else dict.fromkeys(agent_names, writers)
        if set(given) != set(agent_names):
            raise ValueError(f"Expected writers for {list(agent_names)}, got {list(given)}.")
        for name, writer in given.items():
            if not _can_write(writer):
                raise TypeError(
                    f"Expected an agent with act() as writer for {name}, got {writer!r}."
                )
        self._writers = dict(given)

    def of(self, agent: str) -> Writer:
        """Return who writes for an agent."""
        writer: Writer = self._writers[agent]
        return writer


class WrittenCandidates:
    """Let frozen agents write K of them.

    Args:
        writer: who writes: one for all agents, or one for each agent by name.
        agent_names: (N,) names.
        k: K.
    """

    varies = True

    def __init__(self, writer: Any, agent_names: Sequence[str], k: int | None) -> None:
        self._writers = Writers(writer, agent_names)
        self.k = _needed_k(k, "an agent writes the candidates")

    def offer(self, questions: Sequence[Question]) -> list[Texts]:
        """Return the texts for each question."""
        answers = answers_by(self._writers, questions, self.k)
        return [tuple(answer.text for answer in own) for own in answers]


class Strategies:
    """Offer the prompts that strategies make of the agent's own prompt.

    Args:
        strategies: a list for all agents, or one for each agent by name, of templates with
            `{prompt}` or functions `f(prompt) -> prompt`.
        agent_names: (N,) names.
        k: K; None for the length of the longest list.

    Attributes:
        strategies: by agent.
    """

    varies = False

    def __init__(self, strategies: Any, agent_names: Sequence[str], k: int | None) -> None:
        self.strategies = _by_agent("strategies", strategies, agent_names)
        for agent, chosen in self.strategies.items():
            for strategy in chosen:
                _check_strategy(strategy, agent)
        self.k = _checked_k(k, max(len(chosen) for chosen in self.strategies.values()))

    def offer(self, questions: Sequence[Question]) -> list[Texts]:
        """Return the prompts for each question."""
        return [
            tuple(_applied(s, question) for s in self.strategies[question.agent])
            for question in questions
        ]


def make_source(candidates: Any, agent_names: Sequence[str], k: int | None) -> Source:
    """Return the source that `candidates` stands for; `PickOfK` has the forms."""
    by_agent = candidates.values() if isinstance(candidates, Mapping) else [candidates]
    if by_agent and all(_can_write(given) for given in by_agent):
        return WrittenCandidates(candidates, agent_names, k)
    if callable(candidates):
        check_takes(candidates, "candidates", "observation", "agent")
        return FunctionCandidates(candidates, k)
    return FixedCandidates(candidates, agent_names, k)


def answers_by(
    writers: Writers, questions: Sequence[Question], num_generations: int
) -> list[tuple[Any, ...]]:
    """Let writers answer the prompts of questions, with one call of each distinct writer.

    Questions of the same prompt and seed share their answers. A call's seed is made of all its
    questions' seeds, so that it is reproducible.

    Returns:
        (B,) tuples of answers with a `text`, as the writers gave them.

    Raises:
        TypeError: where the answers are no lists of objects with a `text`.
        ValueError: where their number is another.
    """
    asked: dict[int, list[int]] = {}
    for i, question in enumerate(questions):
        asked.setdefault(id(writers.of(question.agent)), []).append(i)
    answers: list[tuple[Any, ...]] = [()] * len(questions)
    for places in asked.values():
        pairs = [(questions[i].prompt, questions[i].seed) for i in places]
        writer = writers.of(questions[places[0]].agent)
        for i, own in zip(places, _answers(writer, pairs, num_generations), strict=True):
            answers[i] = own
    return answers


def _answers(
    writer: Writer, asked: Sequence[tuple[str, int]], num_generations: int
) -> list[tuple[Any, ...]]:
    """Let a writer answer (prompt, seed) pairs in one call; equal pairs share their answers."""
    distinct = list(dict.fromkeys(asked))
    seed = mixed_seed(*dict.fromkeys(seed for _, seed in distinct))
    answers = writer.act([prompt for prompt, _ in distinct], num_generations, seed=seed)
    if len(answers) != len(distinct):
        raise ValueError(
            f"Expected answers to {len(distinct)} prompts from the writer, got {len(answers)}."
        )
    given = dict(zip(distinct, map(_checked_answers, answers), strict=True))
    for those in given.values():
        if len(those) != num_generations:
            raise ValueError(
                f"Expected {num_generations} answers to a prompt from the writer, got {len(those)}."
            )
    return [given[pair] for pair in asked]


def _can_write(thing: Any) -> bool:
    return callable(getattr(thing, "act", None)) and not isinstance(thing, type)


def _checked_answers(answers: Sequence[Any]) -> tuple[Any, ...]:
    for answer in answers:
        if not isinstance(getattr(answer, "text", None), str):
            raise TypeError(
                "Expected answers with a text from the writer, as those of motet.agents are, got "
                f"{answer!r}."
            )
    return tuple(answers)


def _by_agent(role: str, given: Any, agent_names: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    if isinstance(given, Mapping):
        if set(given) != set(agent_names):
            raise ValueError(
                f"Expected {role} for {list(agent_names)}, got {role} for {list(given)}."
            )
        lists = {name: given[name] for name in agent_names}
    else:
        lists = dict.fromkeys(agent_names, given)
    for name, those in lists.items():
        if isinstance(those, str) or not isinstance(those, Sequence):
            raise TypeError(f"Expected a list as the {role} of {name}, got {those!r}.")
        if not those:
            raise ValueError(f"Expected at least one of the {role} of {name}, got none.")
    return {name: tuple(those) for name, those in lists.items()}


def _checked_k(k: int | None, longest: int) -> int:
    if k is None:
        return longest
    k = checked_count("k", k)
    if k < longest:
        raise ValueError(f"Expected k of at least {longest}, the longest list, got {k}.")
    return k


def _needed_k(k: int | None, why: str) -> int:
    if k is None:
        raise ValueError(f"Expected k, the number of candidates, where {why}; got None.")
    return checked_count("k", k)


def _check_strategy(strategy: Any, agent: str) -> None:
    if isinstance(strategy, str):
        if PLACEHOLDER not in strategy:
            raise ValueError(
                f"Expected {PLACEHOLDER} in each strategy of {agent}, got {strategy!r}; to leave "
                "the prompt out on purpose, pass a function."
            )
    elif not callable(strategy):
        raise TypeError(
            f"Expected templates or functions as strategies of {agent}, got {strategy!r}."
        )
    else:
        check_takes(strategy, f"strategies of {agent}", "prompt")


def _applied(strategy: Strategy, question: Question) -> str:
    if isinstance(strategy, str):
        return strategy.replace(PLACEHOLDER, question.prompt)
    prompt = strategy(question.prompt)
    if not isinstance(prompt, str):
        raise TypeError(f"Expected a string from a strategy of {question.agent}, got {prompt!r}.")
    return prompt
