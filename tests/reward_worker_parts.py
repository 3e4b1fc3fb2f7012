"""What the tests of reward workers share: an env, its processes and threads, and no leftovers."""

import contextlib
import multiprocessing
import re
import threading
import time
import weakref

import psutil
import pytest
import reward_functions

from motet.envs import TextEnv

ROWS = [
    {"prompt": "Rain", "answer": 7, "level": "easy"},
    {"prompt": "Sun", "answer": 9, "level": "hard"},
]
KINDS = ("thread", "process")
BUILT = weakref.WeakSet()


def keep(prompt, agent_completions, num_agents):
    return [f"{prompt} {text}" for text in agent_completions]


def build(reward_func=reward_functions.obey, workers=2, **kwargs):
    env = TextEnv(ROWS, reward_func, reward_workers=workers, **{"transition": keep, **kwargs})
    BUILT.add(env)
    return env


def score(env, said, rows=None, left=()):
    """Play one turn per text from the start of `rows`; return the rewards of both agents."""
    states = [env.initial_state(row) for row in rows or [0] * len(said)]
    left = list(left) or [""] * len(said)
    joint = [{"agent_0": a, "agent_1": b} for a, b in zip(said, left, strict=True)]
    return [tuple(result.rewards.values()) for result in env.step_batch(states, joint)]


def worker_processes(parent=None):
    """Return the processes below this one but for the services of libraries, alive ones."""
    found = []
    for process in psutil.Process(parent).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            service = re.search(
                "resource_tracker|wandb-core|playwright", " ".join(process.cmdline())
            )
            if service is None and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def worker_threads():
    return [thread for thread in threading.enumerate() if thread.name == "motet-reward"]


def eventually(condition):
    """Wait for what another process or thread does in a moment, or in many on a busy machine."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def read_pid(path):
    eventually(lambda: path.exists() and path.read_text())
    return int(path.read_text())


@pytest.fixture(autouse=True)
def nothing_is_left():
    """No test leaves a process behind."""
    before = set(worker_processes()), set(multiprocessing.active_children())
    yield
    for env in BUILT:
        env.close()
    eventually(lambda: set(worker_processes()) <= before[0])
    assert set(multiprocessing.active_children()) <= before[1]
