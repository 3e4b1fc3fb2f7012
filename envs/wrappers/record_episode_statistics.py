"""Report returns and lengths of finished episodes."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from motet.envs.task.parts import checked_count
from motet.envs.text_state import StepResult
from motet.envs.wrappers.wrapper import Infos, Observations, Wrapper


@dataclass(frozen=True, slots=True)
class _SoFar:
    """Turns taken, and (agent, return) of each agent that is in the episode."""

    turns: int
    returns: tuple[tuple[str, float], ...]


class RecordEpisodeStatistics(Wrapper):
    """Put an agent's return and number of turns into its info when it leaves.

    `infos[agent]["episode"]` is then `{"r": return, "l": turns}`, as in Gymnasium, and
    `return_queue[agent]` and `length_queue[agent]` hold the last of them. They are kept by agent,
    since rewards may differ and agents may leave at different times.

    It departs from Gymnasium's in this:

    1. There is no `"t"` and no `time_queue`: the time that an episode took belongs to a machine
       and not to an episode, which can be replayed, branched, or stepped among others in a batch.
    2. Each end that is played counts: that of a branch in `step_batch` and that of a replay too. A
       clone starts with copies of the queues and keeps its own from there on.

    Rewards are those that come from inside: what an outer wrapper pays instead is not seen, and
    an outer `TimeLimit` cuts episodes that are then never reported.

    Args:
        env: the env to wrap.
        buffer_length: how many ends of each agent the queues hold.
        stats_key: where in the infos the statistics are.

    Raises:
        TypeError: where `buffer_length` is no integer or `stats_key` no string.
        ValueError: where `buffer_length` is below 1.
    """

    def __init__(self, env: Any, buffer_length: int = 100, stats_key: str = "episode") -> None:
        super().__init__(env)
        if not isinstance(stats_key, str):
            raise TypeError(f"Expected a string as stats_key, got {stats_key!r}.")
        length = checked_count("buffer_length", buffer_length)
        self.stats_key = stats_key
        self.return_queue: dict[str, deque[float]] = {
            agent: deque(maxlen=length) for agent in self.possible_agents
        }
        self.length_queue: dict[str, deque[int]] = {
            agent: deque(maxlen=length) for agent in self.possible_agents
        }

    def after_reset(
        self, observations: Observations, infos: Infos, *, seed: int
    ) -> tuple[_SoFar, Observations, Infos]:
        """Start all sums at 0."""
        return _SoFar(0, tuple((agent, 0.0) for agent in observations)), observations, infos

    def after_step(
        self, memory: _SoFar, actions: Mapping[str, Any], result: StepResult
    ) -> tuple[_SoFar, StepResult]:
        """Add the turn's rewards, and report agents that leave.

        Raises:
            ValueError: where the infos have `stats_key` already.
        """
        turns = memory.turns + 1
        returns = {agent: sofar + result.rewards[agent] for agent, sofar in memory.returns}
        live = result.live
        infos = dict(result.infos)
        for agent in (agent for agent in returns if agent not in live):
            if self.stats_key in infos[agent]:
                raise ValueError(
                    f"Expected infos without {self.stats_key!r}, got "
                    f"{infos[agent][self.stats_key]!r} for {agent}; pass another stats_key."
                )
            infos[agent] = {**infos[agent], self.stats_key: {"r": returns[agent], "l": turns}}
            self.return_queue[agent].append(returns[agent])
            self.length_queue[agent].append(turns)
        after = _SoFar(turns, tuple((agent, returns[agent]) for agent in live))
        return after, replace(result, infos=infos)

    def clone(self, *, seed: int | None = None) -> Self:
        """Return an independent wrapper with copies of the queues; see `Wrapper.clone`."""
        twin = super().clone(seed=seed)
        twin.return_queue = {agent: queue.copy() for agent, queue in self.return_queue.items()}
        twin.length_queue = {agent: queue.copy() for agent, queue in self.length_queue.items()}
        return twin
