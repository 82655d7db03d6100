"""An order that survives anything, and one that does not: what `holdfast simulate` is for.

    holdfast simulate examples/order.py:order            finds nothing, and says how many boundaries were tried
    holdfast simulate examples/order.py:careless_order   names the step that runs twice, and where

Both charge a card and book a parcel. `charge` passes its `here.key` to the bank. So the bank recognises a request for
what it has already done. `charge_carelessly` does not: when its process dies after the bank has answered and before the
answer is recorded, the card is charged twice.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from holdfast import Holdfast, here, keep, step, workflow


@dataclass
class Charge:
    id: str
    cents: int


class Bank:
    """A service of somebody else. It recognises a repeated request by its key, if it gets one."""

    def __init__(self) -> None:
        self.charges: dict[str, Charge] = {}

    def charge(self, card: str, cents: int, key: str | None = None) -> Charge:
        name = key or f"{card}-{len(self.charges) + 1}"
        return self.charges.setdefault(name, Charge(name, cents))

    def refund(self, key: str) -> None:
        self.charges.pop(key, None)


bank = Bank()
parcels: set[str] = set()


@step
async def charge(card: str, cents: int) -> Charge:
    return bank.charge(card, cents, key=here.key)


@charge.undo
async def refund(done: Charge | None, card: str, cents: int) -> None:
    bank.refund(here.undoes)


@step
async def charge_carelessly(card: str, cents: int) -> Charge:
    return bank.charge(card, cents)


@step
async def book_parcel(item: str) -> str:
    parcels.add(here.key)
    return here.key


@book_parcel.undo
async def cancel_parcel(done: str | None, item: str) -> None:
    parcels.discard(here.undoes)


@step
def notify(parcel: str) -> None:
    print(f"parcel {parcel} is on its way, message {here.key}")


@workflow
async def order(card: str = "tok_1", item: str = "lamp") -> str:
    _, parcel = await asyncio.gather(charge(card, 300), book_parcel(item))
    keep()  # from here on the customer has it: nothing is undone
    await asyncio.sleep(24 * 3600)
    await notify(parcel)
    return parcel


@workflow
async def careless_order(card: str = "tok_1", item: str = "lamp") -> str:
    parcel = await book_parcel(item)
    await charge_carelessly(card, 300)
    return parcel


async def main() -> None:
    async with Holdfast("sqlite:///holdfast.db") as hf:
        run = await hf.start(careless_order, *sys.argv[1:2])
        print("parcel", await run.result(timeout=60))


if __name__ == "__main__":
    asyncio.run(main())
