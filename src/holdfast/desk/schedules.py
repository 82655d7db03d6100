"""Schedules, for callers and operators: list, preview, make, pause, resume, run, remove and backfill them.

Python (`hf.schedules`), the command line and the server all ask a `ScheduleDesk`, with the identity of who asks. A schedule in
another namespace is unknown, like one that does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

import msgspec
from msgspec import Raw

from holdfast import codec
from holdfast.access import Act, Identity
from holdfast.codec.secret import demand_no_secret
from holdfast.desk.opened import Opened, ring
from holdfast.desk.starts import LocalStartDesk, StartRequest
from holdfast.errors import DefinitionError, InvalidInput, UnknownSchedule
from holdfast.model import DEFAULT_NAMESPACE, BackfillRow, FireRow, NewRun, NewSchedule, OpenFire, ScheduleRow
from holdfast.namespaces import shown, stored
from holdfast.store.bell import Bell
from holdfast.store.schedules import NewBackfill, SeenSchedule
from holdfast.store.store import Store
from holdfast.times.backfill import (
    AGAIN,
    LOOKED_AT,
    MOST_MAX,
    TIMES_MAX,
    Planned,
    candidates,
    starts_as,
    times_of,
)
from holdfast.times.decision import run_id
from holdfast.times.grammar import instant_of, moment_of
from holdfast.times.plan import Plan, Preview, read_plan
from holdfast.times.zones import zone
from holdfast.wire import answers
from holdfast.wire.paths import path_of
from holdfast.workflow.every import ARGUMENTS, Every, plan_of, schedule_name
from holdfast.workflow.workflow import Workflow

P = ParamSpec("P")
R = TypeVar("R")

PREVIEW_MAX = 1000
LIST_MAX = 1000


class ScheduleRequest(msgspec.Struct, frozen=True):
    """A schedule as somebody asks for it. `input` is JSON: the arguments of the workflow by name."""

    name: str
    workflow: str
    plan: Plan
    input: bytes = b"{}"
    version: str | None = None
    """Without it, the newest that code has declared."""
    tags: dict[str, str] = {}
    priority: int | None = None
    timeout_s: float | None = None
    replace: bool = False
    due_in_s: float | None = None
    """Within what time its runs are due; else as the workflow says. The plan may have a wall time instead."""
    fair: str | None = None
    """Whom its runs are for."""

    @property
    def start(self) -> StartRequest:
        """A run as the schedule would start it, without its id."""
        return StartRequest(
            self.workflow,
            self.input,
            self.version,
            tags=self.tags,
            priority=self.priority,
            timeout_s=self.timeout_s,
            fair=self.fair,
            due_in_s=self.due_in_s,
        )


class BackfillRequest(NamedTuple):
    """Times are local times in the schedule's zone, or instants with an offset."""

    from_at: str | datetime
    to_at: str | datetime
    newest_first: bool = False
    most: int = 3
    again: str = "none"
    note: str = ""


class ScheduleDesk(Protocol):
    """What callers and operators may ask about schedules. `name` is as the identity sees it."""

    async def get(self, who: Identity, name: str) -> SeenSchedule: ...
    async def fires(self, who: Identity, name: str, limit: int = 20) -> list[FireRow]: ...
    async def preview(self, who: Identity, name: str, count: int) -> list[Preview]: ...
    async def backfills(self, who: Identity, name: str) -> list[BackfillRow]: ...
    async def create(self, who: Identity, request: ScheduleRequest) -> bool: ...
    async def remove(self, who: Identity, name: str, note: str = "") -> None: ...
    async def pause(self, who: Identity, name: str, note: str = "") -> SeenSchedule: ...
    async def resume(self, who: Identity, name: str, note: str = "") -> SeenSchedule: ...
    async def run(self, who: Identity, name: str, note: str = "", *, anyway: bool = False) -> FireRow: ...
    async def plan_backfill(self, who: Identity, name: str, request: BackfillRequest) -> list[Planned]: ...
    async def backfill(self, who: Identity, name: str, request: BackfillRequest) -> BackfillRow: ...
    async def stop_backfill(self, who: Identity, name: str, backfill: str) -> BackfillRow: ...
    async def list(self, who: Identity, after: str = "", limit: int = LIST_MAX) -> list[SeenSchedule]: ...


def _plan_of(request: ScheduleRequest, run: NewRun) -> Plan:
    """Return the plan with what is said about its runs: whom they are for, and within what time they are due, unless the plan
    has a wall time."""
    plan = msgspec.structs.replace(request.plan, fair=run.fair)
    if plan.due is None:
        return msgspec.structs.replace(plan, due_s=run.due_in_s)
    if request.due_in_s is not None:
        raise InvalidInput("due_in_s: give due_in_s or due, not both")
    return plan


class LocalScheduleDesk:
    """A schedule desk that works on the store."""

    def __init__(self, hf: Opened, starts: LocalStartDesk) -> None:
        self._hf, self._starts = hf, starts

    @property
    def _store(self) -> Store:
        return self._hf.store

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get(self, who: Identity, name: str) -> SeenSchedule:
        who.demand(Act.READ)
        return await self._seen(who, name)

    async def _seen(self, who: Identity, name: str) -> SeenSchedule:
        seen = await self._store.schedules.seen([self._name(who, name)])
        if not seen or not who.sees(seen[0].row.namespace):
            raise UnknownSchedule.of(name)
        return seen[0]

    def _name(self, who: Identity, name: str) -> str:
        try:
            return codec.stored_text(stored(who.namespace, name), "name")
        except InvalidInput:
            raise UnknownSchedule.of(name) from None

    async def fires(self, who: Identity, name: str, limit: int = 20) -> list[FireRow]:
        """Return what became of the times of a schedule, newest first."""
        row = (await self.get(who, name)).row
        return await self._store.schedules.fires(row.name, limit=limit)

    async def preview(self, who: Identity, name: str, count: int) -> list[Preview]:
        """Return the next times of a schedule, and those that a calendar leaves out."""
        row = (await self.get(who, name)).row
        after = max(row.cursor, await self._store.now())
        return read_plan(row.plan).preview(row.name, after, min(count, PREVIEW_MAX))

    async def backfills(self, who: Identity, name: str) -> list[BackfillRow]:
        row = (await self.get(who, name)).row
        return await self._store.schedules.backfills(row.name)

    # --- changing -----------------------------------------------------------------------------------------------------

    async def create(self, who: Identity, request: ScheduleRequest) -> bool:
        """Make a schedule. Return False if the same one exists. Raise Conflict if another one has the name."""
        who.demand(Act.STEER)
        try:
            schedule_name(request.name, "name")
            request.plan.check()
        except DefinitionError as wrong:
            raise InvalidInput(str(wrong)) from None
        run = await self._starts.new_run(who, request.start)
        demand_no_secret(run.input, ARGUMENTS)
        now = await self._store.now()
        if (days := request.plan.ends_soon(now - 30 * 86_400)) is not None:
            raise InvalidInput(f"calendar {days.name} has ended with {days.until}: give it days from now on")
        new = NewSchedule(
            stored(who.namespace, request.name),
            run.workflow,
            run.version,
            run.input,
            run.digest,
            msgspec.json.encode(_plan_of(request, run)).decode(),
            namespace=run.namespace,
            priority=run.priority,
            tags=msgspec.json.encode(run.tags).decode() if run.tags else None,
            timeout_s=run.timeout_s,
        )
        return await self._store.schedules.create_schedule(new, who.actor, replace=request.replace)

    async def remove(self, who: Identity, name: str, note: str = "") -> None:
        """Remove a schedule that somebody made. Its runs stay."""
        who.demand(Act.STEER)
        row = (await self._seen(who, name)).row
        await self._store.schedules.remove_schedule(row.name, who.actor, codec.stored_text(note, "note"))

    async def pause(self, who: Identity, name: str, note: str = "") -> SeenSchedule:
        """Let a schedule decide nothing until it is resumed."""
        who.demand(Act.STEER)
        row = (await self._seen(who, name)).row
        await self._store.schedules.pause_schedule(row.name, who.actor, codec.stored_text(note, "note"))
        return await self._seen(who, name)

    async def resume(self, who: Identity, name: str, note: str = "") -> SeenSchedule:
        """Let a paused schedule go on. Times that came meanwhile were missed."""
        who.demand(Act.STEER)
        row = (await self._seen(who, name)).row
        await self._store.schedules.resume_schedule(row.name, who.actor, codec.stored_text(note, "note"))
        ring(self._hf, Bell.RUNS)
        return await self._seen(who, name)

    async def run(self, who: Identity, name: str, note: str = "", *, anyway: bool = False) -> FireRow:
        """Run a schedule now, by its overlap policy, or whatever is open. Return what became of it."""
        who.demand(Act.STEER)
        row = (await self._seen(who, name)).row
        note = codec.stored_text(note, "note")
        fire = await self._store.schedules.run_schedule(row.name, who.actor, note, anyway=anyway)
        ring(self._hf, Bell.RUNS)
        return fire

    # --- backfills ----------------------------------------------------------------------------------------------------

    async def plan_backfill(self, who: Identity, name: str, request: BackfillRequest) -> list[Planned]:
        """Return what a backfill would do with each time. Nothing is written."""
        who.demand(Act.READ)
        row = (await self._seen(who, name)).row
        _, times = await self._span(row, request)
        found: list[Planned] = []
        for first in range(0, len(times), LOOKED_AT):
            found += await self._planned(row, times[first : first + LOOKED_AT], request.again)
        return found

    async def _planned(self, row: ScheduleRow, times: Sequence[float], again: str) -> list[Planned]:
        known = await self._store.schedules.fires_at(row.name, times)
        ids = [one for at in times for one in candidates(row.name, at, known.get(at, ()))]
        taken = await self._store.schedules.taken_ids(ids)
        found = []
        for at in times:
            fires = known.get(at, [])
            repeat = starts_as(row.name, at, fires, taken, again)
            run = None if repeat is None else run_id(row.name, at, repeat)
            found.append(Planned(at, _exists(fires), run))
        return found

    async def backfill(self, who: Identity, name: str, request: BackfillRequest) -> BackfillRow:
        """Begin a backfill. The leader carries it out, and keeps at most `most` of its runs open."""
        who.demand(Act.STEER)
        row = (await self._seen(who, name)).row
        (from_at, to_at), times = await self._span(row, request)
        if not times:
            raise InvalidInput("the schedule has no time in this span")
        note = codec.stored_text(request.note, "note")
        new = NewBackfill(
            self._hf.environment.new_id(),
            row.name,
            from_at,
            to_at,
            request.newest_first,
            request.most,
            request.again,
            who.actor,
            note,
        )
        return await self._store.schedules.add_backfill(new)

    async def _span(
        self, row: ScheduleRow, request: BackfillRequest
    ) -> tuple[tuple[float, float], list[float]]:
        plan, now = read_plan(row.plan), await self._store.now()
        from_at, to_at = instant(request.from_at, plan, "from"), min(instant(request.to_at, plan, "to"), now)
        if to_at < from_at:
            raise InvalidInput(
                "to: it is before from, or from is in the future: a backfill is about times that have come"
            )
        if request.again not in AGAIN:
            raise InvalidInput(f"again: expected one of {', '.join(AGAIN)}, not {request.again!r}")
        if not 1 <= request.most <= MOST_MAX:
            raise InvalidInput(f"most: expected 1 to {MOST_MAX}, not {request.most}")
        times = times_of(plan, from_at, to_at, newest_first=request.newest_first)
        if len(times) > TIMES_MAX:
            raise InvalidInput(
                f"there are more than {TIMES_MAX:,} times in this span: fill it in several parts"
            )
        return (from_at, to_at), times

    async def stop_backfill(self, who: Identity, name: str, backfill: str) -> BackfillRow:
        """Stop a backfill: it starts no further run."""
        who.demand(Act.STEER)
        row = (await self._seen(who, name)).row
        known = await self._store.schedules.backfill(backfill)
        if known is None or known.schedule != row.name:
            raise UnknownSchedule(f"schedule {name!r} has no backfill {backfill!r}")
        stopped = await self._store.schedules.stop_backfill(backfill, who.actor)
        assert stopped is not None
        return stopped

    async def list(self, who: Identity, after: str = "", limit: int = LIST_MAX) -> list[SeenSchedule]:
        """Return schedules by their names, those of the identity's namespace."""
        who.demand(Act.READ)
        rows = await self._store.schedules.schedules(
            who.namespace, stored(who.namespace, after) if after else "", limit
        )
        return await self._store.schedules.seen([row.name for row in rows]) if rows else []


def instant(given: str | datetime, plan: Plan, what: str) -> float:
    """Return an instant: of a local time in the plan's zone, or of a time with an offset."""
    try:
        moment = moment_of(given) if isinstance(given, str) else given.replace(microsecond=0)
        return instant_of(moment, zone(plan.zone))
    except DefinitionError as wrong:
        raise InvalidInput(f"{what}: {wrong}") from None


def _exists(fires: Sequence[OpenFire]) -> str:
    return ", ".join(one.fate if one.state is None else f"{one.run_id} {one.state}" for one in fires)


# --- what is shown ------------------------------------------------------------------------------------------------------


class ShownSchedules:
    """Turns rows into what is shown to an identity: `shown` takes the namespace from a name."""

    def __init__(self, who: Identity, shown: Callable[[str], str]) -> None:
        self._who, self._shown = who, shown

    def _maybe(self, stored: str | None) -> str | None:
        return None if stored is None else self._shown(stored)

    def schedule(self, seen: SeenSchedule) -> answers.Schedule:
        row, plan = seen.row, read_plan(seen.row.plan)
        name = self._shown(row.name)
        return answers.Schedule(
            name=name,
            ref=path_of(name),
            namespace=row.namespace,
            workflow=self._shown(row.workflow),
            version=row.version,
            origin=self._shown(row.origin) or None,
            state=row.state,
            note=row.note,
            actor=row.actor,
            times=plan.times,
            tz=plan.zone,
            plan=Raw(row.plan.encode()),
            next_at=None if row.next_at is None else moment(row.next_at),
            decided_until=moment(row.cursor),
            open=[
                self._shown(one.run_id)
                for one in seen.opened
                if one.run_id is not None and one.state is not None
            ],
            waiting=[moment(one.at) for one in seen.opened if one.run_id is None],
            failures=row.failures,
            started=row.started,
            last_run=self._maybe(row.last_run),
            priority=row.priority,
            tags=msgspec.json.decode(row.tags or "{}", type=dict[str, str]),
            input=Raw(row.input) if self._who.payloads else Raw(b"null"),
            created_at=moment(row.created_at),
        )

    def fire(self, row: FireRow) -> answers.Fire:
        return answers.Fire(
            at=moment(row.at),
            repeat=row.repeat,
            fate=row.fate,
            run=self._maybe(row.run_id),
            why=row.why,
            backfill=row.backfill,
            decided_at=moment(row.decided_at),
            last_at=moment(row.last_at),
            times=row.times,
        )

    def backfill(self, row: BackfillRow) -> answers.Backfill:
        return answers.Backfill(
            id=row.id,
            schedule=self._shown(row.schedule),
            from_at=moment(row.from_at),
            to_at=moment(row.to_at),
            newest_first=row.newest_first,
            most=row.most,
            again=row.again,
            state=row.state,
            started=row.started,
            passed=row.passed,
            actor=row.actor,
            note=row.note,
            created_at=moment(row.created_at),
            ended_at=None if row.ended_at is None else moment(row.ended_at),
        )

    def planned(self, one: Planned) -> answers.BackfillTime:
        return answers.BackfillTime(moment(one.at), one.exists, self._maybe(one.run))

    @staticmethod
    def upcoming(one: Preview, tz: str) -> answers.Upcoming:
        where = zone(tz)
        return answers.Upcoming(where.aware(one.at), where.aware(one.starts_at), one.note)


def moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


class Schedules:
    """Schedules, as a program uses them: `hf.schedules`."""

    def __init__(self, desk: Callable[[], ScheduleDesk], who: Identity) -> None:
        self._asked, self._who = desk, who
        self._shown = ShownSchedules(who, partial(shown, who.namespace))

    @property
    def _desk(self) -> ScheduleDesk:
        return self._asked()

    async def list(self) -> list[answers.Schedule]:
        """Return all schedules, by name."""
        found: list[answers.Schedule] = []
        after = ""
        while page := await self._desk.list(self._who, after):
            found += [self._shown.schedule(one) for one in page]
            after = shown(self._who.namespace, page[-1].row.name)
        return found

    async def get(self, name: str) -> answers.Schedule:
        """Return a schedule. Raise UnknownSchedule if there is none of this name."""
        return self._shown.schedule(await self._desk.get(self._who, name))

    async def fires(self, name: str, limit: int = 20) -> Sequence[answers.Fire]:
        """Return what became of the times of a schedule, newest first."""
        return [self._shown.fire(row) for row in await self._desk.fires(self._who, name, limit)]

    async def preview(self, name: str, count: int = 10) -> Sequence[answers.Upcoming]:
        """Return the next times of a schedule, in its zone, and those that a calendar leaves out."""
        schedule = await self.get(name)
        return [
            ShownSchedules.upcoming(one, schedule.tz)
            for one in await self._desk.preview(self._who, name, count)
        ]

    async def create(
        self, when: Every, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> answers.Schedule:
        """Make a schedule: `await hf.schedules.create(every("@daily", name="report"), report, "sales")`. The same again is
        the same schedule. Raise Conflict if another one has the name."""
        plan = plan_of(when.plan, workflow)
        if workflow.namespace not in {None, self._who.namespace or DEFAULT_NAMESPACE}:
            raise InvalidInput(
                f"{workflow.name}: a schedule starts runs in the namespace of its client, so leave out namespace"
            )
        raw, _ = workflow.shape.checked(args, kwargs)
        name = when.name or workflow.label
        request = ScheduleRequest(
            name,
            workflow.name,
            when.plan,
            raw,
            workflow.version,
            dict(workflow.tags),
            workflow.priority,
            workflow.timeout_s,
            due_in_s=plan.due_s,
            fair=plan.fair,
        )
        await self._desk.create(self._who, request)
        return await self.get(name)

    async def remove(self, name: str, note: str = "") -> None:
        """Remove a schedule that `create` made. Its runs stay."""
        await self._desk.remove(self._who, name, note)

    async def pause(self, name: str, note: str = "") -> answers.Schedule:
        """Let a schedule decide nothing until it is resumed."""
        return self._shown.schedule(await self._desk.pause(self._who, name, note))

    async def resume(self, name: str, note: str = "") -> answers.Schedule:
        """Let a paused schedule go on. Times that came meanwhile were missed."""
        return self._shown.schedule(await self._desk.resume(self._who, name, note))

    async def run(self, name: str, note: str = "", *, anyway: bool = False) -> answers.Fire:
        """Run a schedule now, by its overlap policy; with `anyway`, whatever is open."""
        return self._shown.fire(await self._desk.run(self._who, name, note, anyway=anyway))

    async def plan_backfill(
        self,
        name: str,
        from_: str | datetime,
        to: str | datetime,
        *,
        again: str = "none",
        newest_first: bool = False,
    ) -> Sequence[answers.BackfillTime]:
        """Return what a backfill would do with each time. Nothing is written."""
        request = BackfillRequest(from_, to, newest_first, again=again)
        return [self._shown.planned(one) for one in await self._desk.plan_backfill(self._who, name, request)]

    async def backfill(
        self,
        name: str,
        from_: str | datetime,
        to: str | datetime,
        *,
        newest_first: bool = False,
        most: int = 3,
        again: str = "none",
        note: str = "",
    ) -> answers.Backfill:
        """Run the times of a span that have not run. `again` says which run again: `none`, `failed` or `all`. At most `most`
        of its runs are open at once."""
        request = BackfillRequest(from_, to, newest_first, most, again, note)
        return self._shown.backfill(await self._desk.backfill(self._who, name, request))

    async def backfills(self, name: str) -> Sequence[answers.Backfill]:
        """Return the newest backfills of a schedule."""
        return [self._shown.backfill(row) for row in await self._desk.backfills(self._who, name)]

    async def stop_backfill(self, name: str, backfill: str) -> answers.Backfill:
        """Stop a backfill: it starts no further run."""
        return self._shown.backfill(await self._desk.stop_backfill(self._who, name, backfill))
