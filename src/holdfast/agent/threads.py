"""Threads for `def` steps.

Unlike the threads of the standard library's pool, these are daemons. So a step that does not return does not keep its
process from ending. Its attempt was given up by then, or counts as lost, as in any process that ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class StepThreads(Executor):
    """A pool of at most `most` threads. Each thread is kept for the next step."""

    def __init__(self, most: int) -> None:
        self._most, self._count, self._idle = most, 0, 0
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("no more steps begin here: the agent has left")
            self._calls.put((future, lambda: fn(*args, **kwargs)))
            if self._idle:
                self._idle -= 1
            elif self._count < self._most:
                name = f"holdfast-step_{self._count}"
                try:
                    threading.Thread(target=self._work, name=name, daemon=True).start()
                except RuntimeError:  # the operating system starts no more threads
                    future.cancel()
                    raise
                self._count += 1
        return future

    def _work(self) -> None:
        while (taken := self._calls.get()) is not None:
            future, call = taken
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001  the error is raised where the step is awaited
                    future.set_exception(error)
            del taken, future, call  # otherwise they would stay in memory until the next step
            with self._lock:
                self._idle += 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more steps, and let idle threads end. This does not wait for threads that execute a step."""
        with self._lock:
            self._closed = True
            for _ in range(self._count):
                self._calls.put(None)
