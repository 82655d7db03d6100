"""The page of the backlog: is there work that nobody can do?"""

from __future__ import annotations

from holdfast.desk.backlog import BacklogList
from holdfast.http.call import Call, Given
from holdfast.http.pages.page import Page


async def backlog(call: Call) -> Given:
    page = Page(call)
    found: BacklogList = await page.ask("GET /v1/backlog")
    return await page.shown(
        "backlog.html",
        "backlog",
        "Backlog",
        topics="topic=backlog",
        rows=[one for one in found.items if not one.parked],
        parked=[one for one in found.items if one.parked],
        total=sum(one.ready for one in found.items if not one.parked),
        nobody=[one for one in found.items if one.is_hopeless],
    )
