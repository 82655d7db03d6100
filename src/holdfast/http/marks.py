"""Marks of lists. A mark changes when somebody who looks at the list would see something else.

Everybody in a namespace gets the same marks, because one look serves all of them. So a mark has nothing that depends on
who asks. It has no lease and no countdown either: they change at every look.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from holdfast.access import Identity
from holdfast.desk.asks import AskFilter
from holdfast.desk.callbacks import CallbacksAsked
from holdfast.desk.desk import Desk
from holdfast.desk.events import EventsAsked, shown_event
from holdfast.errors import UnknownLimit
from holdfast.wire.answers import Limit

EVENTS, ROWS, LIMITS = 50, 100, 500
"""How much of a list is looked at: its first page."""
UNKNOWN = "unknown"


def digest(parts: object) -> str:
    return hashlib.blake2b(msgspec.json.encode(parts, order="sorted"), digest_size=9).hexdigest()


async def _acts(desk: Desk, who: Identity) -> str:
    found = await desk.acts.list(who, ROWS)
    return digest([msgspec.structs.replace(one, lease_until=None) for one in found])


async def _agents(desk: Desk, who: Identity) -> str:
    found = await desk.agents.list(who)
    return digest(
        [
            found.leader,
            [(one.node.id, one.state, one.steps, one.runs, one.offers, one.strength) for one in found.nodes],
            await _hopeless(desk, who),
        ]
    )


async def _hopeless(desk: Desk, who: Identity) -> list[tuple[str, int]]:
    return [(one.name, one.ready) for one in (await desk.overview.backlog(who)).items if one.is_hopeless]


async def _alerts(desk: Desk, who: Identity) -> str:
    return digest(await desk.alerts.list(who, everything=True, limit=ROWS))


async def _asks(desk: Desk, who: Identity) -> str:
    found = await desk.asks.list(who, AskFilter(limit=ROWS))
    return digest(
        [(one.id, one.state, one.who, [(each.by, each.at) for each in one.answers]) for one in found]
    )


async def _attention(desk: Desk, who: Identity) -> str:
    found = await desk.overview.attention(who)
    return digest([found.total, [(one.id, one.count) for one in found.items]])


async def _backlog(desk: Desk, who: Identity) -> str:
    return digest(await desk.overview.backlog(who))


async def _callbacks(desk: Desk, who: Identity) -> str:
    return digest((await desk.callbacks.list(who, CallbacksAsked(limit=ROWS))).items)


async def _events(desk: Desk, who: Identity) -> str:
    page = await desk.events.list(who, EventsAsked(limit=EVENTS))
    found = [shown_event(who, one, with_data=False) for one in page.items]
    return digest([msgspec.structs.replace(one, hidden=False) for one in found])


async def _gates(desk: Desk, who: Identity) -> str:
    """Breakers and holds. When a breaker last heard something is left out: while it counts nothing else, nobody sees a
    change."""
    breakers = [msgspec.structs.replace(one, told_at=0.0) for one in await desk.gates.breakers(who)]
    return digest([breakers, await desk.gates.holds(who)])


async def _limits(desk: Desk, who: Identity) -> str:
    found = [_without_clock(one) for one in await desk.limits.list(who, limit=LIMITS)]
    return digest([found, await desk.limits.fairs(who, limit=LIMITS)])


async def _occasions(desk: Desk, who: Identity) -> str:
    """Those that are open, the newest, and when times of triggers come."""
    known = [(one.name, one.next_at) for one in await desk.triggers.list(who, limit=ROWS)]
    opened = await desk.triggers.occasions(who, state="open", limit=ROWS)
    return digest([known, opened, await desk.triggers.occasions(who, limit=ROWS)])


async def _quarantine(desk: Desk, who: Identity) -> str:
    return digest(await desk.quarantine.list(who))


async def _schedules(desk: Desk, who: Identity) -> str:
    return digest(await desk.schedules.list(who, limit=ROWS))


async def mark_of_limit(desk: Desk, who: Identity, key: str) -> str:
    """Return the mark of a limit, with who has it and who waits for it."""
    try:
        found = await desk.limits.get(who, key)
    except UnknownLimit:
        return UNKNOWN
    return digest([_without_clock(found.limit), found.holders, found.waiters])


def _without_clock(one: Limit) -> Limit:
    """Return a limit without how long it takes until there is room, because that number changes at every look."""
    return msgspec.structs.replace(one, next_s=None if one.next_s is None else 0.0)


WHOLE: Mapping[str, Callable[[Desk, Identity], Awaitable[str]]] = {
    "acts": _acts,
    "agents": _agents,
    "alerts": _alerts,
    "asks": _asks,
    "attention": _attention,
    "backlog": _backlog,
    "callbacks": _callbacks,
    "events": _events,
    "gates": _gates,
    "limits": _limits,
    "occasions": _occasions,
    "quarantine": _quarantine,
    "schedules": _schedules,
}
"""Topics that are a list as a whole."""
