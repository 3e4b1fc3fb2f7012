"""Transitions: what agents read after a turn, and the one place where a transition is called."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from motet.envs.task.named_call import NamedCall
from motet.envs.task.parts import Row
from motet.envs.text_space import TextSpace
from motet.envs.text_state import TextState

_PROMPTS = TextSpace()  # the observation space of every agent


def _per_agent(turns: Sequence[tuple[str, ...]]) -> list[list[str]]:
    return [list(texts) for texts in zip(*turns, strict=True)]


_VALUES: dict[str, Callable[[TextState, Row, Sequence[float]], Any]] = {
    "prompt": lambda state, row, reward: row["prompt"],
    "agent_completions": lambda state, row, reward: list(state.actions[-1]),
    "num_agents": lambda state, row, reward: len(state.actions[-1]),
    "prompt_history_per_agent": lambda state, row, reward: _per_agent(state.observations),
    "response_history_per_agent": lambda state, row, reward: _per_agent(state.actions),
    "row": lambda state, row, reward: row,
    "turn": lambda state, row, reward: state.turn,
    "reward": lambda state, row, reward: sum(reward) / len(reward),
}
TRANSITION_NAMES = tuple(_VALUES)


class Transition:
    """Call a transition for one branch and check what it returns.

    `transition(prompt, agent_completions, num_agents, ...)` returns the N prompts of the next
    turn, used verbatim. It takes by name any of `TRANSITION_NAMES`: `prompt` is the row's, the two
    histories are one list per agent and include this turn, `row` is the dataset row, `turn` the
    turn just played (1 for the first) and `reward` the team's mean reward of it.

    Args:
        func: the user's function.
    """

    def __init__(self, func: Callable[..., Sequence[str]]) -> None:
        self._call = NamedCall(func, role="transition", available=TRANSITION_NAMES)

    def __call__(self, state: TextState, row: Row, reward: Sequence[float]) -> tuple[str, ...]:
        """Return the (N,) prompts of the next turn.

        Args:
            state: after the turn's actions.
            row: the dataset row.
            reward: (N,) rewards of the turn.

        Raises:
            TypeError: where the function returns neither list nor tuple, or one of something else
                than strings.
            ValueError: where it returns another number of prompts than N, or one outside the
                observation space.
        """
        num_agents = len(state.actions[-1])
        prompts = self._call(
            **{name: _VALUES[name](state, row, reward) for name in self._call.names}
        )
        where = f"for row {state.row} after turn {state.turn}"
        if not isinstance(prompts, list | tuple):
            advice = "; return a list in the agents' order" if isinstance(prompts, Mapping) else ""
            raise TypeError(
                f"Expected a list of {num_agents} prompts from transition, one per agent, got "
                f"{prompts!r} {where}{advice}."
            )
        if len(prompts) != num_agents:
            raise ValueError(
                f"Expected {num_agents} prompts from transition, one per agent, got {prompts!r} "
                f"{where}."
            )
        if any(not isinstance(prompt, str) for prompt in prompts):
            raise TypeError(f"Expected strings from transition, got {list(prompts)!r} {where}.")
        for prompt in prompts:
            if prompt not in _PROMPTS:
                raise ValueError(
                    f"Expected UTF-8-encodable text from transition, got {prompt[:80]!r} {where}; "
                    "it holds a lone surrogate."
                )
        return tuple(prompts)
