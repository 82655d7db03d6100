"""The pages of acts on many runs: what was planned, and what became of it?"""

from __future__ import annotations

import msgspec

from holdfast.http.acts import ActRunsQuery, ActsQuery
from holdfast.http.call import Call, Given
from holdfast.http.pages import words
from holdfast.http.pages.page import Page
from holdfast.wire import answers


class ActPageQuery(msgspec.Struct):
    fate: list[str] = []
    after: str = ""


async def acts(call: Call) -> Given:
    page = Page(call)
    found: answers.Acts = await page.ask("GET /v1/acts", query=ActsQuery(100))
    return await page.shown("acts.html", "acts", "Acts", topics="topic=acts", items=found.items)


async def act(call: Call) -> Given:
    page = Page(call)
    one: answers.Act = await page.ask("GET /v1/acts/{act}")
    query: ActPageQuery = call.query
    runs: answers.ActRuns = await page.ask(
        "GET /v1/acts/{act}/runs", query=ActRunsQuery(query.fate, query.after, 100)
    )
    preview = words.value(one.preview)
    return await page.shown(
        "act.html",
        "acts",
        f"{one.verb} {one.runs} runs",
        topics="topic=acts",
        one=one,
        preview=preview if isinstance(preview, dict) else {},
        runs=runs,
        chosen=query.fate,
        is_busy=one.state == "running",
    )
