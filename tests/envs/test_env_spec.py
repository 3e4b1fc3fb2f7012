"""The recipe of an environment: its parts, and its way through JSON, pickle and other processes."""

import functools
import inspect
import json
import math
import pickle
import subprocess
import sys

import pettingzoo
import pytest
from gymnasium import error

from motet.envs.registration.by_id import make, spec
from motet.envs.registration.env_spec import EnvSpec
from motet.envs.story_length_ratio import story_length_ratio

STORY = "motet.envs.story_length_ratio:story_length_ratio"


def play(env):
    observations, _ = env.reset(seed=3)
    seen = [observations]
    while env.agents:
        observations, rewards, *_ = env.step({"agent_0": "one", "agent_1": "one two"})
        seen += [observations, rewards]
    return seen


class Env(pettingzoo.ParallelEnv):
    class Inner(pettingzoo.ParallelEnv):
        pass

    @classmethod
    def build(cls):
        return cls()


def make_env(**kwargs):
    return Env()


def _local():
    def inside():
        return Env()

    return inside


# --- parts -----------------------------------------------------------------------------------


def test_declared_properties():
    declared = EnvSpec("thing-v0", make_env, reward_range=[-1, 2], nondeterministic=True)
    assert declared.reward_range == (-1.0, 2.0)
    assert [type(bound) for bound in declared.reward_range] == [float, float]
    assert declared.nondeterministic is True
    assert EnvSpec("thing-v0", make_env).reward_range is None
    assert EnvSpec("thing-v0", make_env).nondeterministic is False
    assert EnvSpec("thing-v0", make_env, reward_range=(-math.inf, 0)).reward_range[0] == -math.inf
    assert spec("story-length-ratio-v0").reward_range == (0.0, 1.0)


@pytest.mark.parametrize(
    ("reward_range", "exception", "sentence"),
    [
        (
            (1, 0),
            ValueError,
            r"lowest before the highest as reward_range of thing-v0, got \(1, 0\)",
        ),
        (
            (0, 1, 2),
            ValueError,
            r"\(lowest, highest\) as reward_range of thing-v0, got \(0, 1, 2\)",
        ),
        (1.0, ValueError, r"\(lowest, highest\) as reward_range of thing-v0, got 1.0"),
        ("01", ValueError, r"\(lowest, highest\)"),
        ((0, "1"), TypeError, "a number as reward_range of thing-v0, got '1'"),
        ((False, True), TypeError, "a number as reward_range of thing-v0, got False"),
        ((0, math.nan), ValueError, "a number as reward_range of thing-v0, got NaN"),
    ],
)
def test_reward_ranges_that_are_none(reward_range, exception, sentence):
    with pytest.raises(exception, match=sentence):
        EnvSpec("thing-v0", make_env, reward_range=reward_range)


def test_parts_of_another_type():
    with pytest.raises(TypeError, match=r"mapping as the kwargs of thing-v0, got \[1\]"):
        EnvSpec("thing-v0", make_env, [1])
    with pytest.raises(TypeError, match="True or False as nondeterministic of thing-v0, got 1"):
        EnvSpec("thing-v0", make_env, nondeterministic=1)


def test_an_entry_point_may_be_an_attribute_of_a_class():
    assert type(EnvSpec("thing-v0", f"{__name__}:Env.build").make()) is Env
    assert type(EnvSpec("thing-v0", f"{__name__}:Env.Inner").make()) is Env.Inner
    with pytest.raises(error.Error, match=r"Env.Inner.none' of thing-v0, got None"):
        EnvSpec("thing-v0", f"{__name__}:Env.Inner.none").make()


# --- equality --------------------------------------------------------------------------------


def test_a_callable_equals_the_string_that_names_it():
    by_name = EnvSpec("thing-v0", f"{__name__}:make_env", {"size": 1})
    assert by_name == EnvSpec("thing-v0", make_env, {"size": 1})
    assert EnvSpec("thing-v0", Env.Inner) == EnvSpec("thing-v0", f"{__name__}:Env.Inner")
    assert hash(by_name) == hash(EnvSpec("thing-v0", make_env, {"size": 1}))
    assert by_name != EnvSpec("thing-v0", Env, {"size": 1})
    local, same_name = _local(), _local()
    assert EnvSpec("thing-v0", local) == EnvSpec("thing-v0", local)
    assert EnvSpec("thing-v0", local) != EnvSpec("thing-v0", same_name)
    assert EnvSpec("thing-v0", local) != EnvSpec(
        "thing-v0", f"{local.__module__}:{local.__qualname__}"
    )
    assert by_name != "thing-v0"


@pytest.mark.parametrize(
    "change",
    [{"id": "thing-v1"}, {"kwargs": {}}, {"reward_range": (0, 1)}, {"nondeterministic": True}],
)
def test_every_part_counts(change):
    parts = {"id": "thing-v0", "entry_point": make_env, "kwargs": {"size": 1}}
    assert EnvSpec(**parts) == EnvSpec(**parts)
    assert EnvSpec(**{**parts, **change}) != EnvSpec(**parts)


# --- JSON ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry_point", [make_env, Env, Env.Inner, story_length_ratio, STORY, "not.yet:Installed"]
)
def test_json_round_trip(entry_point):
    kwargs = {
        "text": "Übung \ud83d\n",
        "flags": [True, None, -1, 0.1, math.inf],
        "nested": {"a": [{}, []]},
    }
    before = EnvSpec("mine/thing-v3", entry_point, kwargs, (-math.inf, 1), True)
    after = EnvSpec.from_json(before.to_json())
    assert after == before
    assert after.reward_range == (-math.inf, 1.0)
    assert [type(item) for item in after.kwargs["flags"]] == [bool, type(None), int, float, float]
    assert isinstance(after.entry_point, str)
    assert json.loads(before.to_json()).keys() == {
        "id", "entry_point", "kwargs", "reward_range", "nondeterministic",
    }  # fmt: skip


def test_json_needs_no_more_than_id_and_entry_point():
    assert EnvSpec.from_json('{"id": "a-v0", "entry_point": "m:E"}') == EnvSpec("a-v0", "m:E")


@pytest.mark.parametrize(
    "entry_point",
    [
        lambda size=1: Env(),
        _local(),
        functools.partial(make_env, size=1),
        Env.build,  # a new object each time it is looked up
    ],
)
def test_entry_points_that_no_other_process_can_import(entry_point):
    with pytest.raises(ValueError, match=r"of thing-v0 that another process .*'module:attribute'"):
        EnvSpec("thing-v0", entry_point).to_json()


def test_what_was_replaced_since_has_no_path(monkeypatch):
    before = EnvSpec("thing-v0", make_env)
    before.to_json()
    monkeypatch.setattr(sys.modules[__name__], "make_env", Env)
    with pytest.raises(ValueError, match="another process can import"):
        before.to_json()


def test_a_scripts_own_functions_have_no_path():
    code = (
        "from motet.envs import EnvSpec\n"
        "def task(): ...\n"
        "for entry_point in (task, '__main__:task'):\n"
        "    try: EnvSpec('thing-v0', entry_point).to_json()\n"
        "    except ValueError as exc: print(str(exc)[:36])\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "Expected an entry point of thing-v0 \n" * 2


@pytest.mark.parametrize(
    ("kwargs", "where", "sentence"),
    [
        ({"data": {1, 2}}, "kwargs['data'] of", "type set; make it in a function"),
        (
            {"a": 1, "reward_func": make_env},
            "kwargs['reward_func']",
            "register that as 'module:fun",
        ),
        ({"names": ("a", "b")}, "kwargs['names']", "type tuple; give a list"),
        (
            {"rows": [{"prompt": "a"}, {"prompt": b"b"}]},
            "kwargs['rows'][1]['prompt']",
            "type bytes",
        ),
        ({"by_row": {1: "a"}}, "kwargs['by_row']", "type dict"),
        ({"factor": math.nan}, "kwargs['factor']", "got NaN"),
    ],
)
def test_kwargs_that_json_cannot_hold(kwargs, where, sentence):
    with pytest.raises(ValueError) as caught:
        EnvSpec("thing-v0", make_env, kwargs).to_json()
    assert f"Expected {where}" in str(caught.value)
    assert "thing-v0" in str(caught.value)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("text", "exception", "sentence"),
    [
        ("no json", ValueError, "Expecting value"),
        ("[1]", ValueError, r"JSON object with id and entry_point, .*kwargs.*, got \[1\]"),
        ("{", ValueError, r"JSON text that to_json\(\) wrote, got '{': Expecting property name"),
        (None, TypeError, r"JSON text that to_json\(\) wrote, got None"),
        ('{"id": "a-v0"}', ValueError, "with id and entry_point"),
        ('{"id": "a-v0", "entry_point": "m:E", "max_cycles": 3}', ValueError, "got {.*max_cycles"),
        ('{"id": "a-v0", "entry_point": 3}', TypeError, "callable or 'module:attribute'"),
        ('{"id": "a-v0", "entry_point": "m"}', error.Error, "'module:attribute' as"),
        (
            '{"id": "a-v0", "entry_point": "m:E", "kwargs": null}',
            TypeError,
            "mapping as the kwargs",
        ),
    ],
)
def test_json_that_is_no_spec(text, exception, sentence):
    with pytest.raises(exception, match=sentence):
        EnvSpec.from_json(text)


# --- other processes -------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "pickle"])
def test_another_process_makes_an_equal_env(form):
    env = make("story-length-ratio-v0", num_turns=2, split="eval", ratio_max=2.5)
    sent = env.spec.to_json() if form == "json" else pickle.dumps(env.spec, protocol=0).decode()
    code = inspect.cleandoc(f"""
import json, pickle, sys
from motet.envs import EnvSpec
{inspect.getsource(play)}
text = sys.stdin.read()
spec = EnvSpec.from_json(text) if {form == "json"} else pickle.loads(text.encode())
env = spec.make()
print(json.dumps({{"played": play(env), "spec": env.spec.to_json()}}))
""")
    run = subprocess.run(
        [sys.executable, "-c", code], input=sent, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    there = json.loads(run.stdout)
    assert there["played"] == play(env)
    assert EnvSpec.from_json(there["spec"]) == env.spec
    assert env.spec.kwargs == {"num_turns": 2, "split": "eval", "ratio_max": 2.5}


# --- printing --------------------------------------------------------------------------------


def test_pprint(capsys):
    thing = EnvSpec("thing-v0", make_env, {"size": 1, "f": Env, "d": list(range(99))}, (0, 1), True)
    assert thing.pprint() is None
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "id=thing-v0",
        f"kwargs={{'size': 1, 'f': {__name__}:Env, 'd': [0, 1, 2, 3, 4, 5, ...]}}",
        "reward_range=(0.0, 1.0)",
        "nondeterministic=True",
    ]
    with_entry_point = thing.pprint(disable_print=True, include_entry_points=True).splitlines()
    assert with_entry_point == [lines[0], f"entry_point={__name__}:make_env", *lines[1:]]
    plain = EnvSpec("plain", STORY)
    assert plain.pprint(disable_print=True) == "id=plain"
    assert plain.pprint(disable_print=True, print_all=True) == (
        f"id=plain\nentry_point={STORY}\nkwargs={{}}\nreward_range=None\nnondeterministic=False"
    )
    assert capsys.readouterr().out == ""
