"""An asyncio event loop whose time is a number. Nothing is waited for: when nobody is ready, time jumps to the next timer.

    loop = VirtualLoop()
    loop.run_until_complete(main())         # asyncio.sleep(86_400) takes no time
    loop.run_for(60)                        # let a minute pass

Order is first come, first served, so a run is the same every time; chance is the business of those who are called.
`PROCESS` says which simulated process a piece of code belongs to: every callback carries the context it was made in, and the
loop asks that process before it runs one. A process that was killed runs nothing more, not even its `finally`s; one that is
paused finds all it missed when it goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Schedulable(Protocol):
    """What the loop asks of a simulated process."""

    dead: bool
    missed: deque[Handle] | None
    """Not None while it is paused: what it will do when it goes on."""


PROCESS: ContextVar[Schedulable | None] = ContextVar("holdfast.process", default=None)


class Deadlock(Exception):
    """Somebody waits, and nothing will ever happen again."""


class Handle:
    """A callback to come. The same interface as asyncio's own."""

    __slots__ = ("args", "callback", "context", "dropped", "due")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None, due: float
    ) -> None:
        self.callback, self.args, self.due = callback, args, due
        self.context = copy_context() if context is None else context
        self.dropped = False

    def cancel(self) -> None:
        self.dropped = True

    def cancelled(self) -> bool:
        return self.dropped

    def when(self) -> float:
        return self.due


class VirtualLoop(asyncio.AbstractEventLoop):
    def __init__(self) -> None:
        self.now = 0.0
        self.ready: deque[Handle] = deque()
        self.errors: list[BaseException] = []
        """Raised by callbacks: nobody else would hear of them."""
        self.stopped = False
        self.callbacks = 0
        """How many were run: a measure of what a simulation costs."""
        self._timers: list[tuple[float, int, Handle]] = []
        self._made = 0
        self._tasks: list[asyncio.Task[Any]] = []
        """All there ever were: one that was collected in between would run its `finally`s at a moment of its own."""

    # --- what the loop is told --------------------------------------------------------------------------------------

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Until it is done, however long that takes. Deadlock when it never will be."""
        awaited: Any = future
        task: asyncio.Future[T] = asyncio.ensure_future(awaited, loop=self)
        if not self.run(until=task.done):
            raise Deadlock(f"nothing is left to do, and {task!r} is not done")
        return task.result()

    def run_for(self, seconds: float) -> None:
        """Let so much time pass, and do what comes due in it."""
        end = self.now + seconds
        self.run(until=lambda: False, end=end)
        self.now = max(self.now, end)

    def run(self, *, until: Callable[[], bool], end: float = float("inf")) -> bool:
        """Run until `until()`, at most to the time `end`, or until `stop()`; whether `until()` was reached."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self.stopped = False
        try:
            while not (reached := until()) and not self.stopped and self._once(end):
                pass
            return reached
        finally:
            asyncio._set_running_loop(before)

    def stop(self) -> None:
        self.stopped = True

    def _once(self, end: float) -> bool:
        """Run one callback, or let time pass until there is one; False when there is none before `end`."""
        ready, timers = self.ready, self._timers
        while not ready:
            if not timers or timers[0][0] > end:
                return False
            due, _, handle = heapq.heappop(timers)
            if not handle.dropped:
                self.now = max(self.now, due)
                ready.append(handle)
        handle = ready.popleft()
        if handle.dropped:
            return True
        process = handle.context.get(PROCESS)
        if process is not None:
            if process.dead:
                return True
            if process.missed is not None:
                process.missed.append(handle)
                return True
        self.callbacks += 1
        try:
            handle.context.run(handle.callback, *handle.args)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  whatever a callback raises is told at the end
            self.errors.append(error)
        return True

    # --- what asyncio needs -----------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, context, self.now)
        self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, context, when)
        self._made += 1
        heapq.heappush(self._timers, (when, self._made, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """There are no threads: it is called here and now."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as error:  # noqa: BLE001  it belongs to whoever waits for the call
            future.set_exception(error)
        return future

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return False

    def close(self) -> None:
        """Close the code that is still suspended. What it does on its way out comes to nothing."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            for task in self._tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    with contextlib.suppress(BaseException):
                        task.get_coro().close()
        finally:
            asyncio._set_running_loop(before)
        self.ready.clear()
        self._timers.clear()
        self._tasks.clear()

    def get_debug(self) -> bool:
        return False

    def hear(self, context: dict[str, Any]) -> None:
        """Tasks of processes that were killed are never finished: that is meant."""

    call_exception_handler = hear

    async def shutdown_asyncgens(self) -> None: ...

    async def shutdown_default_executor(self) -> None: ...
