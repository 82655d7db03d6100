"""The event loop a Holdfast lives in, and how code outside of it waits for what is done there.

A Holdfast belongs to one event loop, in one thread of one process. Plain code (a script, Flask, Django, a `def` endpoint of
FastAPI) hands it a coroutine and waits in its own thread. Three things would wait for ever and are refused instead: waiting in the
loop's own thread, in a process that was forked after the Holdfast was opened, and for a loop that does not run any more.
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

from holdfast.errors import HoldfastError
from holdfast.interrupt import run_through

T = TypeVar("T")

LOOK_EVERY_S = 1.0
"""How often who waits looks whether the loop still runs. Only a loop that ended without a word is noticed by this."""
LEAVE_S = 5.0
"""How long a thread of ours may take to end its loop."""

_ENDED = object()


class Home:
    """The event loop, thread and process in which a Holdfast was opened."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread_id, self._pid = threading.get_ident(), os.getpid()
        self._visitors: set[asyncio.Task[Any]] = set()
        """What is done for code outside, which waits for it."""

    @property
    def is_forked(self) -> bool:
        return os.getpid() != self._pid

    def demand_here(self) -> None:
        """Refuse code in another event loop, which could not be answered."""
        running = _get_running_loop()
        if running is not None and running is not self._loop:
            raise HoldfastError(
                "this Holdfast was opened in another event loop: open it in the loop that uses it, or write "
                "`await asyncio.to_thread(hf.wait, …)`; in a workflow, call the other workflow itself, or do it in a step"
            )

    def wait(self, what: Awaitable[T], timeout_s: float | None = None) -> T:
        """The result of what is awaited in the loop. The thread that calls waits for it."""
        visit = self._visit(what)
        try:
            self._demand_outside()
            future = asyncio.run_coroutine_threadsafe(visit, self._loop)
        except RuntimeError as error:  # the loop was closed in this moment
            drop(visit)
            raise _gone() from error
        except BaseException:
            drop(visit)
            raise
        future.add_done_callback(lambda _: drop(what))  # it was cancelled before it began
        try:
            self._wait_for(future, timeout_s)
            return future.result()
        except futures.CancelledError:
            raise HoldfastError("it was cancelled: this Holdfast was closed while somebody waited") from None
        finally:
            future.cancel()  # after a timeout or Ctrl-C nobody waits any more

    def each(self, source: AsyncIterator[T], timeout_s: float | None = None) -> Iterator[T]:
        """What an async iterator gives, one after the other; `timeout_s` is for each of them."""
        self._demand_outside()
        return self._each(source, timeout_s)

    def _each(self, source: AsyncIterator[T], timeout_s: float | None) -> Generator[T, None, None]:
        try:
            while (value := self.wait(anext(source, _ENDED), timeout_s)) is not _ENDED:
                yield value  # type: ignore[misc]
        finally:
            close = getattr(source, "aclose", None)
            if close is not None and self._loop.is_running() and not self.is_forked:
                # Not waited for: who does not want any more may be the garbage collector, in any thread.
                asyncio.run_coroutine_threadsafe(close(), self._loop)

    def dismiss(self) -> None:
        """The Holdfast is being closed: nobody outside waits any longer, except who closes it."""
        for task in self._visitors - {asyncio.current_task()}:
            task.cancel()

    async def _visit(self, what: Awaitable[T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._visitors.add(task)
        try:
            return await what
        finally:
            self._visitors.discard(task)

    def _demand_outside(self) -> None:
        if threading.get_ident() == self._thread_id and self._loop.is_running():
            raise HoldfastError(
                "hf.wait() is for plain code, and would wait for ever in the event loop's own thread: write `await` here"
            )
        if not self._loop.is_running():
            raise _gone()

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
                raise _gone()


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
            run_through(stay())  # at its end it cancels what is left, so that nobody waits for it any longer
        except BaseException as error:
            if begun.done():
                raise
            begun.set_exception(error)

    def stop(self) -> None:
        with suppress(RuntimeError):  # the loop has ended by itself
            self._leave()
        self._thread.join(LEAVE_S)


def drop(*coroutines: object) -> None:
    """Close those that have not begun and will not be awaited, so that Python does not warn about them."""
    for one in coroutines:
        if inspect.iscoroutine(one) and inspect.getcoroutinestate(one) == inspect.CORO_CREATED:
            with suppress(ValueError):  # the loop began it in this moment
                one.close()


def _gone() -> HoldfastError:
    return HoldfastError(
        "the event loop in which this Holdfast was opened does not run any more: close it before its loop ends "
        "(`async with Holdfast(…)`), and open it again where it is used"
    )
