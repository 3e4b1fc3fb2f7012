"""Decode many sequences side by side.

How this departs from transformers' `generate`:

1. Equal prompts are read once; their key-value rows are then expanded to all their completions.
2. Finished rows leave the batch, so that a few long completions do not carry all others along.
3. The log-probability of each token under the distribution it was sampled from is kept.
4. Each row has its own stream of random numbers: a row's tokens do not depend on its neighbours.
5. Keys and values of finished rows can be kept, so that prompts which go on from them are read
   from there (`KeptCaches`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from motet.agents.batches import batches
from motet.agents.cache_traits import cache_argument, new_cache
from motet.agents.distribution import draw
from motet.agents.generation import GenerationConfig
from motet.agents.kept_caches import KeptCaches
from motet.agents.mixed_adapters import RowAdapters
from motet.agents.stop_strings import StopStrings

# Finished rows are dropped when at most this share of the batch still runs: dropping copies the
# key-value cache, which costs about as much as a decode step.
_COMPACT_BELOW = 0.8


@dataclass(frozen=True, slots=True)
class Stops:
    """What ends a completion; its tokens are part of it.

    Attributes:
        ids: tokens.
        strings: texts.
    """

    ids: frozenset[int]
    strings: StopStrings | None = None


@dataclass(frozen=True, slots=True)
class Sequences:
    """Sampled token ids and their log-probabilities, one list per row."""

    ids: list[list[int]]
    log_probs: list[list[float]]

    def __getitem__(self, rows: slice) -> "Sequences":
        return Sequences(self.ids[rows], self.log_probs[rows])


@torch.no_grad()
def sample(
    model: PreTrainedModel,
    prompts: Sequence[tuple[int, ...]],
    generation: GenerationConfig,
    stops: Stops,
    uniforms: Tensor,
    kept: KeptCaches | None = None,
    mixed: RowAdapters | None = None,
) -> Sequences:
    """Sample one completion for each prompt; equal prompts share their prefill.

    Args:
        model: a causal language model in evaluation mode.
        prompts: (B,) token ids, none of them empty.
        generation: sampling settings.
        stops: what ends a completion.
        uniforms: (B, max_new_tokens) float64 in [0, 1), on the CPU: what each draw is made of.
        kept: rows of former calls to go on from, and where to keep those of this one.
        mixed: the adapter of each prompt where they have several; nothing is kept then.

    Returns:
        (B,) completions in the order of the prompts.

    Raises:
        FloatingPointError: where the model's logits are not finite.
        ValueError: where one row alone needs more than `max_cache_gib`.
    """
    ids: list[list[int]] = [[] for _ in prompts]
    log_probs: list[list[float]] = [[] for _ in prompts]
    ended = [False] * len(prompts)
    text_ends = [b""] * len(prompts)
    for chunk in batches(model, prompts, generation, kept):
        own = None if mixed is None else mixed.of_rows(chunk)
        decoder = _Decoder(model, [prompts[i] for i in chunk], generation, kept, own)
        for step in range(generation.max_new_tokens):
            rows = torch.tensor(chunk)[decoder.rows]
            tokens, chosen = decoder.draw(uniforms[rows, step])
            for row, token, log_prob in zip(
                rows.tolist(), tokens.tolist(), chosen.tolist(), strict=True
            ):
                if ended[row]:
                    continue
                ids[row].append(token)
                log_probs[row].append(log_prob)
                ended[row] = token in stops.ids
                if stops.strings is not None and not ended[row]:
                    text_ends[row], ended[row] = stops.strings.follow(text_ends[row], ids[row])
            last = step == generation.max_new_tokens - 1
            if last or not decoder.advance(tokens, torch.tensor([ended[i] for i in rows.tolist()])):
                break
        decoder.close()
    if kept is not None:
        kept.forget(prompts)
    return Sequences(ids, log_probs)


class _Decoder:
    """The running batch: logits, key-value cache, and which of the rows are still in it."""

    def __init__(
        self,
        model: PreTrainedModel,
        prompts: Sequence[tuple[int, ...]],
        generation: GenerationConfig,
        kept: KeptCaches | None = None,
        mixed: RowAdapters | None = None,
    ) -> None:
        self._model = model
        self._generation = generation
        self.rows = torch.arange(len(prompts))
        self._mixed = mixed
        # adapters read the same prompt each for themselves
        read = list(zip([-1] * len(prompts) if mixed is None else mixed.of, prompts, strict=True))
        index = {key: i for i, key in enumerate(dict.fromkeys(read))}
        expand = torch.tensor([index[key] for key in read], device=model.device)
        distinct = [prompt for _, prompt in index]
        starts = [0 if kept is None else kept.find(prompt) for prompt in distinct]
        behind = max(starts)
        ahead = max(len(prompt) - start for prompt, start in zip(distinct, starts, strict=True))
        longest = behind + ahead
        ids = torch.zeros((len(distinct), ahead), dtype=torch.long)
        mask = torch.zeros((len(distinct), longest + generation.max_new_tokens), dtype=torch.long)
        for i, (prompt, start) in enumerate(zip(distinct, starts, strict=True)):
            mask[i, behind - start : behind] = 1
            ids[i, ahead - len(prompt) + start :] = torch.tensor(prompt[start:])
            mask[i, longest - len(prompt) + start :] = 1
        mask = mask.to(model.device)
        self._padded = bool((mask == 0).any())
        self._width = longest
        positions = (mask[:, :longest].cumsum(-1) - 1).clamp(min=0)[:, behind:]
        self._cache = new_cache(model)
        if kept is not None and behind:
            self._cache = kept.gather([p[:n] for p, n in zip(distinct, starts, strict=True)])
        self._cache_argument = cache_argument(model)
        self._kept = kept
        self._prompts = prompts
        self._prompt_width = longest
        self._read: list[list[int]] = [[] for _ in prompts]  # tokens fed after the prompt, by row
        if mixed is not None:
            mixed.use([adapter for adapter, _ in index])
        logits = self._forward(ids.to(model.device), mask, positions)
        self._logits = logits[expand]
        self._mask = mask[expand]
        self._positions = positions[expand, -1:]
        self._done = torch.zeros(len(prompts), dtype=torch.bool)
        self._cache.batch_select_indices(expand)
        if mixed is not None:
            mixed.use(mixed.of)

    def draw(self, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next token of each running row and its log-probability, both (B,).

        Raises:
            FloatingPointError: where the model's logits are not finite.
        """
        # The largest logit is NaN where any is; -inf alone is some models' way to rule tokens out.
        if not bool(self._logits.amax(-1).isfinite().all()):
            raise FloatingPointError(
                "Expected finite logits to sample from, got NaN or infinity; the weights of "
                f"{type(self._model).__name__} are broken, or overflow in {self._logits.dtype}."
            )
        if not self._generation.do_sample:
            tokens = self._logits.argmax(-1)
            return tokens, torch.zeros(len(tokens))
        return draw(self._logits, uniforms.to(self._logits.device), self._generation)

    def advance(self, tokens: Tensor, ended: Tensor) -> bool:
        """Feed the drawn tokens; return False when every row has ended, with them or before."""
        self._done = ended
        if bool(self._done.all()):
            return False
        if int((~self._done).sum()) <= _COMPACT_BELOW * len(self._done):
            tokens = self._compact(tokens)
        if self._kept is not None:
            for row, token, done in zip(
                self.rows.tolist(), tokens.tolist(), self._done.tolist(), strict=True
            ):
                if not done:
                    self._read[row].append(token)
        self._width += 1
        self._positions = self._positions + 1
        self._logits = self._forward(tokens.unsqueeze(-1), self._mask, self._positions)
        return True

    def _compact(self, tokens: Tensor) -> Tensor:
        keep = (~self._done).nonzero().squeeze(-1)
        self._leave(keep)
        self.rows = self.rows[keep]
        if self._mixed is not None:
            self._mixed.use([self._mixed.of[row] for row in self.rows.tolist()])
        self._done = self._done[keep]
        keep = keep.to(tokens.device)
        self._mask = self._mask[keep]
        self._positions = self._positions[keep]
        return tokens[keep]

    def close(self) -> None:
        """Let all rows leave."""
        if self._kept is not None:
            self._leave(torch.zeros(0, dtype=torch.long))

    def _leave(self, staying: Tensor) -> None:
        """Take all rows out of the cache but some, and keep what is worth it of those that go."""
        on_device = staying.to(self._mask.device)
        if self._kept is None:
            self._cache.batch_select_indices(on_device)
            return
        leaves = torch.ones(len(self.rows), dtype=torch.bool)
        leaves[staying] = False
        rows = self.rows[leaves].tolist()
        sequences = [self._prompts[row] + tuple(self._read[row]) for row in rows]
        ends = torch.zeros(len(leaves), dtype=torch.long)
        ends[leaves] = torch.tensor([self._prompt_width + len(self._read[row]) for row in rows])
        places = torch.arange(self._width, device=on_device.device)
        real = self._mask[:, : self._width].bool() & (places < ends.to(places.device).unsqueeze(-1))
        self._kept.move_in(self._cache, real, sequences, on_device)

    def _forward(self, ids: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        """Return the logits (B, V) at the last position."""
        output = self._model(
            input_ids=ids,
            attention_mask=mask[:, : self._width] if self._padded else None,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_argument: self._cache},
        )
        logits: Tensor = output.logits[:, -1]
        return logits
