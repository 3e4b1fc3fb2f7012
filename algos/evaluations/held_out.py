"""How learners evaluate: on which rows and how often. All of them do it here."""

from typing import Protocol

from motet.algos.evaluation import Evaluation, evaluate
from motet.algos.rollouts.collect import ParallelTextEnv
from motet.algos.rollouts.joint_policy import Team
from motet.algos.schedule import eval_rows


class EvalSettings(Protocol):
    """What is read of a config: each learner's has it."""

    @property
    def eval_num_samples(self) -> int | None:
        """Rows to evaluate on, the first ones; None for all."""

    @property
    def eval_episodes_per_row(self) -> int:
        """Episodes of each of them."""

    @property
    def eval_do_sample(self) -> bool:
        """Whether to sample, or take the most likely tokens."""

    @property
    def seed(self) -> int:
        """Of sampling."""

    @property
    def progress_bar(self) -> bool:
        """Whether to show one."""


def evaluate_held_out(
    env: ParallelTextEnv,
    team: Team,
    config: EvalSettings,
    *,
    num_samples: int | None = None,
    do_sample: bool | None = None,
    best_of: int = 1,
) -> Evaluation:
    """Evaluate a team as a learner's settings say.

    Args:
        env: with the rows to evaluate on.
        team: agent by name, or a `JointPolicy`.
        config: settings.
        num_samples: episodes per row; None for `eval_episodes_per_row` of the config.
        do_sample: whether to sample; None for `eval_do_sample` of the config.
        best_of: see `evaluate`.

    Raises:
        ValueError: as `evaluate`.
    """
    return evaluate(
        env,
        team,
        eval_rows(env, config.eval_num_samples),
        num_samples=config.eval_episodes_per_row if num_samples is None else num_samples,
        best_of=best_of,
        do_sample=config.eval_do_sample if do_sample is None else do_sample,
        seed=config.seed,
        progress_bar=config.progress_bar,
    )
