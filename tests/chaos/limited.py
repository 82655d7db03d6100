"""Steps under limits, and the agent that executes them: `python -m tests.chaos.limited URL`."""

from __future__ import annotations

import asyncio
import sys

from holdfast import Holdfast, Retry, step, workflow
from holdfast.limits import Limit
from tests.chaos.load import CONFIG

MOST = 5


@step(limits=[Limit("five", MOST)], retry=Retry(attempts=1000, delay=0.01))
async def light(number: int) -> int:
    await asyncio.sleep(0.05)
    return number


@step(
    limits=[Limit("five", MOST, weight=2), Limit("three", 3), Limit("odd:{odd}", 2)],
    retry=Retry(attempts=1000, delay=0.01),
)
async def heavy(number: int, odd: bool) -> int:
    await asyncio.sleep(0.05)
    return number


@workflow
async def many(number: int) -> int:
    calls = [heavy(one, one % 2 == 1) if one % 3 == 0 else light(one) for one in range(number)]
    return sum(await asyncio.gather(*calls))


async def main(url: str) -> None:
    async with Holdfast(url, roles=["agent"], config=CONFIG):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
