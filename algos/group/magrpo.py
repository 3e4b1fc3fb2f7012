"""MAGRPO: multi-agent group-relative policy optimisation.

From "LLM Collaboration with Multi-Agent Reinforcement Learning" (Liu et al. 2025, arXiv
2508.04652, section 4). Every agent samples G completions from its prompt, these form joint
completions, and every branch goes on to the next turn. A completion is credited its own reward plus
the mean of what follows; its advantage is that credit less the mean of its group. Each agent's
policy is moved by its own completions alone.

How this departs from the paper, all of it by default and each with a setting:

1. Advantages are divided by the group's standard deviation (`advantage_normalization`).
2. Gradients are clipped by their norm (`max_grad_norm`).
3. Groups without spread are skipped and leave the mean over groups, unless a KL in the loss or an
   entropy bonus trains them.
4. The loss is a mean over the nodes of a turn that carry a gradient, and a sum over turns. Where
   most episodes end early, the few that go on have the later turn's whole weight.

Its relatives, which subtract something else, are in `motet.algos.group.baselines`.

    make demo
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from motet.agents import Agent
from motet.algos.config import TrainerConfig
from motet.algos.group.advantages import Baseline, group_mean, learning, seen_by
from motet.algos.group.grouping import advantage_groups, credited_completions, returns_by_agent
from motet.algos.group.magrpo_config import MAGRPOConfig
from motet.algos.metrics import turn_metrics
from motet.algos.parts import TeamMember
from motet.algos.rollouts.collect import ParallelTextEnv
from motet.algos.rollouts.returns import rollout_greedy_returns, rollout_returns
from motet.algos.rollouts.rollout import Rollout
from motet.algos.spread import spread_metrics
from motet.algos.trainer import Trainer, TrainerOptions
from motet.algos.updates.batch import Batch
from motet.algos.updates.kl import kl_costs, kl_metrics
from motet.envs.registration.entry_point import origin

PolicyLoss = Callable[[Tensor, Batch], Tensor]
"""From (B, T) log-probabilities and the batch they belong to, to a () loss."""


class MAGRPOTrainer(Trainer):
    """Train each agent on its completions' advantages within their groups; see `Trainer`.

    Args:
        env: see `Trainer`, as all that is not named here.
        agents: see `Trainer`.
        config: a `MAGRPOConfig`.
        baseline: from a group's returns to its advantages; MAGRPO's is the group's mean. What else
            it may be told, and how one learns, is in `motet.algos.group.advantages`.
        policy_loss: in place of the one that the config asks for; see `Trainer.policy_loss`.
        **options: see `Trainer`.
    """

    config_class: ClassVar[type[TrainerConfig]] = MAGRPOConfig
    config: MAGRPOConfig

    def __init__(
        self,
        env: ParallelTextEnv | None = None,
        agents: Mapping[str, Agent] | Sequence[TeamMember] = (),
        config: TrainerConfig | None = None,
        *,
        baseline: Baseline = group_mean,
        policy_loss: PolicyLoss | None = None,
        **options: Unpack[TrainerOptions],
    ) -> None:
        self.greedy_baseline = "greedy_returns" in seen_by(baseline)
        self._baseline = baseline
        self._learning = learning(baseline)
        self._own_loss = policy_loss
        super().__init__(env, agents, config, **options)
        if self.config.advantage_normalization is None:
            self.config = replace(self.config, advantage_normalization=True)
        self._check_group_size()

    def policy_loss(self, log_probs: Tensor, batch: Batch) -> Tensor:
        """Return the loss that was passed in, or the one that the config asks for."""
        if self._own_loss is not None:
            return self._own_loss(log_probs, batch)
        return super().policy_loss(log_probs, batch)

    def made_of(self) -> dict[str, str]:
        """Return what `Trainer.made_of` does, and which functions make the learner."""
        own = {"baseline": self._baseline, "policy_loss": self._own_loss}
        functions = {name: origin(each) for name, each in own.items() if each is not None}
        return super().made_of() | functions

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Train on a rollout.

        Returns:
            `turn_k/...` and `train/...` metrics.
        """
        returns = rollout_returns(rollout, self.config.discount)
        metrics = turn_metrics(rollout, returns)
        if self.config.kl_return_coef:
            by_policy = {each.policy.name: each.sampled_kl(rollout) for each in self.updaters}
            metrics |= kl_metrics(rollout, by_policy)
            kl = {k: v for own in by_policy.values() for k, v in own.items()}
            costs = kl_costs(kl, self.config.kl_return_coef)
            returns = rollout_returns(rollout, self.config.discount, costs)
        greedy = None
        if self.greedy_baseline:
            greedy = rollout_greedy_returns(rollout, self.config.discount)
        credited = credited_completions(
            rollout,
            returns,
            [name for updater in self.updaters for name in updater.policy.agents],
            greedy,
        )
        groups, without = advantage_groups(
            credited,
            baseline=self._baseline,
            normalize=bool(self.config.advantage_normalization),
            group_by=self.config.group_by,
        )
        if self._learning is not None:
            for agent, own in returns_by_agent(credited).items():
                self._learning.observe(agent, own)
        metrics |= spread_metrics(
            [group.agent for group in groups], [group.agent for group in without]
        )
        if self.config.kl_loss_coef or self.config.ent_coef:
            groups += without  # held near the reference, or near chance, like all others
        return {**metrics, **self.optimize(groups)}

    def state_dict(self) -> dict[str, Any]:
        """Return what changes while training; of a baseline that learns also what it has learnt."""
        state = super().state_dict()
        if self._learning is not None:
            state["baseline"] = self._learning.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Bring the trainer, and a baseline that learns, into a state that `state_dict` returned.

        Raises:
            ValueError: where it is that of other policies, or of another kind of baseline.
        """
        learns = self._learning is not None
        if learns != ("baseline" in state):
            kinds = ["a baseline that learns", "a baseline that does not learn"]
            expected, got = kinds if learns else kinds[::-1]
            raise ValueError(f"Expected a checkpoint of a learner with {expected}, got {got}.")
        super().load_state_dict(state)
        if self._learning is not None:
            self._learning.load_state_dict(state["baseline"])

    def _check_group_size(self) -> None:
        config = self.config
        zeros = torch.zeros(config.num_generations, dtype=torch.float64)
        known = {"greedy_returns": zeros, "agent": next(iter(self.agents))}
        self._baseline(zeros, **{name: known[name] for name in seen_by(self._baseline)})
        rows = 1 if config.group_by == "node" else config.rollout_batch_size
        if config.advantage_normalization and config.num_generations * rows < 2:
            raise ValueError(
                "Expected num_generations of at least 2 with advantage_normalization, got 1: one "
                "completion has no spread to divide by."
            )
