"""A running mean of each agent's returns as its baseline.

From "SPIRAL: Self-Play on Zero-Sum Games Incentivizes Reasoning via Multi-Agent Multi-Turn
Reinforcement Learning" (Liu et al. 2025, arXiv 2506.24119), where it is called role-conditioned
advantage estimation: one policy plays all roles of a game, and each role has a baseline b_i of its
own, an exponential moving average of its returns, so that a role that wins more often than another
is not taught that all of its moves are good.

How this departs from the paper:

1. The completions of a rollout have advantages by the mean from before it, and then move it all at
   once: the mean does not depend on the order in which siblings come. Where their n returns are
   equal this is the paper's update, n times over.
2. What is averaged is the credit of every completion at every turn, where the paper's games pay at
   their end only, so that a turn's return is the game's.

Pitfalls: the mean begins at 0, so that returns far from it give all completions of the first
rollouts advantages of one sign; `RewardProcessors.shift` helps. It is one number for all prompts:
where these differ in difficulty, the mean of a group says more.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor


class RunningMean:
    """Subtract b_i, with b_i <- decay^n b_i + (1 - decay^n) mean(R) after n returns of agent i.

    A learner's own: give each its own object.

    Args:
        decay: how much of the mean a return leaves; the paper's is 0.95.

    Attributes:
        means: b_i by agent; 0 for one that is not in it.

    Raises:
        ValueError: where `decay` is not from 0 to 1.
    """

    def __init__(self, decay: float = 0.95) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"Expected a decay from 0 to below 1, got {decay}.")
        self.decay = decay
        self.means: dict[str, float] = {}

    def __call__(self, returns: Tensor, agent: str) -> Tensor:
        """Return A = R - b_i.

        Args:
            returns: (G,) of completions of the agent.
            agent: its name.

        Returns:
            (G,) advantages.
        """
        return returns - self.means.get(agent, 0.0)

    def observe(self, agent: str, returns: Tensor) -> None:
        """Move an agent's mean by the (K,) returns of its completions in a rollout."""
        if len(returns):
            kept = self.decay ** len(returns)
            before = self.means.get(agent, 0.0)
            self.means[agent] = kept * before + (1 - kept) * float(returns.mean())

    def state_dict(self) -> dict[str, Any]:
        """Return the means and the decay."""
        return {"decay": self.decay, "means": dict(self.means)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from the means of `state_dict`.

        Raises:
            ValueError: where they were made with another decay.
        """
        if state["decay"] != self.decay:
            raise ValueError(
                f"Expected running means of decay {self.decay}, got those of {state['decay']}."
            )
        self.means = dict(state["means"])
