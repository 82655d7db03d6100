"""What callers and operators ask about composed triggers and their occasions."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast.desk.filters import moment
from holdfast.http.call import Call, Given
from holdfast.wire.triggers import Occasions, Triggers


class TriggersQuery(msgspec.Struct):
    after: Annotated[str, Meta(max_length=200)] = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 200


class OccasionsQuery(msgspec.Struct):
    trigger: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    state: Literal["open", "started", "expired"] | None = None
    before: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


async def triggers(call: Call) -> Given:
    return Given(Triggers(await call.desk.triggers.list(call.who, call.query.after, call.query.limit)))


async def occasions(call: Call) -> Given:
    before = 1e11
    if call.query.before is not None:
        before = moment(call.query.before, "?before", await call.desk.now(call.who))
    found = await call.desk.triggers.occasions(
        call.who, call.query.trigger, call.query.state, before, call.query.limit
    )
    return Given(Occasions(list(found)))


async def occasion(call: Call) -> Given:
    return Given(await call.desk.triggers.occasion(call.who, call.id("occasion")))


async def start(call: Call) -> Given:
    return Given(await call.desk.triggers.start(call.who, call.id("occasion"), call.body.note))


async def drop(call: Call) -> Given:
    return Given(await call.desk.triggers.drop(call.who, call.id("occasion"), call.body.note))
