"""Workers for slow reward functions: equal results, errors, settings, conformance."""

import decimal
import functools
import math
import threading
import time
import traceback

import pytest
import reward_functions
from hypothesis import given, settings
from hypothesis import strategies as st
from reward_worker_parts import (
    KINDS,
    ROWS,
    alive,
    build,
    eventually,
    nothing_is_left,
    score,
    worker_processes,
)

from motet import envs
from motet.envs import RewardProcessors, RewardWorkers, check_env

__all__ = ["nothing_is_left"]


# --- equal results ---------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
JOINT = st.lists(st.tuples(st.sampled_from([0, 1]), TEXTS, TEXTS), max_size=6)


@pytest.mark.parametrize("name", ["lengths", "each_their_own", "everything"])
@pytest.mark.parametrize("kind", KINDS)
def test_rewards_are_those_without_workers(kind, name):
    reward = getattr(reward_functions, name)
    scale = RewardProcessors.scale(0.5)
    twins = [
        build(reward, workers, num_turns=2, reward_processor=scale)
        for workers in (None, RewardWorkers(2, kind))
    ]

    @settings(max_examples=30)
    @given(joint=JOINT)
    def same(joint):
        results = []
        for env in twins:
            states = [env.initial_state(row) for row, _, _ in joint]
            actions = [{"agent_0": a, "agent_1": b} for _, a, b in joint]
            first = env.step_batch(states, actions)
            second = env.step_batch([result.state for result in first], actions[::-1])
            results.append((first, second))
        assert results[0] == results[1]
        assert len(results[0][1]) == len(joint)

    same()


@pytest.mark.parametrize("kind", KINDS)
def test_each_call_gets_lists_of_length_one_and_all_names(kind):
    seen = []

    def reward(first, second, **named):
        seen.append(((first, second), named))
        return [1.0]

    if kind == "process":  # what a process was given shows in what it returns
        env = build(reward_functions.everything, RewardWorkers(2, kind))
        expected = score(build(reward_functions.everything, None), "ab", [1, 0])
        assert score(env, "ab", [1, 0]) == expected
        return
    env = build(reward, workers=1)
    score(env, "ab", [1, 0])
    columns = {"prompt": ["Sun"], "answer": [9], "level": ["hard"]}
    same = {"prompts": ["Sun"], "rows": [ROWS[1]], "batch_items": [ROWS[1]], **columns}
    nothing_yet = {"agent_0": [], "agent_1": []}
    assert seen[0] == ((["a"], [""]), {**same, "turn": [1], "histories": [nothing_yet]})
    assert [call[0] for call in seen] == [(["a"], [""]), (["b"], [""])]


@pytest.mark.parametrize("kind", KINDS)
def test_results_keep_their_order_whatever_the_order_they_finish_in(kind):
    env = build(reward_functions.longest_first, RewardWorkers(5, kind))
    assert score(env, "abcde") == [(float(ord(x)),) * 2 for x in "abcde"]


def test_calls_run_side_by_side_on_as_many_threads_and_no_more():
    together, most, lock, three = 0, 0, threading.Lock(), threading.Barrier(3)

    def reward(first, second):
        nonlocal together, most
        with lock:
            together += 1
            most = max(most, together)
        three.wait(timeout=60)
        with lock:
            together -= 1
        return [1.0]

    score(build(reward, workers=3), "abcdefghi")
    assert most == 3


@pytest.mark.parametrize(
    ("kind", "function"),
    [("thread", reward_functions.which_thread), ("process", reward_functions.which_process)],
)
def test_workers_start_on_first_use_and_are_kept(kind, function):
    env = build(function, RewardWorkers(2, kind))
    assert not worker_processes()
    one = {reward for reward, _ in score(env, "a")}
    first = {reward for reward, _ in score(env, "abcd")}
    second = {reward for reward, _ in score(env, "abcd")}
    assert one < first == second
    assert len(first) == 2


def test_threads_see_the_context_of_the_caller():
    def reward(first, second):
        return [float(decimal.getcontext().prec)]

    with decimal.localcontext() as context:
        context.prec = 3
        assert score(build(reward), "a") == [(3.0, 3.0)]


def test_without_workers_there_is_one_call_in_the_caller_s_thread():
    calls = []

    def reward(first, second):
        calls.append((threading.current_thread(), first))
        return [1.0] * len(first)

    score(build(reward, workers=None), "abc")
    assert calls == [(threading.main_thread(), ["a", "b", "c"])]


# --- what is wrong with a reward -------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_rewards_raise_with_row_turn_and_texts(kind):
    env = build(workers=RewardWorkers(2, kind))
    cases = {
        "many": (ValueError, r"Expected 1 rewards, .* got 2 from reward_func for \[\('many', ''\)"),
        "nan": (ValueError, r"finite reward, got nan for row 1 at turn 1 .*'nan', ''"),
        "text": (TypeError, r"a number as reward, got '1' for row 1 at turn 1 .*'text', ''"),
        "none": (TypeError, r"Expected a list of 1 rewards, .* got None from reward_func"),
    }
    for said, (exception, sentence) in cases.items():
        with pytest.raises(exception, match=sentence):
            score(env, ["fine", said, "fine"], [0, 1, 0])
    assert score(env, ["fine"]) == [(4.0, 4.0)]


@pytest.mark.parametrize("workers", [None, 2, RewardWorkers(2, "process")])
@pytest.mark.parametrize(("digits", "shown"), [(400, "inf"), (5000, "inf"), (-400, "-inf")])
def test_an_integer_too_large_for_a_float_is_not_finite(workers, digits, shown):
    value = int(math.copysign(1, digits)) * 10 ** abs(digits)
    reward = functools.partial(reward_functions.constant, value=value)
    env = build(reward, workers, reward_processor=lambda r: 0.0)
    sentence = f"Expected a finite reward, got {shown} for row 0 at turn 1 .*'a', ''"
    with pytest.raises(ValueError, match=sentence):
        score(env, "a")


# --- exceptions ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_exceptions_keep_type_and_traceback_and_get_a_note(kind):
    env = build(workers=RewardWorkers(2, kind))
    with pytest.raises(KeyError) as caught:
        score(env, ["fine", "raise"], [0, 1])
    assert caught.value.args == ("the judge's key", 9)
    assert caught.value.__notes__ == [
        "reward_func raised this for row 1 at turn 1 with the completions ('raise', '')."
    ]
    shown = "".join(traceback.format_exception(caught.value))
    assert 'raise KeyError("the judge\'s key", answer)' in shown
    assert "in raise_key_error" in shown


def test_a_thread_s_exception_is_the_very_object():
    for error in (StopIteration("mine"), SystemExit("mine"), KeyboardInterrupt("mine")):

        def reward(first, second, error=error):
            raise error

        with pytest.raises(type(error)) as caught:
            score(build(reward), "a")
        assert caught.value is error


def test_a_process_s_exit_is_raised_here():
    env = build(workers=RewardWorkers(1, "process"))
    with pytest.raises(SystemExit, match="the judge leaves") as caught:
        score(env, ["leave"])
    assert "row 0 at turn 1" in caught.value.__notes__[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_failure_in_the_order_of_the_joint_actions_wins(kind, tmp_path):
    env = build(workers=RewardWorkers(2, kind))
    with pytest.raises(ValueError, match=r"got nan for row 0 at turn 1 .*'nan'"):
        score(env, ["nan", "raise", "fine", "fine"], [0, 1, 1, 1])
    score(env, ["a", "b"])  # two workers are up again
    # the first call returns long after the second has raised, and is waited for; none begins
    with pytest.raises(KeyError):
        score(env, ["sleep 1", "raise", "fine"], left=["", "", str(tmp_path / "never")])
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_failure_the_rest_is_given_up_and_the_step_can_be_repeated(kind, tmp_path):
    env = build(workers=RewardWorkers(2, kind), num_turns=2)
    env.reset(seed=0, options={"row": 1})
    env.step({"agent_0": "a", "agent_1": ""})
    before = env.get_state()
    score(env, ["a", "b"])
    began = tmp_path / "began"
    start = time.monotonic()
    with pytest.raises(KeyError):
        score(env, ["sleep 0.5", "raise", "fine"])
    with pytest.raises(ValueError, match="got nan"):
        score(env, ["nan", f"sleep {reward_functions.FOREVER_S}"], left=["", str(began)])
    assert time.monotonic() - start < 50
    if kind == "process":
        eventually(lambda: not began.exists() or not alive(int(began.read_text() or 0)))
    with pytest.raises(KeyError):
        env.step({"agent_0": "raise", "agent_1": ""})
    assert env.get_state() == before
    assert env.agents == ["agent_0", "agent_1"]
    assert env.step({"agent_0": "again", "agent_1": ""})[1]["agent_0"] == 5.0


# --- settings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "exception", "sentence"),
    [
        (lambda: RewardWorkers(0), ValueError, "num_workers of at least 1, got 0"),
        (lambda: RewardWorkers(True), TypeError, "an integer as num_workers, got True"),
        (lambda: RewardWorkers(2.0), TypeError, "an integer as num_workers, got 2.0"),
        (lambda: RewardWorkers(1, "fork"), ValueError, "kind 'thread' or 'process', got 'fork'"),
        (lambda: RewardWorkers(1, timeout_s=0), ValueError, "positive number of seconds .* got 0;"),
        (lambda: RewardWorkers(1, timeout_s=math.inf), ValueError, "got inf; pass None for no"),
        (lambda: RewardWorkers(1, timeout_s=math.nan), ValueError, "timeout_s, got NaN"),
        (lambda: RewardWorkers(1, timeout_s="1"), TypeError, "a number as timeout_s, got '1'"),
        (lambda: build(workers=0), ValueError, "reward_workers of at least 1, got 0"),
        (lambda: build(workers=True), TypeError, "reward_workers, got True"),
        (lambda: build(workers="process"), TypeError, "reward_workers, got 'process'"),
    ],
)
def test_wrong_settings_raise(make, exception, sentence):
    with pytest.raises(exception, match=sentence):
        make()


# --- conformance -----------------------------------------------------------------------------


@pytest.mark.parametrize("num_turns", [1, 2])
def test_check_env_passes_with_threads(num_turns):
    check_env("story-length-ratio-v0", reward_workers=2, num_turns=num_turns, seeds=(0,))


@pytest.mark.parametrize("num_turns", [1, 2])
def test_check_env_passes_with_processes(num_turns):
    workers = RewardWorkers(2, "process", timeout_s=30.0)
    env = envs.make("story-length-ratio-v0", reward_workers=workers, num_turns=num_turns)
    check_env(env)  # on clones, which share the processes
    env.close()
