"""What callers and operators ask about schedules."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.desk.schedules import BackfillRequest, ScheduleRequest, ShownSchedules, instant
from holdfast.errors import DefinitionError
from holdfast.http.call import Call, Given
from holdfast.http.refusals import Refusal
from holdfast.namespaces import shown
from holdfast.times import Calendar, Plan
from holdfast.times.calendars import Days
from holdfast.wire import answers, requests


class SchedulesQuery(msgspec.Struct):
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class FiresQuery(msgspec.Struct):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class PreviewQuery(msgspec.Struct):
    count: Annotated[int, Meta(ge=1, le=1000)] = 10


def _shown(call: Call) -> ShownSchedules:
    return ShownSchedules(call.who, lambda stored: shown(call.who.namespace, stored))


def _name(call: Call) -> str:
    return call.id("schedule")


async def schedules(call: Call) -> Given:
    found = await call.desk.schedules.list(call.who, call.query.after, call.query.limit)
    return Given(answers.Schedules([_shown(call).schedule(one) for one in found]))


async def create(call: Call) -> Given:
    given: requests.NewSchedule = call.body
    request = ScheduleRequest(
        given.name,
        given.workflow,
        _plan(given),
        bytes(given.input),
        given.version,
        given.tags,
        given.priority,
        given.timeout_s,
        given.replace,
        given.due_in_s,
        given.fair,
    )
    is_new = await call.desk.schedules.create(call.who, request)
    made = await call.desk.schedules.get(call.who, given.name)
    return Given(_shown(call).schedule(made), 201 if is_new else 200)


def _plan(given: requests.NewSchedule) -> Plan:
    bare = Plan(given.times, given.tz)
    try:
        anchor, start, end = (
            None if text is None else instant(text, bare, what)
            for what, text in (("anchor", given.anchor), ("start", given.start), ("end", given.end))
        )
        plan = msgspec.structs.replace(
            bare,
            anchor=anchor or 0.0,
            skip=_days(given.skip),
            only=_days(given.only),
            shift=given.shift,
            start=start,
            end=end,
            count=given.count,
            overlap=given.overlap,
            missed="all" if isinstance(given.missed, int) else given.missed,
            missed_max=given.missed if isinstance(given.missed, int) else 1,
            window_s=given.window_s,
            jitter_s=given.jitter_s,
            pause_after=given.pause_after,
            due=given.due,
        )
        plan.check()
    except DefinitionError as wrong:
        raise Refusal("invalid", str(wrong), place="/times") from None
    return plan


def _days(given: requests.CalendarDays | None) -> Days | None:
    return None if given is None else Calendar(given.name, given.days, given.until).stored


async def schedule(call: Call) -> Given:
    return Given(_shown(call).schedule(await call.desk.schedules.get(call.who, _name(call))))


async def preview(call: Call) -> Given:
    desk, name = call.desk.schedules, _name(call)
    tz = _shown(call).schedule(await desk.get(call.who, name)).tz
    found = await desk.preview(call.who, name, call.query.count)
    return Given(answers.Preview([ShownSchedules.upcoming(one, tz) for one in found]))


async def fires(call: Call) -> Given:
    found = await call.desk.schedules.fires(call.who, _name(call), call.query.limit)
    return Given(answers.Fires([_shown(call).fire(row) for row in found]))


async def pause(call: Call) -> Given:
    seen = await call.desk.schedules.pause(call.who, _name(call), call.body.note)
    return Given(_shown(call).schedule(seen))


async def resume(call: Call) -> Given:
    seen = await call.desk.schedules.resume(call.who, _name(call), call.body.note)
    return Given(_shown(call).schedule(seen))


async def run(call: Call) -> Given:
    given: requests.RunNow = call.body
    fire = await call.desk.schedules.run(call.who, _name(call), given.note, anyway=given.anyway)
    return Given(_shown(call).fire(fire))


async def remove(call: Call) -> Given:
    name = _name(call)
    seen = await call.desk.schedules.get(call.who, name)
    await call.desk.schedules.remove(call.who, name, call.body.note)
    return Given(_shown(call).schedule(seen))


async def backfill(call: Call) -> Given:
    given: requests.NewBackfill = call.body
    request = BackfillRequest(given.from_, given.to, given.newest_first, given.most, given.again, given.note)
    desk, shown = call.desk.schedules, _shown(call)
    if given.dry_run:
        times = await desk.plan_backfill(call.who, _name(call), request)
        return Given(answers.BackfillAnswer(None, [shown.planned(one) for one in times]))
    row = await desk.backfill(call.who, _name(call), request)
    return Given(answers.BackfillAnswer(shown.backfill(row), []), 201)


async def backfills(call: Call) -> Given:
    found = await call.desk.schedules.backfills(call.who, _name(call))
    return Given(answers.Backfills([_shown(call).backfill(row) for row in found]))


async def stop_backfill(call: Call) -> Given:
    row = await call.desk.schedules.stop_backfill(call.who, _name(call), call.id("backfill"))
    return Given(_shown(call).backfill(row))
