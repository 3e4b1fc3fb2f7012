"""Imports stay light, names stay public, and everything comes from one namespace."""

import subprocess
import sys

import pytest

from motet import agents, algos, envs


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*(name.split('.')[0] for name in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_envs_load_neither_torch_nor_transformers() -> None:
    assert not loaded_by("import motet.envs") & {"torch", "transformers", "datasets", "wandb"}


def test_algos_load_no_tracker_and_no_other_framework() -> None:
    heavy = {"wandb", "openai", "stable_baselines3", "ray", "matplotlib", "peft"}
    heavy |= {"tensorboard", "trackio", "gradio_client", "mlflow"}
    assert not loaded_by("import motet.algos") & heavy


def test_agents_know_nothing_of_envs_and_envs_nothing_of_agents() -> None:
    code = "import motet.agents, sys; assert 'motet.envs' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import motet.envs, sys; assert 'motet.agents' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("package", [envs, agents, algos])
def test_public_names_exist_and_are_sorted(package) -> None:
    assert sorted(package.__all__) == list(package.__all__)
    for name in package.__all__:
        assert package.__dict__[name] is not None


@pytest.mark.parametrize("package", [envs, agents, algos])
def test_public_names_are_documented(package) -> None:
    for name in package.__all__:
        thing = package.__dict__[name]
        if callable(thing) and getattr(thing, "__module__", "").startswith("motet"):
            assert thing.__doc__, name
