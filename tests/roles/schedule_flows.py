"""Workflows that schedules start. The lines that declare schedules are in the tests: they are declared while a test runs."""

from __future__ import annotations

import asyncio

from holdfast import workflow
from holdfast.schedules import occasion


@workflow(name="roles.tick")
async def tick(word: str) -> list[str | None]:
    here = occasion()
    if here is None:
        return [word, None, None]
    before = await here.last(list[str | None])
    return [word, here.schedule, None if before is None else str(before[0])]


@workflow(name="roles.slow_tick")
async def slow_tick() -> None:
    await asyncio.sleep(3600)
