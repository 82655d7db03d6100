"""An order that changes its address while it is being shipped.

    holdfast run examples/shipping.py:ship --id order-7 --input '{"street": "Quay 1"}'     # in one terminal
    holdfast update order-7 change_address --data '{"street": "Quay 2"}' --key change-1   # in another one
    holdfast signal order-7 picked_up --data '"truck 9"'

While the parcel waits for its truck, the address can be changed: a new label is printed, and the customer gets a
confirmation. The same key is the same change, however often it is sent. Afterwards it is too late, and the run says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast import Refused, Signal, Update, here, publish, step, workflow


@dataclass
class Address:
    street: str


@dataclass
class Confirmation:
    label: str
    changes: int
    """How often the address was changed so far."""


change_address = Update("change_address", Address, Confirmation)
picked_up = Signal("picked_up", str)


@step
async def print_label(street: str) -> str:
    return f"{street} [{here.key}]"  # the printer knows by the key that it was asked before


@print_label.undo
async def shred_label(label: str | None, street: str) -> None:
    print(f"shred what was printed under {here.undoes}")


@step
async def hand_over(label: str, truck: str) -> str:
    return f"{truck} has {label}, receipt {here.key}"


@workflow
async def ship(street: str = "Quay 1") -> str:
    address, changes = Address(street), 0
    label = await print_label(street)

    def check(to: Address) -> None:
        if to == address:
            raise Refused(f"the parcel goes to {to.street} already")

    async def change(to: Address) -> Confirmation:
        nonlocal address, label, changes
        label = await print_label(to.street)
        address, changes = to, changes + 1
        publish("address", address)
        return Confirmation(label, changes)

    async with change_address.serve(change, check=check):
        publish("address", address)
        truck = await picked_up.wait()
    return await hand_over(label, truck)  # nothing serves the address any more
