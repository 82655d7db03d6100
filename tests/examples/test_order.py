"""examples/order.py: an order that survives anything, and one that charges twice."""

from examples import order
from holdfast.testing import Sim


def test_the_order_survives_anything(sim: Sim) -> None:
    """The steps are executed, with a crash at every boundary: there is one charge, one parcel and one message, or none
    of them."""
    report = sim.crash_everywhere(order.order, "tok_1", "lamp")
    assert report.ok, report
    for step in (order.charge, order.book_parcel, order.notify):
        assert report.effects(step) == {1}


def test_the_careless_one_charges_twice(sim: Sim) -> None:
    """The report names the step that charges twice, and nothing else."""
    report = sim.crash_everywhere(order.careless_order, "tok_1", "lamp")
    assert {finding.step for finding in report.findings} == {"examples.order.charge_carelessly"}
    assert report.twice[0].boundary.crash == "after charge_carelessly, before its result is recorded"


def test_the_bank_knows_a_key(sim: Sim) -> None:
    """The report shows what would really happen: the bank has one charge for the order, and two for the careless
    one."""
    sim = sim.using(failures=False)
    where = sim.crash_everywhere(order.careless_order, "tok_7", "lamp").twice[0].boundary
    order.bank.charges.clear()
    sim.using(boundary=where.number).crash_everywhere(order.careless_order, "tok_7", "lamp")
    assert len(order.bank.charges) == 1 + 2  # one of the undisturbed run, and two with the crash
    run = sim.start(order.order, "tok_8", "lamp")
    sim.advance(days=1)
    assert run.result() == f"{run.id}::book_parcel"
    assert f"{run.id}::charge" in order.bank.charges
