"""Composed triggers, and their occasions: what has arrived, what is missing, and the run that starts when all is there.

An event is collected in the transaction that writes it, and a time in the one that moves its cursor. So is the start of the run:
whoever brings the last part starts it. All who write about an occasion first lock its id, among the values of events. So of two
last parts at the same time one comes first, and the other finds it. A run has the id of its occasion, so it is started once.

What code declares is a set, like that of schedules. An open occasion is judged by what is in force now. If that has changed, the
leader judges again what is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

import msgspec

from holdfast import codec
from holdfast.actor import entry, way
from holdfast.errors import UnknownOccasion, WrongState
from holdfast.keyring import sealed_by
from holdfast.model import (
    AT_TAG,
    VALUE_TAG,
    WHEN_TAG,
    AlertKind,
    ComposedRow,
    Level,
    NewAlert,
    NewRun,
    OccasionRow,
    OccasionState,
)
from holdfast.namespaces import bare
from holdfast.occasions import (
    ArrivedTimes,
    Collected,
    Composition,
    counted,
    input_of,
    judge,
    missing,
    occasion_id,
    read_composition,
    take,
    value_of_time,
)
from holdfast.store.database import Noun, Row, Session, leading, look, transaction
from holdfast.store.event_locks import lock_number
from holdfast.store.rows import alert_row, start_row
from holdfast.store.schedules import DeclaredSet
from holdfast.store.verbs import Verb
from holdfast.times.plan import Plan, read_plan
from holdfast.times.zones import iso

SETS_MAX = 1000
COLLECTED, LATE = "when:", "late:"
"""What `event_takers.wait` begins with, if an occasion took the event, or if it came too late for one."""


class NewArrival(NamedTuple):
    """An event or a time that arrives at an occasion."""

    composed: ComposedRow
    value: str
    part: str
    source: str
    id: str
    at: float | None = None
    """When the time was. An event arrives now."""

    @property
    def occasion(self) -> str:
        return occasion_id(self.composed.name, self.value)


class Fates(NamedTuple):
    """What became of what arrived."""

    collected: list[Collected]
    late: list[Collected]
    started: list[str]
    """The occasions whose runs were started."""


class DueTime(NamedTuple):
    """The next time of a part of a trigger."""

    name: str
    part: str
    plan: str
    cursor: float
    next_at: float | None


class OccasionLooks(NamedTuple):
    """What there is to do about occasions."""

    times: list[str]
    """The triggers of which a time has come."""
    over: list[str]
    """The occasions whose time is over."""
    next_at: float | None


class SeenOccasion(NamedTuple):
    """An occasion with what it has, and the trigger, if code still declares it."""

    row: OccasionRow
    collected: list[Collected]
    composed: ComposedRow | None


class SeenComposed(NamedTuple):
    """A composed trigger, and when its next time comes."""

    row: ComposedRow
    next_at: float | None


def occasion_lock(occasion: str) -> int:
    return lock_number("$when", occasion)


# --- collecting -------------------------------------------------------------------------------------------------------


async def collect(session: Session, comings: Sequence[NewArrival]) -> Fates:
    """Give occasions what arrives, and start the runs of those that are complete. The transaction has locked their ids."""
    first: dict[str, NewArrival] = {}
    for coming in comings:
        first.setdefault(coming.occasion, coming)
    opened = [
        (
            occasion,
            one.composed.namespace,
            one.composed.name,
            one.value,
            one.composed.digest,
            one.at,
            read_composition(one.composed.body).within_s,
        )
        for occasion, one in sorted(first.items())
    ]
    await session.each(Verb.open_occasions, opened)
    rows, held, now = await _read(session, first)
    fates, changed = Fates([], [], []), []
    adds, drops, lates = [], [], list[tuple[str, int]]()
    for occasion in sorted(first):
        row, composed = rows[occasion], first[occasion].composed
        arriving = [
            Collected(occasion, one.part, one.source, one.id, now if one.at is None else one.at)
            for one in comings
            if one.occasion == occasion
        ]
        own = held.get(occasion, [])
        composition = read_composition(composed.body)
        taken = take(row, composition, own, arriving, is_over=now > row.ends_at)
        adds += [(*one[:4], row.namespace, one.at) for one in taken.adds]
        drops += [one[:4] for one in taken.drops]
        if taken.late:
            lates.append((occasion, len(taken.late)))
        fates.collected.extend(taken.adds)
        fates.late.extend(taken.late)
        if taken.adds:
            held[occasion] = [one for one in own if one not in taken.drops] + taken.adds
            changed.append(_Judged(row, composed, composition, held[occasion], is_over=False))
    await session.each(Verb.remove_collected, sorted(drops))
    await session.each(Verb.add_collected, sorted(adds))
    await session.each(Verb.note_late, sorted(lates))
    fates.started.extend(await _conclude(session, changed))
    return fates


class _Judged(NamedTuple):
    """An open occasion about which something may be decided."""

    row: OccasionRow
    composed: ComposedRow
    composition: Composition
    held: Sequence[Collected]
    is_over: bool
    by: str = ""
    """Who lets it start now, and why. Empty: nobody does."""


async def _read(
    session: Session, occasions: Iterable[str]
) -> tuple[dict[str, OccasionRow], dict[str, list[Collected]], float]:
    """Return occasions with what they have, and the store's time."""
    ids = sorted(occasions)
    rows, now = {}, 0.0
    for at, *columns in await session.rows(Verb.occasions_of, ids):
        row = occasion_of(columns)
        rows[row.id], now = row, at
    held: dict[str, list[Collected]] = {}
    for columns in await session.rows(Verb.collected_of, ids):
        held.setdefault(columns[0], []).append(Collected(*columns))
    return rows, held, now


async def _conclude(session: Session, judged: Sequence[_Judged]) -> list[str]:
    """Write what becomes of open occasions, and start the runs of those that are complete. Return which these are."""
    verdicts = {
        one.row.id: "start" if one.by else judge(one.composition, one.held, is_over=one.is_over)
        for one in judged
    }
    starting = [one for one in judged if verdicts[one.row.id] == "start"]
    data: dict[Collected, bytes] = {}
    if starting:
        for *columns, raw in await session.rows(Verb.collected_data, sorted(one.row.id for one in starting)):
            data[Collected(*columns)] = bytes(raw)
    moved, alerts, runs = [], list[NewAlert](), dict[str, NewRun]()
    for one in judged:
        row, verdict = one.row, verdicts[one.row.id]
        lacking = ", ".join(missing(one.composition.needs, counted(one.held)))
        ends_at = row.opened_at + one.composition.within_s
        state, note = OccasionState.OPEN, ""
        if verdict == "start" and any(sealed_by(data.get(part, b"")) for part in one.held):
            verdict, lacking = "alert", "nothing, but its parts are sealed, and cannot be put together"
        if verdict == "start":
            said = [f"without {lacking}"] if lacking else []
            state, note = OccasionState.STARTED, ", ".join([*said, *([one.by] if one.by else [])])
            runs[row.id] = _new_run(one, data)
        elif verdict != "wait":
            state, note = OccasionState.EXPIRED, f"missing: {lacking}"
        if verdict == "alert":
            alerts.append(_alert(row, lacking))
        if state is not row.state or one.composed.digest != row.digest or ends_at != row.ends_at:
            moved.append((row.id, state, one.composed.digest, ends_at, note))
    await session.each(Verb.move_occasions, sorted(moved))
    await session.all(Verb.start_runs, [start_row(runs[one]) for one in sorted(runs)])
    await session.each(Verb.raise_alerts, [alert_row(alert) for alert in alerts])
    return sorted(runs)


def _new_run(one: _Judged, data: Mapping[Collected, bytes]) -> NewRun:
    raw = input_of(one.composition, one.held, data)
    tags = {WHEN_TAG: bare(one.composed.name), VALUE_TAG: one.row.value, AT_TAG: iso(one.row.opened_at)}
    return NewRun(
        one.row.id,
        one.composed.workflow,
        one.composed.version,
        raw,
        codec.digest(raw),
        namespace=one.row.namespace,
        priority=one.composition.priority,
        timeout_s=one.composition.timeout_s,
        tags={**one.composition.tags, **tags},
    )


def _alert(row: OccasionRow, lacking: str) -> NewAlert:
    message = f"occasion {row.id} was not complete in time, and no run was started; missing: {lacking}; see `holdfast triggers`"
    return NewAlert(
        AlertKind.OCCASION_EXPIRED, Level.ERROR, f"occasion expired:{row.id}", message, about=row.id
    )


# --- what code declares -----------------------------------------------------------------------------------------------


def composed_in(declared: DeclaredSet) -> list[ComposedRow]:
    return _lines.decode(declared.body)


def write_composed(lines: Iterable[ComposedRow]) -> str:
    return msgspec.json.encode(sorted(lines, key=lambda one: one.name)).decode()


_lines = msgspec.json.Decoder(list[ComposedRow])


async def declare_composed(session: Session, sets: Sequence[DeclaredSet]) -> None:
    """Write the sets of composed triggers that a node declares. A set that nobody declared before is in force at once. Called
    in the transaction that registers the node."""
    rows = [(one.origin, one.digest, one.body, one.body == "[]") for one in sets]
    new = {(row[0], row[1]) for row in await session.all(Verb.declare_composed, rows)}
    for one in sets:
        if (one.origin, one.digest) in new:
            await _put_in_force(session, one)


async def _declared(session: Session) -> list[DeclaredSet]:
    return [DeclaredSet(*row) for row in await session.rows(Verb.declared_composed, SETS_MAX)]


async def _put_in_force(session: Session, declared: DeclaredSet) -> list[str]:
    """Make the composed triggers of an application those of a set. Return the names that another application has. The
    transaction keeps others from registering."""
    known = {row[0]: ComposedRow(*row) for row in await session.rows(Verb.composed_of, declared.origin)}
    lines = {one.name: one for one in composed_in(declared)}
    over = sorted(known.keys() - lines.keys())
    changed = [one for name, one in sorted(lines.items()) if known.get(name) != one]
    done = {
        row[0]
        for row in await session.all(Verb.add_composed, [msgspec.structs.astuple(one) for one in changed])
    }
    written = [one for one in changed if one.name in done]
    await session.each(Verb.remove_composed_types, [(name,) for name in (*over, *sorted(done))])
    types = [
        (one.namespace, part.type, one.name)
        for one in written
        for part in read_composition(one.body).parts
        if part.type
    ]
    await session.each(Verb.add_composed_types, sorted(types))
    await _change_times(session, over, written)
    await session.each(Verb.remove_composed, [(name, declared.origin) for name in over])
    entries = [
        entry("supervisor", f"trigger {verb}", None, None, f"{name}: declared by {declared.origin}")
        for verb, names in (("removed", over), ("added", sorted(done)))
        for name in names
    ]
    await session.each(Verb.journal_add, entries)
    return [one.name for one in changed if one.name not in done]


async def _change_times(session: Session, over: Sequence[str], written: Sequence[ComposedRow]) -> None:
    """Write the times of triggers. One whose plan is as before goes on from where it was. No time from before a change
    arrives late."""
    now = await session.now()
    names = [*over, *(one.name for one in written)]
    known = {(row[0], row[1]): DueTime(*row) for row in await session.rows(Verb.composed_times, names)}
    wanted = {
        (one.name, part.key): part.times
        for one in written
        for part in read_composition(one.body).parts
        if part.times is not None
    }
    gone = sorted(known.keys() - wanted.keys())
    new = [
        (*key, text, now, plan.after(now))
        for key, plan in sorted(wanted.items())
        if (text := _text(plan)) and (key not in known or known[key].plan != text)
    ]
    await session.each(Verb.remove_composed_times, gone)
    await session.each(Verb.add_composed_times, new)


def _text(plan: Plan) -> str:
    return msgspec.json.encode(plan).decode()


# --- the noun ---------------------------------------------------------------------------------------------------------


class LeaderOccasions(Noun):
    @look
    async def occasion_looks(self, session: Session, limit: int) -> OccasionLooks:
        """Return what there is to do."""
        times: dict[str, None] = {}
        over, nexts = [], []
        for kind, name, _, at in await session.rows(Verb.occasion_looks, limit):
            if kind == "next":
                nexts.append(at)
            elif kind == "over":
                over.append(name)
            else:
                times[name] = None
        return OccasionLooks(list(times), over, min(nexts, default=None))

    @look
    async def due_times(self, session: Session, names: Sequence[str]) -> list[DueTime]:
        """Return the next times of these triggers."""
        return [DueTime(*row) for row in await session.rows(Verb.composed_times, list(names))]

    @leading(0)
    async def arrive(self, session: Session, due: Sequence[tuple[DueTime, ArrivedTimes]]) -> int:
        """Let times arrive at their occasions. Times that somebody has changed since are left alone. Return how many runs were
        started."""
        moves = [
            (one.name, one.part, one.plan, one.cursor, found.cursor, found.next_at)
            for one, found in sorted(due, key=lambda each: each[0][:2])
        ]
        moved = {(row[0], row[1]) for row in await session.all(Verb.move_composed_times, moves)}
        kept = [each for each in due if each[0][:2] in moved]
        composed = await named(session, [one.name for one, _ in kept])
        comings = [
            NewArrival(composed[one.name], value, one.part, "", iso(at), at)
            for one, found in kept
            if one.name in composed
            for at in found.times
            if (value := _value(composed[one.name], one, at)) is not None
        ]
        passed = [
            entry(
                "supervisor",
                "trigger times",
                None,
                None,
                f"{one.name}: {found.passed} times were too old to arrive",
            )
            for one, found in kept
            if found.passed
        ]
        await session.each(Verb.journal_add, passed)
        if not comings:
            return 0
        await session.rows(Verb.lock_event_values, sorted({occasion_lock(one.occasion) for one in comings}))
        return len((await collect(session, comings)).started)

    @leading(0)
    async def judge_occasions(self, session: Session, occasions: Sequence[str]) -> int:
        """Judge open occasions by what is in force now: start what is complete, and end what was not complete in time. Return
        how many runs were started."""
        await session.rows(Verb.lock_event_values, sorted({occasion_lock(one) for one in occasions}))
        rows, held, now = await _read(session, occasions)
        opened = [row for row in rows.values() if row.state is OccasionState.OPEN]
        names = sorted({row.trigger_name for row in opened})
        composed = {
            row[0]: (ComposedRow(*row), inf if next_at is None else next_at)
            for *row, next_at in await session.rows(Verb.composed_due, names)
        }
        judged, gone = [], []
        for row in sorted(opened, key=lambda row: row.id):
            if row.trigger_name not in composed:
                if row.ends_at <= now:
                    note = "no code declares its trigger any more"
                    gone.append((row.id, OccasionState.EXPIRED, row.digest, row.ends_at, note))
                continue
            found, next_at = composed[row.trigger_name]
            composition = read_composition(found.body)
            ends_at = row.opened_at + composition.within_s
            # A time that came before the end still counts, if nobody led when it came. It arrives first.
            is_over = ends_at <= now and next_at > ends_at
            judged.append(_Judged(row, found, composition, held.get(row.id, []), is_over))
        await session.each(Verb.move_occasions, gone)
        return len(await _conclude(session, judged))

    @look
    async def stale_occasions(self, session: Session, limit: int) -> list[str]:
        """Return open occasions that were last judged by another version of their trigger."""
        return [row[0] for row in await session.rows(Verb.stale_occasions, limit)]

    @look
    async def declared_composed(self, session: Session) -> list[DeclaredSet]:
        """Return the sets of composed triggers that live nodes declare."""
        return await _declared(session)

    @look
    async def composed_of(self, session: Session, origin: str) -> list[ComposedRow]:
        return [ComposedRow(*row) for row in await session.rows(Verb.composed_of, origin)]

    @leading([])
    async def reconcile_composed(self, session: Session, declared: DeclaredSet) -> list[str]:
        """Make the composed triggers of an application those that its code declares. Return the names that another
        application has. A node that registers puts its set in force itself: so nobody registers meanwhile, and a set that is
        no longer the newest is left alone."""
        await session.in_turn()
        if declared.is_older(await _declared(session)):
            return []
        return await _put_in_force(session, declared)


class Occasions(LeaderOccasions):
    @transaction
    async def start_occasion(self, session: Session, occasion: str, actor: str, note: str) -> None:
        """Start the run of an open occasion now, with what has arrived."""
        row, held = await _opened(session, occasion)
        composed = (await named(session, [row.trigger_name])).get(row.trigger_name)
        if composed is None:
            raise WrongState(
                f"no code declares the trigger of {bare(occasion)} any more: it can only be dropped"
            )
        judged = _Judged(
            row, composed, read_composition(composed.body), held, is_over=False, by=_by(actor, note)
        )
        if not await _conclude(session, [judged]):
            raise WrongState(f"the parts of {bare(occasion)} are sealed, and cannot be put together")
        await _journal(session, actor, "occasion start", occasion, note)

    @transaction
    async def drop_occasion(self, session: Session, occasion: str, actor: str, note: str) -> None:
        """End an open occasion, so that it starts nothing. What still comes for it is late."""
        row, _ = await _opened(session, occasion)
        dropped = (row.id, OccasionState.EXPIRED, row.digest, row.ends_at, f"dropped {_by(actor, note)}")
        await session.each(Verb.move_occasions, [dropped])
        await _journal(session, actor, "occasion drop", occasion, note)

    @look
    async def composed_on(
        self, session: Session, namespace: str, types: Sequence[str]
    ) -> list[tuple[str, ComposedRow]]:
        """Return the composed triggers that take events of these types, each with the type."""
        return [
            (kind, ComposedRow(*row))
            for kind, *row in await session.rows(Verb.composed_on, namespace, list(types))
        ]

    @look
    async def composed(
        self, session: Session, namespace: str | None, after: str = "", limit: int = 500
    ) -> list[SeenComposed]:
        """Return composed triggers by their names."""
        rows = [ComposedRow(*row) for row in await session.rows(Verb.composed, after, namespace, limit)]
        due: dict[str, float] = {}
        for one in await session.rows(Verb.composed_times, [row.name for row in rows]):
            if one[4] is not None:
                due[one[0]] = min(one[4], due.get(one[0], one[4]))
        return [SeenComposed(row, due.get(row.name)) for row in rows]

    @look
    async def occasions(
        self,
        session: Session,
        namespace: str,
        trigger: str | None = None,
        state: str | None = None,
        before: float = 1e11,
        limit: int = 100,
    ) -> list[SeenOccasion]:
        """Return occasions, newest first, with what they have."""
        found = await session.rows(Verb.occasions, namespace, before, trigger, state, limit)
        return await _seen(session, [occasion_of(row) for row in found])

    @look
    async def occasion(self, session: Session, occasion: str) -> SeenOccasion | None:
        found = await session.rows(Verb.occasions_of, [occasion])
        return (await _seen(session, [occasion_of(found[0][1:])]))[0] if found else None


async def _opened(session: Session, occasion: str) -> tuple[OccasionRow, list[Collected]]:
    """Lock an occasion, and return it with what it has. Raise if it is not open."""
    await session.rows(Verb.lock_event_values, [occasion_lock(occasion)])
    rows, held, _ = await _read(session, [occasion])
    if occasion not in rows:
        raise UnknownOccasion.of(bare(occasion))
    row = rows[occasion]
    if row.state is not OccasionState.OPEN:
        raise WrongState(f"{bare(occasion)} has ended already: {row.state} {row.note}".rstrip())
    return row, held.get(occasion, [])


async def _journal(session: Session, actor: str, verb: str, occasion: str, note: str) -> None:
    words = f"{bare(occasion)}: {note}" if note else bare(occasion)
    await session.run(Verb.journal_about, actor, verb, occasion, words, *way(actor))


def _by(actor: str, note: str) -> str:
    return f"by {actor}: {note}" if note else f"by {actor}"


async def _seen(session: Session, rows: Sequence[OccasionRow]) -> list[SeenOccasion]:
    held: dict[str, list[Collected]] = {}
    for columns in await session.rows(Verb.collected_of, [row.id for row in rows]):
        held.setdefault(columns[0], []).append(Collected(*columns))
    composed = await named(session, {row.trigger_name for row in rows})
    return [SeenOccasion(row, held.get(row.id, []), composed.get(row.trigger_name)) for row in rows]


async def named(session: Session, names: Iterable[str]) -> dict[str, ComposedRow]:
    """Return the composed triggers that have these names."""
    return {row[0]: ComposedRow(*row) for row in await session.rows(Verb.composed_named, sorted(set(names)))}


def _value(composed: ComposedRow, due: DueTime, at: float) -> str | None:
    return value_of_time(read_composition(composed.body), read_plan(due.plan), at)


def occasion_of(row: Row) -> OccasionRow:
    values = list(row)
    values[4] = OccasionState(values[4])
    return OccasionRow(*values)
