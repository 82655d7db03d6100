"""Workflows with schedules, for tests of the kit."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from holdfast import step, workflow
from holdfast.schedules import Calendar, every, occasion

holidays = Calendar("norway", ["2026-01-01", "2026-01-02"], "2030-12-31")


@step
async def count_stock(day: str) -> int:
    return len(day)


@workflow
async def nightly(what: str) -> str:
    here = occasion()
    assert here is not None
    before = await here.last(str)
    await count_stock(what)
    return f"{here.at:%m-%d} after {before[:5] if before else None}"


every("0 3 * * *", tz="Europe/Oslo", skip=holidays, name="nightly")(nightly, "stock")


@workflow(due=timedelta(days=2))
async def promised(days: float) -> None:
    await asyncio.sleep(days * 86_400)
