"""Off-loading: an optimizer's state leaves the device's memory between its steps.

AdamW keeps two numbers per weight. A team of N policies steps one after another, so that only one
of them needs them at a time.
"""

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

Offload = Literal["cpu", "disk"]

State = dict[int, dict[str, Any]]
"""By position of the weight in the optimizer, and name: what it keeps of a weight."""


class HostStore:
    """Keeps an optimizer's state in host memory, and gives it back on the device it came from."""

    def __init__(self) -> None:
        self._state: State = {}
        self._devices: dict[tuple[int, str], torch.device] = {}

    def save(self, state: State) -> None:
        """Keep a state in place of the one before."""
        self._devices = {
            (index, name): value.device
            for index, own in state.items()
            for name, value in own.items()
            if isinstance(value, Tensor)
        }
        self._state = {
            index: {
                name: value.cpu() if isinstance(value, Tensor) else value
                for name, value in own.items()
            }
            for index, own in state.items()
        }

    def load(self) -> State:
        """Return the state that was kept last, which is empty at first."""
        return {
            index: {
                name: value.to(self._devices[index, name]) if isinstance(value, Tensor) else value
                for name, value in own.items()
            }
            for index, own in self._state.items()
        }


class DiskStore:
    """Keeps an optimizer's state in a temporary folder, which goes when the store does.

    The environment variable TMPDIR says where; /tmp is memory on some systems.

    Attributes:
        folder: the temporary folder.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="motet-optimizer-"))
        self._path = self.folder / "state.pt"
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def save(self, state: State) -> None:
        """Write a state in place of the one before."""
        torch.save(state, self._path)

    def load(self) -> State:
        """Return the state that was written last, which is empty at first."""
        if not self._path.exists():
            return {}
        state: State = torch.load(self._path, weights_only=True)  # to the devices it came from
        return state


def offload_optimizer(optimizer: torch.optim.Optimizer, offload: Offload) -> None:
    """Keep an optimizer's state elsewhere but while it steps, or is read or replaced.

    `step`, `state_dict` and `load_state_dict` are called as ever. The tensors of a `state_dict` are
    its caller's: whoever drops it drops them.

    Args:
        optimizer: any of torch's; the state that it has is moved at once.
        offload: "cpu" for host memory, "disk" for a temporary folder that is removed with the
            optimizer.

    Raises:
        ValueError: for "cpu" where its weights are on the CPU.
    """
    devices = {weight.device.type for weight in _weights(optimizer)}
    if offload == "cpu" and devices == {"cpu"}:
        raise ValueError(
            "Expected weights on another device for offload_optimizer='cpu', got a policy on the "
            "CPU, whose optimizer state is in host memory anyway; set offload_optimizer='disk', or "
            "None."
        )
    store = HostStore() if offload == "cpu" else DiskStore()

    def load(optimizer: torch.optim.Optimizer, *_: object) -> None:
        if not optimizer.state:  # it is there still where a step or a write failed
            weights = _weights(optimizer)
            for index, own in store.load().items():
                optimizer.state[weights[index]] = own

    def unload(optimizer: torch.optim.Optimizer, *_: object) -> None:
        weights = _weights(optimizer)
        store.save({i: optimizer.state[w] for i, w in enumerate(weights) if w in optimizer.state})
        optimizer.state.clear()

    optimizer.register_step_pre_hook(load)
    optimizer.register_step_post_hook(unload)
    optimizer.register_state_dict_pre_hook(load)
    optimizer.register_state_dict_post_hook(unload)
    optimizer.register_load_state_dict_post_hook(unload)
    unload(optimizer)


def _weights(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]
