"""Those in this process who wait for something, such as the end of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")


class Watchers(Generic[K, T]):
    """Futures by the key of what they wait for."""

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
