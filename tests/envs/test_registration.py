"""The registry: ids, duplicates, errors, plug-ins, and its mirror in PettingZoo's."""

import functools
import importlib
import importlib.metadata
import pickle
import types
import warnings
from typing import ClassVar

import pettingzoo
import pytest
from gymnasium import error

from motet.envs.registration import (
    EnvSpec,
    load_plugins,
    make,
    pprint_registry,
    register,
    registry,
    spec,
)

# Not `from motet.envs import registry`: that is the dict, which hides the module of its name.
registry_module = importlib.import_module("motet.envs.registration")


class Env(pettingzoo.ParallelEnv):
    """Just enough to be made."""

    metadata: ClassVar = {"name": "env"}

    def __init__(self, size=1, data=None):
        self.size = size
        self.data = data


class OtherEnv(Env):
    pass


def make_env(size=1, **kwargs):
    return Env(size, **kwargs)


ENV = f"{__name__}:Env"


@pytest.fixture(autouse=True)
def empty_registries(monkeypatch):
    """Every test starts without our ids, and leaves both registries and the plug-ins alone."""
    ours, theirs = dict(registry), dict(pettingzoo.parallel_registry)
    registry.clear()
    for id in ours:
        pettingzoo.parallel_registry.pop(f"motet/{id}", None)
    monkeypatch.setattr(registry_module, "_tried_plugins", set())
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: ())
    yield
    for registered, before in ((registry, ours), (pettingzoo.parallel_registry, theirs)):
        registered.clear()
        registered.update(before)


# --- registering and making ------------------------------------------------------------------


@pytest.mark.parametrize("entry_point", [Env, make_env, ENV, functools.partial(make_env, size=1)])
def test_make_calls_the_entry_point_with_defaults_and_arguments(entry_point):
    register("thing-v0", entry_point, kwargs={"data": "d"}, size=2)
    assert (make("thing-v0").size, make("thing-v0").data) == (2, "d")
    assert make("thing-v0", size=3).size == 3
    assert spec("thing-v0").kwargs == {"data": "d", "size": 2}


def test_register_is_a_decorator_that_returns_the_function():
    @register("thing-v0", size=4)
    def thing(**kwargs):
        return Env(**kwargs)

    assert registry["thing-v0"].entry_point is thing
    assert make("thing-v0").size == 4


def test_made_env_carries_a_spec_that_makes_it_again():
    register("thing-v0", make_env, size=2)
    env = make("thing-v0", data=[1])
    assert env.unwrapped.spec == EnvSpec("thing-v0", make_env, {"size": 2, "data": [1]})
    again = env.unwrapped.spec.make(size=5)
    assert (again.size, again.data) == (5, [1])
    assert spec("thing-v0").kwargs == {"size": 2}


def test_spec_is_set_below_wrappers():
    wrapped = pettingzoo.utils.BaseParallelWrapper(Env())
    register("thing-v0", lambda: wrapped)
    assert make("thing-v0") is wrapped
    assert wrapped.env.spec.id == "thing-v0"


def test_make_takes_a_spec_that_is_not_registered():
    env = make(EnvSpec("elsewhere/thing-v3", ENV, {"size": 2}), data=1)
    assert (env.size, env.data) == (2, 1)


def test_a_dataset_among_the_defaults_is_not_copied():
    class Dataset(list):
        def __deepcopy__(self, memo):
            raise AssertionError("copied")

    data = Dataset([1, 2])
    register("thing-v0", Env, data=data)
    assert make("thing-v0").data is data
    assert pettingzoo.make("parallel", "motet/thing-v0").data is data


def test_defaults_are_not_shared_with_the_caller():
    kwargs = {"size": 2}
    register("thing-v0", Env, kwargs=kwargs)
    kwargs["size"] = 3
    assert make("thing-v0").size == 2


def test_a_default_given_twice_is_an_error():
    with pytest.raises(TypeError, match=r"thing-v0 .* got both for size"):
        register("thing-v0", Env, kwargs={"size": 1}, size=2)
    assert not registry


def test_spec_has_the_parts_of_the_id_and_pickles():
    register("mine/some-thing-v12", ENV, size=2)
    found = spec("mine/some-thing-v12")
    assert (found.namespace, found.name, found.version) == ("mine", "some-thing", 12)
    register("plain", ENV)
    assert (spec("plain").namespace, spec("plain").version) == (None, None)
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize("id", ["a/b/c-v0", "two words-v0", "", "/thing", "module:thing-v0"])
def test_malformed_ids_are_reported_where_they_stand(id):
    with pytest.raises(error.Error, match=r"[Mm]alformed|without ':'"):
        register(id, Env)
    with pytest.raises(error.Error, match=r"[Mm]alformed|without ':'"):
        register(id)
    assert not registry


def test_malformed_entry_points():
    with pytest.raises(error.Error, match=r"'module:attribute' .* thing-v0, got 'some.module'"):
        register("thing-v0", "some.module")
    with pytest.raises(TypeError, match="thing-v0, got 17"):
        register("thing-v0", 17)
    with pytest.raises(TypeError, match=r"Expected a string .* got 17"):
        register(17, Env)


# --- duplicates and versions -----------------------------------------------------------------


def _defined_again(size):
    def thing():
        return Env(size)

    return thing


def test_the_same_origin_warns_and_replaces():
    register("thing-v0", _defined_again(1))
    with pytest.warns(UserWarning, match=r"Registered thing-v0 again, from .*thing"):
        register("thing-v0", _defined_again(2))
    assert make("thing-v0").size == 2
    assert pettingzoo.make("parallel", "motet/thing-v0").size == 2


def test_a_string_and_the_object_it_names_are_the_same_origin():
    register("thing-v0", ENV)
    with pytest.warns(UserWarning, match="again"):
        register("thing-v0", Env)


def test_another_origin_raises_and_keeps_the_old():
    register("thing-v0", Env)
    with pytest.raises(error.RegistrationError, match=r"OtherEnv.* taken by .*:Env\b"):
        register("thing-v0", OtherEnv)
    assert registry["thing-v0"].entry_point is Env
    assert type(pettingzoo.make("parallel", "motet/thing-v0")) is Env


def test_a_name_has_versions_or_none():
    register("thing-v0", Env)
    register("plain", Env)
    with pytest.raises(error.RegistrationError, match="since thing-v0 is registered"):
        register("thing", Env)
    with pytest.raises(error.RegistrationError, match="since plain is registered"):
        register("plain-v0", Env)
    register("mine/thing", Env)


def test_without_a_version_the_latest_is_made_with_a_warning():
    for version in (2, 10, 9):
        register(f"thing-v{version}", Env, size=version)
    with pytest.warns(UserWarning, match="latest version, thing-v10, for the id thing") as caught:
        assert make("thing").size == 10
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="thing-v10"):
        assert spec("thing").id == "thing-v10"


def test_an_old_version_is_made_with_a_deprecation_warning():
    register("thing-v1", Env, size=1)
    register("thing-v2", Env, size=2)
    with pytest.warns(DeprecationWarning, match=r"thing-v1 is out of date.* thing-v2") as caught:
        assert make("thing-v1").size == 1
    assert caught[0].filename == __file__


def test_exact_ids_do_not_warn():
    register("thing-v1", Env)
    register("plain", Env)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make("thing-v1")
        make("plain")


# --- errors ----------------------------------------------------------------------------------


def test_misses_are_gymnasiums_errors_with_suggestions():
    register("story-v1", Env)
    register("story-v2", Env)
    register("games/chess-v0", Env)
    register("plain", Env)
    cases = [
        ("stroy-v1", error.NameNotFound, "Environment stroy not found. Did you mean: story?"),
        ("zzz", error.NameNotFound, "pprint_registry"),
        ("games/ches", error.NameNotFound, "not found in namespace games. Did you mean: chess?"),
        ("game/chess-v0", error.NamespaceNotFound, "Did you mean: games?"),
        ("zzz/chess-v0", error.NamespaceNotFound, "Is the package for zzz installed?"),
        ("story-v3", error.VersionNotFound, "no version v3. It has story-v1, story-v2."),
        ("story-v0", error.DeprecatedEnv, "no version v0. Please use story-v2 instead."),
        ("plain-v1", error.DeprecatedEnv, "Please use plain instead."),
        ("no id", error.Error, "Malformed"),
    ]
    for id, exception, sentence in cases:
        for call in (make, spec):
            with pytest.raises(exception) as caught:
                call(id)
            assert sentence in str(caught.value)


def test_what_is_no_id_is_a_type_error():
    with pytest.raises(TypeError, match="Expected an environment's id or an EnvSpec, got 17"):
        make(17)


def test_refused_arguments_name_the_id_and_what_is_accepted():
    register("thing-v0", Env)
    with pytest.raises(TypeError) as caught:
        make("thing-v0", length=3)
    sentence = str(caught.value)
    assert "unexpected keyword argument 'length'" in sentence
    assert (
        "making thing-v0; keyword arguments given: length; accepted: size=1, data=None" in sentence
    )
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_refused_keyword_is_answered_with_those_of_the_class_that_gets_it():
    def factory(*, colour="red", **kwargs) -> Env:
        return Env(**kwargs)

    register("thing-v0", factory)
    with pytest.raises(TypeError) as caught:
        make("thing-v0", sizes=3)
    assert "unexpected keyword argument 'sizes'" in str(caught.value)
    accepted = "accepted: colour='red', **kwargs, which may be size=1, data=None"
    assert f"{accepted}; did you mean size by sizes?" in str(caught.value)
    with pytest.raises(TypeError) as caught:
        make("thing-v0", weight=3)
    assert f"{accepted}]" in str(caught.value)


def test_other_exceptions_of_the_entry_point_pass_untouched():
    def thing():
        raise ZeroDivisionError("mine")

    register("thing-v0", thing)
    with pytest.raises(ZeroDivisionError, match=r"^mine$"):
        make("thing-v0")


def test_what_is_no_parallel_env_is_refused():
    register("thing-v0", lambda: "not an env")
    with pytest.raises(TypeError, match=r"ParallelEnv from the entry point of thing-v0, got 'not"):
        make("thing-v0")


def test_entry_points_that_cannot_be_loaded():
    register("thing-v0", "no_such_module_here:Env")
    with pytest.raises(ModuleNotFoundError, match="no_such_module_here") as caught:
        make("thing-v0")
    assert any("thing-v0" in note for note in caught.value.__notes__)
    register("other-v0", "math:no_such_function")
    with pytest.raises(error.Error, match="'math:no_such_function' of other-v0, got None"):
        make("other-v0")


# --- module:id -------------------------------------------------------------------------------


def test_a_module_before_the_id_is_imported_first(tmp_path, monkeypatch):
    (tmp_path / "registers_a_thing.py").write_text(
        f"from motet.envs import register\nregister('late/thing-v0', {ENV!r}, size=6)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(error.NamespaceNotFound):
        make("late/thing-v0")
    assert make("registers_a_thing:late/thing-v0").size == 6
    assert spec("registers_a_thing:late/thing-v0").id == "late/thing-v0"


def test_a_missing_module_before_the_id():
    with pytest.raises(ModuleNotFoundError, match=r"check that 'no_such_module_here' is installed"):
        make("no_such_module_here:thing-v0")


# --- plug-ins --------------------------------------------------------------------------------


class Plugin:
    """Stands for an `importlib.metadata.EntryPoint`."""

    def __init__(self, name, load):
        self.name = name
        self.value = f"{name}_package"
        self.load = load


def _install(monkeypatch, *plugins):
    def entry_points(group):
        assert group == "motet.envs"
        return plugins

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)


def _registering_module(id):
    def load():
        register(id, Env)
        return types.ModuleType("plugin")

    return load


def _failing(exception):
    def load():
        raise exception

    return load


@pytest.mark.parametrize(
    "exception",
    [ImportError("no torch"), ValueError("odd"), ZeroDivisionError(), SystemExit("bye")],
)
def test_a_broken_plugin_warns_and_leaves_the_others_alone(monkeypatch, exception):
    _install(
        monkeypatch,
        Plugin("first", _registering_module("first/thing-v0")),
        Plugin("broken", _failing(exception)),
        Plugin("called", lambda: lambda: register("called/thing-v0", Env)),
    )
    sentence = f"broken = broken_package .* was not loaded: {type(exception).__name__}"
    with pytest.warns(UserWarning, match=sentence):
        assert type(make("called/thing-v0")) is Env
    assert set(registry) == {"first/thing-v0", "called/thing-v0"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # each is tried once
        make("first/thing-v0")
        with pytest.raises(error.NamespaceNotFound):
            make("absent/thing-v0")


def test_a_real_entry_point_is_loaded(tmp_path, monkeypatch):
    (tmp_path / "plugs_in_a_thing.py").write_text(
        f"from motet.envs.registration import register\nregister('plugged-v0', {ENV!r})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    plugin = importlib.metadata.EntryPoint("thing", "plugs_in_a_thing", "motet.envs")
    _install(monkeypatch, plugin)
    assert type(make("plugged-v0")) is Env


def test_plugins_are_not_loaded_before_a_miss(monkeypatch):
    _install(monkeypatch, Plugin("broken", _failing(AssertionError("loaded"))))
    register("thing-v0", Env)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make("thing-v0")
        spec("thing-v0")
    with (
        pytest.warns(UserWarning, match="AssertionError: loaded"),
        pytest.raises(error.NameNotFound),
    ):
        spec("absent-v0")


def test_a_plugin_that_looks_up_while_it_loads_ends(monkeypatch):
    def load():
        with pytest.raises(error.NameNotFound):
            make("absent-v0")
        return types.ModuleType("plugin")

    _install(monkeypatch, Plugin("curious", load))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_plugins()


# --- listing ---------------------------------------------------------------------------------


def test_pprint_registry_is_a_table_with_plugins(monkeypatch, capsys):
    _install(monkeypatch, Plugin("first", _registering_module("first/thing-v0")))
    register("long-name-thing-v0", make_env, size=2, data=list(range(1000)))
    table = pprint_registry(disable_print=True)
    assert capsys.readouterr().out == ""
    head, first, second = table.splitlines()
    assert head.split() == ["id", "entry", "point", "defaults"]
    assert first.split() == ["first/thing-v0", f"{Env.__module__}:Env"]
    assert second.startswith(f"long-name-thing-v0  {make_env.__module__}:make_env  size=2, data=[0")
    assert second.index("size=2") == head.index("defaults")
    assert len(second) < 200
    assert pprint_registry() is None
    assert capsys.readouterr().out == table + "\n"


# --- PettingZoo's registry -------------------------------------------------------------------


def test_entries_are_mirrored_into_pettingzoo():
    register("thing-v0", Env, size=2)
    register("mine/thing-v1", Env, size=3)
    assert pettingzoo.make("parallel", "motet/thing-v0", data=5).data == 5
    assert pettingzoo.make("parallel", "motet/thing").size == 2
    env = pettingzoo.make("parallel", "mine/thing-v1")
    assert env.size == 3
    assert env.unwrapped.spec.id == "mine/thing-v1"
    assert "motet/mine/thing-v1" not in pettingzoo.parallel_registry


def test_pettingzoos_name_of_a_task_is_ours_too():
    register("thing-v0", Env)
    assert spec("motet/thing-v0").id == "thing-v0"
    with pytest.raises(error.NameNotFound, match="Environment absent not found"):
        spec("motet/absent-v0")


def test_pettingzoos_own_entries_are_not_replaced():
    with pytest.raises(error.RegistrationError, match=r"another butterfly/pistonball-v6"):
        register("butterfly/pistonball-v6", Env)
    assert "butterfly/pistonball-v6" not in registry
    assert pettingzoo.spec("parallel", "butterfly/pistonball-v6").entry_point != Env
