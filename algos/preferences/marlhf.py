"""MARLHF: a team learns from a reward model of its joint actions, which learns from preferences.

After "Training language models to follow instructions with human feedback" (Ouyang et al. 2022,
arXiv 2203.02155, sections 3.4 and 3.5), with what a whole team saw and said in the place of one
answer. The reward model r is trained on pairs of joint actions w, l of which w was better
(Bradley and Terry 1952):

    loss(w, l) = -log sigmoid(r(w) - r(l))

and any learner of rollouts then takes its step on the rollout with r in the place of the rewards.

How this departs from the paper:

1. Preferences are made of rewards, not asked for: a joint action is better than its sibling where
   its reward at that turn is higher. It is the reward of the turn and not the return, because the
   learner adds up the turns by itself.
2. The reward model is not trained once beforehand: each rollout is sampled from the policy as it
   is, trains the reward model on its own pairs, and is rated then. The order is: collect, measure
   `train/reward_model_accuracy` on pairs that are new to it, train it on them, rate, step.
3. It has one output per agent, all of which begin alike: agents rewarded alike always get the
   same, and those rewarded differently each get their own.
4. Its outputs are brought to mean 0 and deviation 1 over a rollout, where the paper shifts them by
   a constant.
5. There is no KL penalty unless the learner's `kl_coef` asks for one, and no pretraining loss.

Evaluation, `rollout/reward_mean` and `turn_k/...` are always the task's own reward.

Defaults: MAGRPO takes the steps; the reward model begins as a copy of the first trained agent's
model, is trained with a learning rate of 1e-5 for one pass, and every joint action is in one pair
at most (`motet.algos.preferences.pairs`).

Pitfalls. Comparing siblings says nothing about how states compare: where a learner adds up turns,
what it gets of a later turn is what the reward model makes of states it was never taught to
compare. Early in training it knows little, and the policy follows it all the same: a reward
learning rate well above the agents' helps. A group whose members all earned the same has no pairs,
and is rated nevertheless; with advantages divided by their spread, small differences in ratings
become large. The reward model reads the observations and answers of one turn: where those leave
out what was said before, it does not know.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Unpack

from motet.agents import Agent, LMAgent
from motet.algos.checks import checked_config
from motet.algos.config import TrainerConfig
from motet.algos.evaluation import Evaluation
from motet.algos.metrics import turn_metrics
from motet.algos.parts import TeamMember
from motet.algos.preferences.marlhf_config import MARLHFConfig
from motet.algos.preferences.pairs import rollout_preferences, turn_rewards
from motet.algos.preferences.reward_learner import RewardLearner
from motet.algos.preferences.reward_model import RewardModel
from motet.algos.registration import make, register
from motet.algos.rollouts.collect import ParallelTextEnv
from motet.algos.rollouts.returns import rollout_returns
from motet.algos.rollouts.rollout import Rollout
from motet.algos.trainer import Trainer, TrainerOptions

_FOLDER = "reward_model"


@register("marlhf", MARLHFConfig)
class MARLHFTrainer(Trainer):
    """Train a reward model on preferences, and a team on the reward model; see `Trainer`.

    Args:
        env: see `Trainer`, as all that is not named here.
        agents: see `Trainer`.
        config: a `MARLHFConfig`.
        reward_model: what to begin with; None for a copy of the first trained agent's model, in
            float32.
        **options: see `Trainer`.

    Attributes:
        learner: the trainer that takes the steps. Agents, policies and randomness are its own.
        reward_model: as trained so far.

    Raises:
        TypeError: where the learner does not train on rollouts.
        ValueError: where the learner needs rewards that the reward model cannot give, or the reward
            model is of other agents, or would train an agent's weights.
    """

    config_class: ClassVar[type[TrainerConfig]] = MARLHFConfig
    config: MARLHFConfig

    def __init__(
        self,
        env: ParallelTextEnv | None = None,
        agents: Mapping[str, Agent] | Sequence[TeamMember] = (),
        config: TrainerConfig | None = None,
        *,
        reward_model: RewardModel | None = None,
        **options: Unpack[TrainerOptions],
    ) -> None:
        given = checked_config(config, options.pop("args", None), self.config_class)
        assert isinstance(given, MARLHFConfig)  # it was checked
        super().__init__(env, agents, given.resolved(), **options)
        self.updaters.clear()  # the learner has its own
        self.learner = self._make_learner()
        # some learners see the env in a view of their own
        self.env, self.eval_env = self.learner.env, self.learner.eval_env
        self.agents, self.samplers = self.learner.agents, self.learner.samplers
        self.updaters, self.rng = self.learner.updaters, self.learner.rng
        self.reward_model = self._checked(reward_model)
        self._reward_learner = RewardLearner(self.reward_model, self.config)

    def collect(self, rows: Sequence[int]) -> Rollout:
        """Sample trees as the learner does."""
        return self.learner.collect(rows)

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Train the reward model on a rollout's preferences, and the team on its ratings.

        Returns:
            `turn_k/...` metrics of the task's own rewards, and `train/...` metrics.
        """
        pairs = rollout_preferences(
            rollout,
            turn_rewards(rollout),
            rollout.agents,
            selection=self.config.pair_selection,
            pairs_per_group=self.config.pairs_per_group,
            rng=self.rng,
        )
        learnt = self._reward_learner.train(pairs, self.rng)
        metrics = self.learner.update(self._reward_learner.rated(rollout))
        return {
            **metrics,
            **turn_metrics(rollout, rollout_returns(rollout, self.config.discount)),
            "train/num_reward_pairs": float(len(pairs)),
            **{f"train/reward_model_{name}": value for name, value in learnt.items()},
        }

    def set_progress(self, progress: float) -> None:
        """Set the learner's learning rates; see `Trainer`."""
        self.learner.set_progress(progress)

    def evaluate(
        self, *, num_samples: int | None = None, do_sample: bool | None = None
    ) -> Evaluation:
        """Play episodes with the task's own reward; see `Trainer`."""
        return self.learner.evaluate(num_samples=num_samples, do_sample=do_sample)

    def save_model(self, output_dir: str | Path) -> None:
        """Write what the learner writes, and the reward model into the folder `reward_model`."""
        self.learner.save_model(output_dir)
        self.reward_model.save_pretrained(Path(output_dir) / _FOLDER)

    def state_dict(self) -> dict[str, Any]:
        """Return what changes while training, the learner's and the reward model's included."""
        return {
            **super().state_dict(),
            "learner": self.learner.state_dict(),
            "reward": self._reward_learner.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Bring the trainer into a state that `state_dict` returned.

        Raises:
            ValueError: where it is that of other policies or another reward model; nothing is
                changed.
        """
        self._reward_learner.check_state(state["reward"])
        super().load_state_dict(state)
        self.learner.load_state_dict(state["learner"])
        self._reward_learner.load_state_dict(state["reward"])

    def _make_learner(self) -> Trainer:
        learner = make(
            self.config.algo, self.env, self.agents, self.config.algo_config, eval_env=self.eval_env
        )
        if not isinstance(learner, Trainer):
            raise TypeError(
                f"Expected algo= to name a learner that trains on rollouts, got "
                f"{self.config.algo!r}, which makes a {type(learner).__name__}."
            )
        if learner.greedy_baseline:
            raise ValueError(
                f"Expected a learner that compares sampled completions alone, got "
                f"{self.config.algo!r}, whose baseline is the reward of greedy ones, which the "
                "reward model does not get to read. Set algo= to another one, marloo say."
            )
        return learner

    def _checked(self, reward_model: RewardModel | None) -> RewardModel:
        """Return the reward model, or one that is made of the first trained agent's."""
        if _FOLDER in self.agents:
            raise ValueError(
                f"Expected another name for an agent than {_FOLDER!r}, which the reward model is "
                "saved under."
            )
        names = self.env.possible_agents
        if reward_model is None:
            name = next(iter(self.updaters[0].policy.agents))
            agent = self.agents[name]
            assert isinstance(agent, LMAgent)  # else it would have no policy
            return RewardModel.from_agent(agent, names, seed=self.config.seed)
        if not isinstance(reward_model, RewardModel):
            raise TypeError(
                f"Expected a RewardModel, got {reward_model!r}; make one with "
                "RewardModel(model, tokenizer, agents)."
            )
        if set(reward_model.agents) != set(names):
            raise ValueError(
                f"Expected a reward model of {list(names)}, got one of {list(reward_model.agents)}."
            )
        own = {id(weight) for weight in reward_model.parameters()}
        for agent in self.agents.values():
            if isinstance(agent, LMAgent) and any(id(w) in own for w in agent.model.parameters()):
                raise ValueError(
                    "Expected a reward model with weights of its own, got an agent's: training it "
                    "would change the agent. Load the model twice."
                )
        return reward_model
