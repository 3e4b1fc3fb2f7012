"""A reward model of joint actions: a language model's trunk and, for each agent, one number.

After the reward model of "Training language models to follow instructions with human feedback"
(Ouyang et al. 2022, arXiv 2203.02155, section 3.5). It reads what all agents saw and said, in their
order, and its heads read the trunk's output at the last token.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from motet.agents import LMAgent
from motet.agents.adapter_files import plain_copy
from motet.agents.loading import default_device

Overflow = Literal["raise", "truncate"]

_HEADS = "reward_heads.safetensors"


class RewardModel(nn.Module):
    """Rate joint actions.

    All heads begin alike, so that agents that are always rewarded alike always get the same.

    Args:
        model: a transformers model, of which the trunk is used as it is, and trained; a language
            model's head is left out.
        tokenizer: its tokenizer, with an end or a separator token.
        agents: (N,) names, one head each.
        seed: of the heads' first weights.

    Attributes:
        trunk: the model without a head.
        heads: (N, hidden size) linear map, without bias: one would cancel in every comparison.

    Raises:
        TypeError: where they are no model and no tokenizer of transformers.
        ValueError: where the tokenizer has nothing to separate texts with.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        agents: Sequence[str],
        *,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not isinstance(model, PreTrainedModel):
            raise TypeError(f"Expected a model of transformers, got {model!r}.")
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            raise TypeError(f"Expected a tokenizer of transformers, got {tokenizer!r}.")
        self.agents = tuple(agents)
        self.tokenizer = tokenizer
        self.trunk: PreTrainedModel = model.base_model.eval()
        self._separator = _separator(tokenizer)
        size: int = self.trunk.config.get_text_config().hidden_size
        # as in "Learning to summarize from human feedback" (arXiv 2009.01325, appendix B)
        first = torch.randn(size, generator=torch.Generator().manual_seed(seed)) / (size + 1) ** 0.5
        self.heads = nn.Parameter(first.repeat(len(self.agents), 1).to(self.trunk.device))

    @classmethod
    def from_agent(cls, agent: LMAgent, agents: Sequence[str], *, seed: int = 0) -> Self:
        """Begin with a copy of an agent's model, in float32; of one with adapters, of its base.

        Args:
            agent: whose model and tokenizer.
            agents: names of all agents.
            seed: of the heads' first weights.
        """
        trunk = plain_copy(agent.model).requires_grad_(True).float()
        trunk.zero_grad()
        return cls(trunk, agent.tokenizer, agents, seed=seed)

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, *, device: str | torch.device | None = None
    ) -> Self:
        """Load what `save_pretrained` wrote.

        Args:
            folder: where it is.
            device: where to put it; default: a GPU if there is one.
        """
        heads = load_file(Path(folder) / _HEADS)
        trunk = AutoModel.from_pretrained(folder, dtype="auto")
        model = cls(trunk, AutoTokenizer.from_pretrained(folder), list(heads))
        model.heads.data = torch.stack(list(heads.values()))
        return model.to(device or default_device())

    def save_pretrained(self, folder: str | Path) -> None:
        """Write trunk and tokenizer, which plain transformers loads, and the heads beside them."""
        self.trunk.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        rows = zip(self.agents, self.heads.detach().cpu(), strict=True)
        save_file({name: row.clone() for name, row in rows}, Path(folder) / _HEADS)

    def encode(
        self, observations: Mapping[str, str], answers: Mapping[str, str], overflow: Overflow
    ) -> tuple[int, ...]:
        """Return the tokens of a joint action: prompts, then answers, each with a separator after.

        Where all agents see the same, it is there once.

        Args:
            observations: by acting agent.
            answers: by acting agent, in the same order.
            overflow: what to do where the context is too short: "raise", or "truncate" all parts to
                the greatest common length that fits: a prompt loses its beginning, an answer its
                end. None is left out.

        Raises:
            ValueError: where the context is too short.
        """
        prompts = list(observations.values())
        if len(set(prompts)) == 1:
            prompts = prompts[:1]
        parts = [self._tokens(text) for text in (*prompts, *answers.values())]
        opening: list[int] = self.tokenizer("")["input_ids"]  # as it begins every text
        room = self._context() - len(opening) - len(parts)
        needed = sum(map(len, parts))
        if needed > room and (overflow == "raise" or room < len(parts)):
            raise ValueError(
                f"Expected a joint action of at most {max(room, 0)} tokens for the reward model, "
                f"got {needed}; shorten prompts or answers, set reward_overflow='truncate', or "
                "take a reward model with a longer context."
            )
        longest = _longest_that_fits([len(part) for part in parts], room)
        cut = [part[max(len(part) - longest, 0) :] for part in parts[: len(prompts)]]
        cut += [part[:longest] for part in parts[len(prompts) :]]
        return tuple(opening + [token for part in cut for token in (*part, self._separator)])

    def forward(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Rate texts from `encode`.

        Args:
            texts: (B,) token ids of each.

        Returns:
            (B, N) by agent, higher is better.
        """
        device = self.trunk.device
        lengths = torch.tensor([len(text) for text in texts], device=device)
        ids = torch.zeros((len(texts), int(lengths.max())), dtype=torch.long)
        for row, text in zip(ids, texts, strict=True):
            row[: len(text)] = torch.tensor(text)
        mask = torch.arange(ids.shape[1], device=device) < lengths[:, None]
        output = self.trunk(input_ids=ids.to(device), attention_mask=mask.long())
        last = output.last_hidden_state[torch.arange(len(texts), device=device), lengths - 1]
        ratings: Tensor = last.to(self.heads.dtype) @ self.heads.T
        return ratings

    def _tokens(self, text: str) -> list[int]:
        # what looks like a special token in a text is no separator
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, split_special_tokens=True)[
            "input_ids"
        ]
        return ids

    def _context(self) -> int:
        config = self.trunk.config.get_text_config()
        length: int | None = getattr(config, "max_position_embeddings", None)  # not all have it
        return 2**31 if length is None else length


def _separator(tokenizer: PreTrainedTokenizerBase) -> int:
    for token in (tokenizer.eos_token_id, tokenizer.sep_token_id):
        if token is not None:
            return int(token)
    raise ValueError(
        "Expected a tokenizer with an eos or a sep token, which separates what agents say, got "
        "one with neither."
    )


def _longest_that_fits(lengths: Sequence[int], room: int) -> int:
    """Return the greatest length that parts can be cut to so that all of them fit."""
    left, count = room, len(lengths)
    for length in sorted(lengths):
        if length * count > left:
            return left // count
        left -= length
        count -= 1
    return max(lengths)
