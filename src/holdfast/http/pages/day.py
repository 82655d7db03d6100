"""The last day of a namespace, as several pages show it."""

from __future__ import annotations

from datetime import datetime
from weakref import WeakKeyDictionary

from holdfast.desk.stats import Stats
from holdfast.http.call import Served
from holdfast.http.overview import StatsQuery
from holdfast.http.pages.page import Page

KEPT_S = 60.0
_days: WeakKeyDictionary[Served, dict[str | None, tuple[datetime, Stats]]] = WeakKeyDictionary()
"""The last day of each namespace, as each server saw it: a day changes slowly, and an open page asks often."""


async def last_day(page: Page) -> Stats:
    """Return how runs of each workflow ended in the last 24 hours."""
    page.now = page.now or (await page.ask("GET /v1/me")).now
    kept, namespace = _days.setdefault(page.call.server, {}), page.who.namespace
    at, found = kept.get(namespace, (None, None))
    if at is None or found is None or not 0 <= (page.now - at).total_seconds() < KEPT_S:
        found = await page.ask("GET /v1/stats", query=StatsQuery(window="24h", by="workflow"))
        kept[namespace] = (page.now, found)
    return found
