"""Workflows that events start and wake."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec

from holdfast import Signal, continue_as_new, step, workflow
from holdfast.events import Event


class Order(msgspec.Struct):
    id: str
    cents: int


class Payment(msgspec.Struct):
    cents: int


paid = Event("payment.received", Payment)
by_path = Event("payment.received", Payment, by="data.order.id")
go_on = Signal("go_on", bool)
effects: list[str] = []


@step
async def note(text: str) -> str:
    effects.append(text)
    return text


@workflow(name="events.ship", on="order.created")
async def ship(order: Order, express: bool = False) -> str:
    return await note(f"{order.id} for {order.cents}")


@workflow(name="events.announce", on=("order.created", "order.changed"))
async def announce(order: Order) -> str:
    return await note(f"announced {order.id}")


@workflow(name="events.collect")
async def collect(order: str, timeout_s: float | None = None) -> int:
    await note(f"waits for {order}")
    try:
        payment = await paid.wait(order, timeout=timeout_s)
    except TimeoutError:
        return -1
    return payment.cents


@workflow(name="events.collect_by_path")
async def collect_by_path(order: int) -> int:
    return (await by_path.wait(order, timeout=timedelta(minutes=5))).cents


@workflow(name="events.several")
async def several(order: str, many: int) -> list[int]:
    return [(await paid.wait(order)).cents for _ in range(many)]


@workflow(name="events.both")
async def both(order: str) -> list[int]:
    found = await asyncio.gather(paid.wait(order), paid.wait(order))
    return sorted(one.cents for one in found)


@workflow(name="events.late")
async def late(order: str) -> list[int]:
    """Take one event, and two more after a signal."""
    got = [(await paid.wait(order)).cents]
    await note(f"has {got}")
    await go_on.wait()
    return [*got, (await paid.wait(order)).cents, (await paid.wait(order)).cents]


@workflow(name="events.count_on")
async def count_on(order: str, seen: list[int]) -> list[int]:
    """Take one event in each generation."""
    seen = [*seen, (await paid.wait(order)).cents]
    if len(seen) < 4:
        await note(f"generation {len(seen)}")
        continue_as_new(order, seen)
    return seen
