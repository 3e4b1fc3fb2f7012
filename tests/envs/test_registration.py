"""The registry: ids, duplicates, errors, plug-ins, and its mirror in PettingZoo's."""

import functools
import importlib
import importlib.metadata
import pickle
import re
import types
import warnings
from typing import ClassVar

import pettingzoo
import pytest
from gymnasium import error

from motet.envs.registration.by_id import (
    EnvSpec,
    load_plugins,
    make,
    pprint_registry,
    register,
    registry,
    spec,
)
from motet.envs.registration.plugins import PluginLoader
from motet.envs.text_env import TextEnv

# Not `from motet.envs import registry`: that is the dict, which hides the module of its name.
registry_module = importlib.import_module("motet.envs.registration.by_id")


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
    monkeypatch.setattr(registry_module, "_plugins", PluginLoader("motet.envs"))
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


def test_register_decorates_a_class_too():
    @register("thing-v0", size=4, reward_range=(-1, 1), nondeterministic=True)
    class Thing(Env):
        pass

    assert type(make("thing-v0")) is Thing
    assert make("thing-v0").size == 4
    assert spec("thing-v0").reward_range == (-1.0, 1.0)
    assert spec("thing-v0").nondeterministic


def test_made_env_carries_a_spec_that_makes_it_again():
    register("thing-v0", make_env, size=2, reward_range=(0, 1), nondeterministic=True)
    env = make("thing-v0", data=[1])
    made_by = EnvSpec("thing-v0", make_env, {"size": 2, "data": [1]}, (0, 1), True)
    assert env.unwrapped.spec == made_by
    again = env.unwrapped.spec.make(size=5)
    assert (again.size, again.data) == (5, [1])
    assert spec("thing-v0").kwargs == {"size": 2}


def test_spec_is_set_below_wrappers_and_seen_through_them():
    wrapped = pettingzoo.utils.BaseParallelWrapper(Env())
    register("thing-v0", lambda: pettingzoo.utils.BaseParallelWrapper(wrapped))
    made = make("thing-v0")
    assert made.env is wrapped
    assert wrapped.env.spec.id == "thing-v0"
    assert made.spec is wrapped.spec is wrapped.env.spec


def test_declared_properties_are_not_passed_on_but_kwargs_are():
    def thing(reward_range=None):
        return Env(size=reward_range)

    register("thing-v0", thing, reward_range=(0, 2), kwargs={"reward_range": 7})
    assert make("thing-v0").size == 7
    assert spec("thing-v0").reward_range == (0.0, 2.0)


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
    with pytest.raises(TypeError, match=r'as in @register\("name-v0"\), got .*Env'):
        register(Env)


def test_malformed_declarations_are_reported_where_they_stand():
    for decorator in (False, True):
        entry_point = () if decorator else (Env,)
        with pytest.raises(
            ValueError, match=r"lowest before the highest .* thing-v0, got \(2, 1\)"
        ):
            register("thing-v0", *entry_point, reward_range=(2, 1))
        with pytest.raises(TypeError, match="nondeterministic of thing-v0, got 'no'"):
            register("thing-v0", *entry_point, nondeterministic="no")
    assert not registry


# --- a dataset and a reward function ---------------------------------------------------------

ROWS = [{"prompt": "Rain"}]


def one(first, second):
    return [1.0] * len(first)


def zero(first, second):
    return [0.0] * len(first)


def two_turns(prompt, agent_completions, num_agents):
    return ["again"] * num_agents


@pytest.mark.parametrize("entry_point", [(), (TextEnv,), ("motet.envs.text_env:TextEnv",)])
def test_a_dataset_and_a_reward_function_are_a_task(entry_point):
    parts = {"dataset": ROWS, "reward_func": one, "transition": two_turns, "num_turns": 2}
    assert register("haiku-v0", *entry_point, **parts, reward_range=(0, 1)) is None
    env = make("haiku-v0")
    assert type(env) is TextEnv
    assert env.spec == env.unwrapped.spec == spec("haiku-v0")
    assert env.reset()[0] == {"agent_0": "Rain", "agent_1": "Rain"}
    observations, rewards, *_ = env.step({"agent_0": "a", "agent_1": "b"})
    assert observations == {"agent_0": "again", "agent_1": "again"}
    assert rewards == {"agent_0": 1.0, "agent_1": 1.0}
    assert make("haiku-v0", num_turns=1).num_turns == 1
    assert str(pettingzoo.make("parallel", "motet/haiku-v0")) == "haiku-v0"


def test_the_parts_of_a_task_may_be_in_kwargs():
    register("haiku-v0", kwargs={"reward_func": one}, dataset=ROWS)
    assert make("haiku-v0").dataset is ROWS


def test_a_dataset_alone_is_a_default_of_what_is_decorated():
    @register("haiku-v0", dataset=ROWS)
    def haiku(**kwargs):
        return TextEnv(reward_func=one, **kwargs)

    assert make("haiku-v0").dataset is ROWS


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"dataset": ROWS, "reward_fn": one}, "reward_func beside dataset .*, got reward_fn;"),
        ({"dataset": ROWS, "reward_funcs": one}, "reward_func beside dataset .*, got reward_funcs"),
        ({"train_dataset": ROWS, "reward_func": one}, "dataset beside reward_func .*, got train_d"),
    ],
)
def test_a_misspelt_part_does_not_become_a_decorator(parts, sentence):
    with pytest.raises(TypeError, match=sentence):
        register("haiku-v0", **parts)
    assert not registry


def test_kwargs_are_a_mapping():
    with pytest.raises(TypeError, match=r"a mapping as kwargs of haiku-v0, got \[1\]"):
        register("haiku-v0", TextEnv, kwargs=[1])
    assert not registry


def test_such_tasks_are_told_apart_by_their_reward_functions():
    register("haiku-v0", dataset=ROWS, reward_func=one)
    with pytest.raises(
        error.RegistrationError, match=r"for .*:zero, since it is taken by .*:one\."
    ):
        register("haiku-v0", dataset=ROWS, reward_func=zero)
    with pytest.raises(error.RegistrationError, match="taken"):
        register("haiku-v0", TextEnv, dataset=ROWS, reward_func=functools.partial(zero))
    assert registry["haiku-v0"].kwargs["reward_func"] is one
    with pytest.warns(UserWarning, match=r"Registered haiku-v0 again, from .*:one\."):
        register("haiku-v0", TextEnv, dataset=ROWS, reward_func=functools.partial(one))


def test_a_lambda_replaces_a_lambda_as_when_a_cell_runs_twice():
    register("haiku-v0", dataset=ROWS, reward_func=lambda first, second: [0.0])
    with pytest.warns(UserWarning, match=r"again, from .*<lambda>"):
        register("haiku-v0", dataset=ROWS, reward_func=lambda first, second: [1.0])
    env = make("haiku-v0")
    env.reset()
    assert env.step({"agent_0": "a", "agent_1": "b"})[1] == {"agent_0": 1.0, "agent_1": 1.0}


def test_what_is_no_reward_function_is_refused_at_once():
    with pytest.raises(TypeError, match=r"function as reward_func of haiku-v0, got \[1.0\]"):
        register("haiku-v0", dataset=ROWS, reward_func=[1.0])
    assert not registry


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
        f"from motet.envs.registration.by_id import register\nregister('plugged-v0', {ENV!r})\n"
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


def later_env(*, num_agents=4, num_turns, **kwargs) -> "TextEnv":
    raise AssertionError("the table made an env")


def test_pprint_registry_is_a_table_with_plugins(monkeypatch, capsys):
    _install(monkeypatch, Plugin("first", _registering_module("first/thing-v0")))
    register("long-name-thing-v0", make_env, size=2, data=list(range(1000)), reward_range=(-1, 0.5))
    table = pprint_registry(disable_print=True)
    assert capsys.readouterr().out == ""
    head, first, second = table.splitlines()
    assert re.split("  +", head) == ["id", "agents", "turns", "reward range", "origin and defaults"]
    assert first.split() == ["first/thing-v0", "?", "?", "?", f"{Env.__module__}:Env"]
    assert second.startswith("long-name-thing-v0  ?       ?      [-1, 0.5]     ")
    assert second.index(f"{make_env.__module__}:make_env(size=2") == head.index("origin")
    assert len(second) <= 100
    assert pprint_registry() is None
    assert capsys.readouterr().out == table + "\n"


@pytest.mark.parametrize(
    ("entry_point", "kwargs", "agents", "turns"),
    [
        (TextEnv, {}, "2", "1"),
        ("motet.envs.text_env:TextEnv", {"num_agents": 3}, "3", "1"),
        ("motet.envs.story_length_ratio:story_length_ratio", {"num_turns": 2}, "2", "2"),
        (later_env, {}, "4", "?"),
        (later_env, {"num_turns": 5, "num_agents": None}, "?", "5"),
        (functools.partial(later_env, num_turns=6), {}, "4", "6"),
        (lambda **kwargs: None, {}, "?", "?"),
        (dict, {"num_agents": True}, "?", "?"),
        ("no_such_module_here:Env", {}, "?", "?"),
        ("no_such_module_here:Env", {"num_agents": 2, "num_turns": 3}, "2", "3"),
        ("math:no_such_function", {}, "?", "?"),
    ],
)
def test_agents_and_turns_are_found_without_making_the_env(entry_point, kwargs, agents, turns):
    register("thing-v0", entry_point, kwargs=kwargs)
    _, row = pprint_registry(disable_print=True).splitlines()
    assert row.split()[1:3] == [agents, turns]
    assert "num_" not in row


def test_a_factory_whose_annotations_are_strings(tmp_path, monkeypatch):
    (tmp_path / "annotates_with_strings.py").write_text(
        "from __future__ import annotations\n"
        "from motet import envs\n"
        "def task(**kwargs) -> envs.TextEnv: return envs.TextEnv(**kwargs)\n"
        "def other(**kwargs) -> envs.NoSuchEnv: ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    register("other-v0", "annotates_with_strings:other")
    register("task-v0", "annotates_with_strings:task")
    _, other, task = pprint_registry(disable_print=True).splitlines()
    assert task.split()[1:3] == ["2", "1"]
    assert other.split()[1:3] == ["?", "?"]
    with pytest.raises(TypeError, match="which may be dataset, reward_func"):
        make("task-v0", num_turn=2)


@pytest.mark.parametrize("statement", ["1 / 0", "import sys; sys.exit(3)", "import no_such_thing"])
def test_a_broken_entry_point_does_not_break_the_table(tmp_path, monkeypatch, statement):
    (tmp_path / "breaks_on_import.py").write_text(statement)
    monkeypatch.syspath_prepend(tmp_path)
    register("breaks-v0", "breaks_on_import:Env")
    register("works-v0", TextEnv)
    _, breaks, works = pprint_registry(disable_print=True).splitlines()
    assert breaks.split() == ["breaks-v0", "?", "?", "?", "breaks_on_import:Env"]
    assert works.split()[1:3] == ["2", "1"]


def test_the_table_shows_functions_by_name_and_datasets_in_one_line():
    class Dataset(list):
        def __repr__(self):
            return "Dataset({\n    features: ['prompt'],\n})"

    register("h-v0", dataset=Dataset(ROWS), reward_func=one)
    _, row = pprint_registry(disable_print=True).splitlines()
    assert f" {one.__module__}:one(dataset=Dataset({{ ..." in row
    register("i-v0", "e:E", reward_func=one)
    *_, row = pprint_registry(disable_print=True).splitlines()
    assert row.endswith(f" e:E(reward_func={one.__module__}:one)")


def test_rows_are_in_the_order_of_versions_and_keep_some_width_for_the_origin():
    for version in (10, 9):
        register(f"mine/thing-v{version}", Env)
    long_id = f"a-{'long-' * 20}name-v0"
    register(long_id, Env, data="x" * 50)
    _, *rows = pprint_registry(disable_print=True).splitlines()
    assert [row.split()[0] for row in rows] == [long_id, "mine/thing-v9", "mine/thing-v10"]
    assert rows[0].split()[-1] == f"{Env.__module__}:Env"[:27] + "..."


def test_namespaces_can_be_left_out():
    for id in ("thing-v0", "mine/thing-v0", "yours/thing-v0"):
        register(id, Env)
    table = pprint_registry(exclude_namespaces=["mine", "absent"], disable_print=True)
    assert [line.split()[0] for line in table.splitlines()] == ["id", "thing-v0", "yours/thing-v0"]
    with pytest.raises(TypeError, match="list of namespaces to exclude, got 'mine'"):
        pprint_registry(exclude_namespaces="mine")


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
