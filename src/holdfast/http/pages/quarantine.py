"""The page of the quarantine: which steps may kill their agents?"""

from __future__ import annotations

from holdfast.http.call import Call, Given
from holdfast.http.pages.page import Page
from holdfast.wire import answers


async def quarantine(call: Call) -> Given:
    page = Page(call)
    found: answers.Quarantine = await page.ask("GET /v1/quarantine")
    return await page.shown(
        "quarantine.html",
        "quarantine",
        "Quarantine",
        topics="topic=quarantine",
        items=found.items,
        steps=sum(one.steps for one in found.items),
    )
