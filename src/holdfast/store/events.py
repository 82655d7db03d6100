"""Events: what came in, the runs that it started, and the waits that it ended.

An event is one row for its source and id. The row, the runs that it starts and the signals that it sends are one
transaction: so what is sent again, to whichever server, finds the row and changes nothing.

A run waits for an event by a step of kind `signal` whose name says what for (`wait_name`), and the event becomes a signal of
that name. The open steps are the waits: there is no other table of them. Whoever sends an event looks for waits, and
whoever has begun to wait looks for events, each after locking the value that both name. So of two transactions at the
same time one comes first, and the other finds what it wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from holdfast.actor import entry
from holdfast.errors import InvalidInput
from holdfast.event_names import Awaited, awaited_of, value_at, wait_name
from holdfast.keyring import sealed_by
from holdfast.model import EventRow, EventTaker, NewEvent, NewRun, Trigger
from holdfast.occasions import read_composition
from holdfast.store.bell import Bell
from holdfast.store.database import Noun, Row, Session, leading, look, transaction
from holdfast.store.event_locks import lock_number
from holdfast.store.gathers import taken
from holdfast.store.occasions import COLLECTED, LATE, NewArrival, collect, named, occasion_lock
from holdfast.store.rows import start_row
from holdfast.store.schedules import DeclaredSet
from holdfast.store.transaction import Transaction
from holdfast.store.verbs import Verb

BEFORE_MAX = 10_000
"""When code first waits for a type by some path, so many of the newest events of that type are looked through."""
MISSED_MAX = 1000
"""How many events a wait gets that came before it."""
SETS_MAX = 1000

NEWEST = (1e11, "", "")
"""After this, all events come in a list that begins with the newest."""

Key = tuple[str, str, str]
"""The namespace, source and id of an event."""


class Arrival(NamedTuple):
    """An event and the runs that it starts, if it is new."""

    event: NewEvent
    starts: Sequence[NewRun] = ()
    read: bytes | None = None
    """The data as it was sent, if that of the event may be sealed: waits name values in it. It is not written."""
    collects: Sequence[str] = ()
    """The composed triggers that may take it."""


class Emitted(NamedTuple):
    """What became of an event."""

    event: NewEvent
    is_new: bool
    """False if it had come before."""
    started: list[str]
    """The runs that it started, as the store has their ids."""
    woke: list[str]
    """The runs that it woke."""
    collected: Sequence[str] = ()
    """The occasions that have it."""
    late: Sequence[str] = ()
    """The occasions for which it came too late."""


class EventWait(NamedTuple):
    """A wait of a run for an event."""

    run_id: str
    name: str


class SeenEvent(NamedTuple):
    row: EventRow
    takers: list[EventTaker]


# --- keys -------------------------------------------------------------------------------------------------------------


def wait_digest(name: str) -> str:
    return blake2b(name.encode(), digest_size=16).hexdigest()


def signal_key(source: str, id: str) -> str:
    return blake2b(f"{source}\0{id}".encode(), digest_size=16).hexdigest()


# --- sending and waiting ----------------------------------------------------------------------------------------------


async def emit(session: Session, arrivals: Sequence[Arrival], actor: str, bytes_max: int) -> list[Emitted]:
    """Write events, start what they start, and wake who waits for them. An event that is in the store already, or stands
    in the list twice, changes nothing."""
    by_key: dict[Key, Arrival] = {}
    for arrival in arrivals:
        by_key.setdefault(arrival.event.key, arrival)
    ordered = [by_key[key] for key in sorted(by_key)]
    kinds = sorted({(one.event.namespace, one.event.type) for one in ordered})
    await session.rows(Verb.lock_event_types, sorted({lock_number(*kind) for kind in kinds}))
    values = _values(ordered, await _paths(session, kinds))
    numbers = {
        lock_number(event.namespace, event.type, path, value)
        for event in (one.event for one in ordered)
        for path, value in values[event.key]
    }
    comings = await _comings(session, ordered)
    numbers |= {occasion_lock(one.occasion) for those in comings.values() for one in those}
    if numbers:
        await session.rows(Verb.lock_event_values, sorted(numbers))
    # The time of arrival is taken here, under the locks: so events of one value have the order in which waits see them.
    added = await session.all(Verb.add_events, [(*_columns(one.event), actor) for one in ordered])
    new = {(row[0], row[1], row[2]) for row in added}
    fresh = [one for one in ordered if one.event.key in new]
    keys = [(*one.event.key, path, value) for one in fresh for path, value in values[one.event.key]]
    await session.each(Verb.add_event_keys, keys)
    runs = {run.id: run for one in fresh for run in one.starts if run.gather is None}
    await session.all(Verb.start_runs, [start_row(runs[one]) for one in sorted(runs)])
    started = [(*one.event.key, run.id, "") for one in fresh for run in one.starts if run.gather is None]
    await session.each(Verb.add_event_takers, sorted(started))
    await _wake(session, fresh, values)
    # After the runs that were woken are locked: so does a hop that starts such a run.
    await _gather(session, [one for one in by_key.values() if one.event.key in new], bytes_max)
    if arriving := [one for each in fresh for one in comings.get(each.event.key, ())]:
        await _collect(session, fresh[0].event.namespace, arriving)
    return await _emitted(session, [one.event for one in arrivals], new)


async def _gather(session: Session, fresh: Sequence[Arrival], bytes_max: int) -> None:
    """Let the runs of workflows that gather their starts take those of events, for each key in the order in which the events
    were sent."""
    starts = [(run, one.event.key) for one in fresh for run in one.starts if run.gather is not None]
    takers = set()
    for run, key in sorted(starts, key=lambda one: one[0].gather.key if one[0].gather else ""):
        takers.add((*key, (await taken(session, run, bytes_max)).run_id, ""))
    await session.each(Verb.add_event_takers, sorted(takers))


async def _paths(session: Session, kinds: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[str]]:
    """Return by which paths events of these types are waited for."""
    names, types = [kind[0] for kind in kinds], [kind[1] for kind in kinds]
    found: dict[tuple[str, str], list[str]] = {}
    for namespace, kind, path in await session.rows(Verb.event_paths, names, types):
        found.setdefault((namespace, kind), []).append(path)
    return found


def _values(
    arrivals: Iterable[Arrival], paths: dict[tuple[str, str], list[str]]
) -> dict[Key, list[tuple[str, str]]]:
    """Return what stands in each event at the paths of its type."""
    found: dict[Key, list[tuple[str, str]]] = {}
    for arrival in arrivals:
        event = arrival.event
        if arrival.read is not None:
            event = msgspec.structs.replace(event, data=arrival.read)
        here = [(path, value_at(event, path)) for path in paths.get((event.namespace, event.type), ())]
        found[event.key] = [(path, value) for path, value in here if value is not None]
    return found


async def _wake(session: Session, fresh: Sequence[Arrival], values: dict[Key, list[tuple[str, str]]]) -> None:
    """Send the runs that wait for these events what they have not got."""
    awaited = (
        Awaited(one.event.namespace, one.event.type, path, value)
        for one in fresh
        for path, value in values[one.event.key]
    )
    if named := {wait_name(one): one for one in awaited}:
        rows = await session.rows(Verb.event_waits, list(named))
        await _send_missed(session, {EventWait(run_id, name): named[name] for name, run_id in rows})


async def _comings(session: Session, arrivals: Sequence[Arrival]) -> dict[Key, list[NewArrival]]:
    """Return at which occasions events arrive, by what is in force now."""
    names = {name for one in arrivals for name in one.collects}
    composed = await named(session, names) if names else {}
    found: dict[Key, list[NewArrival]] = {}
    for arrival in arrivals:
        event = arrival.event
        if arrival.read is not None:
            event = msgspec.structs.replace(event, data=arrival.read)
        for row in (composed[name] for name in arrival.collects if name in composed):
            composition = read_composition(row.body)
            value = value_at(event, composition.by)
            if composition.part(event.type) is None or value is None:
                continue
            if sealed_by(arrival.event.data) is not None:
                raise InvalidInput(
                    f"data: the trigger {row.name} puts the data of several events together, which cannot be done in a store that "
                    "is sealed: let the workflow wait for the others by Event.wait"
                )
            coming = NewArrival(row, value, event.type, event.source, event.id)
            found.setdefault(arrival.event.key, []).append(coming)
    return found


async def _collect(session: Session, namespace: str, arriving: Sequence[NewArrival]) -> None:
    """Give occasions the events that arrive, and note what became of each."""
    fates = await collect(session, arriving)
    last = {one.occasion: one for one in fates.collected}
    takers = [
        (namespace, one.source, one.id, one.occasion, f"{kind}{one.part}")
        for kind, those in ((COLLECTED, fates.collected), (LATE, fates.late))
        for one in those
    ]
    takers += [(namespace, last[run].source, last[run].id, run, "") for run in fates.started]
    await session.each(Verb.add_event_takers, sorted(takers))


async def _emitted(session: Session, events: Sequence[NewEvent], new: set[Key]) -> list[Emitted]:
    keys = sorted({event.key for event in events})
    columns = [list(column) for column in zip(*keys, strict=True)]
    takers: dict[Key, list[tuple[str, str]]] = {}
    for namespace, source, name, run_id, wait in await session.rows(Verb.event_takers, *columns):
        takers.setdefault((namespace, source, name), []).append((run_id, wait))
    made, unsaid = [], set(new)
    for event in events:
        found = [EventTaker(*event.key, *one) for one in takers.get(event.key, [])]
        made.append(Emitted(event, event.key in unsaid, *parted_takers(found)))
        unsaid.discard(event.key)
    return made


def parted_takers(takers: Iterable[EventTaker]) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return the runs that an event started and woke, the occasions that have it, and those for which it came too late."""
    found: tuple[list[str], list[str], list[str], list[str]] = ([], [], [], [])
    for one in takers:
        kind = (
            0
            if not one.wait
            else 2
            if one.wait.startswith(COLLECTED)
            else 3
            if one.wait.startswith(LATE)
            else 1
        )
        if one.run_id not in found[kind]:
            found[kind].append(one.run_id)
    return found


async def catch_up(session: Session, waits: Sequence[EventWait]) -> int:
    """Send runs that wait the events that came since they began and that they have not got. Return how many there were."""
    awaited = {wait: awaited_of(wait.name) for wait in sorted(set(waits))}
    kinds = sorted({(one.namespace, one.type) for one in awaited.values()})
    known = await _paths(session, kinds)
    for one in sorted(set(awaited.values()), key=lambda one: lock_number(one.namespace, one.type)):
        paths = known.setdefault((one.namespace, one.type), [])
        if one.path not in paths:
            await _learn_path(session, one)
            paths.append(one.path)
    await session.rows(Verb.lock_event_values, sorted({lock_number(*one) for one in awaited.values()}))
    return await _send_missed(session, awaited)


async def _send_missed(session: Session, awaited: dict[EventWait, Awaited]) -> int:
    """Send runs the events for these waits that they have not got, the oldest first. Return how many there were.

    Also an event that comes just now is sent in this way. An older one may have come while the run did not wait, and the run
    may not have looked for it yet. If the newer event were sent alone, that look would begin after it.
    """
    asked = [(wait.run_id, wait.name, wait_digest(wait.name), *awaited[wait]) for wait in sorted(awaited)]
    signals, takers = [], []
    for run_id, name, source, event_id, data in await session.all(Verb.missed_events, asked, MISSED_MAX):
        signals.append((run_id, name, signal_key(source, event_id), bytes(data)))
        namespace = awaited[EventWait(run_id, name)].namespace
        takers.append((namespace, source, event_id, run_id, wait_digest(name)))
    await session.each(Verb.send_signals, signals)
    await session.each(Verb.add_event_takers, sorted(takers))
    return len(signals)


async def _learn_path(session: Session, awaited: Awaited) -> None:
    """Note that events of this type are waited for by this path, and look through the newest ones."""
    namespace, kind, path, _ = awaited
    await session.rows(Verb.lock_event_type, lock_number(namespace, kind))
    await session.run(Verb.add_event_path, namespace, kind, path)
    keys = []
    for source, name, data, subject, time, attributes in await session.rows(
        Verb.events_of_type, namespace, kind, BEFORE_MAX
    ):
        event = NewEvent(namespace, source, name, kind, bytes(data), subject, time, attributes)
        value = value_at(event, path)
        if value is not None:
            keys.append((*event.key, path, value))
    await session.each(Verb.add_event_keys, sorted(keys))


def _columns(event: NewEvent) -> Row:
    return (
        event.namespace,
        event.source,
        event.id,
        event.type,
        event.data,
        event.subject,
        event.time,
        event.attributes,
    )


# --- what code declares -----------------------------------------------------------------------------------------------


def triggers_in(declared: DeclaredSet) -> list[Trigger]:
    return _triggers.decode(declared.body)


def write_triggers(triggers: Iterable[Trigger]) -> str:
    return msgspec.json.encode(sorted(triggers, key=lambda one: (one.type, one.name))).decode()


_triggers = msgspec.json.Decoder(list[Trigger])


async def declare_triggers(session: Session, sets: Sequence[DeclaredSet]) -> None:
    """Write the sets of triggers that a node declares. A set that nobody declared before is in force at once. Called in the
    transaction that registers the node."""
    rows = [(one.origin, one.digest, one.body, one.body == "[]") for one in sets]
    new = {(row[0], row[1]) for row in await session.all(Verb.declare_triggers, rows)}
    for one in sets:
        if (one.origin, one.digest) in new:
            await _put_in_force(session, one)


async def _declared(session: Session) -> list[DeclaredSet]:
    return [DeclaredSet(*row) for row in await session.rows(Verb.declared_triggers, SETS_MAX)]


async def _put_in_force(session: Session, declared: DeclaredSet) -> None:
    """Make the triggers of an application those of a set. The transaction keeps others from registering."""
    known = {
        (row[0], row[1], row[2]): Trigger(*row)
        for row in await session.rows(Verb.triggers_of, declared.origin)
    }
    lines = {(one.namespace, one.type, one.name): one for one in triggers_in(declared)}
    over = [(*key, declared.origin) for key in sorted(known) if key not in lines]
    changed = [
        (*msgspec.structs.astuple(one), declared.origin)
        for key, one in sorted(lines.items())
        if known.get(key) != one
    ]
    await session.each(Verb.remove_triggers, over)
    await session.each(Verb.add_triggers, changed)
    entries = [
        entry(
            "supervisor",
            f"trigger {verb}",
            None,
            None,
            f"{row[1]} starts {row[2]}: declared by {declared.origin}",
        )
        for verb, rows in (("removed", over), ("added", changed))
        for row in rows
    ]
    await session.each(Verb.journal_add, entries)


# --- the noun ---------------------------------------------------------------------------------------------------------


class WaitEvents(Noun):
    """What schedulers ask about events."""

    @transaction
    async def catch_up(self, session: Session, waits: Sequence[EventWait]) -> int:
        """Send runs that wait the events that came since they began and that they have not got. Return how many."""
        return await catch_up(session, waits)


class LeaderEvents(WaitEvents):
    @look
    async def open_waits(self, session: Session, after: tuple[str, str, int], limit: int) -> list[Row]:
        """Return (name, run, n) of waits for events, from this one on."""
        return [tuple(row) for row in await session.rows(Verb.open_event_waits, *after, limit)]

    @look
    async def declared_triggers(self, session: Session) -> list[DeclaredSet]:
        """Return the sets of triggers that live nodes declare."""
        return await _declared(session)

    @look
    async def triggers_of(self, session: Session, origin: str) -> list[Trigger]:
        return [Trigger(*row) for row in await session.rows(Verb.triggers_of, origin)]

    @leading(None)
    async def reconcile_triggers(self, session: Session, declared: DeclaredSet) -> None:
        """Make the triggers of an application those that its code declares. A node that registers puts its set in force
        itself: so nobody registers meanwhile, and a set that is no longer the newest is left alone."""
        await session.in_turn()
        if not declared.is_older(await _declared(session)):
            await _put_in_force(session, declared)


class Events(LeaderEvents):
    @transaction
    async def emit(self, session: Session, arrivals: Sequence[Arrival], actor: str) -> list[Emitted]:
        """Write events, start what they start, and wake who waits for them."""
        return await emit(session, arrivals, actor, self._database.config.payload_max_bytes)

    async def emit_within(self, caller: Transaction, arrivals: Sequence[Arrival], actor: str) -> None:
        """Do the same inside a transaction that the caller has begun on the same database."""
        await self._database.work_within(
            caller,
            lambda session: emit(session, arrivals, actor, self._database.config.payload_max_bytes),
            (Bell.RUNS, Bell.OUTCOMES),
        )

    @look
    async def triggers_on(self, session: Session, namespace: str, types: Sequence[str]) -> list[Trigger]:
        """Return what events of these types start."""
        return [Trigger(*row) for row in await session.rows(Verb.triggers_on, namespace, list(types))]

    @look
    async def event(self, session: Session, namespace: str, source: str, id: str) -> SeenEvent | None:
        row = await session.row(Verb.event, namespace, source, id)
        return None if row is None else (await _seen(session, [event_of(row)]))[0]

    @look
    async def events(
        self,
        session: Session,
        namespace: str,
        type: str | None = None,
        after: tuple[float, str, str] = NEWEST,
        limit: int = 100,
    ) -> list[SeenEvent]:
        """Return events, newest first, with the runs that they started and woke: those that come after the one that was
        received then, with this source and id. Many events of one batch may have come at the same moment."""
        rows = await session.rows(Verb.events, namespace, *after, type, limit)
        return await _seen(session, [event_of(row) for row in rows])


async def _seen(session: Session, rows: Sequence[EventRow]) -> list[SeenEvent]:
    if not rows:
        return []
    columns = [[row.namespace for row in rows], [row.source for row in rows], [row.id for row in rows]]
    takers: dict[Key, list[EventTaker]] = {}
    for namespace, source, name, run_id, wait in await session.rows(Verb.event_takers, *columns):
        takers.setdefault((namespace, source, name), []).append(
            EventTaker(namespace, source, name, run_id, wait)
        )
    return [SeenEvent(row, takers.get((row.namespace, row.source, row.id), [])) for row in rows]


def event_of(row: Row) -> EventRow:
    values = list(row)
    values[4] = bytes(values[4])
    return EventRow(*values)
