"""A value head: from what a model has read to what it is worth, one number per agent.

With value normalisation the head's numbers are in units of the targets' running standard deviation,
from their running mean, so that a critic needs to learn neither their scale nor their level
("The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games", Yu et al. 2021, arXiv
2103.01955, section 5.1). The running moments are of all targets so far, alike (Chan et al. 1979,
as stable-baselines3's `RunningMeanStd`); the paper's code forgets the oldest by 1 in 100,000.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

# Targets that differ less are taken for equal: what is divided by must not be rounding.
_LEAST_STD = 1e-4


class ValueHead(nn.Module):
    """A linear layer, or one with a hidden layer before it, that begins with a value of 0.

    There is an output for each agent. Where all agents are paid alike, their outputs begin alike
    and get the same gradients: they stay one value.

    Args:
        width: of what it reads.
        agents: names, in the order of the outputs.
        hidden_size: of a hidden layer with tanh; None for none.
        normalize: whether outputs are in units of the running moments.
        seed: of the hidden layer's first weights; torch's global random state is left alone.

    Attributes:
        agents: names, in the order of the outputs.
        normalize: whether outputs are in units of the running moments.
        mean: (N,) running mean of each agent's targets.
        variance: (N,) running variance.
        count: (N,) number of targets so far.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(
        self,
        width: int,
        agents: Sequence[str],
        *,
        hidden_size: int | None,
        normalize: bool,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.agents = list(agents)
        self.normalize = normalize
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.hidden = None if hidden_size is None else nn.Linear(width, hidden_size)
            self.output = nn.Linear(width if hidden_size is None else hidden_size, len(self.agents))
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)
        self.register_buffer("mean", torch.zeros(len(self.agents)))
        self.register_buffer("variance", torch.ones(len(self.agents)))
        self.register_buffer("count", torch.zeros(len(self.agents)))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return outputs, normalised where `normalize` says so.

        Args:
            hidden: (M, width) in any precision.

        Returns:
            (M, N) float32.
        """
        with torch.autocast(hidden.device.type, enabled=False):
            hidden = hidden.float()
            if self.hidden is not None:
                hidden = torch.tanh(self.hidden(hidden))
            outputs: Tensor = self.output(hidden)
            return outputs

    def in_rewards(self, outputs: Tensor, agent: str) -> Tensor:
        """Return an agent's outputs in the unit of rewards, float64."""
        mean, std = self._moments(agent)
        return outputs.to(torch.float64) * std + mean

    def in_outputs(self, values: Tensor, agent: str) -> Tensor:
        """Return values of an agent, in the unit of rewards, as the head should put them out."""
        mean, std = self._moments(agent)
        return (values - mean) / std

    @torch.no_grad()
    def observe(self, targets: Tensor, agent: str) -> None:
        """Take targets of an agent, in the unit of rewards, into its running moments.

        Args:
            targets: (E,).
            agent: whose.
        """
        if not self.normalize or not len(targets):
            return
        index = self.agents.index(agent)
        count, new = float(self.count[index]), len(targets)
        total = count + new
        mean, variance = float(targets.mean()), float(targets.var(correction=0))
        difference = mean - float(self.mean[index])
        spread = float(self.variance[index]) * count + variance * new
        self.mean[index] += difference * new / total
        self.variance[index] = (spread + difference**2 * count * new / total) / total
        self.count[index] = total

    def _moments(self, agent: str) -> tuple[float, float]:
        """Return what an agent's outputs are counted from, and in what unit."""
        if not self.normalize:
            return 0.0, 1.0
        index = self.agents.index(agent)
        return float(self.mean[index]), max(float(self.variance[index]) ** 0.5, _LEAST_STD)
