"""Outages in tests of users: virtual time passes while no process runs."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from holdfast.errors import HoldfastError
from holdfast.testing.sim import Sim
from tests.testing.outage_flows import poll, waits


def test_after_an_outage_each_policy_makes_up_for_what_it_says() -> None:
    """For three days no process runs. An hourly schedule misses 72 times: none of them is made up for, or the newest, or so many
    of the newest. Each time has its fate, and it goes on afterwards."""
    with Sim() as sim:
        sim.advance(hours=2, minutes=30)
        before = len(sim.calls(poll))
        sim.down(days=3)
        made_up = Counter(call.args[0] for call in sim.calls(poll)[before:])
        assert made_up == {"once": 1, "5": 5, "many": 24}
        for name, number in (("skip", 0), ("once", 1), ("5", 5), ("many", 24)):
            fires = sim.schedule(name).fires(50)
            late = [fire for fire in fires if fire.decided_at - fire.at > timedelta(minutes=1)]
            assert sum(fire.times for fire in late if fire.fate == "missed") == 72 - number
            assert sum(fire.fate == "started" for fire in late) == number
        sim.advance(hours=1)
        assert len(sim.calls(poll)) == before + 30 + 4


def test_what_came_due_in_an_outage_happens_after_it() -> None:
    """A run that slept goes on when there is a process again, and not before."""
    with Sim() as sim:
        run = sim.start(waits)
        begun = sim.now
        sim.down(days=4)
        assert sim.now - begun >= timedelta(days=4)
        assert run.result() == "later"


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf")])
def test_no_time_is_refused(wrong: float) -> None:
    """The message says which call needs a time."""
    with Sim() as sim:
        with pytest.raises(HoldfastError, match=r"down\(\) needs a time above 0"):
            sim.down(wrong)
        with pytest.raises(HoldfastError, match=r"advance\(\) needs a time above 0"):
            sim.advance(wrong)
