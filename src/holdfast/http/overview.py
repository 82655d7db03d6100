"""What people look at: runs in time, what needs a person."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast.desk.attention import ATTENTION
from holdfast.desk.filters import age
from holdfast.desk.overview import Asked
from holdfast.desk.stats import MINUTE_S, StatsAsked
from holdfast.http.call import Call, Given
from holdfast.http.refusals import Refusal
from holdfast.timeline import Timeline
from holdfast.wire import answers
from holdfast.wire.requests import NAME_MAX

WINDOW_MAX_S = 7 * 86_400.0


class TimelineQuery(msgspec.Struct):
    only: Literal["all", "open", "wrong"] = "all"
    """Only steps that are open, or that went wrong."""
    group: Annotated[str, Meta(max_length=2_000)] = ""
    """The id of a row: what is below it."""
    after: Annotated[int, Meta(ge=0, le=2_147_483_647)] = 0


async def timeline(call: Call) -> Given:
    query: TimelineQuery = call.query
    found: Timeline = await call.desk.overview.timeline(
        call.who, call.run, Asked(query.only, query.group, query.after)
    )
    headers = {"ETag": f'"{found.mark}"'}
    if call.knows(found.mark):
        return Given(status=304, headers=headers)
    return Given(found, headers=headers)


class AttentionQuery(msgspec.Struct):
    limit: Annotated[int, Meta(ge=1, le=100)] = ATTENTION


async def why(call: Call) -> Given:
    return Given(await call.desk.overview.why(call.who, call.run))


async def attention(call: Call) -> Given:
    return Given(await call.desk.overview.attention(call.who, call.query.limit))


class StatsQuery(msgspec.Struct):
    window: Annotated[str, Meta(max_length=20)] = "1h"
    """How far back: an age such as 90min, 1h or 7d, up to 7d."""
    by: Literal["time", "workflow", "version"] = "time"
    workflow: Annotated[str, Meta(min_length=1, max_length=NAME_MAX)] | None = None


class SearchQuery(msgspec.Struct):
    q: Annotated[str, Meta(max_length=NAME_MAX)] = ""


async def stats(call: Call) -> Given:
    query: StatsQuery = call.query
    window_s = age(query.window)
    if window_s is None or not MINUTE_S <= window_s <= WINDOW_MAX_S:
        raise Refusal("invalid", "give an age from 1min to 7d, for example 90min, 1h or 1d", place="?window")
    return Given(await call.desk.overview.stats(call.who, StatsAsked(window_s, query.by, query.workflow)))


async def search(call: Call) -> Given:
    return Given(await call.desk.overview.search(call.who, call.query.q))


async def backlog(call: Call) -> Given:
    return Given(await call.desk.overview.backlog(call.who))


async def undo_plan(call: Call) -> Given:
    found = await call.desk.overview.undo_plan(call.who, call.run)
    return Given(answers.UndoPlan([answers.UndoPlanned(*one) for one in found]))
