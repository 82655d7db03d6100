"""The pages of events: what came in, and who took it?"""

from __future__ import annotations

import msgspec

from holdfast.http.call import Call, Given
from holdfast.http.events import EventsQuery
from holdfast.http.pages.page import Page
from holdfast.wire.events import Event, Events
from holdfast.wire.hooks import Hooks

LIST = 50


class EventsPageQuery(msgspec.Struct):
    type: str = ""
    cursor: str = ""


async def events(call: Call) -> Given:
    page, given = Page(call), call.query
    query = EventsQuery(given.type.strip()[:200] or None, None, given.cursor or None, LIST)
    found: Events = await page.ask("GET /v1/events", query=query)
    hooks: Hooks = await page.ask("GET /v1/hooks")
    return await page.shown(
        "events.html",
        "events",
        "Events",
        topics="topic=events",
        items=found.items,
        untaken=len([one for one in found.items if not is_taken(one)]),
        is_taken=is_taken,
        type=query.type,
        is_later=query.cursor is not None,
        next=None if found.next is None else page.url("/events", type=query.type, cursor=found.next),
        hooks=hooks.items,
    )


async def event(call: Call) -> Given:
    page = Page(call)
    one: Event = await page.ask("GET /v1/events/{source}/{event}")
    return await page.shown("event.html", "events", one.type, one=one, is_taken=is_taken)


def is_taken(one: Event) -> bool:
    return bool(one.started or one.woke or one.collected or one.late)
