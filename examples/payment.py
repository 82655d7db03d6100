"""Events: an order begins by one, and waits for that of its payment.

    holdfast up examples/payment.py
    holdfast emit order.created --data '{"id": "order-42", "cents": 900}' --source shop --id 1
    holdfast emit payment.received --subject order-42 --data '{"cents": 900}' --source bank --id 77

What it shows:
- `on="order.created"`: each order is one run, however often the shop sends its event;
- `paid.wait(order.id)`: the payment may come before the run waits for it, and is not missed;
- without a payment within three days, the goods go back: what was done is undone.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from holdfast import Stop, step, workflow
from holdfast.events import Event


@dataclass(frozen=True)
class Order:
    id: str
    cents: int


@dataclass(frozen=True)
class Payment:
    cents: int


paid = Event("payment.received", Payment)
"""The subject of a payment is the order's id."""


@step
def reserve(order: Order) -> str:
    """Put the goods aside."""
    return f"shelf of {order.id}"


@reserve.undo
def put_back(shelf: str | None, order: Order) -> None:
    print(f"{shelf or order.id} is free again")


@step
def ship(order: Order, shelf: str) -> str:
    return f"parcel of {order.id}"


@workflow(on="order.created")
async def fulfil(order: Order) -> str:
    """Reserve, wait for the payment, ship."""
    shelf = await reserve(order)
    try:
        payment = await paid.wait(order.id, timeout=timedelta(days=3))
    except TimeoutError:
        raise Stop(f"{order.id} was not paid for") from None
    if payment.cents < order.cents:
        raise Stop(f"{order.id} costs {order.cents}, and {payment.cents} were paid")
    return await ship(order, shelf)
