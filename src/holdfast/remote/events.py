"""The event desk of a server, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from holdfast.access import Identity
from holdfast.desk.events import EventPage, EventsAsked, new_event
from holdfast.errors import UnknownEvent
from holdfast.model import DEFAULT_NAMESPACE, EventRow, EventTaker
from holdfast.remote.transport import Transport
from holdfast.store.events import Emitted, SeenEvent
from holdfast.store.occasions import COLLECTED, LATE
from holdfast.wire import events as answers
from holdfast.wire.cloudevents import BATCH_MAX, BATCHED, CloudEvent, write
from holdfast.wire.paths import path_of

LIST_MAX = 200
"""How many events a server lists at once."""
WAIT = "wait"
"""Stands for the wait that an event has ended: a server does not say which."""


class RemoteEventDesk:
    """An event desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def emit(self, who: Identity, events: Sequence[CloudEvent]) -> list[Emitted]:
        made: list[Emitted] = []
        for first in range(0, len(events), BATCH_MAX):
            part = events[first : first + BATCH_MAX]
            found = await self._transport.post(
                who,
                "/v1/events",
                answers.EmittedEvents,
                [write(one) for one in part],
                headers={"Content-Type": BATCHED},
            )
            made += [
                Emitted(
                    new_event(who.namespace or DEFAULT_NAMESPACE, event),
                    item.new,
                    item.started,
                    item.woke,
                    item.collected,
                    item.late,
                )
                for event, item in zip(part, found.items, strict=True)
            ]
        return made

    async def get(self, who: Identity, source: str, id: str) -> SeenEvent:
        found = await self._transport.get(
            who,
            f"/v1/events/{path_of(source)}/{path_of(id)}",
            answers.Event,
            unknown=lambda: UnknownEvent.of(source, id),
        )
        return _seen(who, found)

    async def list(self, who: Identity, where: EventsAsked) -> EventPage:
        before = where.before
        query = {
            "limit": min(where.limit, LIST_MAX),
            "type": where.type,
            "before": None if before is None else datetime.fromtimestamp(before, UTC).isoformat(),
            "cursor": where.cursor,
        }
        found = await self._transport.get(who, "/v1/events", answers.Events, query)
        return EventPage([_seen(who, one) for one in found.items], found.next)


def _seen(who: Identity, found: answers.Event) -> SeenEvent:
    namespace = who.namespace or DEFAULT_NAMESPACE
    row = EventRow(
        namespace,
        found.source,
        found.id,
        found.type,
        bytes(found.data),
        found.subject,
        None if found.time is None else found.time.isoformat(),
        msgspec.json.encode(found.attributes).decode() if found.attributes else None,
        found.received_at.timestamp(),
        found.actor,
    )
    takers = [EventTaker(namespace, row.source, row.id, run, "") for run in found.started]
    takers += [EventTaker(namespace, row.source, row.id, run, WAIT) for run in found.woke]
    takers += [EventTaker(namespace, row.source, row.id, run, COLLECTED) for run in found.collected]
    takers += [EventTaker(namespace, row.source, row.id, run, LATE) for run in found.late]
    return SeenEvent(row, takers)
