"""Actor-critics: a learnt value is what a completion is compared with, not its siblings.

A critic says what a prompt is worth before anybody answers. A completion's advantage is what it
earned and what followed over that (`motet.algos.actor_critics.value_targets`), so that one
completion per prompt is enough, and a reward that comes turns later reaches the turn that made it
likely.

| name | critic | advantage | policy loss |
|---|---|---|---|
| `iac` | of each policy, reads the agent's own prompt | temporal difference | -A log pi |
| `maac` | one, reads all prompts and the env's state | temporal difference | -A log pi |
| `ippo` | as `iac` | GAE, lambda 0.95 | clipped ratio, several passes |
| `mappo` | as `maac` | GAE, lambda 0.95 | clipped ratio, several passes |

`iac` and `maac` are CoLLM-DC and CoLLM-CC of "Learning Decentralized LLM Collaboration with
Multi-Agent Actor Critic" (arXiv 2601.21972), `ippo` is "Is Independent Learning All You Need in the
StarCraft Multi-Agent Challenge?" (de Witt et al. 2020, arXiv 2011.09533), `mappo` "The Surprising
Effectiveness of PPO in Cooperative Multi-Agent Games" (Yu et al. 2021, arXiv 2103.01955). At a node
n, with the agent's completions k and their tokens t:

    A_k    = lambda-return of k - V(n), standardised over the agent's of the rollout
    policy = mean_n mean_k sum_t -A_k log pi(y_kt)                                  iac, maac
             mean_n mean_k sum_t -min(rho_kt A_k, clip(rho_kt, 1 - c, 1 + c) A_k)   ippo, mappo
    value  = mean_n max((V(n) - y)^2, (clip(V(n)) - y)^2),  y = lambda-return of n

Both are summed over turns and agents; mean_n is over the nodes of an agent at a turn. Defaults are
in `motet.algos.actor_critics.actor_critic_config`.

How this departs from the papers:

1. Trees: with several generations the lambda-return runs over the mean of each child, and V(n) has
   one target, the mean over joint actions.
2. A critic that judges several agents has an output for each. Where all are paid alike these stay
   one value (`motet.algos.actor_critics.value_head`).
3. Critics with a trunk of their own step after the policies, on the same nodes in as many batches,
   through all `num_iterations`; `target_kl` ends the policies' passes only (as in Spinning Up).
   One batch of nodes is one step, whatever the number of agents.
4. `target_kl` is looked at after a pass, and the mean over its tokens counts.
5. Values are of what was there before anybody acted. None takes actions: such a baseline would bias
   the policy gradient.
6. Advantages are standardised over the rollout, per agent, not over a minibatch. An agent whose
   completions all earned the same at each turn is left out of the rollout's policy steps, or
   trained on a KL, an entropy bonus or a shared trunk's value loss alone: its advantages are what
   the critic is wrong by, which elsewhere is blown up to a standard deviation of 1.

Pitfalls: a critic with a trunk of its own is another model in memory for each policy, with AdamW's
two numbers per weight, also where policies are LoRA adapters of one base: give `critic=` a smaller
model, or set `critic="shared"` in the config, where `vf_coef` decides how far the value loss bends
the policy. At first a critic says 0, later with `normalize_values` the mean: until it knows more,
completions are compared with those of all other prompts. `clip_range_vf` is in the unit of the
critic's outputs. Where a task is all but solved, standardised advantages are noise as large as
ever: bring the learning rate down (`lr_scheduler_type="linear"`). A central critic's context has to
hold all prompts and the env's transcripts.

    algos.make("mappo", env, team, algos.PPOConfig(critic_learning_rate=1e-4)).train()
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
from transformers import PreTrainedTokenizerBase

from motet.agents import Agent, Completion
from motet.algos.actor_critics.actor_critic_config import ActorCriticConfig
from motet.algos.actor_critics.critic_reads import rollout_reads
from motet.algos.actor_critics.critic_update import CriticUpdater
from motet.algos.actor_critics.critics import (
    CENTRAL,
    AnyCritic,
    CriticModel,
    make_critics,
    prefix_of,
)
from motet.algos.actor_critics.judgement import (
    Judgement,
    explained,
    fit_critics,
    judge,
    judged_groups,
)
from motet.algos.actor_critics.shared_critic import SharedCritic
from motet.algos.actor_critics.value_targets import (
    Place,
    Targets,
    tree_targets,
    without_spread,
)
from motet.algos.config import TrainerConfig
from motet.algos.metrics import turn_metrics
from motet.algos.parts import TeamMember
from motet.algos.rollouts.collect import ParallelTextEnv
from motet.algos.rollouts.returns import rollout_returns
from motet.algos.rollouts.rollout import Rollout
from motet.algos.spread import spread_metrics
from motet.algos.trainer import Trainer, TrainerOptions
from motet.algos.updates.kl import kl_costs, kl_metrics

_FOLDER = "critic"

TARGET_KL_FACTOR = 1.5
"""How far beyond `target_kl` a pass may end, as in Spinning Up and stable-baselines3."""


class ActorCriticTrainer(Trainer):
    """Train each agent on its completions' advantages over what a critic expected.

    Args:
        env: see `Trainer`, as all that is not named here.
        agents: see `Trainer`.
        config: an `ActorCriticConfig`.
        central: one critic for all agents that reads all prompts and the env's `state()`, instead
            of one for each policy that reads an agent's own prompt.
        critic: the critics' trunk, a model of transformers that is copied, or the name of one; a
            decoder or an encoder. None copies the policy's model, for a central critic the first
            one's.
        critic_tokenizer: of a model that is given.
        **options: see `Trainer`.

    Attributes:
        critics: with a trunk of their own or on a policy's; see the module `critics`.

    Raises:
        ValueError: where a critic cannot be what the config asks for.
        TypeError: where `critic` is no model.
    """

    config_class: ClassVar[type[TrainerConfig]] = ActorCriticConfig
    config: ActorCriticConfig

    def __init__(
        self,
        env: ParallelTextEnv | None = None,
        agents: Mapping[str, Agent] | Sequence[TeamMember] = (),
        config: TrainerConfig | None = None,
        *,
        central: bool = False,
        critic: CriticModel | None = None,
        critic_tokenizer: PreTrainedTokenizerBase | None = None,
        **options: Unpack[TrainerOptions],
    ) -> None:
        super().__init__(env, agents, config, **options)
        if _FOLDER in self.agents:
            raise ValueError(
                f"Expected another name for an agent than {_FOLDER!r}, which critics are saved "
                "under."
            )
        self.with_state = central
        self.critics = make_critics(
            self.updaters, self.config, central=central, model=critic, tokenizer=critic_tokenizer
        )
        self._central = central
        self._prefixes = {
            each.name: prefix_of(each, self.updaters, central=central) for each in self.critics
        }

    def stops_early(self, approx_kl: float) -> bool:
        """Tell whether the pass has found the policies too far from those that sampled."""
        limit = self.config.target_kl
        return limit is not None and approx_kl > TARGET_KL_FACTOR * limit

    def set_progress(self, progress: float) -> None:
        """Set the learning rates of policies and critics; see `Trainer`."""
        super().set_progress(progress)
        for critic in self.critics:
            if isinstance(critic, CriticUpdater):
                critic.schedule(progress)

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Train policies and critics on a rollout.

        Returns:
            `turn_k/...` and `train/...` metrics.
        """
        returns = rollout_returns(rollout, self.config.discount)
        metrics = turn_metrics(rollout, returns)
        costs = self._costs(rollout, metrics)
        if costs is not None:
            returns = rollout_returns(rollout, self.config.discount, costs)
        judgements = [self._judged(critic, rollout) for critic in self.critics]
        values = {place: own for each in judgements for place, own in each.values().items()}
        targets = tree_targets(
            rollout,
            values,
            discount=self.config.discount,
            gae_lambda=self.config.gae_lambda,
            token_level=self.config.token_level,
            costs=costs,
        )
        metrics |= explained(values, targets)
        for judgement in judgements:
            judgement.observe(targets)
        normalize = self.config.advantage_normalization is not False
        silent = without_spread(rollout, returns) if normalize else frozenset()
        groups = judged_groups(
            rollout,
            targets,
            [each for each in judgements if isinstance(each.critic, SharedCritic)],
            normalize=normalize,
            token_level=self.config.token_level,
            silent=silent,
        )
        telling = [group for group in groups if group.agent not in silent]
        metrics |= spread_metrics(
            [group.agent for group in telling],
            [group.agent for group in groups if group.agent in silent],
        )
        others = self.config.kl_loss_coef or self.config.ent_coef or self.config.critic == "shared"
        metrics |= self.optimize(groups if others else telling)
        fitted = self._fit(judgements, targets, len(groups))
        metrics["train/tokens_computed"] += fitted.pop("tokens")
        return {**metrics, **fitted}

    def save_model(self, output_dir: str | Path) -> None:
        """Write one folder per language-model agent, and `critic` with one per critic.

        A critic with a trunk of its own loads with `Critic.from_pretrained`; one on a policy's
        trunk is the value head alone, and loads with `load_head` of the module `critic`.
        """
        super().save_model(output_dir)
        for critic in self.critics:
            folder = Path(output_dir) / _FOLDER
            critic.save_pretrained(folder if critic.name == CENTRAL else folder / critic.name)

    def state_dict(self) -> dict[str, Any]:
        """Return what changes while training, critics included."""
        critics = {critic.name: critic.state_dict() for critic in self.critics}
        return {**super().state_dict(), "critics": critics}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Bring the trainer into a state that `state_dict` returned.

        Raises:
            ValueError: where it is that of other policies or critics; nothing is changed.
        """
        critics = state.get("critics", {})
        names = [critic.name for critic in self.critics]
        if list(critics) != names:
            raise ValueError(
                f"Expected the critics {names} in the checkpoint, got {list(critics)}."
            )
        for critic in self.critics:
            critic.check_state(critics[critic.name])
        super().load_state_dict(state)
        for critic in self.critics:
            critic.load_state_dict(critics[critic.name])

    # --- one rollout --------------------------------------------------------------------------

    def _costs(
        self, rollout: Rollout, metrics: dict[str, float]
    ) -> dict[str, dict[Completion, float]] | None:
        """Return what completions take from the return for their KL, and note its mean."""
        if not self.config.kl_return_coef:
            return None
        by_policy = {each.policy.name: each.sampled_kl(rollout) for each in self.updaters}
        metrics |= kl_metrics(rollout, by_policy)
        kl = {k: v for own in by_policy.values() for k, v in own.items()}
        return kl_costs(kl, self.config.kl_return_coef)

    def _judged(self, critic: AnyCritic, rollout: Rollout) -> Judgement:
        reads = rollout_reads(
            rollout,
            critic.head.agents,
            self._prefixes[critic.name],
            token_level=self.config.token_level,
            waiting=self._central,
        )
        return judge(critic, rollout, reads)

    def _fit(
        self, judgements: Sequence[Judgement], targets: Mapping[Place, Targets], num_groups: int
    ) -> dict[str, float]:
        """Train the critics that are not trained with a policy; return metrics of all."""
        separate = [each for each in judgements if isinstance(each.critic, CriticUpdater)]
        num_batches = -(-num_groups // (self.config.train_batch_size or max(num_groups, 1)))
        steps = list(
            fit_critics(separate, targets, self.config.num_iterations, num_batches, self.rng)
        )
        shared = [each.mean_loss() for each in self.critics if isinstance(each, SharedCritic)]
        losses = [step["value_loss"] for step in steps] + [x for x in shared if x is not None]
        metrics = {
            "train/num_critic_steps": float(len(steps)),
            "tokens": sum(step["tokens"] for step in steps),
        }
        if losses:
            metrics["train/value_loss"] = float(np.mean(losses))
        if steps:
            norms = [step["critic_grad_norm"] for step in steps]
            metrics["train/critic_grad_norm"] = float(np.mean(norms))
        return metrics
