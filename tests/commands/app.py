"""The program that the tests of the command line run. Each test has a copy in its own folder."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast import Refused, Retry, Signal, Stop, Update, here, publish, set_progress, step, workflow


@dataclass
class Card:
    number: str
    cents: int


paid = Signal("paid", int)


def effect(name: str) -> None:
    """Do something that the world sees: write one line each time."""
    with Path("effects").open("a") as file:
        file.write(f"{name}\n")


def is_open() -> bool:
    """True once the test has opened the gate."""
    return Path("open").exists()


@step
async def first() -> int:
    effect("first")
    return 1


@step
async def gate() -> int:
    effect("gate")
    while not is_open():  # noqa: ASYNC110  it is a file
        await asyncio.sleep(0.01)
    return 2


@step
def last(a: int, b: int) -> int:
    effect("last")
    return a + b


@workflow
async def gated(x: int = 0) -> int:
    a = await first()
    b = await gate()
    return x + await last(a, b)


@workflow
async def failing(why: str = "no such thing") -> None:
    await first()
    raise Stop(why)


@step(retry=Retry(attempts=3, delay=0.01, jitter="none"))
async def flaky() -> int:
    if here.attempt < 3:
        raise ConnectionError(f"line {here.attempt} broke")
    return here.attempt


@step(retry=Retry(attempts=3, delay=3600, jitter="none"))
async def patient() -> int:
    effect("patient")
    if not is_open():
        raise ConnectionError("not now")
    return 3


@workflow
async def waits_an_hour() -> int:
    return await patient()


@workflow
async def child(n: int) -> int:
    return n * await last(1, 1)


async def branch(n: int) -> int:
    return await last(n, await last(n, 0))


@workflow
async def everything(n: int = 2) -> list[int]:
    set_progress(0.5, "half way")
    publish("phase", "middle")
    both = await asyncio.gather(*(branch(i) for i in range(n)), flaky(), child(4))
    return [*both, await paid.wait()]


@workflow
async def pays(card: Card, tip: int = 0) -> int:
    return card.cents + tip


@step(needs=["gpu"])
async def rendered() -> str:
    return "a picture"


@workflow
async def render() -> str:
    return await rendered()


@step
def noisy() -> str:
    print("printed by a step")
    subprocess.run([sys.executable, "-c", "print('printed by a program')"], check=True)
    return "quiet"


@workflow
async def noise() -> str:
    sys.stdout.write("printed by a workflow\n")  # Holdfast warns of print() in a workflow
    return await noisy()


@step
def stubborn() -> None:
    effect("stubborn")
    time.sleep(60)


@workflow
async def endless() -> None:
    await stubborn()


@step
async def nothing(n: int) -> int:
    return n


@workflow
async def wide(n: int) -> int:
    return len(await asyncio.gather(*(nothing(i) for i in range(n))))


@step
async def booked() -> str:
    effect("booked")
    return "b1"


@booked.undo(retry=Retry(attempts=1))
async def unbooked(done: str | None) -> None:
    if not is_open():
        raise Stop("the desk is closed")
    effect(f"unbooked-{done}")


@step
async def announced() -> None:
    effect("announced")


@workflow
async def undoes_itself() -> None:
    await booked()
    await announced()
    raise ValueError("sold out")


@step(isolate=True, retry=Retry(losses=0))
def fragile(value: int) -> int:
    effect("fragile")
    if not is_open():
        os._exit(3)
    return value


@workflow
async def breaks(value: int = 7) -> int:
    return await first() + await fragile(value)


@workflow
async def nested(n: int) -> int:
    await first()
    return await held_child(n) + await child(n)


@workflow
async def held_child(n: int) -> int:
    await asyncio.sleep(0.2)
    return n + await gate() + await flaky()


@step
async def restless() -> None:
    effect("restless")
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            effect("asked")


@workflow
async def never() -> None:
    await restless()


change = Update("change", int, str)


@workflow
async def changes() -> list[int]:
    """Serve changes until it is paid."""
    made: list[int] = []

    def serve(to: int) -> str:
        if to < 0:
            raise Refused("only upwards")
        if to > 99:
            raise LookupError("too far")
        made.append(to)
        return f"now {to}"

    async with change.serve(serve):
        await paid.wait()
    return made
