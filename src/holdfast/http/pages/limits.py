"""The pages of limits: what is full, who has it, and who waits?"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

from holdfast.http.call import Call, Given
from holdfast.http.limits import FairQuery
from holdfast.http.pages.page import Page
from holdfast.wire import answers
from holdfast.wire.paths import path_of

LOOKED_AT = 20
"""For how many limits that are full the page shows who waits for them."""
LIST = 500


class Row(NamedTuple):
    """A limit, as it is shown."""

    one: answers.Limit
    ref: str
    share: float
    """How much of it is in use, from 0 to 1."""
    is_full: bool
    moved_at: datetime | None
    waiting: int | None
    """How many wait for it. None if nobody asked."""


class Use(NamedTuple):
    """A step or a run that has a slot, or waits for one."""

    one: answers.LimitUse
    ref: str
    since: datetime


async def limits(call: Call) -> Given:
    page = Page(call)
    found: answers.Limits = await page.ask("GET /v1/limits", query=FairQuery(limit=LIST))
    fair: answers.FairKeys = await page.ask("GET /v1/fair", query=FairQuery(limit=LIST))
    rows = [row(one) for one in found.items]
    full = [one for one in rows if one.is_full]
    for index, one in enumerate(full[:LOOKED_AT]):
        seen: answers.LimitSeen = await page.ask("GET /v1/limits/{limit}", limit=one.ref)
        full[index] = one._replace(waiting=len(seen.waiters))
    return await page.shown(
        "limits.html",
        "limits",
        "Limits",
        full=full,
        rest=[one for one in rows if not one.is_full],
        topics="topic=limits",
        fair=fair.items,
        heaviest=max((one.weight for one in fair.items), default=1),
        is_all=len(found.items) < LIST and len(fair.items) < LIST,
    )


async def limit(call: Call) -> Given:
    page = Page(call)
    seen: answers.LimitSeen = await page.ask("GET /v1/limits/{limit}")
    return await page.shown(
        "limit.html",
        "limits",
        seen.limit.key,
        topics="topic=" + quote(f"limit:{path_of(seen.limit.key)}", safe=""),
        row=row(seen.limit)._replace(waiting=len(seen.waiters)),
        holders=[use(one) for one in seen.holders],
        waiters=[use(one) for one in seen.waiters],
    )


def row(one: answers.Limit) -> Row:
    is_full = one.next_s is not None if one.per_s is not None else one.used >= one.most
    share = float(is_full) if one.per_s is not None else one.used / one.most if one.most else 1.0
    moved = None if one.moved_at is None else datetime.fromtimestamp(one.moved_at, UTC)
    return Row(one, path_of(one.key), share, is_full, moved, None)


def use(one: answers.LimitUse) -> Use:
    return Use(one, path_of(one.run), datetime.fromtimestamp(one.since, UTC))
