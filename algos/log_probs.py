"""Log-probabilities of a batch under a policy, with gradient."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from motet.agents import GenerationConfig
from motet.agents.distribution import token_log_probs
from motet.algos.batch import Batch
from motet.algos.packing import shared_mask

# Rows of logits that are normalised at a time: a chunk of R rows costs R * V * 4 bytes beside the
# logits, instead of B * T * V * 4.
CHUNK_ROWS = 1024


def completion_log_probs(
    model: PreTrainedModel, batch: Batch, generation: GenerationConfig
) -> Tensor:
    """Return the log-probabilities of the completions' tokens, as they were sampled.

    Logits are computed for the positions that predict completion tokens only.

    Args:
        model: the policy.
        batch: on the model's device.
        generation: sampling settings; log-probabilities are under that distribution.

    Returns:
        (B, T) float32; 0 at padding.
    """
    packed = batch.shares_prompts
    output = model(
        input_ids=batch.input_ids,
        attention_mask=(
            shared_mask(batch.segments, model.dtype) if packed else (batch.segments > 0).long()
        ),
        position_ids=batch.position_ids,
        use_cache=False,
        logits_to_keep=batch.input_ids.shape[1] - batch.prompt_width + 1,
    )
    logits = output.logits[batch.rows, batch.columns]
    tokens = batch.completion_ids[batch.mask]
    chosen = torch.cat(
        [
            checkpoint(token_log_probs, *part, generation, use_reentrant=False)
            for part in zip(
                torch.split(logits, CHUNK_ROWS), torch.split(tokens, CHUNK_ROWS), strict=True
            )
        ]
    )
    return torch.zeros(batch.mask.shape, device=chosen.device).masked_scatter(batch.mask, chosen)
