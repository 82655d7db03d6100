"""The event loop in which a Holdfast was opened, and how code outside of that loop waits for what is done in it.

A Holdfast belongs to one event loop, in one thread of one process. Plain code (a script, Flask, Django, a `def`
endpoint of FastAPI) gives it a coroutine and waits in its own thread. Three kinds of wait would never end, and are
refused instead: in the loop's own thread, in a process that was forked after the Holdfast was opened, and for a loop
that does not run any more.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from asyncio import _get_running_loop
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from concurrent import futures
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from holdfast.decider.loop import RunLoop
from holdfast.errors import HoldfastError, NotInStep
from holdfast.interrupt import run_through

T = TypeVar("T")

LOOK_EVERY_S = 1.0
"""How often a waiting thread checks that the loop still runs. A loop that is closed in order ends the waits itself."""
LEAVE_S = 5.0
"""How long to wait for a `LoopThread` to end."""

_ENDED = object()


class Home:
    """The event loop, thread and process in which a Holdfast was opened."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread_id, self._pid = threading.get_ident(), os.getpid()
        self._outside_tasks: set[asyncio.Task[Any]] = set()
        """Tasks that code outside of the loop waits for."""

    @property
    def is_forked(self) -> bool:
        return os.getpid() != self._pid

    def demand_own_loop(self) -> None:
        """Raise if another event loop calls this: it could not get answers from this one."""
        running = _get_running_loop()
        if running is self._loop:
            return
        _demand_no_workflow()
        if running is not None:
            raise HoldfastError(
                "this Holdfast was opened in another event loop: open it in the loop that uses it, or write "
                "`await asyncio.to_thread(hf.wait, …)`; in a workflow, call the other workflow directly, or do it in a step"
            )

    def wait(self, what: Awaitable[T], timeout_s: float | None = None) -> T:
        """Await this in the loop, and return its result. The calling thread waits for it."""
        coroutine = self._tracked(what)
        try:
            self._demand_can_wait()
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:  # the loop was closed in this moment
            close_unstarted(coroutine)
            raise _loop_ended() from error
        except BaseException:
            close_unstarted(coroutine)
            raise
        future.add_done_callback(lambda _: close_unstarted(what))  # if it was cancelled before it began
        try:
            self._wait_for(future, timeout_s)
            return future.result()
        except futures.CancelledError:
            raise HoldfastError(
                "this Holdfast was closed while this call waited, so the call was cancelled"
            ) from None
        finally:
            future.cancel()  # after a timeout or Ctrl-C nobody waits any more

    def each(self, source: AsyncIterator[T], timeout_s: float | None = None) -> Iterator[T]:
        """Return an iterator over the values of an async iterator. Each value may take up to `timeout_s`."""
        self._demand_can_wait()
        return self._each(source, timeout_s)

    def _each(self, source: AsyncIterator[T], timeout_s: float | None) -> Generator[T, None, None]:
        try:
            while (value := self.wait(anext(source, _ENDED), timeout_s)) is not _ENDED:
                yield value  # type: ignore[misc]
        finally:
            close = getattr(source, "aclose", None)
            if close is not None and self._loop.is_running() and not self.is_forked:
                # Do not wait for it: this may run in the garbage collector, in any thread.
                asyncio.run_coroutine_threadsafe(close(), self._loop)

    def cancel_waits(self) -> None:
        """End the waits of all code outside, because the Holdfast is being closed. The wait that closes it goes on."""
        for task in self._outside_tasks - {asyncio.current_task()}:
            task.cancel()

    async def _tracked(self, what: Awaitable[T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._outside_tasks.add(task)
        try:
            return await what
        finally:
            self._outside_tasks.discard(task)

    def _demand_can_wait(self) -> None:
        _demand_no_workflow()
        if threading.get_ident() == self._thread_id and self._loop.is_running():
            raise HoldfastError(
                "hf.wait() is for plain code, and would wait for ever in the event loop's own thread: write `await` here"
            )
        if not self._loop.is_running():
            raise _loop_ended()

    def _wait_for(self, future: futures.Future[T], timeout_s: float | None) -> None:
        left_s = float("inf") if timeout_s is None else timeout_s
        while not future.done():
            futures.wait((future,), min(left_s, LOOK_EVERY_S))
            left_s -= LOOK_EVERY_S
            if future.done():
                return
            if left_s <= 0:
                raise TimeoutError(f"no answer within {timeout_s:g} s")
            if not self._loop.is_running():
                raise _loop_ended()


class LoopThread:
    """An event loop in a thread of its own, for programs that have none."""

    def __init__(self) -> None:
        begun: futures.Future[tuple[Home, Callable[[], object]]] = futures.Future()
        self._thread = threading.Thread(target=self._run, args=(begun,), name="holdfast", daemon=True)
        self._thread.start()
        self.home, self._leave = begun.result()

    @staticmethod
    def _run(begun: futures.Future[tuple[Home, Callable[[], object]]]) -> None:
        async def stay() -> None:
            loop, left = asyncio.get_running_loop(), asyncio.Event()
            begun.set_result((Home(loop), partial(loop.call_soon_threadsafe, left.set)))
            await left.wait()

        try:
            # At its end this cancels all other tasks, so that nobody waits for them any longer.
            run_through(stay())
        except BaseException as error:
            if begun.done():
                raise
            begun.set_exception(error)

    def stop(self) -> None:
        with suppress(RuntimeError):  # the loop has already ended
            self._leave()
        self._thread.join(LEAVE_S)


def close_unstarted(what: object) -> None:
    """Close a coroutine that has not begun and will not be awaited, so that Python does not warn about it."""
    if inspect.iscoroutine(what) and inspect.getcoroutinestate(what) == inspect.CORO_CREATED:
        with suppress(ValueError):  # the loop began it in this moment
            what.close()


def _loop_ended() -> HoldfastError:
    return HoldfastError(
        "the event loop in which this Holdfast was opened does not run any more: close a Holdfast before its loop ends "
        "(`async with Holdfast(…)`), and open it again where it is used"
    )


def _demand_no_workflow() -> None:
    if type(_get_running_loop()) is RunLoop:
        raise NotInStep(
            "a workflow uses no Holdfast: call the other workflow directly, which makes it a child run, or do this in a step"
        )
