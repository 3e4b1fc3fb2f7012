"""How good a team is, without training it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from motet.algos.evaluations.episodes import Episode, episodes_of, save_transcripts
from motet.algos.evaluations.intervals import Interval
from motet.algos.evaluations.progress import episode_bar
from motet.algos.evaluations.summary import summarize
from motet.algos.rollouts.best_branch import best_chains
from motet.algos.rollouts.collect import ParallelTextEnv, collect_rollouts
from motet.algos.rollouts.joint_policy import Team, greedy_team
from motet.algos.rollouts.rollout import Rollout
from motet.algos.streaming import stream_of
from motet.envs.simulator import text_env_of


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Results of `evaluate`.

    Attributes:
        metrics: `reward_mean` (over all turns played), `return_mean` (sum over an episode's
            turns, then the mean), `final_reward_mean` (each episode's last turn), and
            `turn_k/reward_mean` over the episodes that reached turn k. Rewards are the team's:
            the mean over its agents; where agents earn differently, `return_mean/NAME` is each
            one's own. `episode_length_mean` counts turns, `completion_length_mean` tokens, stop
            token included, `frac_cut` completions cut by `max_new_tokens`, and `frac_ended_early`
            episodes that ended before the env's last turn, where it has several. `num_completions`
            and `num_tokens` are what it cost: all that was written, drafts and rejected samples
            included.
        rollout: every episode, a chain of nodes with one joint action each.
        intervals: by name of a metric, the 95 % interval of its mean, over rows (the module
            `motet.algos.evaluations.intervals` says how). A mean of one row has none.
    """

    metrics: dict[str, float]
    rollout: Rollout
    intervals: dict[str, Interval] = field(default_factory=dict)

    @property
    def episodes(self) -> list[Episode]:
        """Every episode, in the order in which they began."""
        return episodes_of(self.rollout)

    @classmethod
    def of(cls, rollout: Rollout, *, num_turns: int | None = None) -> Self:
        """Return the evaluation whose episodes a rollout has, one that was saved say.

        Args:
            rollout: with one joint action at each node.
            num_turns: most turns of an episode; `frac_ended_early` is left out without it.

        Raises:
            ValueError: where the rollout is a tree, as those of training are.
        """
        metrics, intervals = summarize(rollout, num_turns=num_turns)
        return cls(metrics, rollout, intervals)

    def logged(self) -> dict[str, float]:
        """Return what a run logs: metrics as `eval/NAME`, intervals of rewards and returns.

        The ends of an interval are `eval/NAME_low` and `eval/NAME_high`, of the team alone.
        """
        entry = {f"eval/{name}": value for name, value in self.metrics.items()}
        for name, (low, high) in self.intervals.items():
            if name.endswith(("reward_mean", "return_mean")):
                entry |= {f"eval/{name}_low": low, f"eval/{name}_high": high}
        return entry

    def save(self, folder: str | Path) -> None:
        """Write `metrics.json`, `transcripts.jsonl` to read, and `rollout.jsonl` to load.

        Args:
            folder: made where it is missing. `Rollout.load` reads its `rollout.jsonl`, and `load`
                all of it.
        """
        place = Path(folder)
        save_transcripts(self.rollout, place / TRANSCRIPTS)  # makes the folder
        self.rollout.save(place / ROLLOUT)
        told = {"metrics": self.metrics, "intervals": self.intervals}
        (place / METRICS).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")

    def save_transcripts(self, path: str | Path) -> None:
        """Write one JSON object per episode to a file; see `motet.algos.evaluations.episodes`."""
        save_transcripts(self.rollout, path)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what `save` wrote."""
        told = json.loads((Path(folder) / METRICS).read_text(encoding="utf-8"))
        intervals = {name: (low, high) for name, (low, high) in told["intervals"].items()}
        return cls(told["metrics"], Rollout.load(Path(folder) / ROLLOUT), intervals)


METRICS, TRANSCRIPTS, ROLLOUT = "metrics.json", "transcripts.jsonl", "rollout.jsonl"


def evaluate(  # noqa: PLR0913  # each is a choice of its own
    env: ParallelTextEnv,
    agents: Team,
    rows: Sequence[int] | None = None,
    *,
    num_samples: int = 1,
    best_of: int = 1,
    do_sample: bool = True,
    seed: int = 0,
    progress_bar: bool = False,
) -> Evaluation:
    """Play whole episodes and average their rewards.

    Episodes are those of the env: one that it ends early, for having met the goal, has no later
    turns, in evaluation as in training.

    Args:
        env: as for `collect_rollouts`.
        agents: agent by name, or a `JointPolicy`.
        rows: dataset rows (default: all, unless they are a stream), or seeds for an env without a
            dataset.
        num_samples: episodes per row, in each of which random wrappers draw anew; of a seed s,
            those of the seeds s * num_samples onwards.
        best_of: joint completions that are tried in each turn, of which the one that the turn pays
            most for is played. It looks at the rewards, which no team can: an upper bound for what
            these agents can say, not a policy.
        do_sample: False takes the most likely tokens instead of sampling.
        seed: makes the result reproducible.
        progress_bar: show how many episodes have ended.

    Raises:
        ValueError: where `rows` is missing for an env without a dataset or with a stream, a number
            is below 1, or the best is asked for of completions that are all the same.
    """
    inner = text_env_of(env)
    rows = _checked_rows(env, rows)
    for name, number in (("num_samples", num_samples), ("best_of", best_of)):
        if number < 1:
            raise ValueError(f"Expected {name} of at least 1, got {number}.")
    if best_of > 1 and not do_sample:
        raise ValueError(
            f"Expected do_sample=True with best_of={best_of}, got False: the most likely "
            "completions are the same each time."
        )
    if not do_sample:
        agents = greedy_team(agents)
    # without rows, the samples of one seed must not share the env's noise
    repeated = [
        row if inner is not None else row * num_samples + sample
        for row in rows
        for sample in range(num_samples)
    ]
    with episode_bar(len(repeated), visible=progress_bar) as on_turn:
        rollout = collect_rollouts(
            env,
            agents,
            repeated,
            num_generations=best_of,
            branches="best",
            seed=seed,
            on_turn=on_turn,
        )
    num_turns = None if inner is None else inner.num_turns
    return Evaluation.of(best_chains(rollout), num_turns=num_turns)


def _checked_rows(env: ParallelTextEnv, rows: Sequence[int] | None) -> Sequence[int]:
    if rows is not None:
        return rows
    inner = text_env_of(env)
    if inner is None:
        raise ValueError(
            "Expected rows=, the seeds of the episodes, for an env without a dataset; got None."
        )
    if stream_of(env) is not None:
        raise ValueError(
            "Expected rows=, such as range(100), for an env with a stream, whose length is "
            "unknown; got None."
        )
    return range(len(inner.dataset))
