"""What the palette finds: runs by the beginning of their ids, and workflows. And the page of all pages, for a phone."""

from __future__ import annotations

import msgspec

from holdfast.http.call import Call, Given
from holdfast.http.pages.page import Page
from holdfast.http.runs import RunsQuery
from holdfast.wire import answers

MOST = 8


class FindQuery(msgspec.Struct):
    q: str = ""


async def find(call: Call) -> Given:
    page, text = Page(call), call.query.q.strip()
    runs: list[answers.Run] = []
    names: list[str] = []
    if text:
        runs = (await page.ask("GET /v1/runs", query=RunsQuery(prefix=text, limit=MOST))).items
        known: answers.Workflows = await page.ask("GET /v1/workflows")
        names = sorted({one.name for one in known.items if text.lower() in one.name.lower()})[:MOST]
    return page.plain("found.html", runs=runs, names=names)


async def more(call: Call) -> Given:
    return await Page(call).shown("more.html", "more", "All pages")
