"""A model made ready to sample: evaluation mode, adapters, precision, and weights in order."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from transformers import PreTrainedModel

from motet.agents.adapters import activated
from motet.agents.generation import GenerationConfig
from motet.agents.mixed_adapters import RowAdapters, mixed_adapters
from motet.agents.packed_linear import packed_linears
from motet.agents.precision import precision


@contextmanager
def decoding(
    model: PreTrainedModel, generation: GenerationConfig, adapters: Sequence[str | None]
) -> Iterator[RowAdapters | None]:
    """Let a model sample with the adapter of each row; afterwards it is as before.

    Args:
        model: its weights must not change meanwhile.
        generation: sampling settings.
        adapters: (B,) names, None for the plain base. Where they are several, `can_mix` is true.

    Yields:
        What `motet.agents.sampler.sample` gets as `mixed`.
    """
    training = model.training
    if training:  # walks all modules, so that it is not done for nothing
        model.eval()
    distinct = set(adapters)
    try:
        with ExitStack() as stack:
            mixed = None
            alone = distinct.pop() if len(distinct) == 1 else None
            if distinct:
                mixed = stack.enter_context(mixed_adapters(model, adapters))
            stack.enter_context(activated(model, alone))
            stack.enter_context(precision(model.device, generation))
            stack.enter_context(packed_linears(model, alone, generation, num_rows=len(adapters)))
            yield mixed
    finally:
        if training:
            model.train()
