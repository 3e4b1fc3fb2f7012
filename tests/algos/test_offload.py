"""Off-loading of the optimizer's state, and what is held between updates."""

import gc
import math
from pathlib import Path

import pytest
import torch
from tiny import tiny_agent

from motet.agents import LMAgent
from motet.algos import MAGRPOConfig, MAGRPOTrainer
from motet.algos.updates.offload import DiskStore, HostStore, offload_optimizer
from motet.envs import make

NAMES = ("agent_0", "agent_1")


def trained(**settings: object) -> tuple[MAGRPOTrainer, dict[str, LMAgent]]:
    team = {name: tiny_agent(i, max_new_tokens=6) for i, name in enumerate(NAMES)}
    config = MAGRPOConfig(
        num_train_epochs=2,
        rollout_batch_size=4,
        agent_learning_rate=1e-2,
        weight_decay=0.1,
        progress_bar=False,
        **settings,
    )
    trainer = MAGRPOTrainer(make("story-length-ratio-v0"), team, config)
    trainer.train()
    return trainer, team


def weights(agent: LMAgent) -> torch.Tensor:
    return torch.cat([weight.flatten() for weight in agent.model.parameters()])


def problem(seed: int = 0) -> tuple[torch.nn.Linear, torch.optim.AdamW]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layer = torch.nn.Linear(3, 2)
    return layer, torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True)


def steps(layer: torch.nn.Linear, optimizer: torch.optim.Optimizer, count: int) -> None:
    for k in range(count):
        optimizer.zero_grad()
        (layer(torch.tensor([1.0, k, -k])) ** 2).sum().backward()
        optimizer.step()


def test_on_disk_the_weights_are_the_same_and_no_moments_stay() -> None:
    plain, expected = trained()
    trainer, team = trained(offload_optimizer="disk")
    for name in NAMES:
        assert torch.equal(weights(team[name]), weights(expected[name]))
    assert team["agent_0"].policy_version > 3
    for updater in trainer.updaters:
        assert len(updater.optimizer.state) == 0
    assert all(len(updater.optimizer.state) > 0 for updater in plain.updaters)


def test_gradients_are_freed_after_a_step() -> None:
    for settings in ({}, {"offload_optimizer": "disk"}):
        _, team = trained(**settings)
        for agent in team.values():
            assert all(weight.grad is None for weight in agent.model.parameters())


def test_a_gradient_that_is_not_finite_leaves_weights_and_moments(tmp_path: Path) -> None:
    trainer, team = trained(offload_optimizer="disk", output_dir=str(tmp_path))
    rollout = trainer.collect([0])
    before = weights(team["agent_0"]).clone()
    moments = trainer.updaters[0].optimizer.state_dict()["state"]
    hook = team["agent_0"].model.lm_head.weight.register_hook(lambda grad: grad * math.nan)
    with pytest.raises(FloatingPointError, match="finite gradient norm, got nan"):
        trainer.update(rollout)
    hook.remove()
    assert torch.equal(weights(team["agent_0"]), before)
    after = trainer.updaters[0].optimizer.state_dict()["state"]
    assert all(torch.equal(after[i]["exp_avg"], moments[i]["exp_avg"]) for i in moments)


def test_a_state_dict_goes_out_and_comes_back() -> None:
    layer, optimizer = problem()
    steps(layer, optimizer, 3)
    offload_optimizer(optimizer, "disk")
    assert len(optimizer.state) == 0
    kept = optimizer.state_dict()
    assert len(optimizer.state) == 0
    assert kept["state"][0]["exp_avg"].shape == (2, 3)

    twin, other = problem(1)
    offload_optimizer(other, "disk")
    steps(twin, other, 1)  # what it had before is replaced
    twin.load_state_dict(layer.state_dict())
    other.load_state_dict(kept)
    assert len(other.state) == 0
    for each, its_optimizer in ((layer, optimizer), (twin, other)):
        steps(each, its_optimizer, 3)
    assert torch.equal(layer.weight, twin.weight)


def test_the_state_of_a_new_optimizer_replaces_that_of_an_old_one() -> None:
    layer, optimizer = problem()
    empty = optimizer.state_dict()
    offload_optimizer(optimizer, "disk")
    steps(layer, optimizer, 2)
    optimizer.load_state_dict(empty)
    assert optimizer.state_dict()["state"] == {}


def test_a_failed_write_keeps_the_state_in_memory(monkeypatch) -> None:
    layer, optimizer = problem()
    offload_optimizer(optimizer, "disk")
    steps(layer, optimizer, 1)

    def full(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as context, pytest.raises(OSError, match="no space left"):
        context.setattr(torch, "save", full)
        steps(layer, optimizer, 1)
    assert len(optimizer.state) == 2
    steps(layer, optimizer, 1)
    assert len(optimizer.state) == 0
    assert optimizer.state_dict()["state"][0]["step"] == 3


def test_the_folder_goes_with_the_optimizer(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    layer, optimizer = problem()
    offload_optimizer(optimizer, "disk")
    steps(layer, optimizer, 1)
    (folder,) = tmp_path.iterdir()
    assert (folder / "state.pt").stat().st_size > 2 * 8 * 4
    del optimizer
    gc.collect()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("store", [HostStore, DiskStore])
def test_stores_give_back_what_they_got(store) -> None:
    state = {
        0: {"step": torch.tensor(3.0), "exp_avg": torch.tensor([[0.1, -2.0]])},
        2: {"exp_avg": torch.tensor([1.5], dtype=torch.bfloat16), "count": 4},
    }
    kept = store()
    assert kept.load() == {}
    kept.save({0: {"step": torch.tensor(9.0)}})
    kept.save(state)
    for _ in range(2):
        loaded = kept.load()
        assert {i: list(own) for i, own in loaded.items()} == {
            0: ["step", "exp_avg"],
            2: ["exp_avg", "count"],
        }
        assert loaded[2]["count"] == 4
        for i, name in ((0, "step"), (0, "exp_avg"), (2, "exp_avg")):
            assert loaded[i][name].dtype == state[i][name].dtype
            assert loaded[i][name].device == state[i][name].device
            assert torch.equal(loaded[i][name], state[i][name])


def test_a_policy_on_the_cpu_has_nothing_to_move_to_it() -> None:
    config = MAGRPOConfig(offload_optimizer="cpu", progress_bar=False)
    team = dict.fromkeys(NAMES, tiny_agent())
    with pytest.raises(
        ValueError, match=r"got a policy on the CPU, .* set offload_optimizer='disk'"
    ):
        MAGRPOTrainer(make("story-length-ratio-v0"), team, config)
