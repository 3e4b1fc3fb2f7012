"""Reward functions that worker processes can import: slow ones, failing ones, dying ones."""

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

FOREVER_S = 600.0


def lengths(first, second):
    return [len(a) + 0.5 * len(b) for a, b in zip(first, second, strict=True)]


def each_their_own(first, second):
    return {"agent_1": [len(text) for text in second], "agent_0": [-len(text) for text in first]}


def constant(first, second, *, value):
    return [value] * len(first)


def everything(first, second, prompts, rows, batch_items, turn, histories, **columns):
    """Judge each joint action by all that a reward function can ask for."""
    assert rows == batch_items
    assert sorted(columns) == ["answer", "level", "prompt"]
    told = zip(first, second, prompts, rows, turn, histories, *columns.values(), strict=True)
    return [float(hash_of(repr(parts))) for parts in told]


def hash_of(text):
    """Hash a text the same way in every process, which `hash` does not."""
    return sum((i % 97 + 1) * ord(letter) for i, letter in enumerate(text)) % 99_991


def longest_first(first, second):
    """Take longer the earlier the text is in the alphabet, so that the last one returns first."""
    time.sleep(0.04 * (ord("f") - ord(first[0])))
    return [float(ord(first[0]))]


def which_thread(first, second):
    time.sleep(0.05)
    return [float(threading.get_ident() % 2**40)]


def which_process(first, second):
    time.sleep(0.2)
    return [float(os.getpid())]


def obey(first, second, answer):
    """Do what the first text says; the second is the path where it leaves a trace."""
    word, _, number = first[0].partition(" ")
    if second[0]:
        Path(second[0]).write_text(str(os.getpid()))
    if word in RETURNED:
        return RETURNED[word]
    if word in DEEDS:
        DEEDS[word](number=number, trace=second[0], answer=answer[0])
    return [float(len(first[0]))]


def sleep(number, **_):
    time.sleep(float(number.split()[0]))


def leave_at_once(number, **_):
    os._exit(int(number))


def kill_itself(**_):
    os.kill(os.getpid(), signal.SIGKILL)


def raise_key_error(answer, **_):
    raise KeyError("the judge's key", answer)


def raise_two_arguments(**_):
    raise TwoArgumentsError("left", "right")


def leave(**_):
    sys.exit("the judge leaves")


def wait_for_subprocess(trace, **_):
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({FOREVER_S})"])
    Path(trace).write_text(str(child.pid))
    child.wait()


def fork_and_leave(trace, **_):
    """Leave a child that holds the pipes of this process open."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=[FOREVER_S])
    child.start()
    Path(trace).write_text(str(child.pid))
    os._exit(3)


DEEDS = {
    "sleep": sleep,
    "exit": leave_at_once,
    "kill": kill_itself,
    "raise": raise_key_error,
    "two": raise_two_arguments,
    "leave": leave,
    "subprocess": wait_for_subprocess,
    "fork": fork_and_leave,
}
RETURNED = {
    "views": {1: 1.0}.values(),
    "many": [1.0, 2.0],
    "nan": [math.nan],
    "text": ["1"],
    "none": None,
}


class TwoArgumentsError(Exception):
    """An exception that pickles and cannot be unpickled."""

    def __init__(self, left, right):
        super().__init__(f"{left} or {right}")


class Unimportable:
    """A reward function that pickles and cannot be unpickled."""

    def __call__(self, first, second):
        return [0.0]

    def __reduce__(self):
        return _not_here, ()


def _not_here():
    raise ModuleNotFoundError("No module named 'a_judge'")
