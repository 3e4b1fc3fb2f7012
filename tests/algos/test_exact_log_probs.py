"""Whatever batches a learner makes, each token's log-probability is that of its sequence alone.

Only the functions are used that lead from samples to log-probabilities, and nothing of what a batch
holds. The reference pads nothing: equality with it is that a prompt padded on the left, a
completion padded on the right and a token id used for padding change nothing.
"""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from drawn_cases import SAMPLING
from drawn_rollouts import REPEATABLE, Ids, completions, ids, prompts
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import token_log_probs
from tiny_families import FAMILIES, WINDOW, tiny_model
from torch import Tensor
from transformers import PreTrainedModel

from motet.agents import Completion, GenerationConfig
from motet.algos.updates.batch import Sample, collate, micro_batches
from motet.algos.updates.log_probs import completion_log_probs
from motet.algos.updates.packing import pack


def learner_log_probs(
    model: PreTrainedModel,
    written: Sequence[Completion],
    generation: GenerationConfig,
    *,
    budget: int,
    shared: bool,
) -> dict[int, list[Tensor]]:
    """Each completion's token log-probabilities by its place in `written`, by the fast path."""
    samples = [Sample("a", completion, 1.0, 1.0) for completion in written]
    places = {id(sample): place for place, sample in enumerate(samples)}
    rows = pack(samples, 1_000, budget) if shared else [(sample,) for sample in samples]
    found: dict[int, list[Tensor]] = {}
    for batch_rows in micro_batches(rows, budget):
        log_probs = completion_log_probs(model, collate(batch_rows), generation)
        own = [sample for row in batch_rows for sample in row]
        for sample, values in zip(own, log_probs, strict=True):
            place, length = places[id(sample)], len(sample.completion.completion_ids)
            assert place not in found, "a completion comes once"
            assert not values[length:].any(), "there is nothing at padding"
            found[place] = list(values[:length])
    return found


@st.composite
def written(draw: st.DrawFn) -> list[Completion]:
    """Completions of at least one token, of several prompts that are alike or not."""
    stems = draw(st.lists(ids(1, 5), min_size=1, max_size=3))
    known: list[Ids] = []
    result = []
    for _ in range(draw(st.integers(1, 4))):
        said = draw(st.sampled_from(result)) if result else None
        so_far = said and said.prompt_ids + said.completion_ids
        known.append(draw(prompts(known, so_far)))
        result += draw(st.lists(completions(known[-1], stems), min_size=1, max_size=4))
    return result


def check(
    family: str,
    completions_: list[Completion],
    sampling: dict[str, Any],
    budget: int,
    shared: bool,
) -> None:
    model, generation = tiny_model(family), GenerationConfig(**sampling)
    longest = max(len(one.prompt_ids) + len(one.completion_ids) for one in completions_)
    if family == "gemma2" and longest > WINDOW:
        shared = False  # as the learner does: the mask of a shared row has no window
    with torch.no_grad():
        found = learner_log_probs(model, completions_, generation, budget=budget, shared=shared)
        assert sorted(found) == list(range(len(completions_)))
        for place, completion in enumerate(completions_):
            expected = token_log_probs(model, completion, generation)
            assert len(found[place]) == len(expected)
            torch.testing.assert_close(
                torch.stack(found[place]), torch.stack(expected), rtol=1e-5, atol=1e-5
            )


given_written = given(
    st.sampled_from(FAMILIES),
    written(),
    st.fixed_dictionaries(SAMPLING),
    st.sampled_from([1, 8, 15, 30, 60, 120, 10_000]),
    st.booleans(),
)


@settings(REPEATABLE, max_examples=100)
@given_written
def test_each_token_is_computed_once_from_what_precedes_it_however_rows_are_padded_and_split(
    family: str,
    completions_: list[Completion],
    sampling: dict[str, Any],
    budget: int,
    shared: bool,
) -> None:
    check(family, completions_, sampling, budget, shared)


@pytest.mark.slow
@settings(REPEATABLE, max_examples=1000)
@given_written
def test_ten_times_more_tokens_are_computed_once_from_what_precedes_them(
    family: str,
    completions_: list[Completion],
    sampling: dict[str, Any],
    budget: int,
    shared: bool,
) -> None:
    check(family, completions_, sampling, budget, shared)
