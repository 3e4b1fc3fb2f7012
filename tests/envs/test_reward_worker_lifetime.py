"""When reward workers start and end: clones, copies, forks, the interpreter's exit."""

import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import reward_functions
from reward_worker_parts import (
    KINDS,
    alive,
    build,
    eventually,
    nothing_is_left,
    score,
    worker_processes,
    worker_threads,
)

from motet.envs import RewardWorkers

__all__ = ["nothing_is_left"]


HERE = Path(__file__).parent.parent


# --- lifetime --------------------------------------------------------------------------------


def test_clones_share_the_workers_and_outlive_the_original_s_close():
    env = build(reward_functions.which_process, RewardWorkers(1, "process"))
    env.reset(seed=0)
    twin = env.clone()
    pid = score(env, "a")
    assert score(twin, "a") == pid
    assert len(worker_processes()) == 1
    env.close()
    assert not worker_processes()
    assert score(twin, "a") != pid
    assert score(env, "a") == score(twin, "a")
    assert len(worker_processes()) == 1
    twin.close()
    twin.close()
    assert not worker_processes()


@pytest.mark.parametrize("kind", KINDS)
def test_workers_end_with_the_last_env_that_has_them(kind):
    env = build(workers=RewardWorkers(2, kind))
    threads = len(worker_threads())
    score(env, ["sleep 0.1", "b"])
    twin = env.clone()
    del env
    assert len(worker_processes()) + len(worker_threads()) - threads == 2
    del twin
    eventually(lambda: not worker_processes() and len(worker_threads()) <= threads)


def test_states_and_envs_pickle_and_copy_without_the_workers():
    env = build(reward_functions.which_process, RewardWorkers(1, "process"), transition=None)
    env.reset(seed=0)
    before = env.get_state()
    pid = score(env, "a")
    assert env.get_state() == before == pickle.loads(pickle.dumps(env.get_state()))
    for other in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        assert len(worker_processes()) == 1
        assert other.get_state() == before
        assert score(other, "a") != pid
        other.close()
    assert score(env, "a") == pid


@pytest.mark.parametrize("kind", KINDS)
def test_clones_in_several_threads_take_turns(kind):
    env = build(reward_functions.lengths, RewardWorkers(2, kind))
    results = {}

    def play(i):
        results[i] = score(env.clone(), ["x" * i, "y" * (i + 1)])

    threads = [threading.Thread(target=play, args=[i]) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: [(i, i), (i + 1, i + 1)] for i in range(6)}


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_function_may_step_a_clone_of_its_own_env(num_workers):
    def reward(first, second):
        if first[0] == "raise":
            raise KeyError("inside")
        if first[0].startswith("look ahead "):
            return [1 + score(env.clone(), ["a", first[0].removeprefix("look ahead ")])[1][0]]
        return [float(len(first[0]))]

    env = build(reward, RewardWorkers(num_workers))
    assert score(env, ["look ahead look ahead abc", "ab"]) == [(5.0, 5.0), (2.0, 2.0)]
    with pytest.raises(KeyError, match="inside") as caught:
        score(env, ["ab", "look ahead raise"])
    assert [note.partition("with the completions ")[2] for note in caught.value.__notes__] == [
        "('raise', '').",
        "('look ahead raise', '').",
    ]
    assert score(env, ["look ahead abcd"] * 3) == [(5.0, 5.0)] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_processor_may_step_a_clone_of_its_own_env(kind):
    def processor(value):
        return value if value < 3 else value + score(env.clone(), ["ab"])[0][0]

    env = build(reward_functions.lengths, RewardWorkers(2, kind), reward_processor=processor)
    assert score(env, ["abc", "a"]) == [(5.0, 5.0), (1.0, 1.0)]


def test_a_function_cannot_close_the_env_that_waits_for_it():
    def reward(first, second):
        env.close()
        return [0.0]

    env = build(reward)
    with pytest.raises(RuntimeError, match=r"Expected close\(\) of an env outside of its reward"):
        score(env, ["a"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_forked_process_starts_workers_of_its_own(kind):
    env = build(reward_functions.lengths, RewardWorkers(1, kind))
    assert score(env, ["a"]) == [(1.0, 1.0)]
    queue = multiprocessing.get_context("fork").SimpleQueue()

    def play():
        queue.put(score(env, ["ab"]))
        env.close()

    child = multiprocessing.get_context("fork").Process(target=play)
    child.start()
    assert queue.get() == [(2.0, 2.0)]
    child.join()
    assert child.exitcode == 0
    assert score(env, ["abc"]) == [(3.0, 3.0)]


# --- exit ------------------------------------------------------------------------------------


def run_script(tmp_path, code, **kwargs):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(code))
    return subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        **kwargs,
    )


STUCK = """
    import reward_functions, signal, time
    from motet.envs import RewardWorkers, TextEnv

    if __name__ == "__main__":
        # a shell lets what it runs in the background ignore the signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        env = TextEnv(
            [{{"prompt": "Rain", "answer": 7}}],
            reward_functions.obey,
            reward_workers=RewardWorkers(2, {kind!r}, timeout_s={timeout_s}),
        )
        state = env.initial_state(0)
        try:
            env.step_batch([state] * 2, [{{"agent_0": x, "agent_1": ""}} for x in {texts!r}])
        except (ValueError, TimeoutError) as error:
            print(type(error).__name__, flush=True)
        print(time.time(), flush=True)
"""


@pytest.mark.parametrize("timeout_s", [None, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_stuck_calls_do_not_keep_the_interpreter(kind, timeout_s, tmp_path):
    texts = ["nan" if timeout_s is None else "sleep 600", "sleep 600"]
    process = run_script(tmp_path, STUCK.format(kind=kind, timeout_s=timeout_s, texts=texts))
    out, err = process.communicate(timeout=60)
    name, finished = out.split()
    assert name == ("ValueError" if timeout_s is None else "TimeoutError")
    assert time.time() - float(finished) < 30
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("kind", KINDS)
def test_idle_workers_do_not_keep_the_interpreter(kind, tmp_path):
    code = """
        import reward_functions, time, sys
        from motet.envs import RewardWorkers, TextEnv

        if __name__ == "__main__":
            env = TextEnv(
                [{{"prompt": "Rain"}}],
                reward_functions.lengths,
                reward_workers=RewardWorkers(2, {kind!r}),
            )
            env.reset()
            print(env.step({{"agent_0": "ab", "agent_1": ""}})[1]["agent_0"], time.time())
    """
    process = run_script(tmp_path, code.format(kind=kind))
    out, err = process.communicate(timeout=60)
    reward, finished = out.split()
    assert reward == "2.0"
    assert time.time() - float(finished) < 30
    assert (process.returncode, err) == (0, "")


def test_ctrl_c_ends_the_workers_too(tmp_path):
    code = STUCK.format(kind="process", timeout_s=None, texts=["sleep 600", "sleep 600"])
    process = run_script(tmp_path, code)
    eventually(lambda: len(worker_processes(process.pid)) == 2)
    workers = worker_processes(process.pid)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in err
    eventually(lambda: not any(map(alive, workers)))


def test_busy_processes_do_not_outlive_a_killed_parent(tmp_path):
    code = STUCK.format(kind="process", timeout_s=None, texts=["sleep 600", "sleep 600"])
    process = run_script(tmp_path, code)
    eventually(lambda: len(worker_processes(process.pid)) == 2)
    workers = worker_processes(process.pid)
    time.sleep(1.0)
    process.kill()
    process.communicate(timeout=60)
    eventually(lambda: not any(map(alive, workers)))


def test_a_script_without_the_main_guard_is_told_so(tmp_path):
    code = """
        import reward_functions
        from motet.envs import RewardWorkers, TextEnv

        workers = RewardWorkers(1, "process")
        env = TextEnv([{"prompt": "Rain"}], reward_functions.lengths, reward_workers=workers)
        env.reset()
        env.step({"agent_0": "ab", "agent_1": ""})
    """
    process = run_script(tmp_path, code)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    sentence = (
        "RuntimeError: Expected a process to start for reward_func, got exit code 1 from it before "
        "it could take a call for row 0 at turn 1 with the completions ('ab', ''); put what the "
        'main script does below `if __name__ == "__main__":`'
    )
    assert sentence in err
