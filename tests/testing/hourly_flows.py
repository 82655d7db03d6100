"""A workflow that runs every hour, for tests of long times."""

from __future__ import annotations

from holdfast import step, workflow
from holdfast.schedules import every


@step
async def count_visits() -> int:
    return 1


@workflow
async def hourly() -> int:
    return await count_visits()


every("@hourly", name="hourly")(hourly)
