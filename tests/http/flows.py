"""Workflows that the tests of the server start."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast import Signal, Update, step, workflow
from holdfast.starts import Batch


@dataclass
class Address:
    street: str
    number: int = 1


paid = Signal("paid", int)
change = Update("change", Address, str)


@step
async def add(a: int) -> int:
    return a + 1


@workflow(name="shop.count")
async def count(a: int, by: float = 1.0, secret: str = "") -> int:
    return await add(a)


@workflow(name="shop.note", batch=Batch("shop:{shop}", size=100, wait=3600))
async def note(shop: str, notes: list[str]) -> int:
    return len(notes)


@workflow(name="shop.pay")
async def pay(cents: int) -> int:
    """Wait for the signal, and serve updates meanwhile."""

    async def changed(to: Address) -> str:
        return f"{to.street} {to.number}"

    async with change.serve(changed):
        return cents + await paid.wait()


@workflow(name="shop.fail")
async def fail() -> None:
    raise ValueError("it failed")


@workflow(name="shop.family")
async def family(a: int) -> int:
    return await count.using(id="child/1")(a)


@workflow(name="shop.announce", on="parcel.sent")
async def announce(order: Address) -> str:
    return order.street


@workflow(name="shop.receive", on="bytes.sent")
async def receive(data: bytes) -> int:
    return len(data)
