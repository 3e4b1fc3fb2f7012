"""Learners by name; every registered one learns and saves."""

import functools
import warnings
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from tiny import letter_agent, matching_env

from motet import algos
from motet.algos import MAGRPOConfig, MAGRPOTrainer
from motet.algos.registration import registry
from motet.envs.registration.plugins import PluginLoader

NAMES = ("agent_0", "agent_1")
# what trains a team as it is given, with the settings below
LEARNERS = sorted(
    name
    for name, spec in algos.registry.items()
    if spec.config_class is MAGRPOConfig and name != "centralised-magrpo"
)


def config(config_class: type = MAGRPOConfig, **changes: object) -> MAGRPOConfig:
    settings = {
        "num_train_epochs": 50,
        "rollout_batch_size": 4,
        "num_generations": 8,
        "agent_learning_rate": 0.02,
        "progress_bar": False,
    }
    return config_class(**{**settings, **changes})


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_learns_saves_and_plays(name: str, tmp_path: Path) -> None:
    team = {agent: letter_agent(i) for i, agent in enumerate(NAMES)}
    settings = config(algos.spec(name).config_class)
    learner = algos.make(name, matching_env(), team, settings)
    learner.train()
    assert (
        algos.evaluate(matching_env(), learner.agents, num_samples=50).metrics["reward_mean"] > 0.8
    )
    learner.save_model(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == list(NAMES)


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(KeyError, match=r"got 'margpo'.* Did you mean 'magrpo'"):
        algos.make("margpo", matching_env(), {})


def test_registering_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motet.algos.registration.registry", dict(registry))
    algos.register("magrpo")(MAGRPOTrainer)
    with pytest.raises(ValueError, match="Expected a new name, got 'magrpo'"):
        algos.register("magrpo")(lambda **kwargs: None)


def test_registering_a_partial_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motet.algos.registration.registry", dict(registry))
    for _ in range(2):
        algos.register("halved")(functools.partial(MAGRPOTrainer, baseline=lambda r: r / 2))
    with pytest.raises(ValueError, match=r"got 'halved', which is motet\.algos\.magrpo:MAGRPOTr"):
        algos.register("halved")(algos.marloo)


def test_plug_ins_load_on_the_first_miss_and_a_broken_one_warns_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = [
        EntryPoint("broken", "no_such_package_at_all", "motet.algos"),
        EntryPoint("magrpo", "motet.algos.magrpo", "motet.algos"),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    monkeypatch.setattr("motet.algos.registration._plugins", PluginLoader("motet.algos"))
    sentence = "broken = no_such_package_at_all of the group motet.algos was not loaded"
    with pytest.warns(UserWarning, match=sentence), pytest.raises(KeyError, match="Expected one"):
        algos.make("of-a-plug-in", matching_env(), {})
    with warnings.catch_warnings(), pytest.raises(KeyError, match="Expected one of"):
        warnings.simplefilter("error")
        algos.make("of-a-plug-in", matching_env(), {})
