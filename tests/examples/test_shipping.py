"""An order that changes its address: one change a key, in time or not at all."""

import pytest

from examples.shipping import (
    Address,
    Confirmation,
    change_address,
    hand_over,
    picked_up,
    print_label,
    ship,
)
from holdfast import Holdfast, Refused
from holdfast.errors import WrongState
from holdfast.testing import Sim


async def test_the_address_changes_while_the_parcel_waits(store_url: str) -> None:
    """The customer gets a confirmation, the same one for the same key. What changes nothing is refused, and when the
    order has ended it is too late."""
    async with Holdfast(store_url) as hf:
        run = await hf.start(ship.using(id="order-7"), "Quay 1")
        for _ in range(2):
            answer = await change_address.call("order-7", Address("Quay 2"), key="change-1", timeout=60)
            assert answer == Confirmation("Quay 2 [order-7::change_address/print_label]", 1)
        with pytest.raises(Refused, match="goes to Quay 2 already"):
            await change_address.call("order-7", Address("Quay 2"), key="change-2", timeout=60)
        assert await run.published("address", Address) == Address("Quay 2")
        await picked_up.send("order-7", "truck 9")
        assert (await run.result(timeout=60)).startswith("truck 9 has Quay 2 ")
        with pytest.raises(WrongState, match="has ended"):
            await change_address.call("order-7", Address("Quay 3"), timeout=60)


def test_the_order_survives_every_crash() -> None:
    """Wherever the process dies, the label of a change is printed once."""
    with Sim() as sim:
        sim.will_call(change_address, Address("Quay 2"))
        sim.will_send(picked_up, "truck 9")
        report = sim.using(final=[hand_over]).crash_everywhere(ship, "Quay 1")
        assert report.ok, report
        assert report.effects(print_label) == {1}
