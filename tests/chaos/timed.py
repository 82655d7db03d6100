"""What schedules start, and a leader to be: `python -m tests.chaos.timed URL HEART`."""

from __future__ import annotations

import asyncio
import sys

from msgspec.structs import replace

from holdfast import Holdfast, here, step, workflow
from holdfast.schedules import occasion
from tests.chaos.load import CONFIG, note


@step
async def ran(ledger: str, schedule: str, at: float) -> None:
    note(ledger, "ran", schedule, at, here.run_id)


@workflow
async def timed(ledger: str, pause_s: float) -> None:
    here = occasion()
    assert here is not None
    await ran(ledger, here.schedule, here.at.timestamp())
    await asyncio.sleep(pause_s)


async def main(url: str, heart: str) -> None:
    async with Holdfast(url, roles=["supervisor"], config=replace(CONFIG, heart=heart == "heart")):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
