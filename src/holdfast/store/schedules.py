"""Schedules, what became of their times, and backfills.

Every time of a schedule gets exactly one fate. The fate, the move of the schedule's cursor and the start of the run are one
transaction. Three guards see to it: the leader's epoch, the schedule's fence, and the primary keys of fires and runs. The hop
that ends a run knows nothing of schedules: which runs are open is read by joining fires to runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.actor import entry
from holdfast.config import DEFAULT
from holdfast.errors import Conflict, UnknownSchedule, WrongState
from holdfast.gathers import Gather
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import (
    AT_TAG,
    BACKFILL_TAG,
    LAST_TAG,
    SCHEDULE_TAG,
    AlertKind,
    BackfillRow,
    BackfillState,
    Declaration,
    FireFate,
    FireRow,
    Level,
    NewAlert,
    NewRun,
    NewSchedule,
    OpenFire,
    ScheduleRow,
    ScheduleState,
)
from holdfast.namespaces import parted
from holdfast.store.database import Noun, Row, Session, leading, look, transaction
from holdfast.store.gathers import taken
from holdfast.store.operators import Cause, cancel
from holdfast.store.rows import alert_row, run_of, start_row
from holdfast.store.verbs import Verb
from holdfast.times.backfill import Filled
from holdfast.times.decision import Decision, NewFire, decide_now, resume, scheduled
from holdfast.times.plan import read_plan
from holdfast.times.zones import TZDATA, iso

OPENED_MAX = 1000
"""How many fires that have not ended one look of the leader goes through."""
OPEN_MAX = 20_000
"""How many open fires are read for a batch of schedules."""
SETS_MAX = 1000
LINES_MAX = 10_000
"""How many schedules one application may declare."""


class ScheduleLooks(NamedTuple):
    """What there is to do about schedules."""

    names: list[str]
    """Schedules that are due, or that have a run which has ended."""
    due: int
    backfills: list[str]
    next_at: float | None
    after: str
    """Where the next look at open fires goes on."""


class SeenSchedule(NamedTuple):
    row: ScheduleRow
    opened: list[OpenFire]


class DeclaredSet(NamedTuple):
    """All schedules that one application declares."""

    origin: str
    digest: str
    body: str
    first_seen: float = 0.0

    @property
    def lines(self) -> list[NewSchedule]:
        return _lines.decode(self.body)

    def is_older(self, sets: Iterable[DeclaredSet]) -> bool:
        """True if one of these sets is of the same application, and was first seen later."""
        return any(
            one.origin == self.origin and (one.first_seen, one.digest) > (self.first_seen, self.digest)
            for one in sets
        )

    @staticmethod
    def write(lines: Iterable[NewSchedule]) -> str:
        return msgspec.json.encode(sorted(lines, key=lambda one: one.name)).decode()


_lines = msgspec.json.Decoder(list[NewSchedule])


class Reconciled(NamedTuple):
    """What became of the schedules of an application."""

    added: list[str]
    changed: list[str]
    removed: list[str]
    taken: list[str]
    """Names that another application has, or somebody made by hand."""


class NewBackfill(NamedTuple):
    id: str
    schedule: str
    from_at: float
    to_at: float
    newest_first: bool
    most: int
    again: str
    actor: str
    note: str


class ScheduleReads(Noun):
    @look
    async def schedule(self, session: Session, name: str) -> ScheduleRow | None:
        row = await session.row(Verb.schedule, name)
        return None if row is None else schedule_of(row)

    @look
    async def schedules(
        self, session: Session, namespace: str | None = None, after: str = "", limit: int = 500
    ) -> list[ScheduleRow]:
        """Return schedules by their names."""
        return [schedule_of(row) for row in await session.rows(Verb.schedules, after, namespace, limit)]

    @look
    async def seen(self, session: Session, names: Sequence[str]) -> list[SeenSchedule]:
        """Return these schedules with their open fires."""
        return await _seen(session, names)

    @look
    async def fires(
        self, session: Session, name: str, before: float = 1e11, limit: int = 100
    ) -> list[FireRow]:
        """Return what became of the times of a schedule, newest first."""
        return [fire_of(row) for row in await session.rows(Verb.fires, name, before, limit)]

    @look
    async def fires_at(
        self, session: Session, name: str, times: Sequence[float]
    ) -> dict[float, list[OpenFire]]:
        """Return what became of these times, with the states of their runs."""
        found: dict[float, list[OpenFire]] = {}
        for row in await session.rows(Verb.fires_at, name, list(times)):
            found.setdefault(row[1], []).append(_open_of(row))
        return found

    @look
    async def taken_ids(self, session: Session, ids: Sequence[str]) -> frozenset[str]:
        """Return which of these ids runs have."""
        return frozenset(row[0] for row in await session.rows(Verb.started_as, list(ids)))

    @look
    async def backfill(self, session: Session, backfill_id: str) -> BackfillRow | None:
        row = await session.row(Verb.backfill, backfill_id)
        return None if row is None else backfill_of(row)

    @look
    async def backfills(self, session: Session, name: str, limit: int = 20) -> list[BackfillRow]:
        """Return the backfills of a schedule, newest first."""
        return [backfill_of(row) for row in await session.rows(Verb.backfills, name, limit)]


class LeaderSchedules(ScheduleReads):
    @look
    async def schedule_looks(self, session: Session, after: str, limit: int) -> ScheduleLooks:
        """Return what there is to do. Open fires are looked at from the schedule `after` on."""
        names: dict[str, None] = {}
        due, backfills, next_at, then = 0, list[str](), None, ""
        for kind, name, at in await session.rows(Verb.schedule_looks, after, OPENED_MAX, limit):
            if kind == "next":
                next_at = at
            elif kind == "backfill":
                backfills.append(name)
            elif kind == "opened":
                then = name if at >= OPENED_MAX else ""
            else:
                names[name] = None
                due += kind == "due"
        return ScheduleLooks(list(names), due, backfills, next_at, then)

    @leading(0)
    async def fire(self, session: Session, decisions: Sequence[Decision]) -> int:
        """Write what was decided about schedules, and start their runs. A schedule that somebody has changed since is left
        alone: it is decided again. Return how many runs were started, and asked to cancel themselves."""
        return await _apply(session, decisions, self._database.environment.new_id)

    @leading(0)
    async def fill(self, session: Session, row: BackfillRow, schedule: ScheduleRow, filled: Filled) -> int:
        """Write what a backfill does next, and start its runs. Nothing is written if somebody stopped it."""
        progress = (row.started + len(filled.starts), row.passed + filled.passed, filled.state)
        if await session.row(Verb.move_backfill, row.id, row.fence, filled.cursor, *progress) is None:
            return 0
        starts = [(schedule, fire) for fire in filled.starts]
        takers = await _gather(session, starts)
        await _add_fires(session, [(schedule.name, fire) for fire in filled.starts], takers)
        return await _start(session, starts, takers)

    @leading(None)
    async def end_fires(self, session: Session, names: Sequence[str]) -> None:
        """End what is left of those of these schedules that were removed."""
        there = {schedule_of(row).name for row in await session.rows(Verb.schedules_named, sorted(names))}
        await _end_fires(session, [name for name in names if name not in there])

    @leading(False)
    async def end_backfill(self, session: Session, row: BackfillRow) -> bool:
        """Stop a backfill whose schedule was removed."""
        stopped = (row.cursor, row.started, row.passed, BackfillState.STOPPED)
        return await session.row(Verb.move_backfill, row.id, row.fence, *stopped) is not None

    @look
    async def declared_sets(self, session: Session) -> list[DeclaredSet]:
        """Return the sets of schedules that live nodes declare, by application, the one first seen last at the end."""
        return [DeclaredSet(*row) for row in await session.rows(Verb.declared_sets, SETS_MAX)]

    @look
    async def schedules_of(self, session: Session, origin: str) -> list[ScheduleRow]:
        return [schedule_of(row) for row in await session.rows(Verb.schedules_of, origin, LINES_MAX)]

    @leading(Reconciled([], [], [], []))
    async def reconcile_schedules(self, session: Session, declared: DeclaredSet) -> Reconciled:
        """Make the schedules of an application those that its code declares. A schedule that is due is left alone until
        its times have a fate. A pause stays."""
        now = await session.now()
        known = {
            row[0]: schedule_of(row)
            for row in await session.rows(Verb.lock_schedules_of, declared.origin, LINES_MAX)
        }
        lines = {line.name: line for line in declared.lines}
        new = [
            _added(line, now, declared.origin) for name, line in sorted(lines.items()) if name not in known
        ]
        added = [row[0] for row in await session.all(Verb.add_schedules, new)]
        different = [
            (row, lines[name])
            for name, row in sorted(known.items())
            if name in lines and is_changed(row, lines[name]) and not is_due(row, now)
        ]
        changed = [
            row[0]
            for row in await session.all(Verb.change_schedules, [_changed(*each, now) for each in different])
        ]
        over = [
            (name, row.fence)
            for name, row in sorted(known.items())
            if name not in lines and not is_due(row, now)
        ]
        removed = [row[0] for row in await session.all(Verb.remove_schedules, over)]
        await _end_fires(session, removed)
        entries = [("added", added), ("changed", changed), ("removed", removed)]
        journal = [
            entry("supervisor", f"schedule {verb}", None, None, f"{name}: declared by {declared.origin}")
            for verb, names in entries
            for name in names
        ]
        await session.each(Verb.journal_add, journal)
        taken = [name for name in lines if name not in known and name not in added]
        return Reconciled(added, changed, removed, taken)

    @look
    async def gone_schedules(self, session: Session, limit: int) -> list[tuple[str, str, str]]:
        """Return active schedules (name, workflow, version) whose workflow no live node has loaded."""
        return [tuple(row) for row in await session.rows(Verb.gone_schedules, limit)]

    @look
    async def other_tzdata(self, session: Session, version: str, limit: int) -> list[ScheduleRow]:
        """Return active schedules whose next time was computed with older rules of time zones than these."""
        return [schedule_of(row) for row in await session.rows(Verb.other_tzdata, version, limit)]


class Schedules(LeaderSchedules):
    @transaction
    async def create_schedule(
        self, session: Session, new: NewSchedule, actor: str, *, replace: bool = False
    ) -> bool:
        """Make a schedule. Return False if the same one exists. Raise Conflict if another one has the name, unless
        `replace` changes that one. Raise WrongState if it has no time from now on."""
        now = await session.now()
        columns = _added(new, now, new.origin, actor)
        if columns[-1] == ScheduleState.ENDED:
            raise WrongState(f"schedule {new.name!r} has no time after now: give it a later one")
        known = None
        while known is None:  # again if somebody has removed it between the two statements
            if await session.all(Verb.add_schedules, [columns]):
                await _journal(session, actor, "schedule create", new.name, "")
                return True
            row = await session.row(Verb.lock_schedule, new.name)
            known = None if row is None else schedule_of(row)
        if not is_changed(known, new):
            return False
        if known.origin or not replace:
            whose = f"the code of {known.origin} declares it" if known.origin else "replace it with --replace"
            raise Conflict(f"there is a schedule {new.name!r} already, with another plan: {whose}")
        await session.all(Verb.change_schedules, [_changed(known, new, now)])
        await _journal(session, actor, "schedule change", new.name, "")
        return True

    @transaction
    async def remove_schedule(self, session: Session, name: str, actor: str, note: str) -> None:
        """Remove a schedule. Its runs and the fates of its times stay. Raise WrongState if code declares it: that would
        bring it back."""
        row = await _locked(session, name)
        if row.origin:
            raise WrongState(
                f"the code of {row.origin} declares the schedule {name!r}: remove it there, or pause it with "
                f"`holdfast schedules pause {name}`"
            )
        await session.all(Verb.remove_schedules, [(name, row.fence)])
        await _end_fires(session, [name])
        await _journal(session, actor, "schedule remove", name, note)

    @transaction
    async def pause_schedule(self, session: Session, name: str, actor: str, note: str) -> ScheduleRow:
        """Let a schedule decide nothing until it is resumed."""
        row = await _locked(session, name)
        if row.state is ScheduleState.ENDED:
            raise WrongState(f"schedule {name!r} has ended: it has no time any more")
        paused = msgspec.structs.replace(row, state=ScheduleState.PAUSED, note=note, actor=actor)
        await _apply(session, [Decision(paused)], self._database.environment.new_id)
        await _journal(session, actor, "schedule pause", name, note)
        return paused

    @transaction
    async def resume_schedule(self, session: Session, name: str, actor: str, note: str) -> ScheduleRow:
        """Let a paused schedule go on. The times that came meanwhile were missed."""
        ((row, opened),) = await _locked_with_fires(session, name)
        if row.state is not ScheduleState.PAUSED:
            raise WrongState(f"schedule {name!r} is {row.state}: only a paused one can be resumed")
        decision = resume(row, read_plan(row.plan), opened, await session.now())
        decision.row = msgspec.structs.replace(decision.row, actor=actor)
        await _apply(session, [decision], self._database.environment.new_id)
        passed = sum(fire.times for fire in decision.fires if fire.fate is FireFate.MISSED)
        await _journal(
            session, actor, "schedule resume", name, f"{passed} times passed{f': {note}' if note else ''}"
        )
        return decision.row

    @transaction
    async def run_schedule(
        self, session: Session, name: str, actor: str, note: str, *, anyway: bool = False
    ) -> FireRow:
        """Run a schedule now, by its overlap policy; with `anyway`, whatever is open. Return what became of it."""
        ((row, opened),) = await _locked_with_fires(session, name)
        now = await session.now()
        at = _between_seconds(now)
        while await session.rows(Verb.fires_at, name, [at]):
            at = _between_seconds(at + 0.001)
        why = f"{actor} asked for it{f': {note}' if note else ''}"
        decision = decide_now(row, read_plan(row.plan), opened, now, at, why, anyway=anyway)
        await _apply(session, [decision], self._database.environment.new_id)
        await _journal(session, actor, "schedule run", name, note)
        for one in await session.rows(Verb.fires, name, at + 0.5, 10):
            fire = fire_of(one)
            if fire.at == at:
                return fire
        raise WrongState(f"schedule {name!r} was not run")

    @transaction
    async def add_backfill(self, session: Session, new: NewBackfill) -> BackfillRow:
        """Begin a backfill. The leader carries it out."""
        row = await _locked(session, new.schedule)
        await session.run(Verb.add_backfill, *new)
        span = f"{iso(new.from_at)} to {iso(new.to_at)}{f': {new.note}' if new.note else ''}"
        await _journal(session, new.actor, "schedule backfill", row.name, f"backfill {new.id}, {span}")
        made = await session.row(Verb.backfill, new.id)
        return backfill_of(made)

    @transaction
    async def stop_backfill(self, session: Session, backfill_id: str, actor: str) -> BackfillRow | None:
        """Stop a backfill: it starts no further run. Return None if there is none. One that has ended stays as it is."""
        found = await session.row(Verb.lock_backfill, backfill_id)
        if found is None:
            return None
        row = backfill_of(found)
        stopped = (row.cursor, row.started, row.passed, BackfillState.STOPPED)
        if await session.row(Verb.move_backfill, row.id, row.fence, *stopped) is None:
            return row
        await _journal(session, actor, "schedule backfill stop", row.schedule, f"backfill {row.id}")
        return backfill_of(await session.row(Verb.backfill, backfill_id))


async def declare_sets(session: Session, sets: Sequence[DeclaredSet]) -> None:
    """Write the sets of schedules that a node declares. Called in the transaction that registers the node."""
    await session.each(
        Verb.declare_sets, [(one.origin, one.digest, one.body, one.body == "[]") for one in sets]
    )


# --- writing ----------------------------------------------------------------------------------------------------------


async def _apply(session: Session, decisions: Sequence[Decision], new_id: Callable[[], str]) -> int:
    """Write decisions whose schedules nobody has changed since. Return how many runs were started, and asked to cancel
    themselves."""
    ordered = sorted(decisions, key=lambda one: one.row.name)
    moved = {row[0] for row in await session.all(Verb.move_schedules, [_moved(one.row) for one in ordered])}
    kept = [one for one in ordered if one.row.name in moved]
    starts = [(one.row, fire) for one in kept for fire in one.starts]
    takers = await _gather(session, starts)
    await _add_fires(session, [(one.row.name, fire) for one in kept for fire in one.fires], takers)
    changes = [
        (
            one.row.name,
            each.at,
            each.repeat,
            each.fate,
            _taker(takers, one.row.name, NewFire(each.at, each.fate, "", each.at, repeat=each.repeat))
            if each.fate is FireFate.STARTED
            else None,
            each.why,
            each.ended,
            each.counted,
        )
        for one in kept
        for each in one.changes
    ]
    await session.each(Verb.change_fires, changes)
    moved_on = await _start(session, starts, takers)
    for run_id, name in sorted((run, one.row.name) for one in kept for run in one.cancels):
        row = await session.row(Verb.lock_run, run_id)
        if row is not None and (run := run_of(row)).state not in RUN_ENDED:
            cause = Cause("supervisor", f"the next time of schedule {name} has come", new_id)
            await cancel(session, run, cause, again=False)
            moved_on += 1
    alerts = [
        NewAlert(AlertKind.SCHEDULE_TROUBLE, Level.ERROR, alert_key(one.row.name, about), message)
        for one in kept
        for about, message in one.alerts
    ]
    await session.each(Verb.raise_alerts, [alert_row(alert) for alert in alerts])
    return moved_on


async def _end_fires(session: Session, names: Sequence[str]) -> None:
    """End the fires of schedules that were removed, but for those whose run is open: should a schedule of the same name come
    back, its overlap policy sees that run."""
    fires = [_open_of(row) for row in await session.rows(Verb.open_fires, sorted(names), OPEN_MAX)]
    changes: list[tuple[Any, ...]] = []
    for one in fires:
        if one.fate == FireFate.BUFFERED:
            why = "the schedule was removed"
            changes.append((one.schedule, one.at, one.repeat, FireFate.SKIPPED, None, why, True, False))
        elif one.state is None or one.state in RUN_ENDED:
            changes.append((one.schedule, one.at, one.repeat, one.fate, None, "", True, one.counted))
    await session.each(Verb.change_fires, changes)


def _between_seconds(now: float) -> float:
    """Return the time in milliseconds. It is not a whole second, so it is never one of the schedule's own times."""
    at = round(now, 3)
    return at if at % 1 else at + 0.001


def alert_key(name: str, about: str) -> str:
    return f"schedule {about}:{name}"


def _taker(takers: Mapping[str, str], name: str, fire: NewFire) -> str:
    """Return the run of a fire: its own, or the one that takes its start."""
    own = fire.run_id(name)
    return takers.get(own, own)


async def _add_fires(
    session: Session, fires: Sequence[tuple[str, NewFire]], takers: Mapping[str, str]
) -> None:
    rows = [
        (
            name,
            fire.at,
            fire.repeat,
            fire.fate,
            _taker(takers, name, fire) if fire.fate is FireFate.STARTED else None,
            fire.why,
            fire.backfill,
            fire.last_at,
            fire.times,
            fire.fate not in {FireFate.STARTED, FireFate.BUFFERED},
        )
        for name, fire in fires
    ]
    await session.each(Verb.add_fires, rows)


Starts = Sequence[tuple[ScheduleRow, NewFire]]


async def _gather(session: Session, starts: Starts) -> dict[str, str]:
    """Let the runs of workflows that gather their starts take theirs. Return the run that takes each, by the id that it would
    have had."""
    rules: dict[tuple[str, str], Gather | None] = {}
    takers: dict[str, str] = {}
    for run in sorted((new_run(row, fire) for row, fire in starts), key=lambda run: run.id):
        code = run.workflow, run.version
        if code not in rules:
            rules[code] = await _rule(session, *code)
        if (rule := rules[code]) is not None:
            gathering = rule.of(*code, run.input)
            found = await taken(session, replace(run, gather=gathering), DEFAULT.payload_max_bytes)
            takers[run.id] = found.run_id
    return takers


async def _start(session: Session, starts: Starts, takers: Mapping[str, str]) -> int:
    """Start the runs that no other run takes. Return how many of all starts were new."""
    runs = sorted((new_run(row, fire) for row, fire in starts), key=lambda run: run.id)
    own = [start_row(run) for run in runs if run.id not in takers]
    return len(await session.all(Verb.start_runs, own)) + len(takers)


async def _rule(session: Session, workflow: str, version: str) -> Gather | None:
    """Return how a workflow gathers its starts, by what its code has declared."""
    row = await session.row(Verb.declaration, *parted(workflow), version)
    return None if row is None else _rules.decode(Declaration(*row).signals).gather


class _Rules(msgspec.Struct):
    """What a declaration says about starts."""

    gather: Gather | None = None


_rules = msgspec.json.Decoder(_Rules)


def new_run(row: ScheduleRow, fire: NewFire) -> NewRun:
    """Return the run of a fire. Its tags say what it was started for."""
    tags: dict[str, str] = json.loads(row.tags or "{}")
    tags |= {SCHEDULE_TAG: row.name, AT_TAG: iso(fire.at)}
    if row.last_run is not None:
        tags[LAST_TAG] = row.last_run
    plan = read_plan(row.plan)
    # A backfill makes up for times that have passed: nobody waits for those.
    is_due = fire.backfill is None
    if fire.backfill is not None:
        tags[BACKFILL_TAG] = fire.backfill
    return NewRun(
        fire.run_id(row.name),
        row.workflow,
        row.version,
        row.input,
        row.digest,
        namespace=row.namespace,
        priority=row.priority,
        timeout_s=row.timeout_s,
        tags=tags,
        fair=plan.fair,
        due_at=plan.due_at(fire.at) if is_due else None,
        due_in_s=plan.due_s if is_due else None,
    )


async def _journal(session: Session, actor: str, verb: str, name: str, note: str) -> None:
    await session.each(
        Verb.journal_add, [entry(actor, verb, None, None, f"{name}: {note}" if note else name)]
    )


# --- rows -------------------------------------------------------------------------------------------------------------


async def _locked(session: Session, name: str) -> ScheduleRow:
    row = await session.row(Verb.lock_schedule, name)
    if row is None:
        raise UnknownSchedule.of(name)
    return schedule_of(row)


async def _locked_with_fires(session: Session, name: str) -> list[SeenSchedule]:
    await _locked(session, name)
    return await _seen(session, [name])


async def _seen(session: Session, names: Sequence[str]) -> list[SeenSchedule]:
    """Return schedules with their open fires. If those are too many for one batch, the last schedules are left out."""
    wanted = sorted(names)
    fires = [_open_of(row) for row in await session.rows(Verb.open_fires, wanted, OPEN_MAX)]
    if len(fires) == OPEN_MAX:
        last = fires[-1].schedule
        wanted = [name for name in wanted if name < last] or [last]
    opened: dict[str, list[OpenFire]] = {}
    for fire in fires:
        opened.setdefault(fire.schedule, []).append(fire)
    rows = sorted(
        (schedule_of(row) for row in await session.rows(Verb.schedules_named, wanted)),
        key=lambda one: one.name,
    )
    return [SeenSchedule(row, opened.get(row.name, [])) for row in rows]


def is_due(row: ScheduleRow, now: float) -> bool:
    """True if a time of an active schedule has come and has no fate yet."""
    return row.state is ScheduleState.ACTIVE and row.next_at is not None and row.next_at <= now


def is_changed(row: ScheduleRow, line: NewSchedule) -> bool:
    """True if a schedule is not what its line says."""
    names = ("workflow", "version", "input", "digest", "priority", "tags", "timeout_s")
    is_same = all(getattr(row, name) == getattr(line, name) for name in names)
    return not is_same or not _is_same_plan(row.plan, line.plan)


def _is_same_plan(one: str, other: str) -> bool:
    """True if two plans mean the same. Whether a usual value is written out depends on the way by which the plan came."""
    try:
        return one == other or read_plan(one) == read_plan(other)
    except msgspec.MsgspecError:
        return False  # somebody has damaged the row


def _added(line: NewSchedule, now: float, origin: str, actor: str = "supervisor") -> tuple[Any, ...]:
    next_at = read_plan(line.plan).next_start(line.name, now)
    state = ScheduleState.ENDED if next_at is None else ScheduleState.ACTIVE
    columns = (line.name, line.namespace, origin, line.workflow, line.version, line.input, line.digest)
    more = (line.priority, line.tags, line.timeout_s, line.plan, actor)
    return (*columns, *more, now, next_at, TZDATA, state)


def _changed(row: ScheduleRow, line: NewSchedule, now: float) -> tuple[Any, ...]:
    """Return the values of `change_schedules`. No time before the change is fired late, and none is fired twice."""
    moved = scheduled(msgspec.structs.replace(row, cursor=max(row.cursor, now)), read_plan(line.plan))
    if row.state is ScheduleState.PAUSED and moved.next_at is not None:
        moved = msgspec.structs.replace(moved, state=ScheduleState.PAUSED, cursor=row.cursor)
    columns = (
        row.name,
        row.fence,
        row.origin,
        line.workflow,
        line.version,
        line.input,
        line.digest,
        line.priority,
    )
    return (
        *columns,
        line.tags,
        line.timeout_s,
        line.plan,
        moved.cursor,
        moved.next_at,
        moved.tzdata,
        moved.state,
    )


def _moved(row: ScheduleRow) -> tuple[Any, ...]:
    """Return the values of `move_schedules`."""
    columns = (
        row.name,
        row.fence,
        row.cursor,
        row.next_at,
        row.state,
        row.note,
        row.actor,
        row.failures,
        row.started,
    )
    return (*columns, row.last_run, row.last_at, row.tzdata)


def _enum(row: Row, kind: type[Any], **converts: Callable[[Any], Any]) -> Mapping[str, Any]:
    values = dict(zip(kind.__struct_fields__, row, strict=True))
    return values | {name: convert(values[name]) for name, convert in converts.items()}


def schedule_of(row: Row) -> ScheduleRow:
    return ScheduleRow(**_enum(row, ScheduleRow, state=ScheduleState, input=bytes, digest=bytes))


def fire_of(row: Row) -> FireRow:
    return FireRow(**_enum(row, FireRow, fate=FireFate, ended=bool, counted=bool))


def backfill_of(row: Row) -> BackfillRow:
    return BackfillRow(**_enum(row, BackfillRow, state=BackfillState, newest_first=bool))


def _open_of(row: Row) -> OpenFire:
    schedule, at, repeat, fate, run_id, backfill, counted, state = row
    return OpenFire(schedule, at, repeat, fate, run_id, backfill, bool(counted), state)
