"""What waits for a person, as numbers beside the names of pages."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from holdfast.desk.attention import AttentionList
from holdfast.http.call import Served

if TYPE_CHECKING:
    from holdfast.http.pages.page import Page

KEPT_S = 2.0
"""Whoever goes from page to page asks often, and the numbers change slowly."""
PAGES = {
    "stuck run": "runs",
    "held run": "runs",
    "late run": "runs",
    "late ask": "asks",
    "ask": "asks",
    "nobody can do this": "backlog",
    "agent": "agents",
    "breaker open": "gates",
    "quarantine": "quarantine",
}
"""The page where something of a kind is dealt with."""


class Badge(NamedTuple):
    number: int
    colour: str
    words: str


_kept: WeakKeyDictionary[Served, dict[tuple[str | None, str], tuple[datetime, dict[str, Badge]]]] = (
    WeakKeyDictionary()
)


async def badges(page: Page, now: datetime) -> dict[str, Badge]:
    """Return the numbers for whoever looks, by the names of pages."""
    if not page.may("GET /v1/attention"):
        return {}
    kept, who = _kept.setdefault(page.call.server, {}), (page.who.namespace, page.who.actor)
    at, found = kept.get(who, (None, None))
    if at is None or found is None or not _is_fresh(at, now):
        found = counted(await page.ask("GET /v1/attention"))
        for other in [other for other, (seen, _) in kept.items() if not _is_fresh(seen, now)]:
            del kept[other]
        kept[who] = (now, found)
    return found


def _is_fresh(at: datetime, now: datetime) -> bool:
    return 0 <= (now - at).total_seconds() < KEPT_S


def counted(needs: AttentionList) -> dict[str, Badge]:
    numbers: dict[str, int] = {}
    kinds = [(one.kind, one.count) for one in needs.items] + [(one.kind, one.count) for one in needs.rest]
    for kind, count in kinds:
        if (name := PAGES.get(kind)) is not None:
            numbers[name] = numbers.get(name, 0) + count
    return {
        name: Badge(number, "wait" if name == "asks" else "fail", "wait for a person")
        for name, number in numbers.items()
    }
