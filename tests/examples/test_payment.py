"""Events: an order is one run, and a payment ends its wait."""

from __future__ import annotations

import pytest

from examples.payment import Order, Payment, fulfil, put_back, ship
from holdfast.errors import RunUndone
from holdfast.testing.sim import Sim

ORDER = Order("order-42", 900)


def started(sim: Sim, **more: str) -> str:
    (run,) = sim.emit("order.created", ORDER, source="shop", id="1", **more).started
    return run


def test_a_paid_order_is_shipped_once(sim: Sim) -> None:
    """However often the shop and the bank send their events."""
    run = started(sim)
    assert started(sim) == run
    for _ in range(3):
        sent = sim.emit("payment.received", Payment(900), subject="order-42", source="bank", id="77")
        assert sent.woke == [run]
    assert sim.ask(lambda hf: hf.run(run, fulfil).result(1)) == "parcel of order-42"
    assert len(sim.calls(ship)) == 1


@pytest.mark.parametrize("cents", [None, 100])
def test_what_is_not_paid_for_goes_back(sim: Sim, cents: int | None) -> None:
    run = started(sim)
    if cents is None:
        sim.advance(days=4)
    else:
        sim.emit("payment.received", Payment(cents), subject="order-42")
    with pytest.raises(RunUndone, match="order-42"):
        sim.ask(lambda hf: hf.run(run).result(1))
    assert len(sim.calls(put_back)) == 1
