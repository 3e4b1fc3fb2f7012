"""How many rows are decoded side by side: as many as settings and memory allow."""

import math
from collections.abc import Iterator, Sequence

import torch
from transformers import PreTrainedModel

from motet.agents.cache_traits import bytes_per_token
from motet.agents.generation import GenerationConfig
from motet.agents.kept_caches import Ids, KeptCaches

_GIB = 2**30

# Of the free memory of a GPU, where there is no limit: copies made while a batch shrinks, logits
# and activations need some as well.
_SHARE_OF_FREE = 0.5

# Most of the limit that rows kept for later turns may take; running rows get all that they do not.
_SHARE_OF_KEPT = 0.5


def batches(
    model: PreTrainedModel,
    prompts: Sequence[Ids],
    generation: GenerationConfig,
    kept: KeptCaches | None,
) -> Iterator[list[int]]:
    """Split prompts into batches of at most `max_rows` rows and `max_cache_gib` of cache.

    Prompts of like length come together; those that go on from kept rows are apart from those that
    are read from their beginning, so that none is padded to the length of what others had kept.
    Kept rows that do not fit beside a batch are dropped, the oldest first. The next batch is made
    when it is asked for: what is kept changes from batch to batch.

    Args:
        model: a causal language model in evaluation mode.
        prompts: (B,) token ids.
        generation: the limits, and the number of new tokens to leave room for.
        kept: rows kept from former turns.

    Returns:
        Indices of the prompts of each batch.

    Raises:
        ValueError: where one row alone needs more than `max_cache_gib`.
    """
    longest = max(map(len, prompts)) + generation.max_new_tokens
    if generation.max_cache_gib is not None:
        needed = longest * bytes_per_token(model)
        if needed > generation.max_cache_gib * _GIB:
            raise ValueError(
                f"Expected max_cache_gib of at least {_rounded_up(needed / _GIB)} for a prompt and "
                f"completion of {longest} tokens, got {generation.max_cache_gib}."
            )
    starts = {prompt: 0 if kept is None else kept.find(prompt) for prompt in dict.fromkeys(prompts)}
    waiting = sorted(
        range(len(prompts)),
        key=lambda i: (starts[prompts[i]] > 0, len(prompts[i]), prompts[i]),
    )
    while waiting:
        limit = _limit(model, generation, kept)
        size = math.inf
        if limit < math.inf:
            if kept is not None:
                kept.shrink(limit * _SHARE_OF_KEPT)
            size = (limit - (0 if kept is None else kept.num_bytes)) / bytes_per_token(model)
        batch, width = _first(prompts, waiting, generation, kept, size)
        if kept is not None and limit < math.inf:
            kept.shrink(limit - len(batch) * width * bytes_per_token(model))
        yield batch
        del waiting[: len(batch)]


def _first(
    prompts: Sequence[Ids],
    waiting: Sequence[int],
    generation: GenerationConfig,
    kept: KeptCaches | None,
    size: float,
) -> tuple[list[int], int]:
    """Return the first waiting rows, as many as make a batch of at most `size` tokens, and width.

    A row that is longer makes a batch of its own.
    """
    batch: list[int] = []
    widest, width, goes_on = (0, 0), 0, False
    start, previous = 0, None
    for i in waiting[: generation.max_rows]:
        prompt = prompts[i]
        if prompt != previous:
            start = 0 if kept is None else kept.find(prompt)
        wider = max(widest[0], start), max(widest[1], len(prompt) - start)
        needed = sum(wider) + generation.max_new_tokens
        if batch and ((start > 0) != goes_on or (len(batch) + 1) * needed > size):
            break
        batch.append(i)
        widest, width, goes_on, previous = wider, needed, start > 0, prompt
    return batch, width


def _rounded_up(value: float) -> str:
    """Return a number with three digits that is no smaller: who types it has enough."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / unit) * unit:.3g}"


def _limit(model: PreTrainedModel, generation: GenerationConfig, kept: KeptCaches | None) -> float:
    """Return the bytes that running and kept rows may take together."""
    if generation.max_cache_gib is not None:
        return generation.max_cache_gib * _GIB
    if model.device.type != "cuda":
        return math.inf
    free, _ = torch.cuda.mem_get_info(model.device)
    # what torch has taken from the device and does not use is free as well
    free += torch.cuda.memory_reserved(model.device) - torch.cuda.memory_allocated(model.device)
    return _SHARE_OF_FREE * free + (0 if kept is None else kept.num_bytes)
