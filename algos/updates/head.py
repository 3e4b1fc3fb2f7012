"""The output head and its log-softmax in one: log-probabilities without a batch of vocabularies.

A row of logits is as long as the vocabulary, so that logits, their gradient and what a log-softmax
keeps are most of an update's memory, and going over them is a quarter of its time. Here they exist
for a chunk of rows at a time and are overwritten in place; what does not fit into one chunk is
computed again in the backward pass (Liger kernel, arXiv 2410.10989, sec. 3.2, does so on GPUs).
"""

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from transformers import PreTrainedModel

from motet.agents import GenerationConfig
from motet.agents.distribution import kept_tokens
from motet.agents.precision import computed_in

# Rows of logits that are held at a time: they take CHUNK_ROWS * V * 4 bytes.
CHUNK_ROWS = 1024

# Rows that have a temporary of their own at a time.
_ROWS_APART = 64

# Log-probabilities are held above this, whose exponential is 0 in float32: so is 0 times it.
_LEAST_LOG_PROB = -1e3

_TRIAL_LOGIT = 100.0  # largest logit of the trial: models cap at 30 or 50

_TRIED: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()


def head_log_probs(
    hidden: Tensor, head: nn.Linear, tokens: Tensor, generation: GenerationConfig
) -> Tensor:
    """Return the log-probabilities of given tokens under the distribution sampled from.

    They are those of `motet.agents.distribution.token_log_probs` on the head's logits, with the
    same gradients, in memory for `CHUNK_ROWS` rows of logits.

    Args:
        hidden: (M, H) what the head reads, with gradient.
        head: the output head.
        tokens: (M,) token ids.
        generation: its temperature, top_k and top_p are used.

    Returns:
        (M,) float32.
    """
    (chosen,) = _applied(hidden, head, tokens, generation, with_entropies=False)
    return chosen


def head_log_probs_and_entropies(
    hidden: Tensor, head: nn.Linear, tokens: Tensor, generation: GenerationConfig
) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of given tokens, and the entropies of their distributions.

    They are those of `motet.agents.distribution.token_log_probs_and_entropies` on the head's
    logits, with the same gradients, in the memory of `head_log_probs`.

    Args:
        hidden: (M, H) what the head reads, with gradient.
        head: the output head.
        tokens: (M,) token ids.
        generation: its temperature, top_k and top_p are used.

    Returns:
        (M,) and (M,) float32, the entropies in nats.
    """
    chosen, entropies = _applied(hidden, head, tokens, generation, with_entropies=True)
    return chosen, entropies


def _applied(
    hidden: Tensor,
    head: nn.Linear,
    tokens: Tensor,
    generation: GenerationConfig,
    *,
    with_entropies: bool,
) -> tuple[Tensor, ...]:
    dtype = computed_in(hidden.device, head.weight.dtype)
    # the function does its products itself, backward too, in the precision that it is given
    with torch.autocast(hidden.device.type, enabled=False):
        found: tuple[Tensor, ...] = _HeadLogProbs.apply(  # type: ignore[no-untyped-call]  # torch's
            hidden.to(dtype), head.weight, head.bias, tokens, generation, with_entropies
        )
    return found


def has_plain_head(model: PreTrainedModel) -> bool:
    """Tell by a trial whether a model's logits are its last hidden states times its head.

    Not all are: some scale or cap logits after it, and a head may have an adapter.

    Args:
        model: in evaluation mode.
    """
    head = model.get_output_embeddings()
    if type(head) is not nn.Linear or model.base_model is model:
        return False
    if model not in _TRIED:
        with torch.no_grad(), torch.autocast(model.device.type, enabled=False):
            _TRIED[model] = _tried(model, head)
    return _TRIED[model]


def _tried(model: PreTrainedModel, head: nn.Linear) -> bool:
    """Compare logits with the head's product, of inputs so large that a cap would show."""
    ids = torch.arange(1, 5, device=model.device).unsqueeze(0) % head.weight.shape[0]
    seen: list[Tensor] = []

    def enlarge(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        largest = nn.functional.linear(inputs[0], head.weight, head.bias).abs().max()
        seen.extend([inputs[0], inputs[0] * (_TRIAL_LOGIT / largest)])
        return (seen[1], *inputs[1:])

    handle = head.register_forward_pre_hook(enlarge)
    try:
        logits = model(input_ids=ids, use_cache=False).logits.float()
    finally:
        handle.remove()
    if len(seen) != 2:
        return False
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state.to(seen[0].dtype)
    plain = head(seen[1]).float()
    same = hidden.shape == seen[0].shape and torch.allclose(hidden, seen[0], equal_nan=True)
    return same and plain.shape == logits.shape and torch.allclose(plain, logits, equal_nan=True)


class _HeadLogProbs(torch.autograd.Function):
    """log softmax(hidden @ weight.T / temperature)[tokens], truncated as sampling is.

    Its gradient in the logits of a row is (onehot(token) - p) / temperature, with the row's
    probabilities p. The entropy's, H = -sum p log p, is -p (log p + H) / temperature.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        tokens: Tensor,
        generation: GenerationConfig,
        with_entropies: bool,  # torch's apply takes no keywords
    ) -> tuple[Tensor, ...]:
        context: Any = ctx
        cast = weight.to(hidden.dtype)
        log_probs: list[Tensor] = []
        sums: list[Tensor] = []
        lowest: list[Tensor] = []
        entropies: list[Tensor] = []
        logits = None
        for part in _chunks(len(tokens)):
            logits = _tempered(hidden[part], cast, bias, generation, logits)
            least = _truncate(logits, tokens[part], generation)
            total = _logsumexp(logits)
            log_probs.append(logits.gather(-1, tokens[part].unsqueeze(-1)).squeeze(-1) - total)
            sums.append(total)
            if with_entropies:
                entropies.append(_entropy(logits, total))
            if least is not None:
                lowest.append(least)
        found = (torch.cat(log_probs), *([torch.cat(entropies)] if entropies else []))
        context.save_for_backward(hidden, weight, bias, tokens, *found[1:])
        context.generation = generation
        context.sums = torch.cat(sums)
        context.lowest = torch.cat(lowest) if lowest else None
        context.logits = logits if len(sums) == 1 else None  # one chunk is not computed twice
        return found

    @staticmethod
    @once_differentiable
    def backward(
        ctx: FunctionCtx, gradient: Tensor, *of_entropies: Tensor
    ) -> tuple[Tensor | None, ...]:
        context: Any = ctx
        hidden, weight, bias, tokens, *entropies = context.saved_tensors
        generation = context.generation
        of_hidden, of_weight, of_bias = context.needs_input_grad[:3]
        kept, context.logits = context.logits, None  # overwritten below
        hidden_gradient = torch.empty_like(hidden) if of_hidden else None
        weight_gradient = None
        cast = weight.to(hidden.dtype)
        bias_gradient = torch.zeros_like(bias) if of_bias else None
        logits = None
        for part in _chunks(len(tokens)):
            if kept is None:
                logits = _tempered(hidden[part], cast, bias, generation, logits)
                if context.lowest is not None:
                    _keep_above(logits, context.lowest[part], tokens[part])
            else:
                logits = kept
            scale = (gradient[part] / -generation.temperature).unsqueeze(-1)
            # in place, from logits to their gradient
            logits.sub_(context.sums[part].unsqueeze(-1))
            if entropies:
                bonus = (of_entropies[0][part] / -generation.temperature).unsqueeze(-1)
                offset = scale + bonus * entropies[0][part].unsqueeze(-1)
                _times_probs(logits, bonus, offset)
            else:
                logits.exp_().mul_(scale)
            logits.scatter_add_(-1, tokens[part].unsqueeze(-1), -scale)
            slopes = logits.to(hidden.dtype)
            if hidden_gradient is not None:
                torch.mm(slopes, cast, out=hidden_gradient[part])
            if of_weight:
                weight_gradient = _plus_product(weight_gradient, slopes.T, hidden[part])
            if bias_gradient is not None:
                bias_gradient += logits.sum(0)
        if weight_gradient is not None:
            weight_gradient = weight_gradient.to(weight.dtype)
        return hidden_gradient, weight_gradient, bias_gradient, None, None, None


def _chunks(num_rows: int) -> Iterator[slice]:
    for start in range(0, num_rows, CHUNK_ROWS):
        yield slice(start, start + CHUNK_ROWS)


def _tempered(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    generation: GenerationConfig,
    buffer: Tensor | None,
) -> Tensor:
    """Return float32 logits over the temperature, in the buffer where it has their shape.

    Pages of fresh memory cost a third of the product's time on a CPU.
    """
    shape = (len(hidden), len(weight))
    if hidden.dtype == torch.float32 and buffer is not None and buffer.shape == shape:
        logits = torch.mm(hidden, weight.T, out=buffer)
    else:
        logits = torch.mm(hidden, weight.T).float()
    if bias is not None:
        logits += bias
    return logits if generation.temperature == 1 else logits.div_(generation.temperature)


def _truncate(logits: Tensor, tokens: Tensor, generation: GenerationConfig) -> Tensor | None:
    """Rule out what sampling does, in place; return (rows,) the lowest logit that is kept."""
    kept = kept_tokens(logits, generation.top_k, generation.top_p)
    if kept is None:
        return None
    lowest = logits.masked_fill(~kept, torch.inf).amin(-1)
    _keep_above(logits, lowest, tokens)
    return lowest


def _keep_above(logits: Tensor, lowest: Tensor, tokens: Tensor) -> None:
    """Rule out, in place, what is below the lowest logit that is kept, but not the tokens."""
    chosen = tokens.unsqueeze(-1)
    own = logits.gather(-1, chosen)
    logits.masked_fill_(logits < lowest.unsqueeze(-1), -torch.inf)
    logits.scatter_(-1, chosen, own)


def _logsumexp(logits: Tensor) -> Tensor:
    """Return (rows,) log of the summed exponentials, some rows at a time.

    torch's own has a temporary of the size of its argument.
    """
    return torch.cat([some.logsumexp(-1) for some in torch.split(logits, _ROWS_APART)])


def _entropy(logits: Tensor, sums: Tensor) -> Tensor:
    """Return (rows,) -sum p log p, some rows at a time; `sums` are the logits' logsumexp."""

    def of_rows(some: Tensor, total: Tensor) -> Tensor:
        log_probs = (some - total.unsqueeze(-1)).clamp_(min=_LEAST_LOG_PROB)
        return -log_probs.exp().mul_(log_probs).sum(-1)

    half = _ROWS_APART // 2  # there are two temporaries
    return torch.cat(list(map(of_rows, torch.split(logits, half), torch.split(sums, half))))


def _times_probs(log_probs: Tensor, slope: Tensor, offset: Tensor) -> None:
    """Turn log p into p * (slope * log p + offset), in place, some rows at a time.

    Args:
        log_probs: (rows, V).
        slope: (rows, 1).
        offset: (rows, 1).
    """

    def of_rows(some: Tensor, own_slope: Tensor, own_offset: Tensor) -> None:
        probs = some.exp()
        some.clamp_(min=_LEAST_LOG_PROB).mul_(own_slope).add_(own_offset).mul_(probs)

    parts = (torch.split(each, _ROWS_APART) for each in (log_probs, slope, offset))
    for part in zip(*parts, strict=True):
        of_rows(*part)


def _plus_product(total: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
    """Return total + left @ right in float32, in place where there is a total."""
    if total is None:
        return torch.mm(left, right).float()
    if total.dtype == left.dtype:
        return total.addmm_(left, right)
    return total.add_(torch.mm(left, right))
