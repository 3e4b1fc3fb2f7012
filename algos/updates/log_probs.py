"""Log-probabilities of a batch under a policy, and entropies, with gradient."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from motet.agents import GenerationConfig
from motet.agents.distribution import token_log_probs, token_log_probs_and_entropies
from motet.agents.precision import computed_in, precision
from motet.algos.updates.batch import Batch
from motet.algos.updates.branch_attention import attention_mask, branching, carry
from motet.algos.updates.head import (
    CHUNK_ROWS,
    has_plain_head,
    head_log_probs,
    head_log_probs_and_entropies,
)


def completion_log_probs(
    model: PreTrainedModel, batch: Batch, generation: GenerationConfig
) -> Tensor:
    """Return the log-probabilities of the completions' tokens, as they were sampled.

    Logits are computed for the positions that predict completion tokens only, and for models whose
    head is a plain matrix a chunk at a time.

    Args:
        model: the policy, in evaluation mode.
        batch: on the model's device.
        generation: sampling settings; log-probabilities are under that distribution.

    Returns:
        (B, T) float32; 0 at padding.
    """
    (log_probs,) = _found(model, batch, generation, with_entropies=False)
    return log_probs


def completion_log_probs_and_entropies(
    model: PreTrainedModel, batch: Batch, generation: GenerationConfig
) -> tuple[Tensor, Tensor]:
    """Return `completion_log_probs`, and the entropies of what the tokens were sampled from.

    Temperature, top-k and top-p are in them; a token that was sampled and is no longer among those
    kept is counted in, as it is for its log-probability.

    Args:
        model: the policy, in evaluation mode.
        batch: on the model's device.
        generation: sampling settings.

    Returns:
        (B, T) and (B, T) float32, the entropies in nats; 0 at padding.
    """
    log_probs, entropies = _found(model, batch, generation, with_entropies=True)
    return log_probs, entropies


def _found(
    model: PreTrainedModel, batch: Batch, generation: GenerationConfig, *, with_entropies: bool
) -> tuple[Tensor, ...]:
    """Return (B, T) log-probabilities and, if asked for, entropies."""
    with precision(model.device, generation), branching(model):
        found = _by_token(model, batch, generation, with_entropies=with_entropies)
    zeros = torch.zeros(batch.mask.shape, device=batch.mask.device)
    return tuple(zeros.masked_scatter(batch.mask, each) for each in found)


def completion_hidden_states(
    model: PreTrainedModel, batch: Batch, generation: GenerationConfig
) -> Tensor:
    """Return what the output head reads before each completion token.

    Args:
        model: the policy, in evaluation mode.
        batch: on the model's device.
        generation: its precision counts.

    Returns:
        (M, H), completion by completion.
    """
    with precision(model.device, generation), branching(model):
        output = model.base_model(**_inputs(model, batch))
    hidden: Tensor = output.last_hidden_state[batch.rows, batch.columns]
    return hidden


@contextmanager
def last_hidden_states(model: PreTrainedModel) -> Iterator[list[Tensor]]:
    """Catch the last hidden states, (R, L, H) with gradient, of every forward pass inside."""
    seen: list[Tensor] = []
    handle = model.base_model.register_forward_hook(
        lambda module, inputs, output: seen.append(output.last_hidden_state)
    )
    try:
        yield seen
    finally:
        handle.remove()


def _inputs(model: PreTrainedModel, batch: Batch) -> dict[str, Any]:
    return {
        "input_ids": batch.input_ids,
        "attention_mask": _mask(model, batch),
        "position_ids": batch.position_ids,
        "use_cache": False,
    }


def _mask(model: PreTrainedModel, batch: Batch) -> Tensor:
    """Return the mask of rows that branch; for others all ones, which is causal attention.

    That never looks at padding, which is on the right.
    """
    if batch.attention is None:
        return torch.ones_like(batch.input_ids)
    # in another precision each layer would cast it, and keep its own
    mask = attention_mask(batch.attention, computed_in(model.device, model.dtype))
    return mask if batch.branches is None else carry(mask, batch.branches)


def _by_token(
    model: PreTrainedModel, batch: Batch, generation: GenerationConfig, *, with_entropies: bool
) -> tuple[Tensor, ...]:
    """Return (M,) log-probabilities and, if asked for, entropies, completion by completion."""
    tokens = batch.completion_ids[batch.mask]
    inputs = _inputs(model, batch)
    if has_plain_head(model):
        hidden = model.base_model(**inputs).last_hidden_state[batch.rows, batch.columns]
        of_head = (hidden, model.get_output_embeddings(), tokens, generation)
        if with_entropies:
            return head_log_probs_and_entropies(*of_head)
        return (head_log_probs(*of_head),)
    needed = torch.unique(batch.columns)
    output = model(**inputs, logits_to_keep=needed)
    logits = output.logits[batch.rows, torch.searchsorted(needed, batch.columns)]
    parts = zip(torch.split(logits, CHUNK_ROWS), torch.split(tokens, CHUNK_ROWS), strict=True)
    function = token_log_probs_and_entropies if with_entropies else _only_log_probs
    found = [checkpoint(function, *part, generation, use_reentrant=False) for part in parts]
    return tuple(torch.cat(each) for each in zip(*found, strict=True))


def _only_log_probs(
    logits: Tensor, tokens: Tensor, generation: GenerationConfig
) -> tuple[Tensor, ...]:
    return (token_log_probs(logits, tokens, generation),)
