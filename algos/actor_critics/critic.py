"""A critic: a model that reads a text, and a head that says what it is worth.

The trunk is any model of transformers, a decoder or an encoder. It is asked at the last token of a
text, which has seen all of it in either; over tokens, at each token from the end of the prompt on,
and then only a trunk that does not look ahead will do.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from motet.agents import GenerationConfig
from motet.agents.adapter_files import plain_copy
from motet.agents.precision import precision
from motet.algos.actor_critics.value_head import ValueHead

WEIGHTS = "value_head.safetensors"
SETTINGS = "value_head.json"


@dataclass(frozen=True, slots=True)
class Read:
    """What a critic reads, and where it is asked.

    Attributes:
        ids: (L,) tokens.
        start: how many of them come before the first value: values are of the first `start` tokens,
            of one more, and so on to all of them.
    """

    ids: tuple[int, ...]
    start: int

    @property
    def num_values(self) -> int:
        """How often the critic is asked."""
        return len(self.ids) - self.start + 1


class Critic(nn.Module):
    """Judge texts; see the module.

    It stays in evaluation mode, as policies do, and without a cache.

    Args:
        trunk: a base model of transformers, without a head. It is the critic's own from here on.
        tokenizer: its tokenizer.
        head: what to make of the trunk's last hidden states.
        bf16: whether the trunk computes in bfloat16; see `GenerationConfig`.

    Attributes:
        trunk: the base model.
        tokenizer: its tokenizer.
        head: the value head.

    Raises:
        ValueError: where the trunk is made of an encoder and a decoder.
    """

    def __init__(
        self,
        trunk: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        head: ValueHead,
        *,
        bf16: bool = False,
    ) -> None:
        super().__init__()
        if trunk.config.is_encoder_decoder:
            raise ValueError(
                f"Expected an encoder or a decoder as critic, got {type(trunk).__name__}, which is "
                "both; give its encoder."
            )
        trunk.config.use_cache = False
        self.trunk = trunk.eval()
        self.tokenizer = tokenizer
        self.head = head.to(trunk.device)
        self._generation = GenerationConfig(bf16=bf16)

    def forward(self, reads: Sequence[Read]) -> Tensor:
        """Return what the head puts out, with gradient.

        Args:
            reads: side by side, padded on the right.

        Returns:
            (E, N) float32, for every time that it is asked, read after read.
        """
        device = self.trunk.device
        lengths = [len(read.ids) for read in reads]
        input_ids = torch.full((len(reads), max(lengths)), self.tokenizer.pad_token_id or 0)
        mask = torch.zeros(input_ids.shape, dtype=torch.long)
        for i, read in enumerate(reads):
            input_ids[i, : lengths[i]] = torch.tensor(read.ids)
            mask[i, : lengths[i]] = 1
        rows = [i for i, read in enumerate(reads) for _ in range(read.num_values)]
        columns = [t for read in reads for t in range(read.start - 1, len(read.ids))]
        with precision(device, self._generation):
            output = self.trunk(input_ids=input_ids.to(device), attention_mask=mask.to(device))
        outputs: Tensor = self.head(output.last_hidden_state[rows, columns])
        return outputs

    @torch.no_grad()
    def outputs(self, reads: Sequence[Read], max_tokens: int) -> list[Tensor]:
        """Return what the head puts out, each distinct text computed once.

        Args:
            reads: any number.
            max_tokens: most tokens of a forward pass, padding included.

        Returns:
            (E, N) for each read, on the CPU.

        Raises:
            ValueError: where one does not fit into the trunk's context.
        """
        self._check_lengths(reads)
        found: dict[Read, Tensor] = {}
        for batch in read_batches(reads, max_tokens):
            parts = torch.split(self(batch).cpu(), [read.num_values for read in batch])
            found.update(zip(batch, parts, strict=True))
        return [found[read] for read in reads]

    def encode(self, text: str) -> tuple[int, ...]:
        """Return a text's tokens."""
        ids: list[int] = self.tokenizer(text)["input_ids"]
        return tuple(ids)

    @torch.no_grad()
    def looks_ahead(self) -> bool:
        """Tell by a trial whether what the trunk says of a token depends on later ones."""
        vocabulary = self.trunk.get_input_embeddings().weight.shape[0]
        ids = (torch.arange(1, 7, device=self.trunk.device) % vocabulary).unsqueeze(0)
        other = ids.clone()
        other[0, -1] = (other[0, -1] + 1) % vocabulary
        first, second = (
            self.trunk(input_ids=each, attention_mask=torch.ones_like(each)).last_hidden_state
            for each in (ids, other)
        )
        return not torch.equal(first[0, :-1], second[0, :-1])

    def save_pretrained(self, folder: str | Path) -> None:
        """Write trunk and tokenizer as transformers does, and the value head beside them."""
        self.trunk.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        save_head(self.head, folder)

    def _check_lengths(self, reads: Sequence[Read]) -> None:
        config = self.trunk.config.get_text_config()
        limit = getattr(config, "max_position_embeddings", None)  # not all have it
        longest = max(reads, key=lambda read: len(read.ids), default=None)
        if limit is not None and longest is not None and len(longest.ids) > limit:
            raise ValueError(
                f"Expected a text of at most {limit} tokens for the critic, got "
                f"{len(longest.ids)} for {self.tokenizer.decode(longest.ids)[:60]!r}...; shorten "
                "the prompts, or give critic= a model with a longer context."
            )

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, bf16: bool = False) -> Self:
        """Load what `save_pretrained` wrote, on the CPU.

        Raises:
            FileNotFoundError: where there is no value head in the folder.
        """
        head = load_head(folder)
        trunk = AutoModel.from_pretrained(folder, dtype=torch.float32)
        return cls(trunk, AutoTokenizer.from_pretrained(folder), head, bf16=bf16)


def trunk_of(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a model's weights without its head, without adapters, and trainable.

    It is in float32, since small updates vanish in 16 bits.
    """
    twin = plain_copy(model).float()
    return twin.base_model


def loaded_trunk(
    critic: str | Path | PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the trunk and the tokenizer of a critic that a user names or gives.

    Args:
        critic: a name or folder to load, or a model, of which a copy is made.
        tokenizer: of the model; a name has its own.

    Raises:
        ValueError: where a model comes without a tokenizer, or a name with one.
        TypeError: where it is something else.
    """
    if isinstance(critic, str | Path):
        if tokenizer is not None:
            raise ValueError(
                f"Expected no critic_tokenizer with the name {str(critic)!r}, which has one."
            )
        model = AutoModel.from_pretrained(critic, dtype=torch.float32)
        return model, AutoTokenizer.from_pretrained(critic)
    if not isinstance(critic, PreTrainedModel):
        raise TypeError(
            f"Expected a model of transformers, or the name of one, as critic, got {critic!r}."
        )
    if tokenizer is None:
        raise ValueError(
            f"Expected critic_tokenizer= together with the model {type(critic).__name__}, got None."
        )
    return trunk_of(critic), tokenizer


def read_batches(reads: Sequence[Read], max_tokens: int) -> Iterator[list[Read]]:
    """Split distinct reads into batches of at most `max_tokens`, padding included.

    One that is longer than the budget makes a batch of its own.
    """
    batch: list[Read] = []
    for read in sorted(dict.fromkeys(reads), key=lambda read: len(read.ids)):
        if batch and (len(batch) + 1) * len(read.ids) > max_tokens:
            yield batch
            batch = []
        batch.append(read)
    if batch:
        yield batch


def check_weights(name: str, module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Raise where a state is not that of a module.

    Raises:
        ValueError: with the first weight that is missing, unknown, or of another shape.
    """
    own = {key: tuple(weight.shape) for key, weight in module.state_dict().items()}
    given = {key: tuple(weight.shape) for key, weight in state.items()}
    for key in [*own, *given]:
        if own.get(key) != given.get(key):
            raise ValueError(
                f"Expected a checkpoint of the critic {name}, whose {key} has the shape "
                f"{own.get(key)}, got {given.get(key)}."
            )


def save_head(head: ValueHead, folder: str | Path) -> None:
    """Write a value head: its weights and running moments, and what it is made of."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: weight.detach().clone() for name, weight in head.state_dict().items()}
    save_file(weights, folder / WEIGHTS)
    hidden = None if head.hidden is None else head.hidden.out_features
    first = head.output if head.hidden is None else head.hidden
    settings = {
        "agents": head.agents,
        "width": first.in_features,
        "hidden_size": hidden,
        "normalize": head.normalize,
    }
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def load_head(folder: str | Path) -> ValueHead:
    """Read a value head that `save_head` wrote.

    Raises:
        FileNotFoundError: where there is none in the folder.
    """
    path = Path(folder) / SETTINGS
    if not path.exists():
        raise FileNotFoundError(f"Expected a folder with {SETTINGS} and {WEIGHTS}, got {folder}.")
    settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    head = ValueHead(settings.pop("width"), settings.pop("agents"), **settings)
    head.load_state_dict(load_file(Path(folder) / WEIGHTS))
    return head
