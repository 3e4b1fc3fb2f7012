"""Run asynchronous code from plain code, whether or not a loop runs already, as in a notebook."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

T = TypeVar("T")


class _Unwaited(ThreadPoolExecutor):
    """Threads that a loop which closes does not wait for.

    Names of hosts are looked up in them, which nothing can cancel and may take longer than any
    time limit.
    """

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end by themselves."""
        super().shutdown(wait=False, cancel_futures=True)


def run_apart(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function in a thread and a loop of its own, and wait for it.

    An interrupt while waiting (Ctrl-C) cancels it, and goes on once it has ended.
    """
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_Unwaited(thread_name_prefix="motet-lookup"))

    def run() -> T:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(work())

    def cancel() -> None:
        for task in asyncio.all_tasks(loop):
            task.cancel()

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="motet-endpoint") as threads:
        future = threads.submit(run)
        try:
            return future.result()
        finally:
            while not future.done():  # libraries may take a cancellation for one of their own
                with contextlib.suppress(RuntimeError):  # it has ended in between
                    loop.call_soon_threadsafe(cancel)
                wait([future], timeout=1.0)
