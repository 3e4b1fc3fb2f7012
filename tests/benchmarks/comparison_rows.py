"""What `make compare` compares: tasks, learners, and what a run of one on the other is set to.

Every run samples the same number of completions while training, over all agents and turns, greedy
ones included: that is what a step of a language-model learner costs. How many there are in a row's
tree follows from the learner's `num_generations`; the number of passes over the rows follows from
that and from the budget, which has to be a whole number of passes.

Left out: `grpo` (`magrpo` with other defaults), `sb3-maskable-ppo` (`sb3-ppo` where nothing is
masked), `scripted` (whatever is given), and `centralised-magrpo` (the embedded model does not write
the tags by which its text is parted).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

NUM_AGENTS = 2
NUM_ROWS = 10
BUDGET = 1600

# How a learner spends completions: "trees" branch at every turn, "chains" are whole episodes side
# by side, "choices" are the steps of a learner that picks how each frozen writer is asked, and
# teams that are not trained spend nothing.
Spending = Literal["trees", "chains", "choices", "nothing"]
Family = Literal[
    "MAGRPO", "other baselines", "actor-critics", "preferences", "stable-baselines3", "not trained"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task of the comparison.

    Attributes:
        title: as in the report.
        env_id: registered name.
        num_turns: turns of an episode.
        best_return: highest sum of rewards over an episode, by which returns are divided.
    """

    title: str
    env_id: str
    num_turns: int
    best_return: float

    @property
    def kwargs(self) -> dict[str, Any]:
        """What the env is made with, beside its split."""
        return {"num_turns": self.num_turns}


TASKS = {
    "length-1": Task(
        title="story-length-ratio-v0, one turn",
        env_id="story-length-ratio-v0",
        num_turns=1,
        best_return=1.0,
    ),
    "length-2": Task(
        title="story-length-ratio-v0, two turns",
        env_id="story-length-ratio-v0",
        num_turns=2,
        best_return=2.0,
    ),
    "names": Task(
        title="story-name-match-v0", env_id="story-name-match-v0", num_turns=1, best_return=1.0
    ),
    "budget": Task(
        title="story-budget-v0",
        env_id="story-budget-v0",
        num_turns=2,
        best_return=1.0,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """A row of the comparison: a registered learner with settings.

    Attributes:
        algorithm: registered name.
        family: what it is listed and coloured with.
        num_generations: completions per agent and node, or chains per row: by number of turns.
        rows_per_rollout: rows of an update, by number of turns.
        spending: how it spends completions.
        joint_mode: how completions are joined.
        greedy: whether it adds a greedy joint completion to the end of the episode at every node.
        settings: further fields of its config.
        num_turns: numbers of turns that it is run on; the others would repeat another row.
    """

    algorithm: str
    family: Family
    num_generations: Mapping[int, int] = field(default_factory=lambda: {1: 8, 2: 4})
    rows_per_rollout: Mapping[int, int] = field(default_factory=lambda: {1: 2, 2: 1})
    spending: Spending = "trees"
    joint_mode: Literal["aligned", "cross"] = "aligned"
    greedy: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    num_turns: tuple[int, ...] = (1, 2)

    def completions_per_row(self, num_turns: int) -> int:
        """Return how many completions are sampled for a row of the dataset, by all agents.

        A tree has B^(t-1) nodes at turn t, where B joint completions go on from each: G if they are
        aligned, G^N if crossed. At each every agent samples G completions, and a greedy learner
        adds one for each turn that is left.
        """
        size = self.num_generations[num_turns]
        if self.spending == "chains":
            return NUM_AGENTS * size * num_turns
        branches = size if self.joint_mode == "aligned" else size**NUM_AGENTS
        greedy = [num_turns - t if self.greedy else 0 for t in range(num_turns)]
        return sum(NUM_AGENTS * branches**t * (size + greedy[t]) for t in range(num_turns))

    def num_epochs(self, num_turns: int, budget: int) -> int:
        """Return how many passes over the rows spend a budget.

        Raises:
            ValueError: where it is no whole number of passes.
        """
        each = NUM_ROWS * self.completions_per_row(num_turns)
        if budget < each or budget % each:
            raise ValueError(
                f"Expected a budget of a multiple of {each} completions, a pass of {self.algorithm}"
                f" over the rows of a task of {num_turns} turn(s), got {budget}."
            )
        return budget // each

    def config(self, task: Task, budget: int, seed: int) -> dict[str, Any]:
        """Return the fields of the learner's config for a run."""
        turns = task.num_turns
        if self.spending == "nothing":
            return {"seed": seed, **self.settings}
        if self.spending == "choices":
            return {"total_timesteps": budget, "seed": seed, **CHOICES, **self.settings}
        return {
            "num_train_epochs": self.num_epochs(turns, budget),
            "num_generations": self.num_generations[turns],
            "rollout_batch_size": self.rows_per_rollout[turns],
            "joint_mode": self.joint_mode,
            "seed": seed,
            **COMMON,
            **self.settings,
        }


SAMPLING: dict[str, Any] = {"max_new_tokens": 64, "temperature": 0.7}

COMMON: dict[str, Any] = {
    "agent_learning_rate": 1e-3,
    "lr_scheduler_type": "linear",
    "eval_interval": 0,
    "logging_steps": 1,
    "progress_bar": False,
}

# One list for all tasks: openings that lead to short and to long tales, and to some of the people.
CHOICES: dict[str, Any] = {
    "strategies": [
        "{prompt}",
        "{prompt} In the end,",
        "{prompt} Once, Ada",
        "{prompt} Once, Leo",
        "{prompt} Long ago, Ada",
        "{prompt} Long ago, Leo",
    ],
    "num_envs": 10,
    "learning_rate": 2e-3,
    "eval_interval": 0,
    "logging_steps": 1,
    "progress_bar": False,
}

_EPISODES: dict[str, Any] = {
    "num_generations": {1: 1, 2: 1},
    "rows_per_rollout": {1: 10, 2: 10},
}
_CRITIC: dict[str, Any] = {"critic_learning_rate": 1e-3}
_PPO: dict[str, Any] = {**_CRITIC, "train_batch_size": None, "num_iterations": 2}

LEARNERS = {
    "magrpo": Learner(algorithm="magrpo", family="MAGRPO"),
    "magrpo, mean only": Learner(
        algorithm="magrpo", family="MAGRPO", settings={"advantage_normalization": False}
    ),
    "magrpo, crossed": Learner(
        algorithm="magrpo", family="MAGRPO", joint_mode="cross", num_generations={1: 8, 2: 2}
    ),
    "magrpo, by turn": Learner(algorithm="magrpo", family="MAGRPO", settings={"group_by": "turn"}),
    "magrpo, by batch": Learner(
        algorithm="magrpo", family="MAGRPO", settings={"group_by": "batch"}
    ),
    "magrpo, chains": Learner(
        algorithm="magrpo-chains",
        family="MAGRPO",
        spending="chains",
        num_generations={2: 10},
        num_turns=(2,),
    ),
    "marloo": Learner(algorithm="marloo", family="other baselines"),
    "mareinforce": Learner(algorithm="mareinforce", family="other baselines"),
    "maremax": Learner(
        algorithm="maremax", family="other baselines", greedy=True, num_generations={1: 7, 2: 2}
    ),
    "maremax-group": Learner(algorithm="maremax-group", family="other baselines"),
    "rae": Learner(algorithm="rae", family="other baselines"),
    "iac": Learner(algorithm="iac", family="actor-critics", settings=_CRITIC, **_EPISODES),
    "maac": Learner(algorithm="maac", family="actor-critics", settings=_CRITIC, **_EPISODES),
    "ippo": Learner(algorithm="ippo", family="actor-critics", settings=_PPO, **_EPISODES),
    "mappo": Learner(algorithm="mappo", family="actor-critics", settings=_PPO, **_EPISODES),
    "madpo": Learner(algorithm="madpo", family="preferences"),
    "marlhf": Learner(
        algorithm="marlhf", family="preferences", settings={"reward_learning_rate": 1e-3}
    ),
    "sb3-ppo": Learner(
        algorithm="sb3-ppo", family="stable-baselines3", spending="choices", settings={"n_steps": 4}
    ),
    "sb3-a2c": Learner(
        algorithm="sb3-a2c", family="stable-baselines3", spending="choices", settings={"n_steps": 4}
    ),
    "sb3-dqn": Learner(algorithm="sb3-dqn", family="stable-baselines3", spending="choices"),
    "frozen": Learner(algorithm="frozen", family="not trained", spending="nothing"),
    "best-of-n": Learner(algorithm="best-of-n", family="not trained", spending="nothing"),
    "pipeline": Learner(algorithm="pipeline", family="not trained", spending="nothing"),
    "discussion": Learner(algorithm="discussion", family="not trained", spending="nothing"),
    "random": Learner(algorithm="random", family="not trained", spending="nothing"),
}
