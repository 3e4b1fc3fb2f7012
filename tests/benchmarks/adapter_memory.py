"""What a team holds in memory while it is trained: one process, one team, one line of JSON.

python adapter_memory.py FOLDER adapters 4
"""

import ctypes
import gc
import json
import sys
from dataclasses import asdict, dataclass
from typing import Literal

import psutil
import torch
from peft import LoraConfig

from motet.agents import GenerationConfig, LMAgent
from motet.algos import MAGRPOConfig
from motet.algos.team import trainable_policies
from motet.algos.updates.batch import Batch, Sample
from motet.algos.updates.update import PolicyUpdater

Kind = Literal["adapters", "copies"]


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of a team, after each of its policies has been sampled and updated once.

    Attributes:
        weights: of all tensors of the models, each once.
        optimizer: of the optimizers' states.
        resident: what the process takes of the machine's memory, less what it took before it
            loaded a model.
    """

    weights: int
    optimizer: int
    resident: int

    @property
    def total(self) -> int:
        """Bytes of weights and optimizers."""
        return self.weights + self.optimizer


def main(folder: str, kind: Kind, num_agents: int) -> Held:
    """Load a team, update each of its policies, and weigh it."""
    before = _resident()
    team = _team(folder, kind, num_agents)
    config = MAGRPOConfig(progress_bar=False)
    updaters = []
    for policy in trainable_policies(team):
        updater = PolicyUpdater(policy, config, _loss)
        answers = team[policy.name].act(["Rain"], 2, seed=0)[0]
        updater.step({policy.name: [Sample(policy.name, answer, 1.0, 1.0) for answer in answers]})
        updaters.append(updater)
    weights = {
        id(weight): weight.numel() * weight.element_size()
        for agent in team.values()
        for weight in agent.model.parameters()
    }
    states = [
        tensor.numel() * tensor.element_size()
        for updater in updaters
        for state in updater.optimizer.state.values()
        for tensor in state.values()
    ]
    return Held(sum(weights.values()), sum(states), _resident() - before)


def _team(folder: str, kind: Kind, num_agents: int) -> dict[str, LMAgent]:
    names = [f"agent_{i}" for i in range(num_agents)]
    short = GenerationConfig(max_new_tokens=4)
    if kind == "copies":
        return {
            name: LMAgent.from_pretrained(folder, generation=short, device="cpu", seed=0)
            for name in names
        }
    base = LMAgent.from_pretrained(folder, generation=short, device="cpu", seed=0)
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear")
    return {name: base.with_adapter(name, lora) for name in names}


def _loss(log_probs: torch.Tensor, batch: Batch) -> torch.Tensor:
    return -log_probs.sum()


def _resident() -> int:
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what is free and not given back is not held
    return int(psutil.Process().memory_info().rss)


if __name__ == "__main__":
    own_folder, own_kind, own_number = sys.argv[1:]
    assert own_kind in ("adapters", "copies")
    print(json.dumps(asdict(main(own_folder, own_kind, int(own_number)))))
