"""What the sampler writes down is what one sequence alone would give, whoever is beside it.

Prompts are drawn ragged, so that most of them are padded on the left, with the pad token inside;
completions end at different times, so that rows leave the batch; `max_rows` splits it.
"""

import copy
import functools
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pytest
import torch
from drawn_cases import SAMPLING
from drawn_rollouts import REPEATABLE, Ids, prompts
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import distribution
from tiny_families import END, FAMILIES, letter, tiny_model, tiny_tokenizer
from transformers import PreTrainedModel

from motet.agents import Completion, GenerationConfig, LMAgent

DECODING = {
    **SAMPLING,
    "max_new_tokens": st.integers(1, 12),  # longer than Gemma2's window
    "do_sample": st.sampled_from([True, True, True, False]),
    "max_cache_gib": st.sampled_from([None, None, 1e-5]),  # about 10 kB, a few rows
    "max_rows": st.sampled_from([1, 2, 3, 5, 512]),
}


@functools.cache
def stopping_model(family: str, num_stops: int) -> PreTrainedModel:
    """A model that stops at each of the first tokens, the end token among them."""
    model = copy.deepcopy(tiny_model(family))
    model.generation_config.eos_token_id = list(range(END, END + num_stops))
    return model


@dataclass(frozen=True)
class Request:
    family: str
    num_stops: int
    generation: dict[str, Any]
    prompts: tuple[Ids, ...]
    num_generations: int
    seed: int

    def agent(self, **changes: Any) -> LMAgent:
        return LMAgent(
            stopping_model(self.family, self.num_stops),
            tiny_tokenizer(),
            generation=GenerationConfig(**{**self.generation, **changes}),
        )


@st.composite
def prompt_lists(draw: st.DrawFn, max_size: int) -> tuple[Ids, ...]:
    known: list[Ids] = []
    for _ in range(draw(st.integers(1, max_size))):
        known.append(draw(prompts(known, None)))
    return tuple(known)


requests = st.builds(
    Request,
    family=st.sampled_from(FAMILIES),
    num_stops=st.sampled_from([1, 6, 20]),
    generation=st.fixed_dictionaries(DECODING),
    prompts=prompt_lists(5),
    num_generations=st.sampled_from([1, 2, 3, 4]),
    seed=st.integers(0, 99),
)


def text(prompt: Ids) -> str:
    return "".join(map(letter, prompt))


@torch.no_grad()
def check_completion(agent: LMAgent, prompt: Ids, completion: Completion) -> None:
    assert completion.prompt_ids == prompt
    seen = list(prompt)
    for token, log_prob in zip(completion.completion_ids, completion.log_probs, strict=True):
        logits = agent.model(input_ids=torch.tensor([seen])).logits[0, -1]
        if agent.generation.do_sample:
            expected = float(distribution(logits, agent.generation)[token])
            assert log_prob == pytest.approx(expected, rel=1e-5, abs=1e-5)
        else:
            assert (token, log_prob) == (int(logits.argmax()), 0.0)
        seen.append(token)
    *before, last = completion.completion_ids
    assert not agent.stop_ids.intersection(before)
    if completion.finish_reason == "stop":
        assert last in agent.stop_ids
    else:
        assert last not in agent.stop_ids
        assert len(completion.completion_ids) == agent.generation.max_new_tokens


def check(request: Request) -> None:
    agent = request.agent()
    texts = list(map(text, request.prompts))
    answers = agent.act(texts, request.num_generations, seed=request.seed)
    for prompt, group in zip(request.prompts, answers, strict=True):
        assert len(group) == request.num_generations
        for completion in group:
            check_completion(agent, prompt, completion)


@settings(REPEATABLE, max_examples=60)
@given(requests)
def test_kept_log_probs_equal_the_reference_token_by_token(request: Request) -> None:
    check(request)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=600)
@given(requests)
def test_ten_times_more_kept_log_probs_equal_the_reference(request: Request) -> None:
    check(request)


def same(first: list[list[Completion]], second: list[list[Completion]]) -> None:
    """The same tokens; log-probabilities up to what padding rounds."""
    for one, other in zip(chain(*first), chain(*second), strict=True):
        assert one.completion_ids == other.completion_ids
        assert one.log_probs == pytest.approx(other.log_probs, rel=1e-5, abs=1e-5)


def check_neighbours(request: Request, others: tuple[Ids, ...], max_rows: int) -> None:
    own, num, seed = list(map(text, request.prompts)), request.num_generations, request.seed
    beside = list(map(text, others))
    alone = request.agent().act(own, num, seed=seed)
    assert request.agent().act(own, num, seed=seed) == alone
    same(request.agent(max_rows=max_rows).act(own, num, seed=seed), alone)
    same(request.agent().act(own + beside, num, seed=seed)[: len(own)], alone)
    # the same place in the batch, and unlike prompts before it
    first = request.agent().act(beside + own, num, seed=seed)
    second = request.agent().act(beside[::-1] + own, num, seed=seed)
    same(first[len(beside) :], second[len(beside) :])


given_neighbours = given(requests, prompt_lists(4), st.integers(1, 9))


@settings(REPEATABLE, max_examples=30)
@given_neighbours
def test_a_seed_gives_the_same_tokens_whatever_the_neighbours_are(
    request: Request, others: tuple[Ids, ...], max_rows: int
) -> None:
    check_neighbours(request, others, max_rows)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=300)
@given_neighbours
def test_a_seed_gives_the_same_tokens_whatever_ten_times_more_neighbours_are(
    request: Request, others: tuple[Ids, ...], max_rows: int
) -> None:
    check_neighbours(request, others, max_rows)
