"""The policy that another one is held near: what training began with."""

import copy
import itertools
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from motet.agents import Completion, GenerationConfig
from motet.agents.adapters import without_adapters
from motet.algos.team import Policy
from motet.algos.updates.batch import Batch, Sample, collate
from motet.algos.updates.branch_attention import computes_branches
from motet.algos.updates.kl import KLEstimator, token_kl
from motet.algos.updates.log_probs import completion_log_probs


class ReferencePolicy:
    """A policy that stays as it is, of which only log-probabilities are asked.

    It is a frozen copy of the policy's weights, and the plain base where the policy is an adapter:
    that is in memory already.

    They are under the distribution that the policy samples from: same temperature, top-k and
    top-p. A token that truncation keeps for the policy and not for the reference is counted in
    (`motet.agents.distribution.token_log_probs`), so that it is unlikely and never impossible:
    without that the KL would be infinite.

    Args:
        policy: what is held near it, as it is now.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._model = policy.model
        if policy.adapter is None:
            self._model = copy.deepcopy(policy.model).requires_grad_(False).eval()

    def weights(self) -> list[Tensor]:
        """Return the weights of the copy; none where the plain base under an adapter is read."""
        return [] if self._policy.adapter is not None else list(self._model.parameters())

    @torch.no_grad()
    def log_probs(self, batch: Batch, generation: GenerationConfig) -> Tensor:
        """Return the log-probabilities of the completions' tokens under the reference.

        Args:
            batch: on the model's device.
            generation: sampling settings of the policy.

        Returns:
            (B, T) float32; 0 at padding.
        """
        with without_adapters(self._model):
            return completion_log_probs(self._model, batch, generation)

    def sequence_kl(
        self,
        batches: Iterable[Sequence[Sequence[Sample]]],
        generation: GenerationConfig,
        estimator: KLEstimator,
    ) -> dict[Completion, float]:
        """Return each completion's KL, from the log-probabilities it was sampled with.

        Args:
            batches: samples by row and batch; see `motet.algos.updates.batch.micro_batches`.
            generation: sampling settings of the policy.
            estimator: see `motet.algos.updates.kl`.

        Returns:
            Sum over the tokens, by completion.

        Raises:
            FloatingPointError: where a sum is not finite.
        """
        kl: dict[Completion, float] = {}
        for rows in batches:
            batch = collate(rows, by_branches=computes_branches(self._model))
            batch = batch.to(self._model.device)
            reference = self.log_probs(batch, generation)
            sums = token_kl(batch.old_log_probs, reference, batch.mask, estimator).sum(-1)
            if not bool(sums.isfinite().all()):
                raise FloatingPointError(
                    f"Expected a finite KL to the reference, got {sums.tolist()}: the policy is so "
                    f"far from it that {estimator} overflows, or the weights are broken. A larger "
                    "kl_coef or a lower agent_learning_rate often helps."
                )
            samples = itertools.chain.from_iterable(rows)
            for sample, value in zip(samples, sums.tolist(), strict=True):
                kl[sample.completion] = value
        return kl
