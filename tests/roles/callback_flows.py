"""Workflows with steps whose result another system gives. What the steps hand on is kept here."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import msgspec

from holdfast import here, saga, step, workflow
from holdfast.errors import StepFailed
from holdfast.policy import Retry

HANDED: dict[str, list[str]] = defaultdict(list)
"""The addresses that the steps of each run handed on."""
KEYS: dict[str, list[str]] = defaultdict(list)
UNDONE: dict[str, list[object]] = defaultdict(list)
GATES: dict[str, asyncio.Event] = {}
"""A run that has one here does not return from its request before it is set."""
GO = asyncio.Event()
"""When it is set, `fails_once` fails."""
FAILS: dict[str, int] = defaultdict(int)
"""How many attempts of a run's request raise after they handed the address on."""


class Paid(msgspec.Struct):
    receipt: str
    cents: int = 0


async def hand_on() -> None:
    HANDED[here.run_id].append(here.callback)
    KEYS[here.run_id].append(here.key)
    if FAILS[here.run_id] > 0:
        FAILS[here.run_id] -= 1
        raise ConnectionError("the answer to the request was lost")
    if here.run_id in GATES:
        await GATES[here.run_id].wait()


@step(callback=True, retry=Retry(attempts=3, delay=0.01))
async def charge(card: str) -> Paid:
    await hand_on()
    return here.later()


@charge.undo(retry=Retry(attempts=3, delay=0.01))
async def refund(paid: Paid | None, card: str) -> None:
    UNDONE[here.run_id].append((paid, card, here.undoes))


@step(callback=True, expires=0.2, retry=Retry(attempts=2, delay=0.01))
async def impatient(card: str) -> Paid:
    await hand_on()
    return here.later()


@impatient.undo
async def unpay(paid: Paid | None, card: str) -> None:
    UNDONE[here.run_id].append((paid, card))


@step(callback=True)
def plainly(card: str) -> Paid:
    HANDED[here.run_id].append(here.callback)
    return here.later()


@step
async def breaks() -> None:
    raise ValueError("it breaks")


@step
async def without() -> str:
    return here.callback


@step(callback=True)
async def ask_once(card: str) -> Paid:
    await hand_on()
    return here.later()


@step(retry=1)
async def fails_once() -> None:
    await GO.wait()
    if "~" not in here.run_id and "fork" not in here.run_id:
        raise ValueError("once")


@workflow
async def asks_plainly(end: str) -> Paid:
    if end == "cancelled":
        return await ask_once(end)
    paid, _ = await asyncio.gather(ask_once(end), fails_once())
    return paid


@workflow
async def pays(card: str) -> Paid:
    return await charge(card)


@workflow
async def pays_and_breaks(card: str) -> Paid:
    paid = await charge(card)
    await breaks.using(retry=1)()
    return paid


@workflow
async def pays_in_time(card: str) -> Paid:
    return await impatient(card)


@workflow
async def pays_plainly(card: str) -> Paid:
    return await plainly(card)


@workflow
async def pays_twice(card: str) -> list[str]:
    first, second = await asyncio.gather(charge(card), charge("other"))
    return [first.receipt, second.receipt]


@workflow
async def pays_in_a_saga(card: str) -> str:
    try:
        async with saga():
            await charge(card)
            await breaks.using(retry=1)()
    except StepFailed:
        return "failed"
    except ValueError:
        return "undone"
    return "paid"


@workflow
async def gives_up(card: str) -> str:
    try:
        async with asyncio.timeout(2.0):
            await charge(card)
    except TimeoutError:
        return "gave up"
    return "paid"


@workflow
async def looks_without() -> str:
    return await without.using(retry=1)()
