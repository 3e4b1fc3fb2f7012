"""Who acts in which turn, where not everybody does: speaker and listener, or players in turn.

PettingZoo's parallel step takes an action of every live agent. Where it is not an agent's turn, its
action is ignored, and `infos[agent]["acts"]` says so beforehand.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from motet.envs.task.named_call import NamedCall

Acting = Sequence[Collection[str]] | Callable[..., Collection[str]]

ACTING_NAMES = ("turn", "row")


class TurnOrder:
    """Tell who acts in a turn.

    Args:
        acting: for each turn the names of the agents that act, repeated from the start where there
            are more turns; or a function that returns them, and takes by name any of `turn` (1 for
            the first) and `row` (the dataset row). None: all act in every turn.
        agent_names: (N,) names.

    Raises:
        TypeError: where `acting` is neither, or a function that wants other parameters.
        ValueError: where a turn has nobody who acts, or names an unknown agent.
    """

    def __init__(self, acting: Acting | None, agent_names: Sequence[str]) -> None:
        self._agents = frozenset(agent_names)
        self._turns: list[frozenset[str]] | None = None
        self._call: NamedCall | None = None
        if callable(acting):
            self._call = NamedCall(acting, role="acting", available=ACTING_NAMES)
        elif acting is not None:
            self._turns = self._listed(acting, agent_names)

    def __call__(self, turn: int, row: Mapping[str, Any]) -> frozenset[str]:
        """Return who acts.

        Args:
            turn: 1 for the first.
            row: the dataset row.

        Raises:
            TypeError: where the function returns no collection of names.
            ValueError: where it returns none, or an unknown one.
        """
        if self._call is not None:
            return self._checked(self._call(turn=turn, row=row), f"turn {turn}")
        return self._agents if self._turns is None else self._turns[(turn - 1) % len(self._turns)]

    @property
    def is_everybody(self) -> bool:
        """Whether all act in every turn."""
        return self._call is None and self._turns is None

    def _listed(self, acting: Any, agent_names: Sequence[str]) -> list[frozenset[str]]:
        if isinstance(acting, str) or not isinstance(acting, Sequence) or not acting:
            raise TypeError(
                "Expected a list of the agents that act in each turn, such as "
                f"[['{agent_names[0]}'], ['{agent_names[-1]}']], as acting, got {acting!r}."
            )
        return [self._checked(names, f"turn {turn}") for turn, names in enumerate(acting, start=1)]

    def _checked(self, names: Any, when: str) -> frozenset[str]:
        if isinstance(names, str) or not isinstance(names, Collection):
            raise TypeError(
                f"Expected a list of the agents that act in {when}, got {names!r}; "
                "put a single name into a list."
            )
        # what is no string may not be hashable, and `in` would say so in its own words
        unknown = [name for name in names if not isinstance(name, str) or name not in self._agents]
        if unknown or not names:
            raise ValueError(
                f"Expected at least one of {sorted(self._agents)} to act in {when}, got "
                f"{list(names)!r}."
            )
        return frozenset(names)
