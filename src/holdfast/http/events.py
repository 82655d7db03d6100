"""Events come in, and callers ask what became of them."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.desk.events import EventsAsked, shown_emitted, shown_event
from holdfast.desk.filters import moment
from holdfast.errors import InvalidInput
from holdfast.http.call import Call, Given
from holdfast.http.reader import demand_sound
from holdfast.http.refusals import Refusal
from holdfast.wire.cloudevents import BATCHED, STRUCTURED, read_batch, read_binary, read_structured
from holdfast.wire.events import EmittedEvents, Events


class EventsQuery(msgspec.Struct):
    type: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    before: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


async def emit(call: Call) -> Given:
    """Take events in any of the three forms. Nothing is sent if one of them is wrong."""
    kind = call.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_binary = kind not in {STRUCTURED, BATCHED}
    if is_binary and "ce-specversion" not in call.headers:
        raise Refusal(
            "media-type",
            f"send an event as {STRUCTURED}, several as {BATCHED}, or one with its attributes in headers: ce-specversion: 1.0",
            place="Content-Type",
        )
    sound = partial(demand_sound, config=call.server.config)
    if is_binary:
        events = read_binary(call.headers, call.body, sound)
    else:
        events = (read_batch if kind == BATCHED else read_structured)(call.body, sound)
    found = await call.desk.events.emit(call.who, events)
    return Given(EmittedEvents([shown_emitted(call.who, one) for one in found]), 202)


async def events(call: Call) -> Given:
    query: EventsQuery = call.query
    before = None
    if query.before is not None:
        before = moment(query.before, "?before", await call.desk.now(call.who))
    where = EventsAsked(type=query.type, before=before, cursor=query.cursor, limit=query.limit)
    try:
        page = await call.desk.events.list(call.who, where)
    except InvalidInput as wrong:
        place, _, words = str(wrong).partition(": ")
        if place == "cursor":
            raise Refusal("malformed", words, place="?cursor") from None
        raise
    return Given(Events([shown_event(call.who, one, with_data=False) for one in page.items], page.next))


async def event(call: Call) -> Given:
    found = await call.desk.events.get(call.who, call.id("source"), call.id("event"))
    return Given(shown_event(call.who, found, with_data=True))
