"""A critic with a trunk of its own, and its optimizer: one step for each batch of transitions."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from motet.algos.actor_critics.actor_critic_config import ActorCriticConfig
from motet.algos.actor_critics.critic import Critic, Read, check_weights, read_batches
from motet.algos.actor_critics.value_head import ValueHead
from motet.algos.actor_critics.value_loss import value_loss
from motet.algos.actor_critics.value_samples import ValueTarget, collate_values
from motet.algos.updates.checkpointing import checkpointed, checkpointing_layers
from motet.algos.updates.offload import offload_optimizer
from motet.algos.updates.update import set_learning_rates, token_budget


@dataclass(frozen=True, slots=True)
class ValueSample:
    """What a critic reads, and what it should say."""

    read: Read
    target: ValueTarget


class CriticUpdater:
    """Train a critic.

    Args:
        name: of the critic, for its folder and for errors.
        critic: what to train.
        config: learning rate, clipping, memory.

    Attributes:
        name: of the critic.
        critic: what is trained.
        optimizer: of all its weights.
    """

    def __init__(self, name: str, critic: Critic, config: ActorCriticConfig) -> None:
        self.name = name
        self.critic = critic
        self._config = config
        self._layers = checkpointing_layers(critic.trunk) if config.gradient_checkpointing else []
        device = critic.trunk.device
        self._budget = token_budget(device, config.max_tokens_per_batch)
        self.optimizer = torch.optim.AdamW(
            [weight for weight in critic.parameters() if weight.requires_grad],
            lr=config.critic_learning_rate,
            weight_decay=config.weight_decay,
            fused=True if device.type in ("cpu", "cuda") else None,
        )
        if config.offload_optimizer is not None:
            offload_optimizer(self.optimizer, config.offload_optimizer)

    @property
    def head(self) -> ValueHead:
        """The critic's head."""
        return self.critic.head

    def schedule(self, progress: float) -> None:
        """Set the learning rate; see `PolicyUpdater.schedule`."""
        set_learning_rates(self.optimizer, self._config.lr_scheduler_type, progress)

    def outputs(self, reads: Sequence[Read]) -> list[Tensor]:
        """Return what the head puts out for each read: (E, N) on the CPU."""
        return self.critic.outputs(reads, self._budget)

    def step(self, samples: Sequence[ValueSample], *, scale: float = 1.0) -> dict[str, float]:
        """Take one optimizer step; each distinct text is computed once.

        Args:
            samples: at least one.
            scale: multiplies their weights.

        Returns:
            `value_loss`, `critic_grad_norm` (before clipping) and `tokens`.

        Raises:
            FloatingPointError: where the loss or a gradient is not finite; the critic's weights are
                as before.
        """
        self.optimizer.zero_grad(set_to_none=True)
        targets: dict[Read, list[ValueTarget]] = defaultdict(list)
        for sample in samples:
            targets[sample.read].append(sample.target)
        total, tokens = 0.0, 0
        with checkpointed(self._layers):
            for reads in read_batches(list(targets), self._budget):
                loss = self._loss(reads, targets) * scale
                if not torch.isfinite(loss):
                    self._stop("value loss", loss.item())
                (self._config.vf_coef * loss).backward()  # type: ignore[no-untyped-call]
                total += loss.item()
                tokens += sum(len(read.ids) for read in reads)
        limit = self._config.max_grad_norm
        weights = self.optimizer.param_groups[0]["params"]
        norm = torch.nn.utils.clip_grad_norm_(weights, torch.inf if limit is None else limit)
        if not torch.isfinite(norm):
            self._stop("gradient norm", norm.item())
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return {"value_loss": total, "critic_grad_norm": norm.item(), "tokens": float(tokens)}

    def state_dict(self) -> dict[str, Any]:
        """Return weights, running moments, and the optimizer's state."""
        return {"critic": self.critic.state_dict(), "optimizer": self.optimizer.state_dict()}

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise where a state is that of another critic.

        Raises:
            ValueError: with the first weight that differs.
        """
        check_weights(self.name, self.critic, state["critic"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Bring the critic into a state that `state_dict` returned."""
        self.critic.load_state_dict(state["critic"])
        self.optimizer.load_state_dict(state["optimizer"])

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the critic; `Critic.from_pretrained` loads it."""
        self.critic.save_pretrained(folder)

    def _loss(self, reads: Sequence[Read], targets: Mapping[Read, Sequence[ValueTarget]]) -> Tensor:
        outputs = self.critic(reads)
        firsts, first = [], 0
        for read in reads:
            firsts.append(first)
            first += read.num_values
        pairs = [
            (start, target)
            for start, read in zip(firsts, reads, strict=True)
            for target in targets[read]
        ]
        batch = collate_values(pairs).to(outputs.device)
        return value_loss(
            outputs[batch.positions, batch.outputs],
            batch.old_values,
            batch.targets,
            batch.weights,
            self._config.clip_range_vf,
        )

    def _stop(self, what: str, value: float) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        raise FloatingPointError(
            f"Expected a finite {what}, got {value} for the critic of {self.name}; its weights are "
            "those of before the step. A lower critic_learning_rate, a max_grad_norm, or "
            "normalize_values=True often helps."
        )
