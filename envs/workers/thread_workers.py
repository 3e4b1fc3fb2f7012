"""Threads that call a function for the interpreter that waits for them.

`concurrent.futures.ThreadPoolExecutor` joins its threads when the interpreter exits, so that one
stuck call keeps a finished program alive. These are daemon threads, which nothing waits for.
"""

import contextvars
import math
import queue
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from motet.envs.workers.call_outcome import Call, Outcome, Raised, Returned


class ThreadWorker:
    """One thread; it ends after its current call once it is told to.

    Args:
        func: what to call.
        outbox: where it puts itself and what came of a call.
        timeout_s: seconds that a call may take.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        outbox: "queue.SimpleQueue[tuple[ThreadWorker, Outcome]]",
        timeout_s: float,
    ) -> None:
        self.deadline = math.inf
        self._timeout_s = timeout_s
        self._inbox: queue.SimpleQueue[tuple[contextvars.Context, Call] | None]
        self._inbox = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._serve, args=(func, outbox), name="motet-reward", daemon=True
        )
        self._thread.start()

    def is_alive(self) -> bool:
        """Tell whether the thread can take a call."""
        return self._thread.is_alive()

    def start_call(self, call: Call) -> None:
        """Begin a call, in a copy of the caller's context: decimal precision, numpy's errstate."""
        self.deadline = time.monotonic() + self._timeout_s
        self._inbox.put((contextvars.copy_context(), call))

    def drop(self) -> None:
        """Let the thread end; a call that runs goes on to its own end, and nobody listens."""
        self._inbox.put(None)

    def _serve(
        self,
        func: Callable[..., Any],
        outbox: "queue.SimpleQueue[tuple[ThreadWorker, Outcome]]",
    ) -> None:
        while (job := self._inbox.get()) is not None:
            context, call = job
            outcome: Outcome
            try:
                outcome = Returned(context.run(func, *call.args, **call.named))
            except BaseException as exc:  # noqa: BLE001  # raised again where it is waited for
                outcome = Raised(exc)
            outbox.put((self, outcome))
            del job, context, call, outcome  # an idle thread keeps no texts and no tracebacks


class ThreadTeam:
    """Starts threads and listens to them.

    Args:
        func: what they call.
        timeout_s: seconds that a call may take.
    """

    def __init__(self, func: Callable[..., Any], timeout_s: float) -> None:
        self._func = func
        self._timeout_s = timeout_s
        self._outbox: queue.SimpleQueue[tuple[ThreadWorker, Outcome]] = queue.SimpleQueue()

    def new_worker(self) -> ThreadWorker:
        """Start a thread."""
        return ThreadWorker(self._func, self._outbox, self._timeout_s)

    def dismiss(self, workers: Collection[ThreadWorker]) -> None:
        """Let threads end."""
        for worker in workers:
            worker.drop()

    def wait(
        self, busy: Collection[ThreadWorker], timeout_s: float
    ) -> list[tuple[ThreadWorker, Outcome]]:
        """Return the workers of `busy` that are ready by now, after at most `timeout_s` seconds."""
        ready = []
        try:
            ready.append(self._outbox.get(timeout=timeout_s))
            while True:
                ready.append(self._outbox.get_nowait())
        except queue.Empty:
            return [pair for pair in ready if pair[0] in busy]  # others were given up
