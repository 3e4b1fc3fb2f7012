"""The distribution that tokens are sampled from, and log-probabilities under exactly it.

Temperature, then top-k, then top-p, in transformers' order, renormalised. Sampling and training
both come here: a log-probability of the untruncated model would belong to another policy than the
one that acted, and biases every ratio by the kept mass.
"""

import torch
from torch import Tensor

from motet.agents.generation import GenerationConfig

_FIRST_CANDIDATES = 128
_BLOCK = 128  # tokens whose probabilities are added up before one of them is looked for


def kept_tokens(logits: Tensor, top_k: int | None, top_p: float | None) -> Tensor | None:
    """Return which tokens truncated sampling keeps, None where it keeps all.

    Tokens tied with the last kept one are kept too, so that the set is a function of the logits
    alone. Neither rule sorts the vocabulary: top-p looks at the most likely tokens first and takes
    more only while their mass falls short.

    Args:
        logits: (..., V) tempered logits.
        top_k: keep the k largest.
        top_p: of those, keep the smallest set with at least this mass.

    Returns:
        (..., V) bool, or None.
    """
    size = logits.shape[-1]
    share = 1.0 if top_p is None else top_p
    if top_k is not None and top_k < size:
        largest = logits.topk(top_k).values
        kept = logits >= largest[..., -1:]
        if share == 1:
            return kept
        probs = (largest - largest[..., :1]).exp()
        # what is tied with the last of them has its probability too
        tied = kept.sum(-1, keepdim=True) - top_k
        probs = probs / (probs.sum(-1, keepdim=True) + tied * probs[..., -1:])
        return logits >= largest.gather(-1, _last_needed(probs, share))
    if share == 1:
        return None
    probs = logits.softmax(-1)
    count = min(_FIRST_CANDIDATES, size)
    while True:
        largest = probs.topk(count).values
        if count == size or bool((largest.sum(-1) >= share).all()):
            return probs >= largest.gather(-1, _last_needed(largest, share))
        count = min(8 * count, size)


def _last_needed(probs: Tensor, top_p: float) -> Tensor:
    """Return (..., 1) the index of the last of some probabilities, in descending order, to keep."""
    mass = probs.cumsum(-1)
    # at least one token, also where all is NaN: whoever sums these up finds the NaN
    return (mass - probs < top_p).sum(-1, keepdim=True).clamp(min=1) - 1


def _tempered(logits: Tensor, generation: GenerationConfig) -> Tensor:
    scaled = logits.float()
    # a division by one would still copy a batch of vocabularies
    return scaled if generation.temperature == 1 else scaled / generation.temperature


def truncated_logits(logits: Tensor, generation: GenerationConfig) -> Tensor:
    """Return the logits of the distribution to sample from.

    Args:
        logits: (..., V) of the model.
        generation: its temperature, top_k and top_p are used.

    Returns:
        (..., V) float32, -inf where a token cannot be sampled.
    """
    tempered = _tempered(logits, generation)
    kept = kept_tokens(tempered, generation.top_k, generation.top_p)
    return tempered if kept is None else tempered.masked_fill(~kept, -torch.inf)


def token_log_probs(logits: Tensor, tokens: Tensor, generation: GenerationConfig) -> Tensor:
    """Return the log-probabilities of given tokens under the distribution sampled from.

    After an update, or by rounding, a token that was sampled can fall just outside the kept set;
    it is then counted in, so that its log-probability stays finite and has a gradient.

    Args:
        logits: (..., V) of the model.
        tokens: (...) token ids.
        generation: its temperature, top_k and top_p are used.

    Returns:
        (...) float32.
    """
    counted = _counted_in(logits, tokens, generation)
    return counted.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - counted.logsumexp(-1)


def token_log_probs_and_entropies(
    logits: Tensor, tokens: Tensor, generation: GenerationConfig
) -> tuple[Tensor, Tensor]:
    """Return `token_log_probs`, and the entropies -sum_v p_v log p_v of the same distributions.

    Args:
        logits: (..., V) of the model.
        tokens: (...) token ids.
        generation: its temperature, top_k and top_p are used.

    Returns:
        (...) and (...) float32, the entropies in nats.
    """
    log_probs = _counted_in(logits, tokens, generation).log_softmax(-1)
    # p log p is 0 where p is 0, and has no gradient there
    finite = log_probs.masked_fill(log_probs == -torch.inf, 0.0)
    entropies = -(log_probs.exp() * finite).sum(-1)
    return log_probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1), entropies


def _counted_in(logits: Tensor, tokens: Tensor, generation: GenerationConfig) -> Tensor:
    """Return (..., V) float32 tempered logits, -inf at what is neither kept nor given."""
    tempered = _tempered(logits, generation)
    kept = kept_tokens(tempered.detach(), generation.top_k, generation.top_p)
    if kept is None:
        return tempered
    chosen = tokens.unsqueeze(-1)
    return tempered.masked_fill(~kept.scatter(-1, chosen, value=True), -torch.inf)


def draw(logits: Tensor, uniforms: Tensor, generation: GenerationConfig) -> tuple[Tensor, Tensor]:
    """Draw one token per row from the distribution to sample from.

    Args:
        logits: (B, V) of the model.
        uniforms: (B,) float64 in [0, 1).
        generation: its temperature, top_k and top_p are used.

    Returns:
        (B,) token ids and (B,) their log-probabilities, float32.
    """
    truncated = truncated_logits(logits, generation)
    largest = truncated.amax(-1, keepdim=True)
    tokens, totals = pick((truncated - largest).exp_(), uniforms)
    chosen = (truncated.gather(-1, tokens.unsqueeze(-1)) - largest).squeeze(-1)
    return tokens, (chosen - totals.log()).float()


def pick(weights: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Draw one token per row by inverting the cumulative distribution.

    A row's draw depends on its own uniform number alone, so that it does not matter which other
    rows are in the batch or have left it.

    Args:
        weights: (B, V) in proportion to probabilities.
        uniforms: (B,) float64 in [0, 1).

    Returns:
        (B,) token ids and (B,) the weights' sums, float64.
    """
    if weights.shape[-1] <= _BLOCK**2:
        cumulative = weights.double().cumsum(-1)
        targets = uniforms.unsqueeze(-1) * cumulative[:, -1:]
        return _first_above(cumulative, targets).squeeze(-1), cumulative[:, -1]
    # first the block of tokens, then the token in it: a ninth of the time for 50,000 tokens
    padded = torch.nn.functional.pad(weights, (0, -weights.shape[-1] % _BLOCK))
    blocks = padded.view(len(weights), -1, _BLOCK)
    ends = blocks.sum(-1).double().cumsum(-1)
    targets = uniforms.unsqueeze(-1) * ends[:, -1:]
    block = _first_above(ends, targets)
    before = torch.nn.functional.pad(ends, (1, 0)).gather(-1, block)
    rows = torch.arange(len(block), device=block.device)
    inside = blocks[rows, block.squeeze(-1)].double().cumsum(-1)
    tokens = (block * _BLOCK + _first_above(inside, targets - before)).squeeze(-1)
    return tokens, ends[:, -1]


def _first_above(cumulative: Tensor, targets: Tensor) -> Tensor:
    """Return the first index whose cumulative value is above the target.

    Rounding can bring a target up to the total, which nothing is above: then the last index that
    adds to it, so that a token without probability is never drawn.

    Args:
        cumulative: (B, K) float64, ascending.
        targets: (B, 1) float64.

    Returns:
        (B, 1) indices.
    """
    last = (cumulative < cumulative[:, -1:]).sum(-1, keepdim=True)
    return torch.searchsorted(cumulative, targets, right=True).minimum(last)
