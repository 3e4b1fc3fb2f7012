"""Siblings share their prompt: G completions of one prompt as one row, the prompt computed once.

A row is the prompt and then its completions, one behind the other. Each completion attends to the
prompt and to itself, and its positions go on from the prompt's, so that log-probabilities and
gradients are those of G separate rows (Prefix Grouper, arXiv 2506.05433, shares prompts the same
way). It saves (G - 1) * P tokens of a row's matrix products, and costs attention between siblings
that is computed and masked away: rows are as long as that pays.
"""

import inspect
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from motet.algos.batch import Sample

Row = tuple[Sample, ...]

# Tokens that the trial run of `shares_prompts_exactly` reads; any do.
_TRIAL_PROMPT = 6
_TRIAL_LENGTH = 3


def pack(samples: Sequence[Sample], hidden_size: int, max_tokens: int) -> list[Row]:
    """Put samples with the same prompt into rows, as far as it saves time.

    A token costs 24 * hidden_size^2 floating-point operations of a layer's matrix products, and
    4 * hidden_size for each token it is compared with (Kaplan et al., arXiv 2001.08361, sec. 2.1,
    with a feed-forward layer of four times the hidden size).

    Args:
        samples: of one policy.
        hidden_size: of the model.
        max_tokens: most tokens of a row with more than one sample.

    Returns:
        Rows of samples, each sample once.
    """
    by_prompt: dict[tuple[int, ...], list[Sample]] = {}
    for sample in samples:
        by_prompt.setdefault(sample.completion.prompt_ids, []).append(sample)
    rows: list[Row] = []
    for prompt, siblings in by_prompt.items():
        saved = 6 * hidden_size * len(prompt)  # in comparisons
        row: list[Sample] = []
        length = len(prompt)
        for sample in sorted(siblings, key=lambda sample: sample.length):
            longer = length + sample.length - len(prompt)
            added = longer**2 - length**2 - sample.length**2
            if row and (added > saved or longer > max_tokens):
                rows.append(tuple(row))
                row, longer = [], sample.length
            row.append(sample)
            length = longer
        rows.append(tuple(row))
    return rows


def shared_mask(segments: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the attention mask of rows in which completions share a prompt.

    Args:
        segments: (R, L) 0 at padding, 1 at the prompt, 2 and more at each completion.
        dtype: of the mask, the model's.

    Returns:
        (R, 1, L, L) 0 where a token (third axis) sees another, the lowest number elsewhere: itself
        and what is before it in its own completion and in the prompt.
    """
    length = segments.shape[1]
    earlier = torch.ones((length, length), dtype=torch.bool, device=segments.device).tril()
    key, query = segments[:, None, None, :], segments[:, None, :, None]
    seen = earlier & (key > 0) & ((key == 1) | (key == query))
    lowest = torch.finfo(dtype).min
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, lowest)


def attention_window(model: PreTrainedModel) -> int | None:
    """Return how far back a model's sliding attention sees, None where it sees everything."""
    window: int | None = getattr(model.config.get_text_config(), "sliding_window", None)
    return window  # not all configs have it


@torch.no_grad()
def shares_prompts_exactly(model: PreTrainedModel) -> bool:
    """Tell by a trial whether a model computes siblings in one row as it does apart.

    Not all do: some take no positions, compute their own from the row, or drop a mask of four axes.

    Args:
        model: in evaluation mode.
    """
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return False
    if model.config._attn_implementation not in ("sdpa", "eager"):
        return False  # flash attention takes no mask of this form
    vocabulary = model.get_input_embeddings().weight.shape[0]
    count = _TRIAL_PROMPT + 2 * _TRIAL_LENGTH
    ids = (torch.arange(1, count + 1) * 7919 % vocabulary).unsqueeze(0)
    prompt, first, second = ids.split([_TRIAL_PROMPT, _TRIAL_LENGTH, _TRIAL_LENGTH], dim=1)
    own = torch.arange(_TRIAL_PROMPT + _TRIAL_LENGTH)
    positions = torch.cat([own, own[_TRIAL_PROMPT:]]).unsqueeze(0)
    segments = torch.tensor([[1] * _TRIAL_PROMPT + [2] * _TRIAL_LENGTH + [3] * _TRIAL_LENGTH])
    mask = shared_mask(segments, model.dtype)
    together = _logits(model, ids, mask, positions)
    for i, completion in enumerate((first, second)):
        alone = torch.cat([prompt, completion], dim=1)
        apart = _logits(model, alone, torch.ones_like(alone), own.unsqueeze(0))
        start = _TRIAL_PROMPT + i * _TRIAL_LENGTH
        packed = together[start : start + _TRIAL_LENGTH]
        limit = 100 * torch.finfo(model.dtype).eps * float(apart.abs().max())
        if float((packed - apart[_TRIAL_PROMPT:]).abs().max()) > limit:
            return False
    return True


def _logits(model: PreTrainedModel, ids: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
    device = model.device
    output = model(
        input_ids=ids.to(device),
        attention_mask=mask.to(device),
        position_ids=positions.to(device),
        use_cache=False,
    )
    logits: Tensor = output.logits[0].float()
    return logits
