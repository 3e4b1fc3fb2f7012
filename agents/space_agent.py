"""An agent that says whatever its action space has: the weakest baseline there is."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from motet.agents.agent import Completion, check_request


class SpaceAgent:
    """Draw each answer from a space of texts, such as `env.action_space("agent_0")`.

    Args:
        space: anything with Gymnasium's `sample` and `seed` that samples texts; a copy is drawn
            from.
        seed: seed of the agent's own randomness, used where `act` gets none.

    Raises:
        TypeError: where it is no space, or one of something else than texts.
    """

    def __init__(self, space: Any, *, seed: int | None = None) -> None:
        if not callable(getattr(space, "sample", None)) or not callable(
            getattr(space, "seed", None)
        ):
            raise TypeError(f"Expected a space with sample and seed, got {space!r}.")
        self._space = deepcopy(space)
        if not isinstance(deepcopy(space).sample(), str):
            raise TypeError(f"Expected a space of texts, got {space!r}.")
        if seed is not None:
            self._space.seed(seed)

    def act(
        self,
        observations: Sequence[str],
        num_generations: int = 1,
        *,
        seed: int | None = None,
        contexts: Sequence[Completion | None] | None = None,
    ) -> list[list[Completion]]:
        """Answer; see `Agent.act`. Observations and contexts change nothing."""
        del contexts
        check_request(observations, num_generations)
        space = self._space
        if seed is not None:
            space = deepcopy(space)
            space.seed(seed)
        return [[Completion(space.sample()) for _ in range(num_generations)] for _ in observations]
