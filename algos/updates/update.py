"""One optimizer step per policy: losses of its agents, summed; backward; clip; step.

Policies step one after another, and what a step needs does not stay: gradients are freed after it,
and the optimizer's state can be kept elsewhere (`motet.algos.updates.offload`).
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from motet.agents import Completion, GenerationConfig
from motet.algos.config import LRSchedulerType, TrainerConfig
from motet.algos.rollouts.rollout import Rollout
from motet.algos.team import Policy
from motet.algos.updates.batch import Batch, Sample, collate, micro_batches
from motet.algos.updates.branch_attention import branching, computes_branches
from motet.algos.updates.checkpointing import checkpointed, checkpointing_layers
from motet.algos.updates.entropy import entropy_loss
from motet.algos.updates.kl import kl_loss, token_kl
from motet.algos.updates.learning_rates import policy_learning_rate
from motet.algos.updates.log_probs import (
    completion_hidden_states,
    completion_log_probs,
    completion_log_probs_and_entropies,
    last_hidden_states,
)
from motet.algos.updates.offload import offload_optimizer
from motet.algos.updates.packing import Row, attention_window, pack, shares_prompts_exactly
from motet.algos.updates.ratio_statistics import ratio_sums
from motet.algos.updates.reference_policy import ReferencePolicy

HiddenLoss = Callable[[Tensor, Batch], Tensor]
"""From (M, H) hidden states, of the token before each completion token, to a () loss."""


class PolicyUpdater:
    """Train one policy.

    Models stay in evaluation mode: without dropout the trained distribution is the sampled one.

    Args:
        policy: what to train.
        config: learning rate, clipping, KL, token budget, memory.
        loss_fn: from (B, T) log-probabilities and their batch to a () loss that is a weighted sum,
            so that batches add up.

    Attributes:
        policy: what is trained.
        optimizer: AdamW, over all that is trained with the policy.
        after_step: called after each optimizer step, where somebody follows them.

    Raises:
        ValueError: where the policy cannot do what the config asks of its memory.
    """

    def __init__(
        self, policy: Policy, config: TrainerConfig, loss_fn: Callable[[Tensor, Batch], Tensor]
    ) -> None:
        self.policy = policy
        self._config = config
        self._loss_fn = loss_fn
        self._budget = token_budget(policy.model.device, config.max_tokens_per_batch)
        self._shares_prompts: bool | None = None  # found out by a trial before the first step
        self._layers = checkpointing_layers(policy.model) if config.gradient_checkpointing else []
        self._reference = ReferencePolicy(policy) if config.kl_coef else None
        self._hidden_loss: HiddenLoss | None = None
        self.after_step: Callable[[], None] | None = None
        self.optimizer = torch.optim.AdamW(
            policy.parameters(),
            lr=policy_learning_rate(config.agent_learning_rate, policy),
            weight_decay=config.weight_decay,
            # one pass over the weights: 0.04 s instead of 0.18 for 130 million on a CPU
            fused=True if policy.model.device.type in ("cpu", "cuda") else None,
        )
        if config.offload_optimizer is not None:
            offload_optimizer(self.optimizer, config.offload_optimizer)

    def share_trunk(
        self, loss_fn: HiddenLoss, weights: Sequence[nn.Parameter], learning_rate: float
    ) -> None:
        """Let a second head read what the output head reads, and train both in every step.

        Args:
            loss_fn: the head's; a weighted sum over a batch, as the policy's, which trains the
                policy too.
            weights: of the head; their gradient is clipped together with the policy's.
            learning_rate: of the head, at the start.
        """
        self._hidden_loss = loss_fn
        self.optimizer.add_param_group({"params": list(weights), "lr": learning_rate})

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        rate: float = self.optimizer.param_groups[0]["lr"]
        return rate

    def schedule(self, progress: float) -> None:
        """Set the learning rate.

        Args:
            progress: share of the run that is over, from 0 to 1.
        """
        set_learning_rates(self.optimizer, self._config.lr_scheduler_type, progress)

    def step(self, samples: Mapping[str, Sequence[Sample]]) -> dict[str, float]:
        """Take one optimizer step.

        Args:
            samples: by agent of this policy.

        Returns:
            `loss`, `grad_norm` (before clipping), `tokens` (of prompts and completions) and
            `completion_tokens`; summed over those, `approx_kl`, `clip_fraction` with a
            `clip_range`, `kl` with a KL in the loss, and `entropy` with an `ent_coef`.

        Raises:
            FloatingPointError: where the loss or a gradient is not finite; this policy's weights
                are as before, and the batch is saved.
            ValueError: where an adapter has frozen the policy's weights meanwhile.
        """
        self.policy.model.eval()
        self.optimizer.zero_grad(set_to_none=True)
        totals: dict[str, float] = defaultdict(float)
        model = self.policy.model
        with self.policy.activated(), branching(model), checkpointed(self._layers):
            for name, agent_samples in samples.items():
                generation = self.policy.agents[name].generation
                for rows in self._micro_batches(agent_samples):
                    batch = collate(rows, by_branches=computes_branches(model))
                    for key, value in self._backward(batch, generation).items():
                        totals[key] += value
        norm = self._clip()
        if not torch.isfinite(norm):
            every = [sample for group in samples.values() for sample in group]
            self._stop("gradient norm", float(norm), collate([(sample,) for sample in every]))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        for version in {id(a.version): a.version for a in self.policy.agents.values()}.values():
            version.value += 1
        if self.after_step is not None:
            self.after_step()
        return {**totals, "grad_norm": float(norm)}

    def log_probs(
        self, samples: Sequence[Sample], reference: ReferencePolicy | None = None
    ) -> list[Tensor]:
        """Return the log-probabilities of completions under the weights as they are now.

        Args:
            samples: of one or several agents of this policy; each is another object.
            reference: ask this policy, made of this updater's own, instead.

        Returns:
            (T,) of each sample, on the CPU, in the order of the samples.
        """

        def of_batch(batch: Batch, generation: GenerationConfig) -> Tensor:
            if reference is not None:
                return reference.log_probs(batch, generation)[batch.mask]
            return completion_log_probs(self.policy.model, batch, generation)[batch.mask]

        return self._read(samples, of_batch)

    def hidden_states(
        self, samples: Sequence[Sample], function: Callable[[Tensor], Tensor]
    ) -> list[Tensor]:
        """Return a function of what the output head reads before each completion token.

        Args:
            samples: as for `log_probs`.
            function: from (M, H) hidden states to M rows, for any M.

        Returns:
            T rows of each sample, on the CPU, in the order of the samples.
        """

        def of_batch(batch: Batch, generation: GenerationConfig) -> Tensor:
            return function(completion_hidden_states(self.policy.model, batch, generation))

        return self._read(samples, of_batch)

    @torch.no_grad()
    def _read(
        self, samples: Sequence[Sample], of_batch: Callable[[Batch, GenerationConfig], Tensor]
    ) -> list[Tensor]:
        """Return a row for each completion token, by sample."""
        self.policy.model.eval()
        found: dict[int, Tensor] = {}
        by_agent: dict[str, list[Sample]] = defaultdict(list)
        for sample in samples:
            by_agent[sample.agent].append(sample)
        model = self.policy.model
        with self.policy.activated():
            for name, own in by_agent.items():
                generation = self.policy.agents[name].generation
                for rows in self._micro_batches(own):
                    batch = collate(rows, by_branches=computes_branches(model)).to(model.device)
                    in_order = [sample for row in rows for sample in row]
                    lengths = [len(sample.completion.completion_ids) for sample in in_order]
                    parts = torch.split(of_batch(batch, generation).cpu(), lengths)
                    found.update(zip(map(id, in_order), parts, strict=True))
        return [found[id(sample)] for sample in samples]

    def state_dict(self) -> dict[str, Any]:
        """Return the weights that are trained, the optimizer's state and the version."""
        versions = [agent.policy_version for agent in self.policy.agents.values()]
        return {
            "weights": {name: weight.detach() for name, weight in self._named_weights()},
            "optimizer": self.optimizer.state_dict(),
            "version": max(versions),
        }

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise where a state is that of another model.

        Raises:
            ValueError: with the number of weights and the first that differs.
        """
        own = {name: _kind(weight) for name, weight in self._named_weights()}
        given = {name: _kind(weight) for name, weight in state["weights"].items()}
        if own != given:
            first = next(name for name in {**own, **given} if own.get(name) != given.get(name))
            raise ValueError(
                f"Expected a checkpoint of the model of {self.policy.name}, with {len(own)} "
                f"trained weights, got {len(given)}; the first that differs is {first}: "
                f"{given.get(first)} there, {own.get(first)} here."
            )

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Bring weights and optimizer into a state that `state_dict` returned."""
        for name, weight in self._named_weights():
            weight.copy_(state["weights"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        for agent in self.policy.agents.values():
            agent.version.value = state["version"]

    def reference_weights(self) -> list[Tensor]:
        """Return the weights of the policy that this one is held near, where it has its own."""
        return [] if self._reference is None else self._reference.weights()

    def sampled_kl(self, rollout: Rollout) -> dict[str, dict[Completion, float]]:
        """Return the KL to the reference of what this policy's agents sampled, as they sampled it.

        Returns:
            By agent and completion: the sum of the estimate over its tokens.

        Raises:
            FloatingPointError: where one is not finite.
        """
        if self._reference is None:
            raise ValueError("Expected kl_coef above 0 to measure the KL to a reference, got 0.")
        self.policy.model.eval()
        kl = {}
        for name, agent in self.policy.agents.items():
            completions = [c for node in rollout.nodes() for c in node.completions.get(name, ())]
            samples = [Sample(name, c, 0.0, 0.0) for c in completions if c.completion_ids]
            kl[name] = dict.fromkeys(completions, 0.0) | self._reference.sequence_kl(
                self._micro_batches(samples), agent.generation, self._config.kl_estimator
            )
        return kl

    def _named_weights(self) -> list[tuple[str, Tensor]]:
        """Return the weights that are trained, in the optimizer's order, by their names."""
        names = {id(weight): name for name, weight in self.policy.model.named_parameters()}
        return [(names[id(weight)], weight) for weight in self.policy.parameters()]

    def _micro_batches(self, samples: Sequence[Sample]) -> Iterator[list[Sequence[Sample]]]:
        rows = self._rows(samples) if samples else []
        return micro_batches(rows, self._budget)

    def _rows(self, samples: Sequence[Sample]) -> list[Row]:
        """Let samples share their beginnings where the model computes the same then."""
        model = self.policy.model
        if self._shares_prompts is None:
            self._shares_prompts = shares_prompts_exactly(model)
        window = attention_window(model)
        longest = max(len(sample.read) for sample in samples)
        if not self._shares_prompts or (window is not None and longest > window):
            return [(sample,) for sample in samples]
        hidden_size: int = model.config.get_text_config().hidden_size
        return pack(samples, hidden_size, self._budget, by_branches=computes_branches(model))

    def _backward(self, batch: Batch, generation: GenerationConfig) -> dict[str, float]:
        """Add the gradient of a batch; return its share in the sums that `step` returns."""
        on_device = batch.to(self.policy.model.device)
        totals = {
            "tokens": float(batch.num_tokens),
            "completion_tokens": float(batch.mask.sum()),
        }
        reference = None
        if self._reference is not None and self._config.kl_loss_coef:
            reference = self._reference.log_probs(on_device, generation)
        inputs = (self.policy.model, on_device, generation)
        entropies = None
        with ExitStack() as stack:
            seen: list[Tensor] = []
            if self._hidden_loss is not None:
                seen = stack.enter_context(last_hidden_states(self.policy.model))
            if self._config.ent_coef:
                log_probs, entropies = completion_log_probs_and_entropies(*inputs)
            else:
                log_probs = completion_log_probs(*inputs)
        loss = self._loss_fn(log_probs, on_device)
        limits = self._config.clip_range, self._config.clip_range_high
        totals |= ratio_sums(log_probs, on_device, *limits)
        if entropies is not None:
            loss = loss + self._config.ent_coef * entropy_loss(entropies, on_device.weights)
            totals["entropy"] = float(entropies.detach().sum())
        if self._hidden_loss is not None:
            # the last pass is the batch's: the head may be tried before
            hidden = seen[-1][on_device.rows, on_device.columns]
            loss = loss + self._hidden_loss(hidden, on_device)
        if reference is not None:
            kl = token_kl(log_probs, reference, on_device.mask, self._config.kl_estimator)
            loss = loss + self._config.kl_loss_coef * kl_loss(kl, on_device.weights)
            totals["kl"] = float(kl.detach().sum())
        if not torch.isfinite(loss):
            self._stop("loss", loss.item(), batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's
        return {**totals, "loss": float(loss.detach())}

    def _clip(self) -> Tensor:
        weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        limit = self._config.max_grad_norm
        return torch.nn.utils.clip_grad_norm_(weights, torch.inf if limit is None else limit)

    def _stop(self, what: str, value: float, batch: Batch) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        folder = Path(self._config.output_dir or tempfile.mkdtemp(prefix="motet-"))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "nonfinite_batch.pt"
        torch.save(asdict(batch), path)
        raise FloatingPointError(
            f"Expected a finite {what}, got {value} for the policy of {self.policy.name}; the "
            f"batch is in {path}, and this policy's weights are those of before the step. A lower "
            "agent_learning_rate or a max_grad_norm often helps."
        )


def _kind(weight: Tensor) -> str:
    return f"{tuple(weight.shape)} in {weight.dtype}"


def token_budget(device: torch.device, max_tokens_per_batch: int | None) -> int:
    """Return how many tokens a forward and backward pass may have.

    Args:
        device: where it is computed.
        max_tokens_per_batch: what the config says, None for what was fastest.
    """
    # On a CPU, temporaries that leave the cache cost more than wide matrices gain: 2.1 s for an
    # update of the embedded model at 1,024 to 2,048 tokens, 3.5 s at 16,384. The logits of 1,024
    # tokens fit into one chunk of `motet.algos.updates.head`, which is not computed twice.
    return max_tokens_per_batch or (1_024 if device.type == "cpu" else 16_384)


def set_learning_rates(
    optimizer: torch.optim.Optimizer, scheduler_type: LRSchedulerType, progress: float
) -> None:
    """Set the learning rate of each group of weights from the one that it began with.

    Args:
        optimizer: any of torch's.
        scheduler_type: see `TrainerConfig`.
        progress: share of the run that is over, from 0 to 1.
    """
    for group in optimizer.param_groups:
        first = group.setdefault("initial_lr", group["lr"])
        group["lr"] = first * (1 - progress if scheduler_type == "linear" else 1.0)
