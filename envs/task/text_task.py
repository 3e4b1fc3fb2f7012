"""The rules of a text task: how episodes begin, and how a turn is played from any state.

`TextEnv` is the shell around it that keeps an episode of its own. A task keeps none: it goes from
state to state, many at once, and clones of an env share it.
"""

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Self

from motet.envs.data.sources import (
    DataSource,
    check_prompts,
    checked_index,
    checked_row,
    dataset_columns,
    known_num_rows,
    open_dataset,
)
from motet.envs.task.early_termination import EarlyTermination, early_stops, turns_credited
from motet.envs.task.joint_action import checked_texts, text_error
from motet.envs.task.joint_reward import JointReward
from motet.envs.task.parts import (
    Formatter,
    Row,
    check_sequence,
    checked_count,
    checked_number,
    one_formatter_each,
)
from motet.envs.task.reward_processors import RewardProcessor
from motet.envs.task.transition import Transition
from motet.envs.task.turn_order import Acting, TurnOrder
from motet.envs.text_space import TextSpace
from motet.envs.text_state import StepResult, TextState, check_running, check_state_fits
from motet.envs.workers.reward_workers import RewardWorkers, checked_reward_workers

_TEXTS = TextSpace()  # what observations and actions lie in


class TextTask:
    """Begin episodes and play turns. The arguments are those of `TextEnv`.

    Args:
        agent_names: (N,) names.
        dataset: where rows come from.
        reward_func: scores joint actions.
        transition: writes the next prompts.
        formatters: write the first prompts.
        num_turns: turns of an episode.
        acting: who acts in which turn.
        early_termination_threshold: what ends an episode early.
        early_termination: what it is compared with.
        reward_processor: applied to each reward.
        reward_workers: who calls `reward_func`.
        column_mapping: new names of columns by old ones.

    Raises:
        TypeError: where an argument is of another type or a function's parameters cannot be
            filled.
        ValueError: where the arguments contradict each other or the dataset is unusable.
    """

    def __init__(  # noqa: PLR0913  # the parts of a task; a dataclass would only rename them
        self,
        agent_names: Sequence[str],
        dataset: DataSource,
        reward_func: Callable[..., Any],
        *,
        transition: Callable[..., Sequence[str]] | None,
        formatters: Formatter | Sequence[Formatter] | Mapping[str, Formatter] | None,
        num_turns: int,
        acting: Acting | None,
        early_termination_threshold: float | None,
        early_termination: EarlyTermination,
        reward_processor: RewardProcessor | None,
        reward_workers: int | RewardWorkers | None,
        column_mapping: Mapping[str, str] | None,
    ) -> None:
        self.agents = list(agent_names)
        self.dataset = open_dataset(dataset, column_mapping)
        self.num_turns = checked_count("num_turns", num_turns)
        self.early_termination_threshold = (
            None
            if early_termination_threshold is None
            else checked_number("early_termination_threshold", early_termination_threshold)
        )
        self.early_termination = early_termination
        self._check_turns(transition)
        self._formatters = one_formatter_each(formatters, self.agents)
        self._columns = dataset_columns(self.dataset)
        if formatters is None:
            check_prompts(self.dataset)
        self._reward = JointReward(
            reward_func,
            reward_processor,
            self.agents,
            self._columns,
            checked_reward_workers(reward_workers),
        )
        self._transition = None if transition is None else Transition(transition)
        self._turn_order = TurnOrder(acting, self.agents)
        self._spaces = dict.fromkeys(self.agents, _TEXTS)

    def initial_state(self, row: int) -> TextState:
        """Return the state at the start of an episode on a dataset row.

        Raises:
            IndexError: where there is no such row.
            TypeError: where it is no integer, or a formatter returns no string.
            ValueError: where a formatter returns a text outside the observation space.
        """
        row = checked_index(self.dataset, row, "row")
        item = self._row(row)
        prompts = tuple(formatter(item) for formatter in self._formatters)
        for name, prompt in zip(self.agents, prompts, strict=True):
            if prompt not in _TEXTS:
                raise text_error(prompt, f"the prompt of {name} for row {row}")
        return TextState(row, (prompts,))

    def infos(self, state: TextState) -> dict[str, dict[str, Any]]:
        """Return what each agent is told beside its prompt, in fresh dicts.

        `row` and `turn` say where the episode stands, `acts` whether the agent's action in the
        coming turn counts.
        """
        acting = self.acting(state)
        return {
            name: {"row": state.row, "turn": state.turn, "acts": name in acting}
            for name in self.agents
        }

    def step(
        self,
        states: Sequence[TextState],
        joint_actions: Sequence[Mapping[str, str]],
        groups: Sequence[int] | None = None,
    ) -> list[StepResult]:
        """Play one turn from many states at once, with one call of the reward function.

        Args:
            states: (J,) states that have not ended.
            joint_actions: (J,) action by agent.
            groups: (J,) which group each joint action belongs to: the siblings sampled from one
                state, judged together by early termination. Default: each is its own group.

        Returns:
            (J,) results.

        Raises:
            ValueError: as `TextEnv.step`; also where the lengths differ, or a state has ended or
                is of another env.
            TypeError: as `TextEnv.step`; also where an argument is no list.
        """
        check_sequence("states", states)
        check_sequence("joint actions", joint_actions)
        check_sequence("groups", states if groups is None else groups)
        num_groups = len(states if groups is None else groups)
        if len(states) != len(joint_actions) or len(states) != num_groups:
            raise ValueError(
                f"Expected as many joint actions and groups as states, got {len(states)} states, "
                f"{len(joint_actions)} joint actions and {num_groups} groups."
            )
        for state in states:
            self.check_state(state)
        check_running(states)
        texts = [
            self._heard(state, checked_texts(actions, self._spaces))
            for state, actions in zip(states, joint_actions, strict=True)
        ]
        if not texts:
            return []
        # each distinct row once, and in order: what streams read fastest
        read = {row: self._row(row) for row in sorted({state.row for state in states})}
        rows = [read[state.row] for state in states]
        rewards = self._reward(states, texts, rows)
        stops = early_stops(
            rewards,
            range(len(states)) if groups is None else groups,
            self.early_termination_threshold,
            self.early_termination,
        )
        return [
            self._advance(state, row, said, reward, stop)
            for state, row, said, reward, stop in zip(
                states, rows, texts, rewards, stops, strict=True
            )
        ]

    def check_state(self, state: TextState) -> None:
        """Raise where a state cannot be of this task; see `check_state_fits`."""
        check_state_fits(state, len(self.agents), self.num_turns, known_num_rows(self.dataset))

    def acting(self, state: TextState, turn: int | None = None) -> Collection[str]:
        """Return who acts in a turn, 1 for the first; by default in the coming one."""
        if self._turn_order.is_everybody:
            return self.agents
        if turn is None:
            if state.ended:
                return ()
            turn = state.turn + 1
        return self._turn_order(turn, self._row(state.row))

    def with_reward_workers(self, workers: int | RewardWorkers | None) -> Self:
        """Return the same task with others to call its reward function; see `TextEnv`."""
        twin = copy.copy(self)
        twin._reward = self._reward.with_workers(checked_reward_workers(workers))
        return twin

    def close(self) -> None:
        """End the reward workers; the next turn starts others."""
        self._reward.close()

    def _advance(
        self,
        state: TextState,
        row: Row,
        texts: tuple[str, ...],
        reward: tuple[float, ...],
        stop: bool,
    ) -> StepResult:
        turn = state.turn + 1
        ended = stop or turn == self.num_turns
        times = turns_credited(turn, self.num_turns, stopped=stop, mode=self.early_termination)
        credited = tuple([value * times for value in reward]) if times > 1 else reward
        after = state.after(texts, credited, ended=ended)
        seen = ("",) * len(texts)
        if not ended:
            assert self._transition is not None  # num_turns > 1 was checked when it was built
            seen = self._transition(after, row, reward)
            after = after.seeing(seen)
        infos = self.infos(after)
        for info, value in zip(infos.values(), reward, strict=True):
            info["turn_reward"] = value
            info["turns_credited"] = times
        names = self.agents
        return StepResult(
            state=after,
            observations=dict(zip(names, seen, strict=True)),
            rewards=dict(zip(names, credited, strict=True)),
            terminations=dict.fromkeys(names, ended),
            truncations=dict.fromkeys(names, False),
            infos=infos,
            credit=None if times == 1 else (dict(zip(names, reward, strict=True)), times),
        )

    def _heard(self, state: TextState, texts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the texts with those of agents that do not act this turn emptied."""
        if self._turn_order.is_everybody:
            return texts
        acting = self.acting(state)
        named = zip(self.agents, texts, strict=True)
        return tuple([text if name in acting else "" for name, text in named])

    def _row(self, index: int) -> Row:
        return checked_row(self.dataset, index, self._columns)

    def _check_turns(self, transition: Callable[..., Sequence[str]] | None) -> None:
        if self.num_turns > 1 and transition is None:
            raise ValueError(
                f"Expected a transition for num_turns={self.num_turns}, got None: something must "
                "write the prompts of the second turn. Pass transition=, or num_turns=1."
            )
        if self.early_termination not in ("group", "branch"):
            raise ValueError(
                f"Expected early_termination 'group' or 'branch', got {self.early_termination!r}."
            )
