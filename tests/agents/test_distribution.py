"""Truncated sampling: the kept set, log-probabilities, and the draw itself."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import distribution
from tiny import tiny_agent
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from motet.agents import GenerationConfig
from motet.agents.distribution import (
    draw,
    kept_tokens,
    pick,
    token_log_probs,
    truncated_logits,
)

SETTINGS = [
    GenerationConfig(),
    GenerationConfig(temperature=0.6),
    GenerationConfig(top_k=5),
    GenerationConfig(top_p=0.8),
    GenerationConfig(temperature=1.7, top_k=300, top_p=0.95),
    GenerationConfig(temperature=0.6, top_k=50, top_p=0.6),
]


def sampling_log_probs(values: torch.Tensor, generation: GenerationConfig) -> torch.Tensor:
    return truncated_logits(values, generation).log_softmax(-1)


def logits(rows: int = 6, size: int = 400, spread: float = 3.0) -> torch.Tensor:
    return torch.randn((rows, size), generator=torch.Generator().manual_seed(1)) * spread


@pytest.mark.parametrize("generation", SETTINGS)
def test_equals_the_definition_by_full_sort(generation: GenerationConfig) -> None:
    values = logits()
    ours = sampling_log_probs(values, generation)
    theirs = torch.stack([distribution(row, generation) for row in values])
    assert torch.equal(ours.isinf(), theirs.isinf())
    torch.testing.assert_close(ours.exp(), theirs.exp())


@pytest.mark.parametrize("generation", SETTINGS)
def test_equals_the_warpers_of_transformers(generation: GenerationConfig) -> None:
    values = logits()
    warped = TemperatureLogitsWarper(generation.temperature)(None, values)
    if generation.top_k is not None:
        warped = TopKLogitsWarper(generation.top_k)(None, warped)
    if generation.top_p is not None:
        warped = TopPLogitsWarper(generation.top_p)(None, warped)
    ours = sampling_log_probs(values, generation)
    assert torch.equal(ours.isinf(), warped.isinf())
    torch.testing.assert_close(ours.exp(), warped.softmax(-1))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    spread=st.floats(0.0, 12.0),
    top_p=st.floats(0.01, 1.0),
    top_k=st.none() | st.integers(1, 500),
)
def test_top_p_keeps_the_smallest_set_with_its_mass(
    seed: int, spread: float, top_p: float, top_k: int | None
) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn((3, 200), generator=generator) * spread
    kept = kept_tokens(values, top_k, top_p)
    if kept is None:
        assert top_p == 1 and (top_k is None or top_k >= 200)
        return
    for row, mask in zip(values, kept, strict=True):
        allowed = row if top_k is None else row[row >= row.topk(min(top_k, 200)).values[-1]]
        probs = (row - allowed.logsumexp(-1)).double().exp()
        mine = probs[mask]
        assert float(mine.sum()) >= top_p - 1e-5 or len(mine) >= len(allowed)
        without_least = mine[mine > mine.min() * (1 + 1e-6)]  # equal in float32 are ties, kept all
        assert float(without_least.sum()) < top_p + 1e-5
        assert float(mine.min()) >= float(probs[~mask].max() if (~mask).any() else 0.0)


def test_top_k_holds_where_top_p_keeps_all() -> None:
    kept = kept_tokens(logits(), 5, 0.99999999)
    assert kept is not None
    assert kept.sum(-1).tolist() == [5] * 6


def test_ties_with_the_last_kept_token_are_kept() -> None:
    kept = kept_tokens(torch.tensor([[3.0, 1.0, 1.0, 0.0]]), 2, None)
    assert kept is not None
    assert kept.tolist() == [[True, True, True, False]]


@pytest.mark.parametrize("generation", SETTINGS)
def test_trained_log_probs_are_those_of_sampling(generation: GenerationConfig) -> None:
    values = logits()
    all_log_probs = sampling_log_probs(values, generation)
    tokens = all_log_probs.argmax(-1)
    torch.testing.assert_close(
        token_log_probs(values, tokens, generation),
        all_log_probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1),
    )


def test_a_token_outside_the_kept_set_stays_finite_and_has_a_gradient() -> None:
    values = torch.tensor([[4.0, 3.0, -2.0]], requires_grad=True)
    log_prob = token_log_probs(values, torch.tensor([2]), GenerationConfig(top_k=2))
    # by hand: exp(-2) / (exp(4) + exp(3) + exp(-2))
    assert log_prob.item() == pytest.approx(-6.3151, abs=1e-3)
    log_prob.sum().backward()
    assert values.grad is not None
    assert values.grad[0, 2] > 0.9


def test_the_draw_inverts_the_cumulative_distribution() -> None:
    weights = torch.tensor([[0.5, 0.0, 1.0, 0.5]]).repeat(6, 1)
    uniforms = torch.tensor([0.0, 0.2499, 0.2501, 0.7499, 0.7501, 1 - 2**-53], dtype=torch.float64)
    tokens, totals = pick(weights, uniforms)
    assert tokens.tolist() == [0, 0, 2, 2, 3, 3]
    assert totals.tolist() == [2.0] * 6


def test_draws_have_the_distribution_frequencies() -> None:
    values = logits(rows=1, size=8, spread=1.0)
    log_probs = sampling_log_probs(values, GenerationConfig(top_k=6))
    uniforms = torch.rand(40_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn, chosen = draw(values.expand(40_000, -1), uniforms, GenerationConfig(top_k=6))
    torch.testing.assert_close(chosen, log_probs[0, drawn])
    shares = torch.bincount(drawn, minlength=8) / 40_000
    torch.testing.assert_close(shares, log_probs.exp()[0], atol=0.01, rtol=0)


@pytest.mark.parametrize(
    ("settings_", "words"),
    [
        ({"temperature": 0.0}, "do_sample=False"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
    ],
)
def test_impossible_settings_are_refused(settings_: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        GenerationConfig(**settings_)


@pytest.mark.parametrize("size", [300, 20_000, 49_152, 50_001])
@pytest.mark.parametrize("generation", [GenerationConfig(), GenerationConfig(top_k=5)])
def test_blocks_of_a_large_vocabulary_draw_what_a_plain_inversion_draws(
    size: int, generation: GenerationConfig
) -> None:
    log_probs = sampling_log_probs(logits(rows=1, size=size), generation).expand(500, -1)
    uniforms = torch.rand(500, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    uniforms[:3] = torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64)
    cumulative = log_probs[0].exp().double().cumsum(-1)
    expected = torch.searchsorted(cumulative, uniforms * cumulative[-1], right=True)
    drawn, totals = pick(log_probs.exp(), uniforms)
    torch.testing.assert_close(totals, torch.ones_like(totals), atol=1e-6, rtol=0)
    assert bool(log_probs[0, drawn].isfinite().all()), "a token that cannot be sampled"
    assert torch.equal(drawn[1:2], expected[1:2])
    # blocks add up in another order: a number next to a token's edge may fall on its other side
    assert (drawn == expected).float().mean() > 0.99


def test_rounding_never_draws_a_token_without_probability() -> None:
    weights = torch.zeros((1, 20_000))
    weights[0, [3, 700, 12_345]] = torch.tensor([0.1, 0.2, 0.7])
    highest = torch.tensor([1.0], dtype=torch.float64)  # as u * total can come out
    for width in (20_000, 13_000):
        assert pick(weights[:, :width], highest)[0].tolist() == [12_345]
    assert pick(weights, torch.zeros(1, dtype=torch.float64))[0].tolist() == [3]


def test_temperatures_that_overflow_are_refused():
    for temperature in (0.0, 1e-39, 9e-7):
        with pytest.raises(ValueError, match=r"temperature above 0, .* set do_sample=False"):
            GenerationConfig(temperature=temperature)
    (completion,) = tiny_agent(temperature=1e-6).act(["Rain"], seed=0)[0]
    assert completion.log_probs == pytest.approx((0.0,) * len(completion.log_probs))
