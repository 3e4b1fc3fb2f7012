"""One text task as a PettingZoo parallel environment.

A task is a dataset, prompt formatters, a reward function and, where it has several turns, a
transition that writes the next prompts. One `step` is one turn: every agent answers its prompt at
the same time.

    env = TextEnv(dataset=[{"prompt": "Rain"}], reward_func=lambda first, second: [1.0])
    observations, infos = env.reset(seed=0)
    while env.agents:
        actions = {name: "some text" for name in env.agents}
        observations, rewards, terminations, truncations, infos = env.step(actions)

The last turn ends with `terminations`, not `truncations`: the turn limit is part of the task, and a
learner that bootstraps from truncated episodes would otherwise see value beyond it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import gymnasium
import numpy as np
from pettingzoo import ParallelEnv

from motet.envs.data.row_sampler import make_sampler
from motet.envs.data.sources import DataSource, checked_index, known_num_rows
from motet.envs.registration.by_id import EnvSpec
from motet.envs.task.early_termination import EarlyTermination
from motet.envs.task.parts import (
    Dataset,
    Formatter,
    check_rows_and_seeds,
    check_sequence,
    checked_agent_names,
)
from motet.envs.task.reward_processors import RewardProcessor
from motet.envs.task.text_task import TextTask
from motet.envs.task.turn_order import Acting
from motet.envs.text_space import TextSpace
from motet.envs.text_state import ResetResult, StepResult, TextState
from motet.envs.transcript import Transcript, format_transcript, print_transcript, transcript_of
from motet.envs.workers.reward_workers import RewardWorkers


class TextEnv(ParallelEnv[str, str, str]):  # type: ignore[misc]  # PettingZoo is untyped here
    """A text task that several agents act in at the same time.

    Args:
        dataset: rows, each a mapping with at least the column `prompt`: a list of dicts, a
            `datasets.Dataset`, anything indexable, the path of a file as for `load_rows`, or a
            streaming `datasets.IterableDataset`, read as `StreamedRows`.
        reward_func: scores joint actions; the contract is that of
            `motet.envs.task.joint_reward.JointReward`.
        transition: writes the prompts of the next turn; the contract is that of
            `motet.envs.task.transition.Transition`.
        formatters: `f(row) -> str` for the first prompts, one for all agents or one per agent, in
            their order or by name. Default: the row's `prompt`.
        num_agents: N.
        agent_names: (N,) names; default `agent_0`, `agent_1`, ...
        num_turns: turns of an episode.
        acting: who acts in which turn, where not everybody does: for each turn the names of the
            agents that act, repeated from the start where there are more turns, or a function
            (`motet.envs.task.turn_order.TurnOrder`). `step` takes an action of the others too and
            ignores it: reward function and transition get empty texts for them.
        early_termination_threshold: a group of sibling joint actions (see `step_batch`) ends when
            its mean reward is strictly above this; None switches it off.
        early_termination: "group" judges the mean of the group and ends all of it. "branch"
            judges each joint action by its own reward and credits one that stops early with its
            reward once more for every turn that it did not need, so that success is never worth
            less than missing on purpose.
        reward_processor: applied to each reward; thresholds see the processed value.
        column_mapping: new names of columns by old ones, such as `{"question": "prompt"}`.
        reward_workers: for a slow reward function, how many threads call it, or `RewardWorkers`,
            which can be processes and have a time limit. Each call then scores one joint action.
            By default one call scores all, in this thread.
        shuffle: visit the rows in a new random order on each pass instead of in their own; those
            of a stream by blocks of half the rows that `StreamedRows` keeps.
        render_mode: "ansi" makes `render` return the transcript as text; "human" prints each turn
            as it is played, and makes `render` print the whole.

    Raises:
        TypeError: where an argument is of another type or a function's parameters cannot be
            filled.
        ValueError: where the arguments contradict each other or the dataset is unusable.
    """

    metadata = {  # noqa: RUF012  # PettingZoo's name and type
        "name": "text_env",
        "render_modes": ["ansi", "human"],
        "is_parallelizable": True,
    }
    spec: EnvSpec | None = None

    def __init__(  # noqa: PLR0913  # the parts of a task; a dataclass would only rename them
        self,
        dataset: DataSource,
        reward_func: Callable[..., Any],
        *,
        transition: Callable[..., Sequence[str]] | None = None,
        formatters: Formatter | Sequence[Formatter] | Mapping[str, Formatter] | None = None,
        num_agents: int = 2,
        agent_names: Sequence[str] | None = None,
        num_turns: int = 1,
        acting: Acting | None = None,
        early_termination_threshold: float | None = None,
        early_termination: EarlyTermination = "group",
        reward_processor: RewardProcessor | None = None,
        reward_workers: int | RewardWorkers | None = None,
        column_mapping: Mapping[str, str] | None = None,
        shuffle: bool = False,
        render_mode: Literal["ansi", "human"] | None = None,
    ) -> None:
        self.possible_agents = checked_agent_names(num_agents, agent_names)
        self.agents: list[str] = []
        self.render_mode = render_mode
        self._check_modes(shuffle)
        self._task = TextTask(
            self.possible_agents,
            dataset,
            reward_func,
            transition=transition,
            formatters=formatters,
            num_turns=num_turns,
            acting=acting,
            early_termination_threshold=early_termination_threshold,
            early_termination=early_termination,
            reward_processor=reward_processor,
            reward_workers=reward_workers,
            column_mapping=column_mapping,
        )
        self._observation_spaces = {name: TextSpace() for name in self.possible_agents}
        self._action_spaces = {name: TextSpace() for name in self.possible_agents}
        self._rows = make_sampler(self._task.dataset, shuffle=shuffle)
        self._state: TextState | None = None

    # --- the task -----------------------------------------------------------------------------

    @property
    def dataset(self) -> Dataset:
        """The rows."""
        return self._task.dataset

    @property
    def num_rows(self) -> int | None:
        """Number of rows in the dataset, None for a stream whose end was not seen yet."""
        return known_num_rows(self.dataset)

    @property
    def num_turns(self) -> int:
        """Turns of an episode that nothing ends early."""
        return self._task.num_turns

    @property
    def early_termination_threshold(self) -> float | None:
        """What the mean reward of a group, or a branch's reward, must be above to end it."""
        return self._task.early_termination_threshold

    @property
    def early_termination(self) -> EarlyTermination:
        """Whether groups or branches end early."""
        return self._task.early_termination

    # --- PettingZoo's interface ---------------------------------------------------------------

    def observation_space(self, agent: str) -> TextSpace:
        """Return the space of prompts: any text."""
        self._check_name(agent)
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> TextSpace:
        """Return the space of completions: any text."""
        self._check_name(agent)
        return self._action_spaces[agent]

    @property
    def np_random(self) -> np.random.Generator:
        """The env's own random generator; seeded by `reset(seed=...)`."""
        return self._rows.rng

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
        """Start an episode on the next row.

        Args:
            seed: restarts the order of rows; the same seed gives the same episodes.
            options: `{"row": i}` picks dataset row i and leaves the order alone.

        Returns:
            Prompt by agent, and info by agent with `row`, `turn` (0) and `acts`.

        Raises:
            IndexError: where `options["row"]` is no row of the dataset.
            TypeError: where it is no integer, or `options` no mapping.
        """
        if options is not None and not isinstance(options, Mapping):
            raise TypeError(f"Expected a mapping such as {{'row': 0}} as options, got {options!r}.")
        row = (options or {}).get("row")
        if row is not None:
            row = checked_index(self.dataset, row, "options['row']")
        if seed is not None:
            self._rows.seed(seed)
        self._state = self.initial_state(self._rows.next_row() if row is None else row)
        self.agents = self.possible_agents[:]
        observations = dict(zip(self.agents, self._state.observations[0], strict=True))
        return observations, self.infos(self._state)

    def step(
        self, actions: Mapping[str, str]
    ) -> tuple[
        dict[str, str],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """Play one turn.

        Args:
            actions: one text for every agent in `agents`.

        Returns:
            Observations, rewards, terminations, truncations and infos, each by agent.

        Raises:
            ValueError: where an agent's action is missing or an unknown agent acts, or where a
                reward is not finite.
            TypeError: where an action is not a string, or `actions` no mapping.
            gymnasium.error.ResetNeeded: before the first `reset` and after the end.
        """
        if self._state is None or self._state.ended:
            raise gymnasium.error.ResetNeeded(
                "Expected a running episode, got step() "
                f"{'before reset()' if self._state is None else 'after its end'}; call reset()."
            )
        result = self.step_batch([self._state], [actions])[0]
        self._state = result.state
        if result.state.ended:
            self.agents = []
        if self.render_mode == "human":
            played = self._transcript(result.state)
            turn = result.state.turn
            print_transcript(replace(played, turns=played.turns[:turn]), first_turn=turn)
        return result.five_dicts

    def state(self) -> np.ndarray[Any, Any]:
        """Return the global view: (N,) texts, each agent's whole transcript so far."""
        return np.array(self._transcripts(self._current()), dtype=object)

    def render(self) -> str | None:
        """Return the transcript of the episode, or print it when `render_mode` is "human"."""
        if self.render_mode is None:
            gymnasium.logger.warn('render() needs render_mode="ansi" or "human"; got None.')
            return None
        transcript = self._transcript(self._current())
        if self.render_mode == "ansi":
            return format_transcript(transcript)
        print_transcript(transcript)
        return None

    def close(self) -> None:
        """End the reward workers. The env and its clones stay usable: a step starts others."""
        self._task.close()

    def set_reward_workers(self, reward_workers: int | RewardWorkers | None) -> None:
        """Let others call the reward function from here on; clones made before keep theirs.

        Args:
            reward_workers: as for the constructor.

        Raises:
            TypeError: where they are something else, or the function cannot go to processes.
            ValueError: where their number is below 1.
        """
        self._task = self._task.with_reward_workers(reward_workers)

    def __str__(self) -> str:
        return self.spec.id if self.spec is not None else str(self.metadata["name"])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    # --- snapshots ----------------------------------------------------------------------------

    def get_state(self) -> TextState:
        """Return a snapshot of the running episode and of the order of rows.

        Raises:
            gymnasium.error.ResetNeeded: before the first `reset`.
        """
        return self._current().ordered(self._rows.order())

    def set_state(self, state: TextState, *, seed: int | None = None) -> None:
        """Go to a snapshot of this env or of a clone of it.

        Args:
            state: what `get_state` returned.
            seed: gives the env a random stream of its own from here on; by default the snapshot's
                stream goes on, so that a replay is identical.

        Raises:
            TypeError: where `state` is something else.
            ValueError: where it is of an env with other agents, or beyond the turns or rows here.
        """
        self._task.check_state(state)
        self._rows.restore(state.order, seed=seed)  # first, since it refuses a wrong seed
        self._state = state
        self.agents = [] if state.ended else self.possible_agents[:]

    def clone(self, *, seed: int | None = None) -> Self:
        """Return an independent env at the same point, sharing dataset and functions.

        Args:
            seed: as in `set_state`.
        """
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.agents = self.agents[:]
        twin._observation_spaces = {name: s.copy() for name, s in self._observation_spaces.items()}
        twin._action_spaces = {name: s.copy() for name, s in self._action_spaces.items()}
        twin._rows = self._rows.copy(seed=seed)
        return twin

    # --- batched stepping ---------------------------------------------------------------------

    def next_row(self) -> int:
        """Move the order of rows on, and return the row that `reset()` would have started on."""
        return self._rows.next_row()

    def reset_batch(
        self, rows: Sequence[int], *, seeds: Sequence[int] | None = None
    ) -> list[ResetResult]:
        """Start an episode on each of several rows, without entering any.

        Args:
            rows: (B,) dataset rows.
            seeds: (B,) seeds for what wrappers draw; the task itself draws nothing but rows.

        Returns:
            (B,) results, whose states go to `step_batch`.

        Raises:
            IndexError: where there is no such row.
            TypeError: where `rows` or `seeds` are no lists.
            ValueError: where the number of seeds is another.
        """
        check_sequence("rows", rows)
        check_rows_and_seeds(rows, seeds)
        # by the two methods that `reset` calls: a subclass may have its own
        order = self._rows.order()
        states = [self.initial_state(row).ordered(order) for row in rows]
        return [
            ResetResult(
                state,
                dict(zip(self.possible_agents, state.observations[0], strict=True)),
                self.infos(state),
            )
            for state in states
        ]

    def initial_state(self, row: int) -> TextState:
        """Return the state at the start of an episode on a dataset row, without entering it.

        Raises:
            IndexError: where there is no such row.
            TypeError: where it is no integer, or a formatter returns no string.
            ValueError: where a formatter returns a text outside the observation space.
        """
        return self._task.initial_state(row)

    def infos(self, state: TextState) -> dict[str, dict[str, Any]]:
        """Return what each agent is told beside its prompt, in fresh dicts.

        `row` and `turn` say where the episode stands, `acts` whether the agent's action in the
        coming turn counts.
        """
        return self._task.infos(state)

    def step_batch(
        self,
        states: Sequence[TextState],
        joint_actions: Sequence[Mapping[str, str]],
        groups: Sequence[int] | None = None,
    ) -> list[StepResult]:
        """Play one turn from many states at once, with one call of the reward function.

        The env's own episode is left alone. `step` is this function with one state.

        Args:
            states: (J,) states that have not ended.
            joint_actions: (J,) action by agent.
            groups: (J,) which group each joint action belongs to: the siblings sampled from one
                state, judged together by early termination. Default: each is its own group.

        Returns:
            (J,) results.

        Raises:
            ValueError: as `step`; also where the lengths differ, or a state has ended or is of
                another env.
            TypeError: as `step`; also where an argument is no list.
        """
        return self._task.step(states, joint_actions, groups)

    # --- parts --------------------------------------------------------------------------------

    def _current(self) -> TextState:
        if self._state is None:
            raise gymnasium.error.ResetNeeded("Expected a started episode; call reset() first.")
        return self._state

    def _transcript(self, state: TextState) -> Transcript:
        return transcript_of(
            state,
            env=str(self),
            agent_names=self.possible_agents,
            acting=lambda turn: self._task.acting(state, turn),
        )

    def _transcripts(self, state: TextState) -> list[str]:
        histories = state.histories(self.possible_agents)
        shown = []
        for i, name in enumerate(self.possible_agents):
            turns = [f"> {seen}\n{said}" for seen, said in histories[name]]
            if not state.ended:
                turns.append(f"> {state.observations[-1][i]}")
            shown.append("\n".join(turns))
        return shown

    def _check_modes(self, shuffle: bool) -> None:
        if not isinstance(shuffle, bool):
            raise TypeError(f"Expected True or False as shuffle, got {shuffle!r}.")
        if self.render_mode not in (None, "ansi", "human"):
            raise ValueError(
                f"Expected 'ansi', 'human' or None as render_mode, got {self.render_mode!r}."
            )

    def _check_name(self, agent: str) -> None:
        if agent not in self.possible_agents:
            raise KeyError(f"Expected an agent of {self.possible_agents}, got {agent!r}.")
