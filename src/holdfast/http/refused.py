"""Refused requests, for the audit: who asked for what, and how often.

They are counted here and written down together. One actor gets one entry of the journal within seconds, then one a minute,
and one an hour if it goes on. So nobody fills the store or makes it commit by asking for what is refused, and all who
have no good token count as one actor. A server that is killed has not written down what it counted last.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from holdfast.access import Identity
from holdfast.actor import Actor
from holdfast.environment import Environment
from holdfast.errors import StoreError
from holdfast.store.tokens import RefusedEntry, Tokens

log = logging.getLogger("holdfast.http")

SOON_S = 5.0
"""How soon the first refusal is written down, and how often there is a commit at most."""
WAIT_S = 60.0
"""How long an actor who was written down is only counted. It doubles each time."""
WAIT_MAX_S = 3600.0
ACTORS_MAX = 100
"""How many actors are counted by name. The others are counted together, so that the number of entries has a bound."""
NAMED_MAX = 5
"""How many of the things that somebody asked for are named in an entry."""
NOBODY, OTHERS = "nobody", "others"
REFUSED = {401: "unauthenticated", 403: "forbidden"}
THROTTLED = 429


class Count:
    """What was refused to one actor since that was last written down."""

    def __init__(self, name: str, namespace: str | None, now: float) -> None:
        self.name, self.namespace = name, namespace
        self.asked: dict[str, int] = {}
        self.first: tuple[float, str, str] = (0.0, "", "")
        """When the first of them came, by which way, and the id of its request."""
        self.due_at, self.wait_s = now, WAIT_S

    def entry(self) -> RefusedEntry:
        at, via, request = self.first
        total = sum(self.asked.values())
        by_count = sorted(self.asked.items(), key=lambda one: (-one[1], one[0]))
        named = [what if count == total else f"{what} {count}" for what, count in by_count[:NAMED_MAX]]
        rest = total - sum(count for _, count in by_count[:NAMED_MAX])
        if rest:
            named.append(f"others {rest}")
        since = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        much = "1 request" if total == 1 else f"{total} requests"
        return RefusedEntry(
            Actor(self.name, via, request), self.namespace, f"{much} since {since}: {', '.join(named)}"
        )


class RefusedRequests:
    def __init__(self, tokens: Tokens, environment: Environment) -> None:
        self._tokens, self._environment = tokens, environment
        self._counts: dict[tuple[str, str], Count] = {}
        self._came, self._writing = asyncio.Event(), asyncio.Lock()

    def note(self, who: Identity | None, status: int, asked: str, via: str, request: str) -> None:
        """Count an answer, if it is a refusal: a bad token, or something that this one may not do. Whoever has a good token
        and only asks too often is refused nothing."""
        if status in REFUSED:
            self.count(who, f"{REFUSED[status]} {asked}", via, request)
        elif status == THROTTLED and who is None:
            self.count(None, f"throttled {asked}", via, request)

    def count(self, who: Identity | None, what: str, via: str, request: str) -> None:
        now = self._environment.monotonic()
        one = self._of(who, via, now)
        if not one.asked:
            one.first = (self._environment.now(), via, request)
            if now > one.due_at + one.wait_s:  # it was quiet for a while
                one.wait_s = WAIT_S
        one.asked[what] = one.asked.get(what, 0) + 1
        self._came.set()

    def _of(self, who: Identity | None, via: str, now: float) -> Count:
        """Return the count of an actor. An actor who comes by two ways has two counts."""
        name, namespace = NOBODY, None
        key = (via, "")
        if who is not None:
            name, key = str(who.actor), (via, f"{who.kind} {who.id}")
            namespace = next(iter(who.namespaces)) if len(who.namespaces) == 1 and not who.has_all else None
        found = self._counts.get(key)
        if found is None:
            if who is not None and len(self._counts) >= ACTORS_MAX:
                self._forget(now)
            if who is not None and len(self._counts) >= ACTORS_MAX:
                name, namespace, key = OTHERS, None, (via, OTHERS)
            found = self._counts.setdefault(key, Count(name, namespace, now))
        return found

    def _forget(self, now: float) -> None:
        """Forget those who have been quiet."""
        self._counts = {
            key: one for key, one in self._counts.items() if one.asked or now <= one.due_at + one.wait_s
        }

    async def keep(self) -> None:
        """Write down what is due, until this is cancelled."""
        while True:
            await self._came.wait()
            await self._environment.sleep(SOON_S)
            try:
                await self.write()
            except StoreError:
                log.warning("refused requests cannot be written down now: the store cannot be reached")

    async def leave(self, keeping: asyncio.Future[None]) -> None:
        """End `keep`, and write down everything. It is not ended while it writes: nobody would know what the store has."""
        try:
            async with self._writing:
                keeping.cancel()
            await self.write(everything=True)
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])

    async def write(self, *, everything: bool = False) -> int:
        """Write down what is due, or everything, in one commit. Return how many entries that made."""
        async with self._writing:
            return await self._write(everything=everything)

    async def _write(self, *, everything: bool) -> int:
        now = self._environment.monotonic()
        due = [one for one in self._counts.values() if one.asked and (everything or now >= one.due_at)]
        made, taken = [one.entry() for one in due], [(one.asked, one.first) for one in due]
        for one in due:
            one.asked = {}  # while the store writes, more may come
        try:
            if made:
                await self._tokens.journal_refused(made)
        except BaseException:
            for one, (asked, first) in zip(due, taken, strict=True):
                for what, count in one.asked.items():
                    asked[what] = asked.get(what, 0) + count
                one.asked, one.first = asked, first
            raise
        for one in due:
            one.due_at, one.wait_s = now + one.wait_s, min(one.wait_s * 2, WAIT_MAX_S)
        if not any(one.asked for one in self._counts.values()):
            self._came.clear()
        return len(made)
