"""Hypothesis strategies for a whole update: a team, its settings and the rollout it learns from.

To have a new option drawn: an option of the learner goes into `LEARNER`, one of sampling into
`SAMPLING`, another kind of team into `TEAMS` and `Case.team`, a property of prompts into
`drawn_rollouts`, a family of models into `tiny_families`. Where an option changes what is computed,
`Case.expected_terms` hands it to the reference, which knows it from its definition.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from drawn_rollouts import rollouts, shapes
from hypothesis import strategies as st
from reference import KL, magrpo_groups, magrpo_terms
from tiny_families import FAMILIES, tiny_model, tiny_tokenizer
from torch import Tensor
from transformers import PreTrainedModel

from motet.agents import Agent, Completion, FixedAgent, GenerationConfig, LMAgent
from motet.algos import (
    MAGRPOConfig,
    MAGRPOTrainer,
    Rollout,
    RunningMean,
    greedy_return,
    group_max,
    group_mean,
    leave_one_out,
    no_baseline,
)
from motet.algos.group.advantages import Baseline
from motet.envs import TextEnv

# --- what is drawn ------------------------------------------------------------------------------

LEARNER: dict[str, st.SearchStrategy[Any]] = {
    "discount": st.sampled_from([1.0, 0.9, 0.5, 0.0]),
    "advantage_normalization": st.booleans(),
    "loss_type": st.sampled_from(["sequence_sum", "sequence_mean", "token_mean", "constant"]),
    "group_by": st.sampled_from(["node", "node", "turn", "batch"]),
    "mask_truncated_completions": st.sampled_from([False, False, True]),
    "ent_coef": st.sampled_from([0.0, 0.0, 0.0, 0.3]),
    "gradient_checkpointing": st.sampled_from([False, False, True]),
    "offload_optimizer": st.sampled_from([None, None, None, "disk"]),
    "max_tokens_per_batch": st.sampled_from([1, 10, 24, 60, 200, None]),
}
RATIOS: list[dict[str, float | None]] = [
    {},
    {},
    {"clip_range": 0.2},
    {"clip_range": 3.0},
    {"clip_range": 0.2, "clip_range_high": 0.5},
    {"importance_sampling_cap": 1.0},
    {"importance_sampling_cap": 4.0},
]
NO_RATIOS = dict.fromkeys(("clip_range", "clip_range_high", "importance_sampling_cap"))
SAMPLING: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.sampled_from([1.0, 1.0, 0.6, 1.7]),
    "top_k": st.sampled_from([None, None, 1, 4, 20, 60]),
    "top_p": st.sampled_from([None, None, 0.3, 0.9, 1.0]),
    "max_new_tokens": st.sampled_from([6, 9]),
}
TEAMS = ("separate", "shared", "one model, own settings", "one frozen")
BASELINES: dict[str, Baseline] = {
    "mean": group_mean,
    "mean of the others": leave_one_out,
    "nothing": no_baseline,
    "maximum": group_max,
    "greedy": greedy_return,
}
MEANS = {"agent_0": 0.75, "agent_1": -0.25}  # running ones; agent_2 has none yet


@dataclass(frozen=True)
class Case:
    """A rollout and all that decides what is learnt from it."""

    team_kind: str
    families: tuple[str, ...]  # by agent
    sampling: tuple[dict[str, Any], ...]  # by agent
    learner: dict[str, Any]
    baseline: str
    num_steps: int  # optimizer steps that are asked for
    chunk_rows: int  # rows of logits that are computed at a time
    rollout: Rollout

    def _weights(self) -> dict[str, tuple[str, int]]:
        """Family and seed of each agent's model."""
        one_model = self.team_kind in ("shared", "one model, own settings")
        seeds = {name: 0 if one_model else i for i, name in enumerate(self.rollout.agents)}
        return {name: (self.families[seed], seed) for name, seed in seeds.items()}

    def team(self) -> dict[str, Agent]:
        """The agents by name; the same models each time."""
        names = self.rollout.agents
        team: dict[str, Agent] = {
            name: LMAgent(
                tiny_model(*weights), tiny_tokenizer(), generation=GenerationConfig(**sampling)
            )
            for (name, weights), sampling in zip(
                self._weights().items(), self.sampling, strict=True
            )
        }
        if self.team_kind == "shared":
            return dict.fromkeys(names, team[names[0]])
        if self.team_kind == "one frozen" and len(names) > 1:
            team[names[-1]] = FixedAgent("")
        return team

    def trained(self) -> dict[str, LMAgent]:
        return {name: agent for name, agent in self.team().items() if isinstance(agent, LMAgent)}

    def models(self) -> dict[str, PreTrainedModel]:
        return {name: agent.model for name, agent in self.trained().items()}

    def references(self) -> dict[str, PreTrainedModel]:
        """What the trained agents' models are held near: others of their families."""
        weights = self._weights()
        return {
            name: tiny_model(weights[name][0], 100 + weights[name][1]) for name in self.models()
        }

    # --- what it comes to -----------------------------------------------------------------------

    def expected_terms(self) -> Iterator[Tensor]:
        """The loss by the reference, completion by completion, with gradient."""
        generations = self._generations()
        return magrpo_terms(
            self.rollout,
            self.models(),
            generations,
            loss_type=self.learner["loss_type"],
            clip_range=self.learner["clip_range"],
            clip_range_high=self.learner["clip_range_high"],
            cap=self.learner["importance_sampling_cap"],
            mask_truncated=self.learner["mask_truncated_completions"],
            max_new_tokens=max(each.max_new_tokens for each in generations.values()),
            **self._grouping(),
        )

    def _generations(self) -> dict[str, GenerationConfig]:
        return {name: agent.generation for name, agent in self.trained().items()}

    def _grouping(self) -> dict[str, Any]:
        coef = self.learner["kl_coef"]
        kl = None
        if coef:
            estimator, place = self.learner["kl_estimator"], self.learner["kl_in"]
            kl = KL(coef, estimator, place, self.references())
        return {
            "discount": self.learner["discount"],
            "normalize": self.learner["advantage_normalization"],
            "group_by": self.learner["group_by"],
            "baseline": self.baseline,
            "running": MEANS,
            "kl": kl,
            "ent_coef": self.learner["ent_coef"],
        }

    def enlarged_rounding(self) -> float:
        """How much of the rounding of returns is found again in advantages, as a multiple.

        Rewards are float64 and do not round. A KL in the return is of float32, and a group whose
        returns are large beside their spread magnifies what it rounds.
        """
        if self.learner["kl_coef"] == 0 or self.learner["kl_in"] == "loss":
            return 1.0
        by_spread = {**self._grouping(), "baseline": "nothing", "normalize": True}
        groups = magrpo_groups(self.rollout, self.models(), self._generations(), **by_spread)
        ratios = [abs(each) for _, own in groups for _, weights in own for each in weights]
        return max([1.0, *(ratio / 10 for ratio in ratios)])

    def steps(self) -> tuple[int | None, list[float]]:
        """`train_batch_size`, and the share of the rollout's groups in each of its steps.

        Where policies step apart, nobody outside can tell which of a policy's steps had fewer
        groups than the others: all of them get equally many then.
        """
        by_agent = magrpo_groups(
            self.rollout, self.models(), self._generations(), **self._grouping()
        )
        groups = [completions for _, own in by_agent for completions, _ in own]
        count = len(groups)
        if self.num_steps == 1 or count == 0:
            return None, [1.0]
        told_apart = len(set(map(id, self.models().values()))) == 1 and all(
            any(map(self._is_trained, group)) for group in groups
        )
        size = -(-count // self.num_steps)
        while not told_apart and count % size:
            size -= 1
        return size, [min(size, count - start) / count for start in range(0, count, size)]

    def _is_trained(self, completion: Completion) -> bool:
        cut = completion.finish_reason == "length" and self.learner["mask_truncated_completions"]
        return bool(completion.completion_ids) and not cut

    def _baseline(self) -> Baseline:
        if self.baseline != "running mean":
            return BASELINES[self.baseline]
        baseline = RunningMean()
        baseline.means = dict(MEANS)
        return baseline

    def trainer(self) -> MAGRPOTrainer:
        """A trainer whose steps leave the weights where they are."""
        env = TextEnv(
            [{"prompt": ""}],
            lambda *texts: [0.0] * len(texts[0]),
            num_agents=len(self.rollout.agents),
        )
        config = MAGRPOConfig(
            train_batch_size=self.steps()[0],
            agent_learning_rate=1e-30,
            max_grad_norm=None,
            progress_bar=False,
            **self.learner,
        )
        with self._at_the_references():
            return MAGRPOTrainer(env, self.team(), config, baseline=self._baseline())

    @contextmanager
    def _at_the_references(self) -> Iterator[None]:
        """Give the models the weights that they are held near, as if training had moved on since.

        A trainer's reference is the policy that it was made with.
        """
        models, references = self.models(), self.references()
        trained = {name: copy.deepcopy(model.state_dict()) for name, model in models.items()}
        for name, model in models.items():
            model.load_state_dict(references[name].state_dict())
        yield
        for name, model in models.items():
            model.load_state_dict(trained[name])


@st.composite
def cases(draw: st.DrawFn, kl_in: Sequence[str | None] = (None, "loss", "return")) -> Case:
    """A case with a KL in one of these places, None for no KL."""
    place = draw(st.sampled_from(kl_in))
    kl: dict[str, Any] = {"kl_coef": 0.0, "kl_in": "loss"}
    if place is not None:
        estimator = draw(st.sampled_from(["k1", "k2", "k3"]))
        kl = {"kl_coef": 0.1, "kl_in": place, "kl_estimator": estimator}
    baseline = draw(st.sampled_from([*sorted(BASELINES), "running mean"]))
    shape = draw(shapes(greedy=baseline == "greedy"))
    size = len(shape.agents)
    by_agent = {"min_size": size, "max_size": size}
    families = st.lists(st.sampled_from(FAMILIES), **by_agent).map(tuple)
    sampling = st.lists(st.fixed_dictionaries(SAMPLING), **by_agent).map(tuple)
    return Case(
        team_kind=draw(st.sampled_from(TEAMS)),
        families=draw(families),
        sampling=draw(sampling),
        learner=draw(st.fixed_dictionaries(LEARNER))
        | NO_RATIOS
        | draw(st.sampled_from(RATIOS))
        | kl,
        baseline=baseline,
        num_steps=draw(st.sampled_from([1, 1, 2, 3, 100])),
        chunk_rows=draw(st.sampled_from([1024, 2, 5])),
        rollout=draw(rollouts(shape)),
    )
