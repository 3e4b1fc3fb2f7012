"""Run asynchronous code from plain code, whether or not a loop runs already, as in a notebook."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
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

    An interrupt while waiting (Ctrl-C) cancels it, and goes on once it has ended. What has not
    begun by then does not begin any more.
    """
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_Unwaited(thread_name_prefix="motet-lookup"))
    future: Future[T] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                result = runner.run(work())
        except BaseException as exc:  # noqa: BLE001  # raised again where it is waited for
            future.set_exception(exc)
        else:
            future.set_result(result)

    def cancel() -> None:
        for task in asyncio.all_tasks(loop):
            task.cancel()

    try:
        # An interrupt may come while the thread starts, so that no pool holds it yet to wait for.
        threading.Thread(target=run, name="motet-endpoint", daemon=True).start()
        return future.result()
    finally:
        future.cancel()
        while not future.done():  # libraries may take a cancellation for one of their own
            with contextlib.suppress(RuntimeError):  # it has ended in between
                loop.call_soon_threadsafe(cancel)
            wait([future], timeout=1.0)
        loop.close()  # which nobody else does where it has not begun
