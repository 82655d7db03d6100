"""An asyncio event loop whose time is a number. It never waits: when no callback is ready, time jumps to the next
timer.

    loop = VirtualLoop()
    loop.run_until_complete(main())         # asyncio.sleep(86_400) takes no time
    loop.run_for(60)                        # let a minute pass

Callbacks run in the order in which they become ready, and the loop draws no random numbers, so a simulation can be
repeated. `PROCESS` says which simulated process a piece of code belongs to. Every callback has the context it was made
in, and the loop looks at that process before it runs the callback. No code of a killed process runs any more, not even
a `finally`. For a paused process the loop keeps the callbacks, and runs them when the process goes on.
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
    """What the loop needs to know of a simulated process."""

    dead: bool
    missed: deque[Handle] | None
    """While the process is paused, the callbacks that will run when it goes on; None while it is not paused."""


PROCESS: ContextVar[Schedulable | None] = ContextVar("holdfast.process", default=None)


class Deadlock(Exception):
    """Some code waits, and there is no callback and no timer left that could end the wait."""


class Handle:
    """A scheduled callback, with the interface of asyncio's own handles."""

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
        """What callbacks raised. Whoever runs the loop looks at it: no one else would notice."""
        self.stopped = False
        self.callbacks = 0
        """How many callbacks have run. It measures what a simulation costs."""
        self._timers: list[tuple[float, int, Handle]] = []
        self._made = 0
        self._tasks: list[asyncio.Task[Any]] = []
        """All tasks there ever were. One that was garbage-collected early would run its `finally`s at an unpredictable
        moment."""

    # --- running ----------------------------------------------------------------------------------------------------

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Run until this is done, and return its result. Raises Deadlock when it can never be done."""
        awaited: Any = future
        task: asyncio.Future[T] = asyncio.ensure_future(awaited, loop=self)
        if not self.run(until=task.done):
            raise Deadlock(f"{task!r} is not done, and no callback or timer is left that could end it")
        return task.result()

    def run_for(self, seconds: float) -> None:
        """Let this much time pass, and run what comes due in it."""
        end = self.now + seconds
        self.run(until=lambda: False, end=end)
        self.now = max(self.now, end)

    def run(self, *, until: Callable[[], bool], end: float = float("inf")) -> bool:
        """Run until `until()` is true, at most to the time `end`, or until `stop()`. Return whether `until()` became
        true."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self.stopped = False
        ready, timers, pop_timer = self.ready, self._timers, heapq.heappop
        try:
            while not (reached := until()) and not self.stopped:
                while not ready:  # let time pass
                    if not timers or timers[0][0] > end:
                        return False
                    due, _, handle = pop_timer(timers)
                    if not handle.dropped:
                        self.now = max(self.now, due)
                        ready.append(handle)
                handle = ready.popleft()
                if handle.dropped:
                    continue
                process = handle.context.get(PROCESS)
                if process is not None:
                    if process.dead:
                        continue
                    if process.missed is not None:
                        process.missed.append(handle)
                        continue
                self.callbacks += 1
                try:
                    handle.context.run(handle.callback, *handle.args)
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:  # noqa: BLE001  one callback's error must not end the loop
                    self.errors.append(error)
            return reached
        finally:
            asyncio._set_running_loop(before)

    def skip(self, until: float) -> None:
        """Set the clock forward. Whatever waits for a time waits for as long as before: for it, no time has passed."""
        seconds, self.now = until - self.now, until
        for _, _, handle in self._timers:
            handle.due += seconds
        self._timers[:] = [(due + seconds, made, handle) for due, made, handle in self._timers]

    def stop(self) -> None:
        self.stopped = True

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

    def forget_done(self) -> None:
        """Let go of tasks that have ended: they have no `finally` left to run."""
        self._tasks = [task for task in self._tasks if not task.done()]

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Call the function at once, because a simulation has no threads."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as error:  # noqa: BLE001  the future's waiter gets it
            future.set_exception(error)
        return future

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return False

    def close(self) -> None:
        """Close the coroutines that are still suspended. Whatever their `finally`s schedule never runs."""
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

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Do nothing: what asyncio would report here are mostly tasks of killed processes, which are never finished."""

    async def shutdown_asyncgens(self) -> None: ...

    async def shutdown_default_executor(self) -> None: ...
