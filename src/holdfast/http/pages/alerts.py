"""The page of alerts: what were people notified about, and by which way?"""

from __future__ import annotations

import msgspec

from holdfast.http.call import Call, Given
from holdfast.http.operators import AlertsQuery
from holdfast.http.pages.page import Page
from holdfast.wire import answers

LEVELS = ("critical", "error", "warning", "info")


class AlertsPageQuery(msgspec.Struct):
    all: bool = False


async def alerts(call: Call) -> Given:
    page = Page(call)
    found: answers.Alerts = await page.ask("GET /v1/alerts", query=AlertsQuery(call.query.all, 200))
    opened = [one for one in found.items if one.cleared_at is None]
    opened.sort(key=lambda one: LEVELS.index(one.level) if one.level in LEVELS else len(LEVELS))
    return await page.shown(
        "alerts.html",
        "alerts",
        "Alerts",
        topics="topic=alerts",
        opened=opened,
        cleared=[one for one in found.items if one.cleared_at is not None],
        everything=call.query.all,
    )
