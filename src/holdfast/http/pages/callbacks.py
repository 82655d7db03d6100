"""The page of callbacks: what do runs wait for from other systems?"""

from __future__ import annotations

import msgspec

from holdfast.http.call import Call, Given
from holdfast.http.callbacks import CallbacksQuery
from holdfast.http.pages.page import Page
from holdfast.wire import answers

LIST = 50
SOON_S = 3600.0


class CallbacksPageQuery(msgspec.Struct):
    step: str = ""
    cursor: str = ""


async def callbacks(call: Call) -> Given:
    page, given = Page(call), call.query
    step = given.step.strip()[:200] or None
    query = CallbacksQuery(step=step, cursor=given.cursor or None, limit=LIST)
    found: answers.Callbacks = await page.ask("GET /v1/callbacks", query=query)
    return await page.shown(
        "callbacks.html",
        "callbacks",
        "Callbacks",
        topics="topic=callbacks",
        items=found.items,
        step=step,
        is_later=query.cursor is not None,
        next=None if found.next is None else page.url("/callbacks", step=step, cursor=found.next),
        soon_s=SOON_S,
    )
