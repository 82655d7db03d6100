"""The page of breakers and holds: what keeps steps from beginning?"""

from __future__ import annotations

from holdfast.http.call import Call, Given
from holdfast.http.pages.page import Page
from holdfast.model import BreakerState
from holdfast.wire import answers

WAVES = 6


async def gates(call: Call) -> Given:
    page = Page(call)
    breakers: answers.Breakers = await page.ask("GET /v1/breakers")
    holds: answers.Holds = await page.ask("GET /v1/holds")
    shut = [one for one in breakers.items if one.state is not BreakerState.CLOSED or one.forced]
    return await page.shown(
        "gates.html",
        "gates",
        "Breakers & holds",
        topics="topic=gates",
        shut=shut,
        well=[one for one in breakers.items if one not in shut],
        holds=holds.items,
        waves=range(WAVES),
    )
