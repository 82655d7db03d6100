"""The endless loops of one process, and those who wait for what a loop finds out, such as the end of a run.

Each pass of a loop is bounded. A pass that fails does not end its loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from holdfast.bells import Bells
from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import HoldfastError, StoreGone, StoreUnreachable
from holdfast.store.bell import Bell

K = TypeVar("K")
T = TypeVar("T")

log = logging.getLogger("holdfast.node")

EARLIEST = 0.75
"""A wait varies around its length, so that many processes do not run in step. It lasts at least this share of it."""


class Loops:
    def __init__(
        self,
        bells: Bells,
        environment: Environment,
        config: Config,
        *,
        has_lease: Callable[[], bool],
        lose_store: Callable[[StoreGone], None],
    ) -> None:
        self.bells, self.config, self._environment = bells, config, environment
        self._has_lease, self._lose_store = has_lease, lose_store
        self._tasks: list[asyncio.Task[None]] = []
        self.is_over = False
        """True when this process has given up its work for good, so that its loops should end."""

    def spawn(self, *loops: Coroutine[Any, Any, None]) -> None:
        for loop in loops:
            self._tasks.append(
                asyncio.create_task(loop, name=f"holdfast-{getattr(loop, '__name__', 'loop')}")
            )

    async def stop(self) -> None:
        await cancel_all(self._tasks)

    async def guarded(self, what: str, tick: Callable[[], Awaitable[Any]]) -> Any:
        """Do one pass. If it fails, log the error and wait a little: the store may be away and come back. Return what
        the pass returned, or 0 if it failed or this node has no lease."""
        if not self._has_lease():
            return 0
        try:
            return await tick()
        except StoreGone as gone:
            self._lose_store(gone)
            await self._environment.sleep(self.config.poll_s)
        except StoreUnreachable as error:
            log.warning("%s: %s", what, error)
            await self._environment.sleep(0.2 + self._environment.random.random() * 0.3)
        except HoldfastError as error:
            log.error("%s: %s", what, error)
            await self._environment.sleep(self.config.poll_s)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("%s", what)
            await self._environment.sleep(self.config.poll_s)
        return 0

    async def wait(self, bell: Bell, limit_s: float) -> None:
        """Wait until the bell rings, but only for about `limit_s`, because a bell can get lost."""
        await wait_for(self.bells[bell], limit_s * self._around_one())

    async def pause(self, about_s: float) -> None:
        """Wait for about this long."""
        await self._environment.sleep(about_s * self._around_one())

    async def rest(self, seconds: float) -> None:
        """Wait for exactly this long."""
        await self._environment.sleep(seconds)

    def _around_one(self) -> float:
        return EARLIEST + self._environment.random.random() * 2 * (1 - EARLIEST)


async def wait_for(event: asyncio.Event, limit_s: float) -> None:
    """Wait until the event is set, for at most `limit_s`, and clear it."""
    if not event.is_set():
        timer = asyncio.get_running_loop().call_later(limit_s, event.set)
        try:
            await event.wait()
        finally:
            timer.cancel()
    event.clear()


async def cancel_all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel these tasks until they have ended. To cancel once is not always enough: a driver that gives up a
    connection in that moment may lose the cancellation."""
    left = list(tasks)
    while left:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=0.1)
        left = [task for task in left if not task.done()]
    for task in tasks:
        if not task.cancelled():
            task.exception()  # so that Python does not warn about it: the loop has logged its error


class Watchers(Generic[K, T]):
    """Those who wait for something: futures by the key of what they wait for."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[K, list[asyncio.Future[T]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[K]:
        return iter(self._waiting)

    def __contains__(self, key: K) -> bool:
        return key in self._waiting

    def add(self, key: K) -> asyncio.Future[T]:
        """Return a future that `answer` ends."""
        watcher: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(watcher)
        watcher.add_done_callback(partial(self._remove, key))
        return watcher

    def answer(self, key: K, found: T) -> None:
        for watcher in self._waiting.pop(key, ()):
            if not watcher.done():
                watcher.set_result(found)

    def fail(self, key: K, error: Exception) -> None:
        for watcher in self._waiting.pop(key, ()):
            if not watcher.done():
                watcher.set_exception(error)

    def cancel(self) -> None:
        """End all waits, because this process stops."""
        for watchers in self._waiting.values():
            for watcher in watchers:
                watcher.cancel()

    def _remove(self, key: K, watcher: asyncio.Future[T]) -> None:
        """Forget a watcher that is done. One that got its answer is no longer in the list."""
        watchers = self._waiting.get(key)
        if watchers is not None and watcher in watchers:
            watchers.remove(watcher)
            if not watchers:
                del self._waiting[key]
