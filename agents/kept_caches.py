"""Keys and values of finished rows, kept so that the next turn goes on from them.

What is kept of a row is its prompt and all of its completion but the last token, which was drawn
and never read. A prompt that begins with these tokens, as the next one of the same conversation
does, is then read from there on only.

Rows that leave a batch together are kept together, in one slab of tokens, without padding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from motet.agents.cache_traits import extends_exactly, new_cache

Ids = tuple[int, ...]


@dataclass(slots=True, eq=False)
class _Slab:
    """Rows that left a batch together; L tokens of all of them, one row behind the other.

    Attributes:
        layers: keys and values by layer, each (L, heads, head size).
        prefixes: hashes of the rows that are still kept.
    """

    layers: list[tuple[Tensor, Tensor]]
    prefixes: set[int] = field(default_factory=set)

    @property
    def num_bytes(self) -> int:
        return sum(part.numel() * part.element_size() for layer in self.layers for part in layer)


@dataclass(frozen=True, slots=True)
class _Row:
    tokens: Ids
    slab: _Slab
    start: int


class KeptCaches:
    """Keys and values by the tokens that they were computed from, for one state of the weights.

    A model that cannot be extended exactly (`extends_exactly`) gets nothing kept.

    Args:
        model: whose keys and values these are.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._rows: dict[int, _Row] = {}
        self._slabs: dict[_Slab, None] = {}  # in the order in which they came
        self._weights: tuple[int, int] | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of all that is kept."""
        return sum(slab.num_bytes for slab in self._slabs)

    def refresh(self, policy_version: int) -> None:
        """Forget everything if the weights have changed since the last time.

        Learners' updates are noticed by the policy's version, other changes in place by torch's own
        count. Neither sees what a fused optimizer does in a loop of one's own, or what is written
        through `.data`.

        Args:
            policy_version: how many updates the policy has seen.
        """
        version = policy_version, _changes_in_place(self._model)
        if version != self._weights:
            self.shrink(0)
            self._weights = version

    def find(self, prompt: Ids) -> int:
        """Return how many of a prompt's first tokens are kept; never all, as one must be read."""
        longest = 0
        if self._rows:
            for length, prefix in enumerate(_prefix_hashes(prompt[:-1]), start=1):
                row = self._rows.get(prefix)
                if row is not None and row.tokens == prompt[:length]:
                    longest = length
        return longest

    def gather(self, prefixes: Sequence[Ids]) -> DynamicCache:
        """Return a cache of kept rows side by side, padded on the left with zeros.

        Args:
            prefixes: (B,) tokens of rows, each as long as `find` says, or empty.
        """
        width = max(map(len, prefixes))
        sources: dict[_Slab, list[tuple[int, int, int]]] = {}
        for i, prefix in enumerate(prefixes):
            if prefix:
                row = self._rows[_prefix_hash(prefix)]
                sources.setdefault(row.slab, []).append((i, row.start, len(prefix)))
        places = [(slab, *_places(rows, width, self._model)) for slab, rows in sources.items()]
        cache = new_cache(self._model)
        for index in range(len(cache.layers)):
            parts = []
            for side in range(2):  # keys, then values
                like = places[0][0].layers[index][side]
                part = like.new_zeros((len(prefixes), like.shape[1], width, like.shape[2]))
                for slab, rows, columns, tokens in places:
                    part[rows, :, columns] = slab.layers[index][side][tokens]
                parts.append(part)
            cache.update(*parts, index)
        return cache

    def move_in(
        self, cache: DynamicCache, columns: Tensor, sequences: Sequence[Ids], staying: Tensor
    ) -> None:
        """Move rows from a batch's cache in here, layer by layer, so that both never hold all.

        Args:
            cache: the batch's; only the rows that stay are left in it.
            columns: (B, W) which of its columns are the tokens of rows that leave; False in the
                rows that stay.
            sequences: tokens of the rows that leave, in their order.
            staying: indices of the rows that stay.
        """
        if not extends_exactly(self._model):
            cache.batch_select_indices(staying)
            return
        slab = _Slab([])
        rows, places = columns.nonzero(as_tuple=True)
        for layer in cache.layers:
            slab.layers.append((layer.keys[rows, :, places], layer.values[rows, :, places]))
            layer.batch_select_indices(staying)
        start = 0
        for tokens in sequences:
            prefix = _prefix_hash(tokens)
            if prefix not in self._rows:  # siblings may say the same
                self._rows[prefix] = _Row(tokens, slab, start)
                slab.prefixes.add(prefix)
            start += len(tokens)
        if slab.prefixes:
            self._slabs[slab] = None

    def forget(self, prompts: Sequence[Ids]) -> None:
        """Drop the rows that prompts went on from: what followed them is kept instead."""
        for prompt in prompts:
            length = self.find(prompt)
            if length:
                row = self._rows.pop(_prefix_hash(prompt[:length]))
                row.slab.prefixes.remove(_prefix_hash(row.tokens))
                if not row.slab.prefixes:
                    del self._slabs[row.slab]

    def shrink(self, max_bytes: float) -> None:
        """Drop slabs, the oldest first, until at most `max_bytes` are left."""
        held = self.num_bytes
        for slab in list(self._slabs):
            if held <= max_bytes:
                break
            held -= slab.num_bytes
            for prefix in slab.prefixes:
                del self._rows[prefix]
            del self._slabs[slab]


def _prefix_hashes(tokens: Ids) -> Iterator[int]:
    """Yield a hash of the first token, the first two, and so on, in one pass."""
    value = 0
    for token in tokens:
        value = hash((value, token))
        yield value


def _prefix_hash(tokens: Ids) -> int:
    value = 0
    for value in _prefix_hashes(tokens):  # noqa: B007  # the last one counts
        pass
    return value


def _places(
    rows: Sequence[tuple[int, int, int]], width: int, model: PreTrainedModel
) -> tuple[Tensor, Tensor, Tensor]:
    """Return row and column in a batch, and token in a slab, of all tokens of some rows.

    Args:
        rows: place in the batch, first token in the slab, and number of tokens.
        width: of the batch, in which rows end.
        model: on whose device to put them.
    """
    return (
        torch.cat([torch.full((length,), i) for i, _, length in rows]).to(model.device),
        torch.cat([torch.arange(width - length, width) for _, _, length in rows]).to(model.device),
        torch.cat([torch.arange(start, start + n) for _, start, n in rows]).to(model.device),
    )


def _changes_in_place(model: PreTrainedModel) -> int:
    """Return torch's count of how often weights were changed in place."""
    # torch does not count the changes of tensors that were made in inference mode
    return sum(0 if weight.is_inference() else weight._version for weight in model.parameters())
