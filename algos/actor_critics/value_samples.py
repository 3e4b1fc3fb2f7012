"""What a critic should say of one sequence, and of a batch of them side by side."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class ValueTarget:
    """What a value head should put out for an agent along one sequence.

    Attributes:
        output: which of the head's outputs is the agent's.
        old_values: (E,) what it put out before the update: of the prompt, and over tokens before
            each token of the completion.
        targets: (E,) what it should, in the same unit.
        weight: share of each of them in the loss.
    """

    output: int
    old_values: tuple[float, ...]
    targets: tuple[float, ...]
    weight: float

    def scaled(self, factor: float) -> "ValueTarget":
        """Return it with another weight."""
        return replace(self, weight=self.weight * factor)


@dataclass(frozen=True, slots=True)
class ValueBatch:
    """Targets of several sequences.

    Attributes:
        positions: (E,) index of each among all that is asked.
        outputs: (E,) which of the head's outputs.
        old_values: (E,).
        targets: (E,).
        weights: (E,).
    """

    positions: Tensor
    outputs: Tensor
    old_values: Tensor
    targets: Tensor
    weights: Tensor

    def to(self, device: torch.device) -> "ValueBatch":
        """Return the batch on another device."""
        return ValueBatch(*(getattr(self, name).to(device) for name in self.__slots__))


def collate_values(targets: Sequence[tuple[int, ValueTarget]]) -> ValueBatch:
    """Put targets side by side.

    Args:
        targets: each with the index of its sequence's first among all that is asked.
    """
    counts = torch.tensor([len(target.targets) for _, target in targets])
    firsts = torch.tensor([first for first, _ in targets])
    positions = torch.cat([torch.arange(count) for count in counts.tolist()])

    def spread(values: list[float] | list[int]) -> Tensor:
        return torch.tensor(values).repeat_interleave(counts)

    return ValueBatch(
        positions=positions + firsts.repeat_interleave(counts),
        outputs=spread([target.output for _, target in targets]),
        old_values=torch.tensor([value for _, target in targets for value in target.old_values]),
        targets=torch.tensor([value for _, target in targets for value in target.targets]),
        weights=spread([target.weight for _, target in targets]),
    )
