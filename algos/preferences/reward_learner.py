"""Train a reward model on preferences, and rate rollouts with it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from motet.algos.preferences.marlhf_config import MARLHFConfig
from motet.algos.preferences.pairs import Preference, joint_completions
from motet.algos.preferences.preference_losses import bradley_terry_loss
from motet.algos.preferences.reward_model import RewardModel
from motet.algos.rollouts.rollout import Node, Rollout

Text = tuple[int, ...]

# A deviation below this, relative to the largest value, is rounding.
_ROUNDING = 1e-9


class RewardLearner:
    """A reward model with its optimizer.

    Args:
        model: what is trained.
        config: its learning rate, epochs and batch size, and what happens to long joint actions.
    """

    def __init__(self, model: RewardModel, config: MARLHFConfig) -> None:
        self.model = model
        self._config = config
        self._weights = [weight for weight in model.parameters() if weight.requires_grad]
        self._optimizer = torch.optim.AdamW(
            self._weights, lr=config.reward_learning_rate, weight_decay=0.0
        )

    def train(self, pairs: Sequence[Preference], rng: np.random.Generator) -> dict[str, float]:
        """Train on pairs, after measuring how many of them the model has right already.

        Args:
            pairs: that the model has not seen.
            rng: draws their order.

        Returns:
            `accuracy` before, and `loss`, the mean over the steps; nothing where there are no
            pairs.

        Raises:
            FloatingPointError: where a loss or a gradient is not finite.
        """
        if not pairs:
            return {}
        texts = [
            (self._text(pair.node, pair.chosen), self._text(pair.node, pair.rejected))
            for pair in pairs
        ]
        accuracy = float((self._known_margins(pairs, texts) > 0).double().mean())
        losses = []
        for _ in range(self._config.reward_num_epochs):
            order = rng.permutation(len(pairs))
            for start in range(0, len(pairs), self._config.reward_batch_size):
                chunk = order[start : start + self._config.reward_batch_size]
                losses.append(self._step([pairs[i] for i in chunk], [texts[i] for i in chunk]))
        return {"accuracy": accuracy, "loss": float(np.mean(losses))}

    def rated(self, rollout: Rollout) -> Rollout:
        """Return a rollout with what the model says in the place of the rewards.

        Who gets a reward stays, as does how many turns it counts for.

        Args:
            rollout: the trees.
        """
        nodes = [
            [[self._text(node, j) for j in range(len(node.joint_actions))] for node in level]
            for level in rollout.levels
        ]
        texts = [text for level in nodes for node in level for text in node]
        ratings = self._ratings(texts)
        values = torch.stack([ratings[text] for text in texts])
        if self._config.reward_normalization:
            values = normalized(values)
        rows: Iterator[Tensor] = iter(values)
        levels = [
            tuple(self._with_rewards(node, [next(rows) for _ in own]) for node, own in pairs)
            for pairs in (
                zip(level, owns, strict=True)
                for level, owns in zip(rollout.levels, nodes, strict=True)
            )
        ]
        return Rollout(rollout.agents, tuple(levels))

    def state_dict(self) -> dict[str, Any]:
        """Return the weights and the optimizer's state."""
        return {"model": self.model.state_dict(), "optimizer": self._optimizer.state_dict()}

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise where a state is that of another reward model.

        Raises:
            ValueError: with the first weight that differs.
        """
        own = {name: tuple(each.shape) for name, each in self.model.state_dict().items()}
        given = {name: tuple(each.shape) for name, each in state["model"].items()}
        for name in {**own, **given}:
            if own.get(name) != given.get(name):
                raise ValueError(
                    f"Expected a checkpoint of the same reward model, got {name} of shape "
                    f"{given.get(name)} there and {own.get(name)} here."
                )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Bring both into a state that `state_dict` returned."""
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])

    # --- one step -----------------------------------------------------------------------------

    def _step(self, pairs: Sequence[Preference], texts: Sequence[tuple[Text, Text]]) -> float:
        self._optimizer.zero_grad(set_to_none=True)
        sides = [side for pair in zip(*texts, strict=True) for side in pair]
        chosen, rejected = self.model(sides).chunk(2)
        loss = bradley_terry_loss(self._margins(pairs, chosen - rejected)).mean()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's
        limit = self._config.max_grad_norm
        norm = torch.nn.utils.clip_grad_norm_(self._weights, torch.inf if limit is None else limit)
        if not torch.isfinite(norm + loss.detach()):
            self._optimizer.zero_grad(set_to_none=True)
            raise FloatingPointError(
                f"Expected a finite loss and gradient of the reward model, got {loss.item()} and "
                f"{float(norm)}; a lower reward_learning_rate often helps."
            )
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def _margins(self, pairs: Sequence[Preference], differences: Tensor) -> Tensor:
        """Return (P,) margins from (P, N): of each pair the mean over its team."""
        members = torch.tensor(
            [[name in pair.agents for name in self.model.agents] for pair in pairs],
            device=differences.device,
        )
        return differences.masked_fill(~members, 0.0).sum(-1) / members.sum(-1)

    def _known_margins(
        self, pairs: Sequence[Preference], texts: Sequence[tuple[Text, Text]]
    ) -> Tensor:
        ratings = self._ratings([text for sides in texts for text in sides])
        differences = [ratings[chosen] - ratings[rejected] for chosen, rejected in texts]
        return self._margins(pairs, torch.stack(differences))

    @torch.no_grad()
    def _ratings(self, texts: Sequence[Text]) -> dict[Text, Tensor]:
        """Return (N,) ratings of each text, those of like length computed together."""
        on_cpu = self.model.trunk.device.type == "cpu"
        budget = self._config.max_tokens_per_batch or (1_024 if on_cpu else 16_384)
        ratings: dict[Text, Tensor] = {}
        chunk: list[Text] = []
        for text in sorted(set(texts), key=lambda text: (len(text), text)):
            if chunk and (len(chunk) + 1) * len(text) > budget:
                ratings |= self._rated_together(chunk)
                chunk = []
            chunk.append(text)
        return ratings | self._rated_together(chunk)

    def _rated_together(self, texts: Sequence[Text]) -> dict[Text, Tensor]:
        return dict(zip(texts, self.model(texts).double().cpu(), strict=True))

    # --- texts --------------------------------------------------------------------------------

    def _text(self, node: Node, joint: int) -> Text:
        observations = {name: node.observations[name] for name in node.completions}
        answers = {name: each.text for name, each in joint_completions(node, joint).items()}
        return self.model.encode(observations, answers, self._config.reward_overflow)

    def _with_rewards(self, node: Node, ratings: Sequence[Tensor]) -> Node:
        columns = {name: i for i, name in enumerate(self.model.agents)}
        rewards = {
            name: tuple(float(own[columns[name]]) for own in ratings) for name in node.rewards
        }
        return replace(node, rewards=rewards)


def normalized(values: Tensor) -> Tensor:
    """Return values less their mean, divided by their population standard deviation if any.

    Args:
        values: (M, N), a column per agent.

    Returns:
        (M, N).
    """
    deviation = values.std(0, correction=0)
    has_spread = deviation > _ROUNDING * values.abs().amax(0)
    return (values - values.mean(0)) / torch.where(has_spread, deviation, 1.0)
