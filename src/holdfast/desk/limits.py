"""Fair keys and limits, as operators see them.

from holdfast import Holdfast

async with Holdfast(url) as hf:
    await hf.limits.set_fair("acme", 3)
    await hf.limits.set("stripe", 5, "they are slow today")

Python (`hf.limits`), the command line and the server all ask a `LimitDesk`, with the identity of who asks. A name in another
namespace is unknown, like one that does not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.access import Act, Identity
from holdfast.desk.opened import Opened, ring
from holdfast.errors import DefinitionError, InvalidInput, UnknownLimit
from holdfast.namespaces import BETWEEN, shown, stored
from holdfast.queues import WEIGHT_MAX
from holdfast.store.bell import Bell
from holdfast.store.limits import LimitRow, LimitUse
from holdfast.store.queues import FairKey
from holdfast.store.store import Store
from holdfast.wire import answers
from holdfast.workflow import options

LIST_MAX = 1000
USES_MAX = 100
"""How many of those who have a slot under a limit are shown, and how many of those who wait for one."""


class LimitDesk(Protocol):
    """What operators may ask about fair keys and limits. Names are as the identity sees them."""

    async def fairs(self, who: Identity, after: str = "", limit: int = LIST_MAX) -> list[answers.FairKey]: ...
    async def set_fair(self, who: Identity, key: str, weight: int, note: str = "") -> answers.FairKey: ...
    async def get(self, who: Identity, key: str) -> answers.LimitSeen: ...
    async def set(self, who: Identity, key: str, most: int | None, note: str = "") -> answers.Limit: ...
    async def list(self, who: Identity, after: str = "", limit: int = LIST_MAX) -> list[answers.Limit]: ...


class LocalLimitDesk:
    """A limit desk that works on the store."""

    def __init__(self, hf: Opened) -> None:
        self._hf = hf

    @property
    def _store(self) -> Store:
        return self._hf.store

    async def fairs(self, who: Identity, after: str = "", limit: int = LIST_MAX) -> list[answers.FairKey]:
        """Return the fair keys that work has waited under, or that have a weight."""
        who.demand(Act.READ)
        found = await self._store.queues.fairs(
            who.namespace, stored(who.namespace, after) if after else "", limit
        )
        return [_fair(who, one) for one in found]

    async def set_fair(self, who: Identity, key: str, weight: int, note: str = "") -> answers.FairKey:
        """Set the weight of a fair key. It counts at the next claim, also for what waits already."""
        who.demand(Act.STEER)
        try:
            options.fair(key, "fair key")
        except DefinitionError as wrong:
            raise InvalidInput(str(wrong)) from None
        if type(weight) is not int or not 1 <= weight <= WEIGHT_MAX:
            raise InvalidInput(f"weight: expected a whole number from 1 to {WEIGHT_MAX}, not {weight!r}")
        await self._store.queues.set_fair(stored(who.namespace, key), weight, who.actor, note)
        ring(self._hf, Bell.STEPS)
        return answers.FairKey(key, weight, str(who.actor), note)

    async def get(self, who: Identity, key: str) -> answers.LimitSeen:
        """Return a limit with those who have its slots and those who wait for one, the oldest first."""
        who.demand(Act.READ)
        seen = await self._store.limits.seen(_name(who, key), USES_MAX)
        if seen is None:
            raise UnknownLimit.of(key)
        return answers.LimitSeen(
            _limit(who, seen.row),
            [_use(who, one) for one in seen.holders],
            [_use(who, one) for one in seen.waiters],
        )

    async def set(self, who: Identity, key: str, most: int | None, note: str = "") -> answers.Limit:
        """Set the number of a limit. With None, that of the code counts again. What runs goes on."""
        who.demand(Act.STEER)
        if most is not None and (type(most) is not int or not 0 <= most <= options.INT_MAX):
            raise InvalidInput(f"most: expected a whole number from 0 on, not {most!r}")
        name = _name(who, key)
        if not await self._store.limits.set_limit(name, most, who.actor, note):
            raise UnknownLimit.of(key)
        ring(self._hf, Bell.STEPS, Bell.RUNS)
        row = await self._store.limits.limit(name)
        assert row is not None
        return _limit(who, row)

    async def list(self, who: Identity, after: str = "", limit: int = LIST_MAX) -> list[answers.Limit]:
        """Return limits and rates by their keys, with how much of each is in use."""
        who.demand(Act.READ)
        found = await self._store.limits.limits(
            who.namespace, stored(who.namespace, after) if after else "", limit
        )
        return [_limit(who, one) for one in found]


def _name(who: Identity, key: str) -> str:
    """Return the stored name of a limit. No key has `//`: in `default` it would be that of another namespace."""
    if who.namespace is not None and BETWEEN in key:
        raise UnknownLimit.of(key)
    return stored(who.namespace, key)


def _limit(who: Identity, row: LimitRow) -> answers.Limit:
    room = row.room
    next_s = None if room.again_at is None or room.left > 0 else max(0.0, room.again_at - row.now)
    return answers.Limit(
        shown(who.namespace, row.name),
        row.kind,
        row.most,
        row.declared,
        row.used,
        row.is_set,
        row.actor,
        row.note,
        row.per_s,
        row.burst,
        next_s,
        *((True, row.least, row.moved, row.moved_at) if row.is_adaptive else ()),
    )


def _use(who: Identity, one: LimitUse) -> answers.LimitUse:
    return answers.LimitUse(
        shown(who.namespace, one.run_id), one.n, shown(who.namespace, one.name), one.since, one.weight
    )


def _fair(who: Identity, found: FairKey) -> answers.FairKey:
    return answers.FairKey(shown(who.namespace, found.name), found.weight, found.actor, found.note)


class Limits:
    """`hf.limits`: limits and their numbers, fair keys and their weights."""

    def __init__(self, desk: Callable[[], LimitDesk], who: Identity) -> None:
        self._desk, self._who = desk, who

    async def fairs(self) -> list[answers.FairKey]:
        """Return all fair keys that work has waited under, or that have a weight."""
        found: list[answers.FairKey] = []
        while page := await self._desk().fairs(self._who, found[-1].key if found else ""):
            found += page
        return found

    async def set_fair(self, key: str, weight: int, note: str = "") -> answers.FairKey:
        """Let this many of the key's steps begin for each one of a key with the weight 1, while both wait. It counts at the
        next claim."""
        return await self._desk().set_fair(self._who, key, weight, note)

    async def list(self) -> list[answers.Limit]:
        """Return all limits and rates by their keys, with how much of each is in use."""
        found: list[answers.Limit] = []
        while page := await self._desk().list(self._who, found[-1].key if found else ""):
            found += page
        return found

    async def show(self, key: str) -> answers.LimitSeen:
        """Return a limit with those who have its slots and those who wait for one, the oldest first."""
        return await self._desk().get(self._who, key)

    async def set(self, key: str, most: int | None, note: str = "") -> answers.Limit:
        """Set the number of a limit or a rate. It counts at the next claim. With None, that of the code counts again."""
        return await self._desk().set(self._who, key, most, note)
