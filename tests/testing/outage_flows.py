"""Workflows with schedules for each policy about missed times, for tests of the kit."""

from __future__ import annotations

import asyncio

from holdfast import step, workflow
from holdfast.schedules import every


@step
async def poll(what: str) -> str:
    return what


@workflow
async def polled(what: str) -> str:
    return await poll(what)


@workflow
async def waits() -> str:
    await asyncio.sleep(86_400)
    return await poll("later")


for policy in ("skip", "once", 5):
    every("@hourly", name=f"{policy}", missed=policy, overlap="allow")(polled, f"{policy}")
every("@hourly", name="many", missed=100, overlap="buffer_all")(polled, "many")
