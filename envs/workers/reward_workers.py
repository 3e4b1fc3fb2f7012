"""Workers for reward functions that take long: API judges, code sandboxes, test suites.

    env = TextEnv(rows, judge, reward_workers=16)  # sixteen threads
    env = TextEnv(rows, unit_tests, reward_workers=RewardWorkers(4, kind="process", timeout_s=30))

The joint actions of a turn are then scored by one call each, several at a time, in place of one
call for all. Every list that the function gets has length 1, so it must judge each joint action by
itself. Its rewards are the same as without workers, in the same order.

Threads are for waiting: on the network, or on subprocesses that do the work. They start at once
and need nothing of the function, but they share one interpreter, so pure Python code gains no
speed, and a call cannot be stopped: one that takes too long is given up and goes on unheard, and
one that keeps the interpreter to itself, as a long regular expression does, cannot be given up.
Processes are for computing in Python, and for code that must be stopped: a call that takes too
long is killed, with the subprocesses that it has started. They need a function that pickles, one
at the top of a module, and each takes seconds to start, since it imports that module and the main
script. What the function keeps in memory between calls, a cache or a client, each process has for
itself.

A function may step clones of its own env, to look ahead, though not from threads that it starts:
those wait for the turn that waits for them.
"""

import contextlib
import contextvars
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from multiprocessing.util import Finalize
from typing import Any, Literal, Protocol

from motet.envs.task.parts import checked_count, checked_number
from motet.envs.workers.call_outcome import Call, Failed, Outcome, Raised, Returned
from motet.envs.workers.process_workers import ProcessTeam
from motet.envs.workers.thread_workers import ThreadTeam

_TEAMS: dict[str, Callable[[Callable[..., Any], float], "_Team"]]
_TEAMS = {"thread": ThreadTeam, "process": ProcessTeam}
# A process that was forked by a dead worker can hold the worker's pipes open: look now and then.
_HEARTBEAT_S = 1.0
# Keys of the pools that wait for the running code; threads of a pool copy their caller's context.
_CALLERS: contextvars.ContextVar[tuple[object, ...]]
_CALLERS = contextvars.ContextVar("_CALLERS", default=())


@dataclass(frozen=True)
class RewardWorkers:
    """How a slow reward function is run.

    Attributes:
        num_workers: how many calls run at the same time.
        kind: "thread" for functions that wait for the network or for subprocesses, "process" for
            those that compute in Python.
        timeout_s: seconds that one call may take, from when it starts; None for no limit.

    Raises:
        TypeError: where a number is none.
        ValueError: where one is not positive, or `kind` is unknown.
    """

    num_workers: int
    kind: Literal["thread", "process"] = "thread"
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        checked_count("num_workers", self.num_workers)
        if self.kind not in _TEAMS:
            raise ValueError(f"Expected kind 'thread' or 'process', got {self.kind!r}.")
        if self.timeout_s is None:
            return
        timeout_s = checked_number("timeout_s", self.timeout_s)
        if not 0 < timeout_s < math.inf:
            raise ValueError(
                f"Expected a positive number of seconds as timeout_s, got {self.timeout_s}; pass "
                "None for no limit."
            )


def checked_reward_workers(workers: Any) -> RewardWorkers | None:
    """Return the settings of `TextEnv(reward_workers=...)`; an integer means as many threads.

    Raises:
        TypeError: where it is neither an integer nor `RewardWorkers` nor None.
        ValueError: where the integer is below 1.
    """
    if workers is None or isinstance(workers, RewardWorkers):
        return workers
    return RewardWorkers(checked_count("reward_workers", workers))


class _Worker(Protocol):
    deadline: float

    def is_alive(self) -> bool: ...

    def start_call(self, call: Call) -> None: ...

    def drop(self) -> None: ...


class _Team(Protocol):
    def new_worker(self) -> Any: ...

    def wait(self, busy: Any, timeout_s: float) -> Sequence[tuple[Any, Outcome]]: ...

    def dismiss(self, workers: Any) -> None: ...


class RewardPool:
    """Runs calls of one function on workers that start when they are needed.

    A copy and a pickle of a pool have the function and the settings, and workers of their own. In
    a forked process it starts others, too.

    Args:
        func: the function.
        settings: how many workers, of which kind, with which limit.

    Raises:
        TypeError: where the workers are processes and `func` does not pickle.
    """

    def __init__(self, func: Callable[..., Any], settings: RewardWorkers) -> None:
        self._func = func
        self._settings = settings
        self._limit_s = math.inf if settings.timeout_s is None else float(settings.timeout_s)
        self._key = object()
        self._renew()

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return RewardPool, (self._func, self._settings)

    def outcomes(self, calls: Sequence[Call]) -> Generator[Outcome]:
        """Yield what came of each call, in their order, up to the first that did not return.

        Calls begin in their order, and none begins after one has failed. Closing the iterator
        gives up the calls that still run. One turn at a time: clones of an env in several threads
        wait for each other. A function that steps an env with this pool does not wait for itself:
        what it asks for is called at once, in its own thread.
        """
        if self._key in _CALLERS.get():
            yield from _called_here(self._func, calls)
            return
        if self._pid != os.getpid():
            self._renew()
        with self._lock, _calling(self._key):
            waiting = deque(enumerate(calls))
            running: dict[_Worker, int] = {}
            outcomes: dict[int, Outcome] = {}
            try:
                for index in range(len(calls)):
                    while index not in outcomes:
                        self._begin(waiting, running)
                        for worker, outcome in self._wait(running):
                            outcomes[running.pop(worker)] = outcome
                            if not isinstance(outcome, Returned):
                                waiting.clear()
                    outcome = outcomes.pop(index)
                    yield outcome
                    if not isinstance(outcome, Returned):
                        return
            finally:
                self._drop(running)

    def close(self) -> None:
        """End the workers.

        Raises:
            RuntimeError: where the function asks for it, whose end it would wait for.
        """
        if self._key in _CALLERS.get():
            raise RuntimeError(
                "Expected close() of an env outside of its reward_func, got it from within; close "
                "it after the step."
            )
        if self._pid == os.getpid():
            with self._lock:
                _dismiss(self._team, self._workers)

    def _renew(self) -> None:
        self._pid = os.getpid()
        self._team = _TEAMS[self._settings.kind](self._func, self._limit_s)
        self._lock = threading.Lock()
        self._workers: list[_Worker] = []
        # at garbage collection, and at exit before multiprocessing waits for its processes; not in
        # a forked process
        Finalize(self, _dismiss, (self._team, self._workers), exitpriority=10)

    def _begin(self, waiting: deque[tuple[int, Call]], running: dict[_Worker, int]) -> None:
        idle = [worker for worker in self._workers if worker not in running]
        if waiting:
            dead = [worker for worker in idle if not worker.is_alive()]
            self._drop(dead)
            idle = [worker for worker in idle if worker not in dead]
        while waiting:
            if not idle:
                if len(self._workers) == self._settings.num_workers:
                    return
                idle.append(self._team.new_worker())
                self._workers.append(idle[-1])
            worker = idle.pop()
            running[worker], call = waiting.popleft()
            worker.start_call(call)

    def _wait(self, running: Collection[_Worker]) -> list[tuple[_Worker, Outcome]]:
        """Return whose call is over, by itself or by its limit; it may be nobody yet."""
        left_s = min(worker.deadline for worker in running) - time.monotonic()
        ready = list(self._team.wait(running, max(0.0, min(left_s, _HEARTBEAT_S))))
        answered = {worker for worker, _ in ready}
        now = time.monotonic()
        late = [worker for worker in running if worker.deadline <= now and worker not in answered]
        ready += [(worker, self._timed_out()) for worker in late]
        self._drop([worker for worker, outcome in ready if isinstance(outcome, Failed)])
        return ready

    def _drop(self, workers: Collection[_Worker]) -> None:
        for worker in workers:
            self._workers.remove(worker)
            worker.drop()

    def _timed_out(self) -> Failed:
        return Failed(
            TimeoutError,
            f"Expected rewards from reward_func within {self._limit_s:g} s, got none",
            "make it faster, or raise timeout_s of RewardWorkers",
        )


@contextlib.contextmanager
def _calling(key: object) -> Generator[None]:
    token = _CALLERS.set((*_CALLERS.get(), key))
    try:
        yield
    finally:
        _CALLERS.reset(token)


def _called_here(func: Callable[..., Any], calls: Sequence[Call]) -> Generator[Outcome]:
    for call in calls:
        outcome: Outcome
        try:
            outcome = Returned(func(*call.args, **call.named))
        except BaseException as exc:  # noqa: BLE001  # raised again where it is waited for
            outcome = Raised(exc)
        yield outcome
        if isinstance(outcome, Raised):
            return


def _dismiss(team: _Team, workers: list[_Worker]) -> None:
    team.dismiss(workers)
    workers.clear()
