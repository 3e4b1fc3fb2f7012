"""What both trainers of `make bench-learning` do: train until the mean reward reaches a goal.

A side is a file that is run in a process of its own, `python SIDE.py WORK.json LEARNED.json`.
"""

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from training_work import Work, work_from


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningWork:
    """A task, and when it is learnt.

    Attributes:
        work: settings of training; its prompts come again and again, in their order, and
            `prompts_at_once` of them make an update.
        goal: mean reward to reach.
        window: prompts that the mean is over, the last ones.
        max_prompts: prompts after which to give up.
        cut_padding: mend CoMLRL, which would train on the padding after a completion's end.
    """

    work: Work
    goal: float
    window: int
    max_prompts: int
    cut_padding: bool = False


@dataclass(slots=True)
class Learned:
    """What was earned when.

    Attributes:
        rewards: mean reward of each prompt's completions, in the order of training.
        seconds: of training up to and with the update after that prompt, or with its sampling
            where the update waits for more prompts.
        updates: of each agent, up to then.
        versions: of the libraries.
    """

    rewards: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    updates: list[float] = field(default_factory=list)
    versions: str = ""

    def add(self, reward: float, seconds: float, updates: float) -> None:
        """Add a prompt."""
        self.rewards.append(reward)
        self.seconds.append(seconds)
        self.updates.append(updates)


def first_reached(rewards: Sequence[float], goal: float, window: int) -> int | None:
    """Return the first prompt at which the mean over the last `window` ones reaches the goal."""
    for end in range(window, len(rewards) + 1):
        if statistics.fmean(rewards[end - window : end]) >= goal:
            return end - 1
    return None


def is_over(learning: LearningWork, learned: Learned) -> bool:
    """Whether the goal is reached, or the prompts are used up."""
    reached = first_reached(learned.rewards, learning.goal, learning.window)
    return reached is not None or len(learned.rewards) >= learning.max_prompts


def run_learning(do: Callable[[LearningWork], Learned]) -> None:
    """Do the work of the file named first on the command line; write into the second.

    A first update on short completions is not counted: it loads what is loaded late.
    """
    source, target = (Path(argument) for argument in sys.argv[1:])
    fields = json.loads(source.read_text(encoding="utf-8"))
    learning = LearningWork(**{**fields, "work": work_from(fields["work"])})
    short = replace(learning.work, num_generations=4, max_new_tokens=4)
    do(replace(learning, work=short, max_prompts=short.prompts_at_once))
    target.write_text(json.dumps(asdict(do(learning))), encoding="utf-8")
