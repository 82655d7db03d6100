"""Orders, whose steps two agents execute. Only the scheduler and the server know the database: see README.md."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast import here, step, workflow

LEDGER = Path(os.environ.get("LEDGER", "ledger.txt"))
"""What a bank and a carrier would keep: one line for each effect, with its key."""


@step(name="orders.charge", retry=5, timeout=60)
async def charge(order: str, cents: int) -> str:
    _note("charge", order)
    return f"{order} paid {cents}"


@charge.undo
async def refund(receipt: str | None, order: str, cents: int) -> None:
    _note("refund", order)


@step(name="orders.pack", retry=5)
async def pack(order: str, item: int) -> str:
    await asyncio.sleep(0.05)
    _note(f"pack-{item}", order)
    return f"{order}/{item}"


@workflow(name="orders.order")
async def order(order: str, cents: int, items: int = 3) -> list[str]:
    await charge(order, cents)
    return list(await asyncio.gather(*(pack.using(key=str(item))(order, item) for item in range(items))))


def _note(what: str, order: str) -> None:
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{here.key} {what} {order} {os.getpid()}\n")
