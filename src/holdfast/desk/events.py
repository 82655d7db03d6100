"""Events, for callers and operators: send them, and see what became of them.

Python (`hf.emit`), the command line, the server and its hooks all ask an `EventDesk`, with the identity of who asks. Sending is
one transaction: the event's row, the runs that it starts, and the waits that it ends.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import msgspec

from holdfast import codec
from holdfast.access import Act, Identity, local
from holdfast.codec.schema import check
from holdfast.codec.secret import demand_sealed, masked_json
from holdfast.desk.opened import Opened, ring
from holdfast.desk.starts import LocalStartDesk, StartRequest
from holdfast.errors import Forbidden, InvalidInput, UnknownEvent
from holdfast.model import DEFAULT_NAMESPACE, EVENT_TAG, ComposedRow, EventRow, NewEvent, NewRun, Trigger
from holdfast.namespaces import bare, shown, stored
from holdfast.occasions import Composition, read_composition
from holdfast.store.bell import Bell
from holdfast.store.events import NEWEST, Arrival, Emitted, SeenEvent, parted_takers
from holdfast.store.store import Store
from holdfast.store.transaction import Transaction
from holdfast.wire.cloudevents import CloudEvent, moment_of
from holdfast.wire.cursors import cursor_text, filter_digest, read_cursor
from holdfast.wire.events import EmittedEvent, Event

STARTED_BY = "event~"
"""The id of a run that an event started begins with this."""
ID_CHARS = 26
LIST_MAX = 1000
SOURCE = "holdfast"
"""The source of an event whose sender names none."""


class EventsAsked(msgspec.Struct, kw_only=True):
    """Which events are asked for. An event must fit everything that is given."""

    type: str | None = None
    before: float | None = None
    """Those that came before this moment."""
    cursor: str | None = None
    """`next` of the page before."""
    limit: int = 50


class EventPage(NamedTuple):
    items: list[SeenEvent]
    next: str | None
    """Where the next page begins. None if this is the last one."""


class EventDesk(Protocol):
    """What callers and operators may ask about events."""

    async def emit(self, who: Identity, events: Sequence[CloudEvent]) -> list[Emitted]: ...
    async def get(self, who: Identity, source: str, id: str) -> SeenEvent: ...
    async def list(self, who: Identity, where: EventsAsked) -> EventPage: ...


class LocalEventDesk:
    """An event desk that works on the store."""

    def __init__(self, hf: Opened, starts: LocalStartDesk) -> None:
        self._hf, self._starts = hf, starts

    @property
    def _store(self) -> Store:
        return self._hf.store

    async def emit(self, who: Identity, events: Sequence[CloudEvent]) -> list[Emitted]:
        """Send events. Each starts and wakes what takes it, once for its source and id. Raise InvalidInput, and send
        none, if one of them does not fit what it would start."""
        spans = self._hf.caller.spans
        if spans is None:
            found = await self._emitted(who, events)
        else:
            types = " ".join(sorted({event.type for event in events}))[:200]
            with spans.sending(f"emit {types}", {"holdfast.events": len(events)}) as sent:
                found = await self._emitted(who, events)
                woken = sorted({run for one in found if one.is_new for run in one.woke})
                sent.link(list((await self._store.agents.run_traces(woken)).values()) if woken else ())
        if any(one.is_new and one.started for one in found):
            ring(self._hf, Bell.RUNS)
        if any(one.is_new and one.woke for one in found):
            ring(self._hf, Bell.OUTCOMES)
        return found

    async def _emitted(self, who: Identity, events: Sequence[CloudEvent]) -> list[Emitted]:
        arrivals = await self.arrivals(who, events)
        return await self._store.events.emit(arrivals, who.actor) if arrivals else []

    async def emit_within(self, who: Identity, events: Sequence[CloudEvent], caller: Transaction) -> None:
        """Send events inside a transaction that the caller has begun on the same database."""
        await self._store.events.emit_within(caller, await self.arrivals(who, events), who.actor)

    async def arrivals(self, who: Identity, events: Sequence[CloudEvent]) -> list[Arrival]:
        """Return events with the runs that they start."""
        who.demand(Act.START)
        namespace = who.namespace or DEFAULT_NAMESPACE
        await self._hf.caller.declare()
        triggers: dict[str, list[Trigger]] = {}
        types = sorted({event.type for event in events})
        for trigger in await self._store.events.triggers_on(namespace, types) if types else ():
            triggers.setdefault(trigger.type, []).append(trigger)
        composed: dict[str, list[ComposedRow]] = {}
        for kind, row in await self._store.occasions.composed_on(namespace, types) if types else ():
            composed.setdefault(kind, []).append(row)
        made = []
        for i, event in enumerate(events):
            taken, collecting = triggers.get(event.type, []), composed.get(event.type, [])
            self._demand(who, event, [*(one.name for one in taken), *(one.workflow for one in collecting)])
            place = "data" if len(events) == 1 else f"/{i}/data"
            most = self._hf.config.payload_max_bytes
            if len(event.data) > most:
                raise InvalidInput(
                    f"{place}: {len(event.data):,} bytes are more than the {most:,} that an event may carry"
                )
            demand_sealed(event.data, place)
            starts = [await self._run(namespace, event, trigger, place) for trigger in taken]
            for row in collecting:
                _demand_fit(event, row, read_composition(row.body), place)
            collects = [row.name for row in collecting]
            made.append(Arrival(new_event(namespace, event), starts, event.data, collects))
        return made

    def _demand(self, who: Identity, event: CloudEvent, workflows: Sequence[str]) -> None:
        """Raise unless the identity may send this event. A token that is narrowed to workflows, and not to events, may send
        only what starts those."""
        if not who.may_emit(event.type):
            raise Forbidden(f"this token may not send events of the type {event.type!r}")
        if not who.is_for_events and not all(who.may_start(bare(one)) for one in workflows):
            raise Forbidden(
                f"events of the type {event.type!r} start workflows that this token may not start"
            )

    async def _run(self, namespace: str, event: CloudEvent, trigger: Trigger, place: str) -> NewRun:
        raw = b"{" + msgspec.json.encode(trigger.parameter) + b":" + event.data + b"}"
        # Whoever may send the event need not be allowed to start the workflow by hand: its code asks for the event.
        who = local(SOURCE, namespace)
        try:
            run = await self._starts.new_run(
                who, StartRequest(bare(trigger.name), raw, trigger.version, by_event=True)
            )
            run = await self._hf.caller.queued(run)
        except InvalidInput as wrong:
            raise InvalidInput(
                f"{place}: an event of the type {event.type!r} does not fit: {wrong}"
            ) from None
        tags = {EVENT_TAG: f"{event.type} {event.id} from {event.source}"[:500]}
        run = msgspec.structs.replace(
            run,
            id=stored(namespace, started_id(event.source, event.id, trigger.name)),
            tags={**run.tags, **tags},
        )
        spans = self._hf.caller.spans
        return run if spans is None else spans.tagged(run)

    async def get(self, who: Identity, source: str, id: str) -> SeenEvent:
        who.demand(Act.READ)
        try:
            codec.stored_text(source, "source")
            codec.stored_text(id, "id")
        except InvalidInput:
            raise UnknownEvent.of(source, id) from None
        found = await self._store.events.event(who.namespace or DEFAULT_NAMESPACE, source, id)
        if found is None:
            raise UnknownEvent.of(source, id)
        return found

    async def list(self, who: Identity, where: EventsAsked) -> EventPage:
        """Return a page of the events of the identity's namespace, newest first."""
        who.demand(Act.READ)
        if where.type is not None:
            codec.stored_text(where.type, "type")
        namespace, limit = who.namespace or DEFAULT_NAMESPACE, min(where.limit, LIST_MAX)
        digest = filter_digest([where.type, where.before, namespace])
        after = NEWEST if where.before is None else (where.before, "", "")
        if where.cursor is not None:
            after = _place(where.cursor, digest)
        found = await self._store.events.events(namespace, where.type, after, limit + 1)
        page = found[:limit]
        return EventPage(page, _cursor(page[-1].row, digest) if len(found) > limit else None)


def _cursor(row: EventRow, digest: str) -> str:
    return cursor_text(row.received_at, msgspec.json.encode((row.source, row.id)).decode(), digest)


def _place(cursor: str, digest: str) -> tuple[float, str, str]:
    found = read_cursor(cursor, digest)
    try:
        if found is not None:
            return found[0], *msgspec.json.decode(found[1], type=tuple[str, str])
    except msgspec.MsgspecError:
        pass
    raise InvalidInput("cursor: this is no cursor of this list")


def started_id(source: str, id: str, workflow: str) -> str:
    """Return the id of the run of a workflow that an event starts. So one event starts it once for as long as the run is
    kept, which may be longer than the event is."""
    made = hashlib.sha256("\0".join((source, id, bare(workflow))).encode()).digest()
    return STARTED_BY + base64.b32encode(made).decode().lower()[:ID_CHARS]


def _demand_fit(event: CloudEvent, row: ComposedRow, composition: Composition, place: str) -> None:
    """Raise InvalidInput if an event does not fit what the workflow of a composed trigger takes of it."""
    part = composition.part(event.type)
    schema = None if part is None else composition.schemas.get(part.name)
    if part is None or schema is None:
        return
    try:
        check(codec.read_json(event.data, part.name), schema, part.name)
    except InvalidInput as wrong:
        raise InvalidInput(
            f"{place}: an event of the type {event.type!r} does not fit the trigger {bare(row.name)}: {wrong}"
        ) from None


def new_event(namespace: str, event: CloudEvent) -> NewEvent:
    """Return an event that somebody sends in this namespace."""
    return NewEvent(
        namespace,
        event.source,
        event.id,
        event.type,
        event.data,
        event.subject,
        event.time,
        event.attributes,
    )


# --- what is shown ----------------------------------------------------------------------------------------------------


def shown_emitted(who: Identity, one: Emitted) -> EmittedEvent:
    return EmittedEvent(
        one.event.source,
        one.event.id,
        one.event.type,
        one.is_new,
        [shown(who.namespace, run) for run in one.started],
        [shown(who.namespace, run) for run in one.woke],
        [shown(who.namespace, run) for run in one.collected],
        [shown(who.namespace, run) for run in one.late],
    )


def shown_event(who: Identity, seen: SeenEvent, *, with_data: bool) -> Event:
    row = seen.row
    started, woke, collected, late = (
        [shown(who.namespace, run) for run in runs] for runs in parted_takers(seen.takers)
    )
    others: dict[str, str] = msgspec.json.decode(row.attributes or "{}")
    made = Event(
        source=row.source,
        id=row.id,
        type=row.type,
        subject=row.subject,
        time=None if row.time is None else moment_of(row.time),
        received_at=datetime.fromtimestamp(row.received_at, UTC),
        actor=row.actor,
        attributes=others,
        started=started,
        woke=woke,
        collected=collected,
        late=late,
        hidden=not who.payloads,
    )
    if with_data and who.payloads:
        made.data = msgspec.Raw(masked_json(row.data))
    return made
