"""The pages of composed triggers: what waits for the rest of its parts?"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from holdfast.http.call import Call, Given
from holdfast.http.pages.page import Page
from holdfast.http.triggers import OccasionsQuery, TriggersQuery
from holdfast.wire.triggers import Arrived, Occasion, Occasions, Trigger, Triggers

LOOKS = {"open": "waiting", "started": "started", "expired": "expired"}
"""How the state of an occasion looks."""
OPEN, ENDED = 100, 20


class Waiting(NamedTuple):
    """An open occasion."""

    one: Occasion
    passed: float
    """How much of its time has passed, from 0 to 1."""
    is_over: bool


async def triggers(call: Call) -> Given:
    page = Page(call)
    known: Triggers = await page.ask("GET /v1/triggers", query=TriggersQuery())
    opened: Occasions = await page.ask("GET /v1/occasions", query=OccasionsQuery(state="open", limit=OPEN))
    newest: Occasions = await page.ask("GET /v1/occasions", query=OccasionsQuery(limit=OPEN))
    now = page.now = (await page.ask("GET /v1/me")).now
    assert now is not None
    waiting = [waits(one, now) for one in opened.items]
    return await page.shown(
        "triggers.html",
        "triggers",
        "Triggers",
        topics="topic=occasions",
        items=known.items,
        waiting=sorted(waiting, key=lambda each: each.one.ends_at),
        is_all=len(waiting) < OPEN,
        ended=[one for one in newest.items if one.state != "open"][:ENDED],
        looks=LOOKS,
        parts=parts,
    )


async def occasion(call: Call) -> Given:
    page = Page(call)
    one: Occasion = await page.ask("GET /v1/occasions/{occasion}")
    known: Triggers = await page.ask("GET /v1/triggers", query=TriggersQuery())
    now = page.now = (await page.ask("GET /v1/me")).now
    assert now is not None
    return await page.shown(
        "occasion.html",
        "triggers",
        one.id,
        topics="topic=occasions",
        waiting=waits(one, now),
        trigger=found(one.trigger, known.items),
        look=LOOKS.get(one.state, one.state),
        parts=parts,
    )


def found(name: str, known: list[Trigger]) -> Trigger | None:
    return next((one for one in known if one.name == name), None)


def waits(one: Occasion, now: datetime) -> Waiting:
    whole = (one.ends_at - one.opened_at).total_seconds()
    passed = (now - one.opened_at).total_seconds() / whole if whole > 0 else 1.0
    return Waiting(one, min(max(passed, 0.0), 1.0), now > one.ends_at)


def parts(arrived: list[Arrived]) -> list[tuple[str, list[Arrived]]]:
    """Return what arrived by its parts, the first one first."""
    grouped: dict[str, list[Arrived]] = {}
    for one in arrived:
        grouped.setdefault(one.part, []).append(one)
    return list(grouped.items())
