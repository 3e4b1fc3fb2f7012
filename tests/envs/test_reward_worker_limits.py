"""Calls of a reward function that take too long, die, or cannot be sent."""

import functools
import multiprocessing
import os
import re
import signal
import threading
import time

import pytest
import reward_functions
from reward_worker_parts import (
    KINDS,
    alive,
    build,
    eventually,
    nothing_is_left,
    read_pid,
    score,
)

from motet.envs import RewardWorkers, TextEnv

__all__ = ["nothing_is_left"]


# --- time limits -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_over_its_limit_is_a_timeout_error(kind, tmp_path):
    env = build(workers=RewardWorkers(2, kind, timeout_s=2.0))
    assert score(env, ["fine", "sleep 0.05"]) == [(4.0, 4.0), (10.0, 10.0)]
    began = tmp_path / "began"
    start = time.monotonic()
    sentence = (
        r"^Expected rewards from reward_func within 2 s, got none for row 1 at turn 1 with the "
        rf"completions \('sleep 60', '{re.escape(str(began))}'\); make it faster, or raise "
        r"timeout_s of RewardWorkers\.$"
    )
    with pytest.raises(TimeoutError, match=sentence):
        score(env, ["fine", "sleep 60", "fine"], [0, 1, 0], ["", str(began), ""])
    assert 2.0 <= time.monotonic() - start < 50
    if kind == "process":
        assert not alive(read_pid(began))
    assert score(env, ["fine"] * 4) == [(4.0, 4.0)] * 4  # as many workers as before


def test_the_limit_is_each_call_s_own_and_a_queue_does_not_count():
    env = build(workers=RewardWorkers(1, timeout_s=2.0))
    assert score(env, ["sleep 0.8"] * 4) == [(9.0, 9.0)] * 4


def test_a_limit_leaves_a_process_the_time_to_start():
    env = build(workers=RewardWorkers(1, "process", timeout_s=0.2))  # the imports take longer
    assert score(env, ["fine"]) == [(4.0, 4.0)]


def test_long_texts_are_shortened():
    env = build(workers=RewardWorkers(1, timeout_s=0.05))
    with pytest.raises(TimeoutError, match=r"xxx\.\.\. \(10007 characters\); make") as caught:
        score(env, ["sleep 1 " + "x" * 9_991])
    assert len(str(caught.value)) < 700


def test_killing_a_process_ends_its_subprocesses(tmp_path):
    env = build(workers=RewardWorkers(1, "process", timeout_s=2.0))
    with pytest.raises(TimeoutError, match="within 2 s"):
        score(env, ["subprocess"], left=[str(tmp_path / "child")])
    child = read_pid(tmp_path / "child")
    eventually(lambda: not alive(child))


# --- processes that die ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "how"),
    [
        ("exit 0", "exit code 0"),
        ("exit 7", "exit code 7"),
        ("kill", r"signal 9 \(Killed\)"),
        ("fork", "exit code 3"),
    ],
)
def test_a_process_that_dies_is_an_error_not_a_hang(said, how, tmp_path):
    env = build(workers=RewardWorkers(2, "process"))
    trace = tmp_path / "trace"
    sentence = (
        rf"^Expected rewards from reward_func, got the death of its process by {how} for row 1 at "
        rf"turn 1 with the completions \('{said}', .*\); look for os._exit, a crash in compiled "
        r"code or too little memory\.$"
    )
    with pytest.raises(RuntimeError, match=sentence):
        score(env, ["fine", said], [0, 1], ["", str(trace)])
    if said == "fork":
        eventually(lambda: not alive(read_pid(trace)))
    assert score(env, ["fine"] * 3) == [(4.0, 4.0)] * 3


def test_a_process_that_is_killed_while_idle_is_replaced_and_no_row_is_blamed():
    env = build(reward_functions.which_process, RewardWorkers(2, "process"))
    first, second = (int(reward) for reward, _ in score(env, "ab"))
    os.kill(first, signal.SIGKILL)
    eventually(lambda: first not in {child.pid for child in multiprocessing.active_children()})
    others = {int(reward) for reward, _ in score(env, "abcd")}
    assert second in others
    assert len(others) == 2
    assert first not in others


# --- what does not pickle --------------------------------------------------------------------


def test_a_function_that_does_not_pickle_is_an_error_when_the_env_is_built():
    sentence = (
        r"Expected a reward_func that pickles, .* got <function .*lambda.*\(.*\); define it at "
        r'module level, or use RewardWorkers\(kind="thread"\)'
    )
    with pytest.raises(TypeError, match=sentence):
        build(lambda first, second: [1.0], RewardWorkers(1, "process"))
    locked = functools.partial(reward_functions.constant, value=threading.Lock())
    with pytest.raises(TypeError, match=r"Expected a reward_func that pickles, .* got .*partial"):
        build(locked, RewardWorkers(1, "process"))
    assert score(build(lambda first, second: [1.0], RewardWorkers(1, "thread")), "a") == [
        (1.0,) * 2
    ]


def test_a_function_that_a_process_cannot_import():
    env = build(reward_functions.Unimportable(), RewardWorkers(1, "process"))
    sentence = (
        "Expected a reward_func that a new process can import, got ModuleNotFoundError: No module "
        r"named 'a_judge' for row 0 at turn 1 .*; define it at the top of a module .*"
    )
    with pytest.raises(RuntimeError, match=sentence) as caught:
        score(env, "a")
    assert "in _not_here" in str(caught.value.__cause__)


def test_rewards_exceptions_and_rows_that_do_not_pickle():
    env = build(workers=RewardWorkers(1, "process"))
    with pytest.raises(TypeError, match=r"Expected rewards that pickle, .*dict_values.* row 0 .*"):
        score(env, ["views"])
    sentence = (
        r"an exception that pickles, got TwoArgumentsError: left or right .* for row 0 at turn 1"
    )
    with pytest.raises(RuntimeError, match=sentence) as caught:
        score(env, ["two"])
    assert 'raise TwoArgumentsError("left", "right")' in str(caught.value.__cause__)
    assert score(env, ["fine"]) == [(4.0, 4.0)]
    env.close()
    rows = [{"prompt": "Rain", "answer": threading.Lock()}]
    env = TextEnv(rows, reward_functions.obey, reward_workers=RewardWorkers(1, "process"))
    with pytest.raises(TypeError, match=r"Expected arguments that pickle, .* row 0 .* dataset"):
        env.step_batch([env.initial_state(0)], [{"agent_0": "a", "agent_1": "b"}])
