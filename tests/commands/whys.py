"""The program of the runs that `why` is asked about. It is copied into a folder of its own, where each run has its own
gate."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast import Retry, Signal, Stop, step, workflow

paid = Signal("paid", int)
PATIENT = Retry(attempts=3, delay=3600, max_delay=3600, jitter="none")
ONCE = Retry(attempts=1)


def is_open(gate: str) -> bool:
    return Path(f"open-{gate}").exists()


async def opened(gate: str) -> None:
    while not is_open(gate):  # noqa: ASYNC110  it is a file
        await asyncio.sleep(0.02)


@step
async def ship(gate: str) -> str:
    return f"{gate} shipped"


@step(retry=PATIENT)
async def charge(gate: str) -> str:
    if not is_open(gate):
        raise ConnectionError("the bank does not answer")
    return "charged"


@step
async def work(gate: str) -> str:
    await opened(gate)
    return "worked"


@step(retry=ONCE)
async def refuse(gate: str) -> str:
    if not is_open(gate):
        raise ValueError("no such card")
    return "taken"


@step(needs=["gpu"])
async def render(gate: str) -> str:
    return "a picture"


@step(needs=["gpu", "printer"])
async def print_out(gate: str) -> str:
    return "a poster"


@step(depends="stripe")
async def pay(gate: str) -> str:
    return "paid"


@step(isolate=True, retry=Retry(losses=0))
def fragile(gate: str) -> int:
    if not is_open(gate):
        os._exit(3)
    return 3


@step
async def book(gate: str) -> str:
    return "b1"


@book.undo(retry=ONCE)
async def unbook(done: str | None, gate: str) -> None:
    if not is_open(gate):
        raise Stop("the desk is closed")


@step
async def reserve(gate: str) -> str:
    return "r1"


@reserve.undo(retry=PATIENT)
async def free(done: str | None, gate: str) -> None:
    if not is_open(gate):
        raise ConnectionError("the hotel does not answer")


@workflow
async def shipping(gate: str) -> str:
    return await ship(gate)


@workflow
async def charging(gate: str) -> str:
    return await charge(gate)


@workflow
async def working(gate: str) -> str:
    return await work(gate)


@workflow
async def refused(gate: str) -> str:
    try:
        await refuse(f"{gate}-handled")
    except ValueError:
        pass
    await ship(gate)
    return await refuse(gate)


@workflow
async def careless(gate: str) -> str:
    await ship(gate)
    if not is_open(gate):
        raise KeyError("nobody mended this")
    return "mended"


@workflow
async def rendering(gate: str) -> str:
    return await render(gate)


@workflow
async def printing(gate: str) -> str:
    return await print_out(gate)


@workflow
async def paying(gate: str) -> str:
    return await pay(gate)


@workflow
async def breaking(gate: str) -> int:
    return await fragile(gate)


@workflow
async def waiting(gate: str) -> int:
    return await paid.wait()


@workflow
async def sleeping(gate: str) -> None:
    await asyncio.sleep(3600)


@workflow
async def napping(gate: str) -> str:
    await asyncio.sleep(1.0)
    return await ship(gate)


@workflow
async def booking(gate: str) -> None:
    await book(gate)
    raise ValueError("sold out")


@workflow
async def reserving(gate: str) -> None:
    await reserve(gate)
    raise ValueError("sold out")


@workflow
async def book_and_work(gate: str) -> str:
    await book(gate)
    return await work(gate)


@workflow
async def stubborn(gate: str) -> str:
    try:
        return await work(gate)
    except asyncio.CancelledError:
        return await work(f"{gate}-again")


@workflow
async def parent_waiting(gate: str) -> int:
    return await waiting.using(id=f"{gate}-child")(gate)


@workflow
async def parent_working(gate: str) -> str:
    return await working.using(id=f"{gate}-child")(gate)


@workflow
async def parent_booking(gate: str) -> None:
    await booking.using(id=f"{gate}-child")(gate)


@workflow
async def parent_refused(gate: str) -> str:
    return await refused(gate)
