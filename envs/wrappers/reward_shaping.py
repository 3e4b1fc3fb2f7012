"""Pay for progress or for the last turn, instead of for every turn.

Where every turn of an episode pays and success ends it, plain sums make success worth less than
missing on purpose and succeeding later, and learners do find out. `TextEnv` answers with a credit
(`early_termination="branch"`); this wrapper answers by paying otherwise:

| mode | an agent's turn pays | an agent's return is |
|---|---|---|
| "raw" | what the env inside pays, its credit included | their sum |
| "improvement" | first its reward, later what it adds to the best so far, or 0 | the best reward |
| "last_turn" | 0, but in the agent's last turn its reward | the last reward |
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

from motet.envs.text_state import StepResult
from motet.envs.wrappers.wrapper import Infos, Observations, Wrapper

Mode = Literal["raw", "improvement", "last_turn"]
Best = tuple[tuple[str, float], ...]


class RewardShaping(Wrapper):
    """Change what turns pay, agent by agent; the table of modes is in the module's docstring.

    The reward of a turn is `infos[agent]["turn_reward"]` where that is present, and what `step`
    returns otherwise. So with `early_termination="branch"` of `TextEnv`, "improvement" and
    "last_turn" replace the credit for turns that were not needed: `turns_credited` is 1 then.
    Whether a branch ends early is decided inside, by the rewards there.

    An agent's last turn is the one in which it is terminated or truncated from inside. An outer
    `TimeLimit` cuts an episode whose last turn this wrapper has not seen, and "last_turn" then
    pays nothing: wrap it the other way round, `RewardShaping(TimeLimit(env, 3), "last_turn")`.

    Args:
        env: the env to wrap.
        mode: "raw", "improvement" or "last_turn".

    Raises:
        ValueError: where the mode is another.
    """

    def __init__(self, env: Any, mode: Mode) -> None:
        super().__init__(env)
        if mode not in get_args(Mode):
            raise ValueError(f"Expected 'raw', 'improvement' or 'last_turn' as mode, got {mode!r}.")
        self.mode = mode

    def after_reset(
        self, observations: Observations, infos: Infos, *, seed: int
    ) -> tuple[Best, Observations, Infos]:
        """Start without a best reward."""
        return (), observations, infos

    def after_step(
        self, memory: Best, actions: Mapping[str, Any], result: StepResult
    ) -> tuple[Best, StepResult]:
        """Replace the rewards, and remember the best of each agent."""
        if self.mode == "raw":
            return memory, result
        own = {
            agent: float(result.infos[agent].get("turn_reward", reward))
            for agent, reward in result.rewards.items()
        }
        if self.mode == "last_turn":
            live = result.live
            paid = {agent: 0.0 if agent in live else reward for agent, reward in own.items()}
            return memory, replace(result, rewards=paid)
        best = dict(memory)
        paid = {
            agent: max(0.0, reward - best[agent]) if agent in best else reward
            for agent, reward in own.items()
        }
        best |= {agent: max(reward, best.get(agent, reward)) for agent, reward in own.items()}
        return tuple(best.items()), replace(result, rewards=paid)
