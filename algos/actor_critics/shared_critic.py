"""A critic on a policy's own trunk: a value head that reads what the output head reads.

Values and log-probabilities come out of one forward pass, and the value loss moves the trunk too.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from motet.agents import Completion
from motet.algos.actor_critics.actor_critic_config import ActorCriticConfig
from motet.algos.actor_critics.critic import Read, check_weights, save_head
from motet.algos.actor_critics.value_head import ValueHead
from motet.algos.actor_critics.value_loss import value_loss
from motet.algos.updates.batch import Batch, Sample
from motet.algos.updates.update import PolicyUpdater


class SharedCritic:
    """Judge the prompts of a policy's agents, and train with the policy.

    Args:
        updater: of the policy; gets the head's weights and the value loss.
        head: with an output for each of the policy's agents.
        config: learning rate of the head, weight and clipping of the loss.

    Attributes:
        name: the policy's.
        head: the value head.
    """

    def __init__(self, updater: PolicyUpdater, head: ValueHead, config: ActorCriticConfig) -> None:
        self.name = updater.policy.name
        self.head = head.to(updater.policy.model.device)
        self._updater = updater
        self._config = config
        self._total, self._steps = 0.0, 0
        updater.optimizer.register_step_post_hook(self._count)
        updater.share_trunk(self._loss, list(head.parameters()), config.critic_learning_rate)

    def outputs(self, reads: Sequence[Read]) -> list[Tensor]:
        """Return what the head puts out for each read, each distinct text computed once.

        Returns:
            (E, N) for each read, on the CPU.
        """
        distinct = list(dict.fromkeys(reads))
        # any agent will do: of its settings only the precision matters
        agent = self.head.agents[0]
        samples = [Sample(agent, _asked(read), 0.0, 0.0) for read in distinct]
        found = dict(zip(distinct, self._updater.hidden_states(samples, self.head), strict=True))
        return [found[read] for read in reads]

    def mean_loss(self) -> float | None:
        """Return the mean value loss of the steps since the last call, None without any."""
        total, steps = self._total, self._steps
        self._total, self._steps = 0.0, 0
        return total / steps if steps else None

    def state_dict(self) -> dict[str, Any]:
        """Return the head; its optimizer is the policy's."""
        return {"head": self.head.state_dict()}

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise where a state is that of another head.

        Raises:
            ValueError: with the first weight that differs.
        """
        check_weights(self.name, self.head, state["head"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Bring the head into a state that `state_dict` returned."""
        self.head.load_state_dict(state["head"])

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the head; its trunk is the policy."""
        save_head(self.head, folder)

    def _loss(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Return the value loss of a batch, weighted by `vf_coef`."""
        values = batch.values
        if values is None:
            return hidden.new_zeros(())
        outputs = self.head(hidden[values.positions])
        loss = value_loss(
            outputs.gather(-1, values.outputs.unsqueeze(-1)).squeeze(-1),
            values.old_values,
            values.targets,
            values.weights,
            self._config.clip_range_vf,
        )
        self._total += loss.item()
        return self._config.vf_coef * loss

    def _count(self, *_: object) -> None:
        self._steps += 1


def _asked(read: Read) -> Completion:
    """Return a completion whose tokens are predicted from where a read is asked."""
    written = (*read.ids[read.start :], 0)
    return Completion("", read.ids[: read.start], written, log_probs=(0.0,) * len(written))
