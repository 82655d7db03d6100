"""Workflows as users write them. The tests try the testing kit on them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import timedelta

from holdfast import Retry, Signal, Stop, here, keep, now, publish, saga, step, workflow


@dataclass
class Charge:
    id: str
    cents: int


paid = Signal("paid", int)
log: list[str] = []
talk = logging.getLogger("kit")


@step(retry=Retry(attempts=3, delay=600, jitter="none", on=ConnectionError))
async def charge(card: str, cents: int = 300) -> Charge:
    log.append(f"charge {card} {here.key}")
    return Charge("real", cents)


@charge.undo
async def refund(done: Charge | None, card: str, cents: int = 300) -> None:
    log.append(f"refund {here.undoes} {'?' if done is None else done.id}")


@step
def mail(text: str) -> str:
    log.append(f"mail {text}")
    return text


@step(needs=["gpu"], isolate=True)
def render(page: int) -> str:
    return f"page {page} attempt {here.attempt}"


@step(timeout=30)
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


@step
async def saving() -> int:
    count = (here.saved or 0) + 1
    await here.save(count)
    return count


@step
def saving_in_a_thread() -> int:
    here.save(41)
    return 42


@workflow
async def order(card: str) -> str:
    done = await charge(card)
    await asyncio.sleep(86_400)
    return await mail(f"thanks for {done.cents}")


@workflow
async def awaits(x: int = 0) -> int:
    publish("phase", "waiting")
    return x + await paid.wait(timeout=timedelta(days=3))


@workflow
async def monthly(times: int) -> list[str]:
    seen = []
    for _ in range(times):
        await asyncio.sleep(30 * 86_400)
        seen.append(now().isoformat())
    return seen


@workflow
async def gallery() -> list[str]:
    return list(await asyncio.gather(*(render(page) for page in range(3))))


@workflow
async def child(card: str) -> str:
    return (await charge(card)).id


@workflow
async def parent(card: str) -> str:
    charged = await child(card)
    return await mail(charged)


@workflow
async def patient(seconds: float) -> str:
    return await slow(seconds)


@workflow
async def saves() -> list[int]:
    return [await saving(), await saving_in_a_thread()]


@workflow
async def sells(card: str) -> str:
    """Charges before it knows the outcome, and sends a mail that cannot be undone."""
    await charge(card)
    await mail("sold")
    raise Stop("out of stock")


@workflow
async def sells_for_good(card: str) -> str:
    await charge(card)
    keep()
    return await mail("sold")


@workflow
async def tries(card: str) -> str:
    try:
        async with saga():
            await charge(card)
            await mail("maybe")
    except Stop:
        return "not this time"
    return "sold"


@step
async def book(item: str) -> str:
    return here.key


@workflow
async def books(item: str) -> str:
    """`book` reads its key, and nothing undoes it."""
    key = await book(item)
    await mail(item)
    return key


@workflow(timeout=60)
async def hurries() -> int:
    return await paid.wait()


@workflow
async def many(times: int) -> int:
    for _ in range(times):
        await charge("tok")
    return times


@workflow
async def many_at_once(times: int) -> int:
    await asyncio.gather(*(charge("tok") for _ in range(times)))
    return times


@step
async def counted(to: int) -> int:
    talk.info("counting to %d", to)
    return to


@workflow
async def talks(to: int) -> int:
    talk.info("begins")
    found = await counted(to)
    await asyncio.sleep(3600)
    talk.info("slept")
    return found
