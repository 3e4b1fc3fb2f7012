"""Processes that call a function, each on its own pipe.

They are started with "spawn", since a forked process inherits the locks of threads that it does
not inherit, torch's among them, and hangs on them. Each is the leader of a process group of its
own: killing it ends the subprocesses that the function has started, too. A worker whose parent is
killed kills itself.

The library for this would be Pebble. With its version 5.2.3 a worker that leaves by `os._exit(0)`
is waited for forever, an exception that cannot be unpickled breaks the whole pool, the
subprocesses of a killed worker go on, and its threads know no time limit.
"""

import contextlib
import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection
from multiprocessing.connection import Connection, wait
from typing import Any

from motet.envs.workers.call_outcome import Call, Failed, Outcome, Raised, Returned

_UNPICKLABLE = (pickle.PickleError, TypeError, AttributeError)
_SPAWN = multiprocessing.get_context("spawn")
_SECONDS_TO_LEAVE = 1.0


class ProcessWorker:
    """One process. Its calls' time counts from when the process has imported the function.

    Args:
        pickled: the function.
        timeout_s: seconds that a call may take.
    """

    def __init__(self, pickled: bytes, timeout_s: float) -> None:
        self.deadline = math.inf
        self._timeout_s = timeout_s
        self._started = False
        self._message: bytes | None = None
        self._unsent: Failed | None = None
        self.link, theirs = _SPAWN.Pipe()
        # not daemonic: a daemonic process may not start processes, as code sandboxes do
        self.process = _SPAWN.Process(
            target=_serve, args=(theirs, pickled), name="motet-reward", daemon=False
        )
        self.process.start()
        theirs.close()

    def is_alive(self) -> bool:
        """Tell whether the process can take a call; all that an idle one says is that it ends."""
        try:
            return self.process.is_alive() and not (self._started and self.link.poll())
        except ConnectionError:
            return False

    def start_call(self, call: Call) -> None:
        """Begin a call, or note that it cannot be sent."""
        self.deadline = math.inf
        try:
            self._message = pickle.dumps(call)
        except _UNPICKLABLE as exc:
            self._unsent = Failed(
                TypeError,
                "Expected arguments that pickle, to send them to the process that runs "
                f"reward_func, got {type(exc).__name__}: {exc}",
                'keep such values out of the dataset, or use kind="thread"',
            )
            return
        if self._started:
            self._send()

    def poll(self) -> Outcome | None:
        """Return what came of the call, None while it runs."""
        if self._unsent is not None:
            failed, self._unsent = self._unsent, None
            return failed
        alive = self.process.is_alive()  # looked at first: its last words are in the pipe by then
        try:
            if not self.link.poll():
                return None if alive else self._death()
            answer: Outcome | None = pickle.loads(self.link.recv_bytes())
        except (EOFError, ConnectionError):
            return self._death()
        if answer is None:  # it has imported the function
            self._started = True
            self._send()
        return answer

    def drop(self) -> None:
        """Kill the process and what it has started."""
        self.link.close()
        self._kill()

    def _kill(self) -> None:
        pid = self.process.pid
        if sys.platform != "win32" and pid is not None and self._owns_group(pid):
            # no such group: the process was about to become its leader, or all of it has ended
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()

    def _owns_group(self, pid: int) -> bool:
        """Tell whether a group of this number, if there is one, is this worker's.

        A system gives a number out again only when neither a process nor a group has it. So once
        the worker is gone, a process of its number is a stranger, and then so is the group.
        """
        if self.process.is_alive():
            return True
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False

    def _send(self) -> None:
        assert self._message is not None  # set by start_call, the only way to be waited for
        message, self._message = self._message, None
        self.deadline = time.monotonic() + self._timeout_s
        with contextlib.suppress(ConnectionError):  # it has died since: poll() will say so
            self.link.send_bytes(message)

    def _death(self) -> Failed:
        self.process.join(_SECONDS_TO_LEAVE)  # its pipe may close before it has its exit code
        self._kill()
        code = self.process.exitcode
        if not self._started:
            return Failed(
                RuntimeError,
                f"Expected a process to start for reward_func, got exit code {code} from it before "
                "it could take a call",
                'put what the main script does below `if __name__ == "__main__":`, since every '
                "such process imports that script, and see its own message on stderr",
            )
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = f"signal {-code} ({signal.strsignal(-code)})"
        return Failed(
            RuntimeError,
            f"Expected rewards from reward_func, got the death of its process by {how}",
            "look for os._exit, a crash in compiled code or too little memory",
        )


class ProcessTeam:
    """Starts processes and listens to them.

    Args:
        func: what they call.
        timeout_s: seconds that a call may take.

    Raises:
        TypeError: where `func` does not pickle.
    """

    def __init__(self, func: Callable[..., Any], timeout_s: float) -> None:
        try:
            self._pickled = pickle.dumps(func)
        except _UNPICKLABLE as exc:
            raise TypeError(
                "Expected a reward_func that pickles, to run it in other processes, got "
                f"{func!r} ({type(exc).__name__}: {exc}); define it at module level, or use "
                'RewardWorkers(kind="thread").'
            ) from exc
        self._timeout_s = timeout_s

    def new_worker(self) -> ProcessWorker:
        """Start a process."""
        return ProcessWorker(self._pickled, self._timeout_s)

    def dismiss(self, workers: Collection[ProcessWorker]) -> None:
        """Let processes end as programs do, and kill those that are not gone after a second."""
        for worker in workers:
            worker.link.close()
        deadline = time.monotonic() + _SECONDS_TO_LEAVE
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.drop()

    def wait(
        self, busy: Collection[ProcessWorker], timeout_s: float
    ) -> list[tuple[ProcessWorker, Outcome]]:
        """Return the workers of `busy` that are ready by now, after at most `timeout_s` seconds."""
        polled = _polled(busy)
        if not polled:
            wait([x for w in busy for x in (w.link, w.process.sentinel)], timeout_s)
            polled = _polled(busy)
        return polled


def _polled(busy: Collection[ProcessWorker]) -> list[tuple[ProcessWorker, Outcome]]:
    outcomes = ((worker, worker.poll()) for worker in busy)
    return [(worker, outcome) for worker, outcome in outcomes if outcome is not None]


# --- in the worker process -------------------------------------------------------------------


def _serve(link: "Connection[Any, Any]", pickled: bytes) -> None:
    """Import the function, say so, and answer calls until the pipe is closed."""
    if sys.platform != "win32":
        os.setsid()
    threading.Thread(target=_follow_parent, daemon=True).start()
    try:
        func = pickle.loads(pickled)
    except BaseException as exc:  # noqa: BLE001  # the user's imports run here; told to the parent
        failed = Failed(
            RuntimeError,
            "Expected a reward_func that a new process can import, got "
            f"{type(exc).__name__}: {exc}",
            'define it at the top of a module that can be imported, or use kind="thread"',
            traceback.format_exc(),
        )
        link.send(failed)
        return
    try:
        link.send(None)
        while True:
            link.send_bytes(_answer(func, link.recv_bytes()))
    except (EOFError, ConnectionError):
        return


def _answer(func: Callable[..., Any], message: bytes) -> bytes:
    try:
        call: Call = pickle.loads(message)
        returned = func(*call.args, **call.named)
    except BaseException as exc:  # noqa: BLE001  # raised again in the parent
        return _pickled_exception(exc)
    try:
        return pickle.dumps(Returned(returned))
    except Exception as exc:  # noqa: BLE001  # the value's own methods run here; told to the parent
        failed = Failed(
            TypeError,
            "Expected rewards that pickle, to send them back from the process that ran "
            f"reward_func, got {returned!r:.400} ({type(exc).__name__}: {exc})",
            'return a list of numbers, or use kind="thread"',
        )
        return pickle.dumps(failed)


def _pickled_exception(exc: BaseException) -> bytes:
    trace = "".join(traceback.format_exception(exc))
    try:
        pickled = pickle.dumps(Raised(exc, trace))
        if type(pickle.loads(pickled).exception) is type(exc):
            return pickled
        reason = "it comes back as another type"
    except Exception as why:  # noqa: BLE001  # the exception's own constructor runs in loads
        reason = f"{type(why).__name__}: {why}"
    failed = Failed(
        RuntimeError,
        "Expected reward_func to return, or to raise an exception that pickles, got "
        f"{type(exc).__name__}: {exc} ({reason})",
        "see the cause above for where it was raised",
        trace,
    )
    return pickle.dumps(failed)


def _follow_parent() -> None:
    """Wait for the parent's death, which a busy worker would otherwise survive."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # this runs in a process that another one has spawned
    parent.join()
    if sys.platform != "win32":
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
