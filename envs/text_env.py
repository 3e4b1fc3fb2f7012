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

from motet.envs.early_termination import EarlyTermination, early_stops, turns_credited
from motet.envs.registration import EnvSpec
from motet.envs.rewards import JointReward, RewardProcessor
from motet.envs.row_sampler import RowSampler
from motet.envs.task_parts import (
    Dataset,
    Formatter,
    checked_agent_names,
    checked_count,
    checked_index,
    checked_number,
    checked_row,
    dataset_columns,
    one_formatter_each,
)
from motet.envs.text_space import TextSpace
from motet.envs.text_state import StepResult, TextState
from motet.envs.transition import Transition


class TextEnv(ParallelEnv[str, str, str]):  # type: ignore[misc]  # PettingZoo is untyped here
    """A text task that several agents act in at the same time.

    Args:
        dataset: rows, each a mapping with at least the column `prompt`.
        reward_func: scores joint actions; `motet.envs.rewards.JointReward` has the contract.
        transition: writes the prompts of the next turn; `motet.envs.transition.Transition` has
            the contract.
        formatters: `f(row) -> str` for the first prompts, one for all agents or one per agent, in
            their order or by name. Default: the row's `prompt`.
        num_agents: N.
        agent_names: (N,) names; default `agent_0`, `agent_1`, ...
        num_turns: turns of an episode.
        early_termination_threshold: a group of sibling joint actions (see `step_batch`) ends when
            its mean reward is strictly above this; None switches it off.
        early_termination: "group" judges the mean of the group and ends all of it. "branch"
            judges each joint action by its own reward and credits one that stops early with its
            reward once more for every turn that it did not need, so that success is never worth
            less than missing on purpose.
        reward_processor: applied to each reward; thresholds see the processed value.
        shuffle: visit the rows in a new random order on each pass instead of in their own.
        render_mode: "ansi" makes `render` return the transcript, "human" prints it.

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
        dataset: Dataset,
        reward_func: Callable[..., Any],
        *,
        transition: Callable[..., Sequence[str]] | None = None,
        formatters: Formatter | Sequence[Formatter] | Mapping[str, Formatter] | None = None,
        num_agents: int = 2,
        agent_names: Sequence[str] | None = None,
        num_turns: int = 1,
        early_termination_threshold: float | None = None,
        early_termination: EarlyTermination = "group",
        reward_processor: RewardProcessor | None = None,
        shuffle: bool = False,
        render_mode: Literal["ansi", "human"] | None = None,
    ) -> None:
        self.possible_agents = checked_agent_names(num_agents, agent_names)
        self.agents: list[str] = []
        self.dataset = dataset
        self.num_turns = checked_count("num_turns", num_turns)
        self.early_termination_threshold = (
            None
            if early_termination_threshold is None
            else checked_number("early_termination_threshold", early_termination_threshold)
        )
        self.early_termination = early_termination
        self.render_mode = render_mode
        self._check_turns(transition)
        self._check_modes(shuffle)
        self._formatters = one_formatter_each(formatters, self.possible_agents)
        self._reward = JointReward(
            reward_func, reward_processor, self.possible_agents, dataset_columns(dataset)
        )
        self._transition = None if transition is None else Transition(transition)
        self._observation_spaces = {name: TextSpace() for name in self.possible_agents}
        self._action_spaces = {name: TextSpace() for name in self.possible_agents}
        self._rows = RowSampler(len(dataset), shuffle=shuffle)
        self._state: TextState | None = None

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
            self.render()
        return (
            result.observations,
            result.rewards,
            result.terminations,
            result.truncations,
            result.infos,
        )

    def state(self) -> np.ndarray[Any, Any]:
        """Return the global view: (N,) texts, each agent's whole transcript so far."""
        return np.array(self._transcripts(self._current()), dtype=object)

    def render(self) -> str | None:
        """Return the transcript of the episode, or print it when `render_mode` is "human"."""
        if self.render_mode is None:
            gymnasium.logger.warn('render() needs render_mode="ansi" or "human"; got None.')
            return None
        text = "\n\n".join(
            f"=== {name} ===\n{transcript}"
            for name, transcript in zip(
                self.possible_agents, self._transcripts(self._current()), strict=True
            )
        )
        if self.render_mode == "ansi":
            return text
        print(text)  # the meaning of render_mode="human"
        return None

    def close(self) -> None:
        """Do nothing: a text env holds no resources."""

    def __str__(self) -> str:
        return self.spec.id if self.spec is not None else str(self.metadata["name"])

    # --- snapshots ----------------------------------------------------------------------------

    def get_state(self) -> TextState:
        """Return a snapshot of the running episode and of the order of rows.

        Raises:
            gymnasium.error.ResetNeeded: before the first `reset`.
        """
        return replace(self._current(), order=self._rows.order())

    def set_state(self, state: TextState, *, seed: int | None = None) -> None:
        """Go to a snapshot of this env or of a clone of it.

        Args:
            state: what `get_state` returned.
            seed: gives the env a random stream of its own from here on; by default the snapshot's
                stream goes on, so that a replay is identical.

        Raises:
            TypeError: where `state` is something else.
        """
        if not isinstance(state, TextState):
            raise TypeError(f"Expected a state that get_state() returned, got {state!r}.")
        self._state = state
        self.agents = [] if state.ended else self.possible_agents[:]
        self._rows.restore(state.order, seed=seed)

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

    def initial_state(self, row: int) -> TextState:
        """Return the state at the start of an episode on a dataset row, without entering it.

        Raises:
            IndexError: where there is no such row.
            TypeError: where it is no integer, or a formatter returns no string.
            ValueError: where a formatter returns a text outside the observation space.
        """
        row = checked_index(self.dataset, row, "row")
        item = checked_row(self.dataset, row)
        prompts = tuple(formatter(item) for formatter in self._formatters)
        for name, prompt in zip(self.possible_agents, prompts, strict=True):
            if not isinstance(prompt, str):
                raise TypeError(
                    f"Expected a string as the prompt of {name} for row {row}, got {prompt!r} "
                    f"of type {type(prompt).__name__}."
                )
            if prompt not in self._observation_spaces[name]:
                raise ValueError(
                    f"Expected UTF-8-encodable text as the prompt of {name} for row {row}, got "
                    f"{prompt[:80]!r}; it holds a lone surrogate."
                )
        return TextState(row, (prompts,))

    def infos(self, state: TextState) -> dict[str, dict[str, Any]]:
        """Return what `reset` tells each agent beside its prompt, in fresh dicts."""
        return {
            name: {"row": state.row, "turn": state.turn, "acts": True}
            for name in self.possible_agents
        }

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
            ValueError: as `step`; also where the lengths differ or a state has ended.
        """
        num_groups = len(states if groups is None else groups)
        if len(states) != len(joint_actions) or len(states) != num_groups:
            raise ValueError(
                f"Expected as many joint actions and groups as states, got {len(states)} states, "
                f"{len(joint_actions)} joint actions and {num_groups} groups."
            )
        if any(state.ended for state in states):
            raise ValueError(
                "Expected states that have not ended; drop those whose `ended` is set."
            )
        texts = [self._texts(actions) for actions in joint_actions]
        if not texts:
            return []
        rows = [checked_row(self.dataset, state.row) for state in states]
        rewards = self._reward(states, texts, rows)
        stops = early_stops(
            rewards,
            range(len(states)) if groups is None else groups,
            self.early_termination_threshold,
            self.early_termination,
        )
        return [
            self._advance(state, said, reward, stop)
            for state, said, reward, stop in zip(states, texts, rewards, stops, strict=True)
        ]

    # --- parts --------------------------------------------------------------------------------

    def _advance(
        self, state: TextState, texts: tuple[str, ...], reward: tuple[float, ...], stop: bool
    ) -> StepResult:
        turn = state.turn + 1
        ended = stop or turn == self.num_turns
        times = turns_credited(turn, self.num_turns, stopped=stop, mode=self.early_termination)
        credited = tuple(value * times for value in reward)
        after = replace(
            state,
            actions=(*state.actions, texts),
            rewards=(*state.rewards, credited),
            ended=ended,
        )
        seen = ("",) * len(texts)
        if not ended:
            assert self._transition is not None  # num_turns > 1 was checked when the env was built
            seen = self._transition(after, checked_row(self.dataset, state.row), reward)
            after = replace(after, observations=(*state.observations, seen))
        names = self.possible_agents
        return StepResult(
            state=after,
            observations=dict(zip(names, seen, strict=True)),
            rewards=dict(zip(names, credited, strict=True)),
            terminations=dict.fromkeys(names, ended),
            truncations=dict.fromkeys(names, False),
            infos={
                name: {**info, "turn_reward": value, "turns_credited": times}
                for (name, info), value in zip(self.infos(after).items(), reward, strict=True)
            },
        )

    def _texts(self, actions: Mapping[str, str]) -> tuple[str, ...]:
        names = self.possible_agents
        if not isinstance(actions, Mapping):
            raise TypeError(f"Expected a mapping of one action per agent, got {actions!r}.")
        if len(actions) != len(names) or any(name not in actions for name in names):
            missing = [name for name in names if name not in actions]
            unknown = [name for name in actions if name not in names]
            raise ValueError(
                f"Expected one action for each of {names}, got actions with {missing} missing "
                f"and {unknown} unknown."
            )
        for name in names:
            if not isinstance(actions[name], str):
                raise TypeError(
                    f"Expected a string as the action of {name}, got {actions[name]!r} of type "
                    f"{type(actions[name]).__name__}."
                )
            if actions[name] not in self._action_spaces[name]:
                raise ValueError(
                    f"Expected UTF-8-encodable text as the action of {name}, got "
                    f"{actions[name][:80]!r}; it holds a lone surrogate."
                )
        return tuple(actions[name] for name in names)

    def _current(self) -> TextState:
        if self._state is None:
            raise gymnasium.error.ResetNeeded("Expected a started episode; call reset() first.")
        return self._state

    def _transcripts(self, state: TextState) -> list[str]:
        histories = state.histories(self.possible_agents)
        shown = []
        for i, name in enumerate(self.possible_agents):
            turns = [f"> {seen}\n{said}" for seen, said in histories[name]]
            if not state.ended:
                turns.append(f"> {state.observations[-1][i]}")
            shown.append("\n".join(turns))
        return shown

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

    def _check_modes(self, shuffle: bool) -> None:
        if not isinstance(shuffle, bool):
            raise TypeError(f"Expected True or False as shuffle, got {shuffle!r}.")
        if self.render_mode not in (None, "ansi", "human"):
            raise ValueError(
                f"Expected 'ansi', 'human' or None as render_mode, got {self.render_mode!r}."
            )

    def _check_name(self, agent: str) -> None:
        if agent not in self.possible_agents:
            raise KeyError(f"Expected one of {self.possible_agents}, got {agent!r}.")
