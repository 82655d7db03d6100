"""A workflow that runs every hour, for tests of long times."""

from __future__ import annotations

import asyncio

from holdfast import step, workflow
from holdfast.schedules import every


@step
async def count_visits() -> int:
    return 1


@workflow
async def hourly() -> int:
    return await count_visits()


@workflow
async def sleepy() -> int:
    before = await count_visits()
    await asyncio.sleep(86_400)
    return before + await count_visits()


every("@hourly", name="hourly")(hourly)
