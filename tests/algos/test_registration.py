"""Learners by name; `test_every_learner` has what all of them can do."""

import functools
import warnings
from importlib.metadata import EntryPoint

import pytest
from tiny import letter_agent, matching_env

from motet import algos
from motet.algos import MAGRPOTrainer
from motet.algos.registration import registry
from motet.envs.registration.plugins import PluginLoader


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
    with pytest.raises(ValueError, match=r"got 'halved', which is motet\.algos\.group\.magrpo"):
        algos.register("halved")(algos.marloo)


def test_a_trainer_is_registered_with_the_config_that_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("motet.algos.registration.registry", dict(registry))

    class Mine(MAGRPOTrainer):
        config_class = algos.GRPOConfig

    algos.register("mine")(Mine)
    assert algos.spec("mine").config_class is algos.GRPOConfig
    with pytest.raises(TypeError, match=r"Expected GRPOConfig, the config.*MAGRPOConfig"):
        algos.register("mine", algos.MAGRPOConfig)(Mine)
    algos.register("a-function")(functools.partial(Mine))
    assert algos.spec("a-function").config_class is algos.MAGRPOConfig


def test_learners_by_name_are_built_from_the_parts_of_a_task_too() -> None:
    writer, rows = letter_agent(), [{"prompt": "a"}]
    learner = algos.make(
        "marloo",
        agents=[writer.model] * 2,
        tokenizer=writer.tokenizer,
        reward_func=lambda first, second: [0.0] * len(first),
        train_dataset=rows,
    )
    assert list(learner.agents) == ["agent_0", "agent_1"]
    for name in ("magrpo", "frozen"):  # who has forgotten the env
        with pytest.raises((TypeError, ValueError), match=r"Expected (env=|a parallel env)"):
            algos.make(name, agents={"agent_0": writer, "agent_1": writer})


def test_plug_ins_load_on_the_first_miss_and_a_broken_one_warns_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = [
        EntryPoint("broken", "no_such_package_at_all", "motet.algos"),
        EntryPoint("magrpo", "motet.algos.group.magrpo", "motet.algos"),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    monkeypatch.setattr("motet.algos.registration._plugins", PluginLoader("motet.algos"))
    sentence = "broken = no_such_package_at_all of the group motet.algos was not loaded"
    with pytest.warns(UserWarning, match=sentence), pytest.raises(KeyError, match="Expected one"):
        algos.make("of-a-plug-in", matching_env(), {})
    with warnings.catch_warnings(), pytest.raises(KeyError, match="Expected one of"):
        warnings.simplefilter("error")
        algos.make("of-a-plug-in", matching_env(), {})
