"""One run of `make compare`: a learner trains on a task from one seed.

It is run in a process of its own, `python comparison_run.py WORK.json RESULT.json`. Seconds are
those of the processor, sampling and updates in one thread; evaluations and loading do not count.
"""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch
from comparison_chains import register_chains
from comparison_rows import LEARNERS, SAMPLING, TASKS, Task
from training_work import versions_of

from motet import algos, envs
from motet.agents import Completion, GenerationConfig, LMAgent
from motet.agents.embedded import pocket_path
from motet.algos import registration


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWork:
    """A cell of the comparison.

    Attributes:
        learner: name of a row.
        task: name of a task.
        seed: of sampling and of the order of rows.
        budget: completions to sample while training.
        num_points: evaluations while training, evenly spaced; the one before is one more.
        num_samples: episodes per held-out row in each of them; in the last one three times as many.
    """

    learner: str
    task: str
    seed: int
    budget: int
    num_points: int = 6
    num_samples: int = 4

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the result, beside the code."""
        config = LEARNERS[self.learner].config(TASKS[self.task], self.budget, self.seed)
        return {**asdict(self), **SAMPLING, "config": config}


@dataclass(frozen=True, slots=True)
class Point:
    """An evaluation on held-out rows.

    Attributes:
        env_steps: joint completions rewarded so far while training.
        completions: sampled so far while training, by all agents.
        tokens: of those completions.
        seconds: of processor time so far, evaluations aside.
        reward: mean return of an episode over the best that there is.
    """

    env_steps: int
    completions: int
    tokens: int
    seconds: float
    reward: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run leaves in its file.

    Attributes:
        settings: those of its work.
        points: evaluations, the first before training.
        texts: of the last evaluation, one episode of each of the first held-out rows: by agent, the
            text of each turn.
        wall_s: seconds on the clock, loading and evaluations included.
        commit: of the code, "" where the process does not know.
        machine: what it ran on.
        versions: of the libraries.
    """

    settings: dict[str, Any]
    points: list[Point]
    texts: list[dict[str, list[str]]] = field(default_factory=list)
    wall_s: float
    commit: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    versions: str = ""

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        partial.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote."""
        return cls.from_line(path.read_text(encoding="utf-8"))

    def to_line(self) -> str:
        """Return JSON on one line, without the texts."""
        return json.dumps(asdict(replace(self, texts=[])))

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Read JSON that `to_line` returned."""
        fields = json.loads(line)
        return cls(**{**fields, "points": [Point(**point) for point in fields["points"]]})


class CountedAgent(LMAgent):
    """A language model that counts what is sampled from it, whoever asks."""

    num_completions = 0
    num_tokens = 0

    def act(self, *args: Any, **kwargs: Any) -> list[list[Completion]]:
        """Answer, and count the answers."""
        groups = super().act(*args, **kwargs)
        CountedAgent.num_completions += sum(map(len, groups))
        CountedAgent.num_tokens += sum(len(c.completion_ids) for group in groups for c in group)
        return groups


class Curve:
    """A logger that evaluates a learner at even distances and keeps account of what it spent.

    Attributes:
        points: evaluations so far.
        last: the newest evaluation in full.
    """

    def __init__(self, work: RunWork) -> None:
        self.points: list[Point] = []
        self.last: algos.Evaluation | None = None
        self._work = work
        self._best = TASKS[work.task].best_return
        self._spent = (0, 0, 0.0)
        self._mark = self._now()
        self._due = 1
        self._step = 0

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Account for the rollout that ended, and evaluate where it is time for that.

        What passed before the entry of an evaluation is the learner's own evaluation.
        """
        if "rollout/reward_mean" in metrics:
            self._step = step
            self.account()
            if self._spent[0] * self._work.num_points >= self._due * self._work.budget:
                self._due += 1
                if self._due <= self._work.num_points:  # the last one comes after training
                    self.evaluate()
        self._mark = self._now()

    def close(self) -> None:
        """Do nothing."""

    def watch(self, learner: algos.Algorithm) -> None:
        """Evaluate a learner from now on, beginning at once."""
        self._learner = learner
        self.evaluate()

    def account(self) -> None:
        """Count what was spent since the last entry as training."""
        now = self._now()
        completions, tokens, seconds = (
            spent + end - start
            for spent, end, start in zip(self._spent, now, self._mark, strict=True)
        )
        self._spent, self._mark = (int(completions), int(tokens), seconds), now

    def evaluate(self, *, times: int = 1) -> None:
        """Evaluate without counting it, and keep the point."""
        self.last = self._learner.evaluate(num_samples=times * self._work.num_samples)
        reward = self.last.metrics["return_mean"] / self._best
        completions, tokens, seconds = self._spent
        self.points.append(Point(self._step, completions, tokens, seconds, reward))
        self._mark = self._now()

    @staticmethod
    def _now() -> tuple[int, int, float]:
        return CountedAgent.num_completions, CountedAgent.num_tokens, time.process_time()


def do(work: RunWork) -> RunResult:
    """Train and evaluate."""
    begun = time.perf_counter()
    torch.set_num_threads(1)
    register_chains()
    task, row = TASKS[work.task], LEARNERS[work.learner]
    frozen = row.spending == "choices"
    env = envs.make(task.env_id, shuffle=frozen, **task.kwargs)
    curve = Curve(work)
    learner = algos.make(
        row.algorithm,
        env,
        {name: make_writer(frozen=frozen) for name in env.possible_agents},
        registration.spec(row.algorithm).config_class(**work.settings["config"]),
        eval_env=envs.make(task.env_id, split="eval", **task.kwargs),
        loggers=[curve],
    )
    curve.watch(learner)
    learner.train()
    curve.evaluate(times=3)
    return RunResult(
        settings=work.settings,
        points=curve.points,
        texts=texts_of(curve.last, task),
        wall_s=time.perf_counter() - begun,
        versions=versions_of("motet", "transformers", "torch"),
    )


def make_writer(*, frozen: bool = False) -> CountedAgent:
    """Return the embedded model, with the comparison's sampling."""
    return CountedAgent.from_pretrained(
        pocket_path(), device="cpu", generation=GenerationConfig(**SAMPLING), frozen=frozen
    )


def texts_of(
    evaluation: algos.Evaluation | None, task: Task, limit: int = 3
) -> list[dict[str, list[str]]]:
    """Return what was written in the first episode of each of the first rows."""
    if evaluation is None:
        return []
    found: dict[int, dict[str, list[str]]] = {}
    for level in evaluation.rollout.levels:
        seen = set()
        for node in level:
            if node.row in seen or node.row >= limit:
                continue
            seen.add(node.row)
            said = found.setdefault(node.row, {})
            for agent, group in node.completions.items():
                said.setdefault(agent, []).append(group[0].text)
    return list(found.values())


def main() -> None:
    """Do the work of the file named first on the command line; write into the second."""
    source, target = (Path(argument) for argument in sys.argv[1:])
    do(RunWork(**json.loads(source.read_text(encoding="utf-8")))).save(target)


if __name__ == "__main__":
    main()
