"""MADPO: direct preference optimisation of a team.

From "Direct Preference Optimization" (Rafailov et al. 2023, arXiv 2305.18290, equation 7), with the
team's policy, a product over its agents, in the place of the one policy:

    margin(w, l) = sum_a [log pi_a(w_a) - log pi_ref,a(w_a)] - [log pi_a(l_a) - log pi_ref,a(l_a)]
    loss(w, l)   = -log sigmoid(dpo_beta * margin(w, l))

w and l are joint actions from one state, of which w was worth more. The gradient by an agent's own
log-probabilities is the derivative of the loss by the margin, for w, and less that for l: a step is
an ordinary policy-gradient step with these as advantages, in which siblings share what they begin
with. All it needs besides is a forward pass of the reference, and one of the policies where they
have stepped since they sampled.

How this departs from the paper:

1. Preferences are made of rewards, not asked for: a joint action is better than its sibling where
   its return is higher. There is no fixed set of pairs: each rollout is sampled from the policy as
   it is, and its pairs serve for its own update only (as in online DPO, arXiv 2402.04792).
2. The reference is each policy as training began, all the time. It is a frozen copy, or the plain
   base where the policy is an adapter. Agents that are not trained equal their reference.
3. Where agents are rewarded differently, those with equal returns are a team, with pairs and a
   margin of their own: one that wants the opposite is no part of it.
4. All terms of a minibatch are measured before any of its policies steps, so that the steps have
   the gradient of the joint loss.
5. The loss is a mean over the pairs of a turn, and a sum over turns and teams: later turns have
   more nodes, and would outweigh the first.
6. Log-probabilities are under the distribution that was sampled from, temperature and truncation
   included.

Defaults: `dpo_beta=0.1`, and every joint action in one pair at most (see the module `pairs`).

Pitfalls. The sizes of returns do not count, only their order: a pair by a hair weighs as much as
one by a mile; `pairs_per_group` keeps the widest ones. DPO may lower both sides of a pair, as long
as the worse one falls further: watch the reward beside `train/margin`. With `reference_free=True`
what remains is a ranking loss of log-probabilities: nothing but the sigmoid's flat end holds the
policy, and the distance that `dpo_beta` sets elsewhere has no meaning.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from motet.agents import Agent, Completion
from motet.algos.config import TrainerConfig
from motet.algos.identity import digest
from motet.algos.metrics import turn_metrics
from motet.algos.parts import TeamMember
from motet.algos.preferences.madpo_config import MADPOConfig
from motet.algos.preferences.pairs import Preference, joint_completions, rollout_preferences
from motet.algos.preferences.preference_losses import dpo_loss, ipo_loss, margin_gradients
from motet.algos.registration import register
from motet.algos.rollouts.collect import ParallelTextEnv
from motet.algos.rollouts.returns import rollout_returns
from motet.algos.rollouts.rollout import Rollout
from motet.algos.spread import spread_metrics
from motet.algos.trainer import Trainer, TrainerOptions
from motet.algos.updates.batch import Sample
from motet.algos.updates.reference_policy import ReferencePolicy
from motet.algos.updates.step_metrics import Step, step_metrics
from motet.algos.updates.update import PolicyUpdater

Written = tuple[str, Completion]
"""Who wrote it, and what."""

LogProbs = Callable[[PolicyUpdater, Sequence[Sample]], Sequence[Tensor]]
"""From a policy and samples of its agents to (T,) log-probabilities of each."""


@register("madpo", MADPOConfig)
class MADPOTrainer(Trainer):
    """Train a team on which of two joint actions was worth more; see `Trainer`.

    Args:
        env: see `Trainer`, as all that is not named here.
        agents: see `Trainer`.
        config: a `MADPOConfig`.
        **options: see `Trainer`.
    """

    config_class: ClassVar[type[TrainerConfig]] = MADPOConfig
    config: MADPOConfig

    def __init__(
        self,
        env: ParallelTextEnv | None = None,
        agents: Mapping[str, Agent] | Sequence[TeamMember] = (),
        config: TrainerConfig | None = None,
        **options: Unpack[TrainerOptions],
    ) -> None:
        super().__init__(env, agents, config, **options)
        self._references: dict[str, ReferencePolicy] = {}
        if not self.config.reference_free:
            self._references = {
                each.policy.name: ReferencePolicy(each.policy) for each in self.updaters
            }

    def made_of(self) -> dict[str, str]:
        """Return what `Trainer.made_of` does, and the references, which no checkpoint holds."""
        weights = {name: each.weights() for name, each in self._references.items()}
        references = {f"reference of {name}": digest(own) for name, own in weights.items() if own}
        return super().made_of() | references

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Train on the preferences among a rollout's siblings.

        Returns:
            `turn_k/...` and `train/...` metrics.
        """
        returns = rollout_returns(rollout, self.config.discount)
        trained = [name for updater in self.updaters for name in updater.policy.agents]
        pairs = rollout_preferences(
            rollout,
            returns,
            [name for name in rollout.agents if name in trained],
            selection=self.config.pair_selection,
            pairs_per_group=self.config.pairs_per_group,
            rng=self.rng,
        )
        # where none of a team acts, nothing of it is trained
        pairs = [
            pair for pair in pairs if any(name in pair.node.completions for name in pair.agents)
        ]
        measured: list[dict[str, float]] = []
        steps: list[Step] = []
        for measure, own_steps in self._minibatches(pairs):
            measured.append(measure)
            steps += own_steps
        rates = {each.policy.name: each.learning_rate for each in self.updaters}
        metrics = {
            **turn_metrics(rollout, returns),
            **_spread(rollout, pairs, trained),
            "train/num_pairs": float(len(pairs)),
            **step_metrics(steps, rates, with_loss=False),
        }
        if measured:
            for name in measured[0]:
                metrics[f"train/{name}"] = float(np.mean([each[name] for each in measured]))
        return metrics

    def preference_losses(self, margins: Tensor) -> Tensor:
        """Return the loss of each pair.

        Args:
            margins: (P,) by pair, in log-probabilities.

        Returns:
            (P,) losses.
        """
        if self.config.preference_loss_type == "ipo":
            return ipo_loss(margins, self.config.dpo_beta)
        return dpo_loss(margins, self.config.dpo_beta, self.config.label_smoothing)

    # --- minibatches of pairs -----------------------------------------------------------------

    def _minibatches(
        self, pairs: Sequence[Preference]
    ) -> Iterator[tuple[dict[str, float], list[Step]]]:
        """Take the steps of a rollout: yield what was measured before, and what each step says."""
        if not pairs:
            return
        reference = self._sums(pairs, self._reference_log_probs)
        weights = pair_weights(pairs)
        size = self.config.train_batch_size or len(pairs)
        for iteration in range(self.config.num_iterations):
            order = self.rng.permutation(len(pairs))
            for start in range(0, len(pairs), size):
                chunk = order[start : start + size]
                scale = len(pairs) / len(chunk)
                measure, taken = self._step(
                    [pairs[i] for i in chunk],
                    torch.tensor([weights[i] * scale for i in chunk], dtype=torch.float64),
                    reference,
                )
                yield measure, [Step(name, iteration, own) for name, own in taken]

    def _step(
        self, pairs: Sequence[Preference], weights: Tensor, reference: Mapping[Written, float]
    ) -> tuple[dict[str, float], list[tuple[str, dict[str, float]]]]:
        """Measure some pairs under the policies as they are, then let each policy step."""
        sums = self._sums(pairs, _current_log_probs)
        log_ratios = {written: value - reference[written] for written, value in sums.items()}
        margins = torch.tensor(
            [_margin(pair, log_ratios) for pair in pairs], dtype=torch.float64, requires_grad=True
        )
        losses = self.preference_losses(margins)
        slopes = (weights * margin_gradients(losses, margins)).tolist()
        measured = {
            "loss": float((weights * losses.detach()).sum()),
            "margin": self.config.dpo_beta * float(margins.detach().mean()),
            "preference_accuracy": float((margins > 0).double().mean()),
        }
        samples = _samples(pairs, slopes)
        steps = []
        for updater in self.updaters:
            own = {name: samples[name] for name in updater.policy.agents if name in samples}
            if own:
                steps.append((updater.policy.name, updater.step(own)))
        return measured, steps

    def _sums(self, pairs: Iterable[Preference], log_probs: LogProbs) -> dict[Written, float]:
        """Return the log-probability of everything that the pairs' trained agents wrote."""
        written = dict.fromkeys(itertools.chain.from_iterable(map(_written, pairs)))
        sums = dict.fromkeys(written, 0.0)  # an empty completion has no tokens
        for updater in self.updaters:
            samples = [
                Sample(name, completion, 0.0, 0.0)
                for name, completion in written
                if name in updater.policy.agents and completion.completion_ids
            ]
            for sample, each in zip(samples, log_probs(updater, samples), strict=True):
                sums[sample.agent, sample.completion] = float(each.double().sum())
        return sums

    def _reference_log_probs(
        self, updater: PolicyUpdater, samples: Sequence[Sample]
    ) -> Sequence[Tensor]:
        if self.config.reference_free:
            return [torch.zeros(1)] * len(samples)
        return updater.log_probs(samples, self._references[updater.policy.name])


def pair_weights(pairs: Sequence[Preference]) -> list[float]:
    """Return each pair's share in the mean over the pairs of its team at its turn."""
    count = Counter((pair.agents, pair.node.turn) for pair in pairs)
    return [1 / count[pair.agents, pair.node.turn] for pair in pairs]


def _spread(
    rollout: Rollout, pairs: Sequence[Preference], trained: Sequence[str]
) -> dict[str, float]:
    """Return which of the trained agents' groups have no preference among them."""
    preferring = {(id(pair.node), name) for pair in pairs for name in pair.agents}
    groups = [
        (id(node), name) for node in rollout.nodes() for name in node.completions if name in trained
    ]
    return spread_metrics(
        [name for node, name in groups if (node, name) in preferring],
        [name for node, name in groups if (node, name) not in preferring],
    )


def _written(pair: Preference) -> Iterator[Written]:
    for joint in (pair.chosen, pair.rejected):
        for name, completion in joint_completions(pair.node, joint).items():
            if name in pair.agents:
                yield name, completion


def _current_log_probs(updater: PolicyUpdater, samples: Sequence[Sample]) -> Sequence[Tensor]:
    """Return what was kept from sampling where the policy has not stepped since, else compute."""
    agents = updater.policy.agents
    stale = [s for s in samples if s.completion.policy_version != agents[s.agent].policy_version]
    computed = {id(s): each for s, each in zip(stale, updater.log_probs(stale), strict=True)}
    return [
        computed[id(s)] if id(s) in computed else torch.tensor(s.completion.log_probs)
        for s in samples
    ]


def _margin(pair: Preference, log_ratios: Mapping[Written, float]) -> float:
    """Return the margin of the agents to whom the pair belongs, in the order of their names."""
    chosen, rejected = (
        joint_completions(pair.node, joint) for joint in (pair.chosen, pair.rejected)
    )
    return sum(
        log_ratios[name, chosen[name]] - log_ratios[name, rejected[name]]
        for name in pair.agents
        if name in chosen
    )


def _samples(pairs: Sequence[Preference], slopes: Sequence[float]) -> dict[str, list[Sample]]:
    """Return by agent what is trained, with the gradient of the loss as advantages.

    A completion that is in several pairs, or on both sides of one, is there once, and not at all
    where nothing is left of it.

    Args:
        pairs: of a minibatch.
        slopes: derivative of the loss by each one's margin.
    """
    advantages: dict[Written, float] = defaultdict(float)
    for pair, slope in zip(pairs, slopes, strict=True):
        for joint, sign in ((pair.chosen, -1), (pair.rejected, 1)):
            for name, completion in joint_completions(pair.node, joint).items():
                if name in pair.agents:
                    advantages[name, completion] += sign * slope
    samples: dict[str, list[Sample]] = defaultdict(list)
    for (name, completion), advantage in advantages.items():
        if advantage and completion.completion_ids:
            samples[name].append(Sample(name, completion, advantage, 1.0))
    return dict(samples)
