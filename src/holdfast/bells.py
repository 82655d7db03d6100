"""The bells of one process. They wake its own loops at once, and other processes soon."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from holdfast.environment import Environment
from holdfast.errors import StoreError
from holdfast.store.bell import Bell
from holdfast.store.nodes import Nodes

RING_EVERY_S = 0.005
"""Bells for other processes are collected, and rung at most once in this time."""


class Bells:
    def __init__(self, store: Nodes, environment: Environment) -> None:
        self._store, self._environment = store, environment
        self._events = {bell: asyncio.Event() for bell in Bell}
        self._outside: set[Bell] = set()
        self._ring_outside = asyncio.Event()
        self._followers: dict[Bell, list[asyncio.Event]] = {}
        """Events of others who want to hear a bell, too. Each clears its own."""
        self._next: dict[Bell, asyncio.TimerHandle] = {}
        """By bell, the timer of `ring_here_within`, until it rings."""
        self._unlisten: Callable[[], Awaitable[None]] | None = None

    def __getitem__(self, bell: Bell) -> asyncio.Event:
        return self._events[bell]

    def ring(self, bell: Bell) -> None:
        """Wake this process's loops at once, and other processes soon."""
        self._events[bell].set()
        if self._followers:
            self._ring_followers(bell)
        if bell not in self._outside:
            self._outside.add(bell)
            self._ring_outside.set()

    def ring_here(self, bell: Bell) -> None:
        """Wake this process's loops."""
        self._events[bell].set()
        if self._followers:
            self._ring_followers(bell)

    def _ring_followers(self, bell: Bell) -> None:
        for event in self._followers.get(bell, ()):
            event.set()

    def follow(self, bell: Bell) -> asyncio.Event:
        """Return an event of the caller's own, which is set whenever the bell rings."""
        event = asyncio.Event()
        self._followers.setdefault(bell, []).append(event)
        return event

    def unfollow(self, bell: Bell, event: asyncio.Event) -> None:
        followers = self._followers.get(bell, [])
        if event in followers:
            followers.remove(event)

    def ring_here_after(self, delay_s: float, bell: Bell) -> None:
        asyncio.get_running_loop().call_later(delay_s + 0.001, self.ring_here, bell)

    def ring_here_within(self, delay_s: float, bell: Bell) -> None:
        """Like `ring_here_after`, for a loop that asks again whenever it is woken: of all times that it asked for, the next
        one counts. With a timer for each, every timer would set another one, and they would never get fewer."""
        loop, pending = asyncio.get_running_loop(), self._next.get(bell)
        at = loop.time() + delay_s + 0.001
        if pending is not None:
            if pending.when() <= at:
                return
            pending.cancel()
        self._next[bell] = loop.call_at(at, self._ring_next, bell)

    def _ring_next(self, bell: Bell) -> None:
        del self._next[bell]
        self.ring_here(bell)

    async def listen(self, heard: Callable[[Bell], None]) -> None:
        """Begin to listen. When another process rings a bell, wake this process's loops and call `heard`."""

        def hear(bell: Bell) -> None:
            self.ring_here(bell)
            heard(bell)

        self._unlisten = await self._store.listen(hear)

    async def unlisten(self) -> None:
        if self._unlisten is not None:
            await self._unlisten()

    async def pass_on(self) -> None:
        """Pass this process's bells on to other processes, for ever."""
        while True:
            await self._ring_outside.wait()
            self._ring_outside.clear()
            bells, self._outside = self._outside, set()
            with contextlib.suppress(StoreError):
                await self._store.ring(bells)
            await self._environment.sleep(RING_EVERY_S)
