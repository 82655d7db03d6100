"""Workflows whose steps remote agents execute."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter

from holdfast import Retry, here, step, workflow

log = logging.getLogger("remote.flows")

begun: Counter[str] = Counter()
"""How often each step began, by its key."""
gate = asyncio.Event()
cancelled: list[str] = []
SOON = Retry(4, delay=0.01)


@step(name="remote.add")
async def add(a: int) -> int:
    begun[here.key] += 1
    return a + 1


@step(name="remote.thread")
def thread(a: int) -> int:
    begun[here.key] += 1
    return a + 10


@step(name="remote.flaky", retry=SOON)
async def flaky(fails: int) -> int:
    begun[here.key] += 1
    if here.attempt <= fails:
        raise ConnectionError(f"attempt {here.attempt}")
    log.warning("it worked")
    return here.attempt


@step(name="remote.saves", retry=SOON)
async def saves() -> int:
    begun[here.key] += 1
    saved = here.load(int) or 0
    await here.save(saved + 1)
    if saved < 2:
        raise ConnectionError("again")
    return saved


@step(name="remote.waits")
async def waits() -> str:
    begun[here.key] += 1
    try:
        await gate.wait()
    except asyncio.CancelledError:
        cancelled.append(here.run_id)
        raise
    return "done"


@step(name="remote.slow", timeout=0.2, retry=Retry(2, delay=0.01))
async def slow() -> None:
    begun[here.key] += 1
    await asyncio.sleep(60)


@step(name="remote.bad", retry=1)
def bad() -> None:
    time.sleep(0.01)
    raise KeyError("no such thing")


@step(name="remote.gpu", needs=["gpu"])
async def gpu() -> str:
    return "rendered"


@step(name="remote.talks")
async def talks(lines: int) -> None:
    for number in range(lines):
        logging.getLogger("talks").warning("%d", number)


@workflow(name="remote.talk")
async def talk(steps: int, lines: int) -> None:
    await asyncio.gather(*(talks.using(key=str(number))(lines) for number in range(steps)))


@workflow(name="remote.sums")
async def sums(n: int) -> int:
    total = 0
    for number in range(n):
        total = await thread(await add(total)) if number % 2 else await add(total)
    return total


@workflow(name="remote.wide")
async def wide(n: int) -> int:
    return sum(await asyncio.gather(*(add.using(key=str(number))(number) for number in range(n))))


@workflow(name="remote.tries")
async def tries(fails: int) -> int:
    return await flaky(fails)


@workflow(name="remote.saved")
async def saved() -> int:
    return await saves()


@workflow(name="remote.held")
async def held() -> str:
    return await waits()


@workflow(name="remote.late")
async def late() -> str:
    try:
        await slow()
    except TimeoutError as error:
        return type(error).__name__
    return "in time"


@workflow(name="remote.fails")
async def fails() -> str:
    try:
        await bad()
    except KeyError as error:
        return f"caught {error}"
    return ""


@workflow(name="remote.renders")
async def renders() -> str:
    return await gpu()
