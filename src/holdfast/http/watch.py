"""Requests that stay open, polls and streams, end when their token is no longer good. The server looks every LOOK_S seconds, with
one statement for all tokens of the store, and one look serves all requests of a token."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeVar

from holdfast.access import Act, Identity
from holdfast.environment import Environment
from holdfast.errors import StoreError
from holdfast.http.guard import Guard
from holdfast.http.refusals import Refusal

log = logging.getLogger("holdfast.http")

LOOK_S = 0.75
"""How often it looks. A look takes time, too, and a token must open nothing a second after it was revoked."""

T = TypeVar("T")
IsStillGood = Callable[[Identity, Act, Mapping[str, str]], Awaitable[bool]]


class Open:
    """A request that stays open."""

    def __init__(self, who: Identity, act: Act, headers: Mapping[str, str]) -> None:
        self.who, self.act, self.headers = who, act, headers
        self.is_refused = False
        """True if the token is no longer good."""
        self.over = asyncio.Event()
        """Set when the token is no longer good, or when the server leaves."""
        self._limit: asyncio.Timeout | None = None

    def refuse(self) -> None:
        self.is_refused = True
        self.over.set()
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())

    def demand_good(self) -> None:
        if self.is_refused:
            raise Refusal("unauthenticated", "the token was revoked while the request waited")

    async def limited(self, waiting: Awaitable[T]) -> T:
        """Wait for an answer, for as long as the token is good."""
        try:
            async with asyncio.timeout(None) as self._limit:
                return await waiting
        except TimeoutError:
            self.demand_good()
            raise
        finally:
            self._limit = None

    async def pause(self, seconds: float) -> None:
        """Wait for these seconds, or until it is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.over.wait()


class Watch:
    def __init__(self, guard: Guard, is_still_good: IsStillGood, environment: Environment) -> None:
        self._guard, self._is_still_good, self._environment = guard, is_still_good, environment
        self._open: dict[Open, None] = {}
        self._is_leaving = False
        self._looking: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Return how many requests are open."""
        return len(self._open)

    @contextlib.contextmanager
    def over(self, who: Identity, act: Act, headers: Mapping[str, str]) -> Iterator[Open]:
        """Watch a request while it is open."""
        one = Open(who, act, headers)
        if self._is_leaving:
            one.over.set()
        elif self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_on(), name="holdfast-watch")
        self._open[one] = None
        try:
            yield one
        finally:
            del self._open[one]

    def leave(self) -> None:
        """End everything that is open: the server leaves."""
        self._is_leaving = True
        if self._looking is not None:
            self._looking.cancel()
        for one in self._open:
            one.over.set()

    async def _look_on(self) -> None:
        """Look again and again, until nothing is open."""
        while self._open:
            await self._environment.sleep(LOOK_S)
            try:
                await self._look()
            except StoreError:
                continue  # the store cannot be asked now
            except Exception:
                log.exception("looking at the tokens of open requests")

    async def _look(self) -> None:
        askers: dict[tuple[str | None, str | None, Act], list[Open]] = {}
        for one in self._open:
            key = one.headers.get("authorization"), one.headers.get("cookie"), one.act
            askers.setdefault(key, []).append(one)
        await self._guard.look_again({given for given, _, _ in askers if given is not None})
        for (_, _, act), those in askers.items():
            if not await self._is_still_good(those[0].who, act, those[0].headers):
                for one in those:
                    one.refuse()
