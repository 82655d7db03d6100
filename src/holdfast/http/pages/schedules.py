"""The pages of schedules: what comes next, and what was missed?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.http.call import Call, Given
from holdfast.http.pages.page import Page
from holdfast.http.schedules import FiresQuery, PreviewQuery, SchedulesQuery
from holdfast.model import FireFate, ScheduleState
from holdfast.wire import answers

AHEAD = timedelta(hours=24)
DOTS = 200
"""How many times of a schedule are drawn at most. More than that are a line."""
LIST = 100


class Strip(NamedTuple):
    """The next 24 hours of a schedule."""

    schedule: answers.Schedule
    at: list[tuple[float, str, str]]
    """Where its times are, from 0 to 100, and when, in its own zone and as an instant."""
    is_dense: bool
    until: float
    """Where the line of many times ends."""


async def schedules(call: Call) -> Given:
    page = Page(call)
    found: answers.Schedules = await page.ask("GET /v1/schedules", query=SchedulesQuery(limit=LIST))
    now = page.now = (await page.ask("GET /v1/me")).now
    assert now is not None
    strips = []
    for one in found.items:
        times: list[answers.Upcoming] = []
        if one.state is ScheduleState.ACTIVE:
            times = (
                await page.ask(
                    "GET /v1/schedules/{schedule}/preview", query=PreviewQuery(DOTS), schedule=one.ref
                )
            ).items
        strips.append(strip(one, times, now))
    return await page.shown(
        "schedules.html",
        "schedules",
        "Schedules",
        topics="topic=schedules",
        strips=strips,
        hours=[(n, now + timedelta(hours=n)) for n in range(0, 25, 6)],
    )


def strip(one: answers.Schedule, times: list[answers.Upcoming], now: datetime) -> Strip:
    near = [
        time for time in times if now <= time.starts_at <= now + AHEAD and not time.note.startswith("left")
    ]
    spots = [
        (
            (time.starts_at - now) / AHEAD * 100,
            time.at.strftime("%H:%M"),
            time.starts_at.isoformat(),
        )
        for time in near
    ]
    is_cut = len(times) == DOTS and len(near) == DOTS  # there are more than were asked for
    return Strip(one, spots, len(spots) > 48, 100.0 if is_cut else spots[-1][0] if spots else 0.0)


async def schedule(call: Call) -> Given:
    page = Page(call)
    one: answers.Schedule = await page.ask("GET /v1/schedules/{schedule}")
    fires: answers.Fires = await page.ask("GET /v1/schedules/{schedule}/fires", query=FiresQuery(50))
    times: list[answers.Upcoming] = []
    if one.state is ScheduleState.ACTIVE:
        times = (await page.ask("GET /v1/schedules/{schedule}/preview", query=PreviewQuery(10))).items
    backfills: answers.Backfills = await page.ask("GET /v1/schedules/{schedule}/backfills")
    return await page.shown(
        "schedule.html",
        "schedules",
        one.name,
        topics="topic=schedules",
        one=one,
        fires=fires.items,
        times=times,
        backfills=backfills.items,
        missed=len([fire for fire in fires.items if fire.fate is FireFate.MISSED]),
    )
