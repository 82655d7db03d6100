"""A report begins when a file, the rates and the hour have come, once a day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from examples.morning import report, send
from holdfast import InvalidInput
from holdfast.testing.sim import Sim

OSLO = ZoneInfo("Europe/Oslo")
POSITIONS, RATES = {"path": "positions.csv", "rows": 3}, {"eur": 11.6, "usd": 10.9}


def before_eight(sim: Sim) -> str:
    """Go on to half past seven of the next working day, and return that day."""
    now = datetime.fromtimestamp(sim.ask(lambda hf: hf.now()), UTC).astimezone(OSLO)
    then = now.replace(hour=7, minute=30, second=0, microsecond=0) + timedelta(days=1)
    while then.weekday() > 4:
        then += timedelta(days=1)
    sim.advance(seconds=(then - now).total_seconds())
    return f"{then:%Y-%m-%d}"


def test_the_report_begins_when_all_has_come(sim: Sim) -> None:
    """In any order, and however often it is sent."""
    day = before_eight(sim)
    for _ in range(2):
        sent = sim.emit("rates.published", RATES, subject=day, source="bank", id=day)
        assert sent.collected == [f"report@when:{day}"]
    sim.advance(hours=1)
    (waiting,) = [one for one in sim.ask(lambda hf: hf.triggers.occasions()) if one.value == day]
    assert waiting.missing == ["positions"]
    sent = sim.emit("positions.delivered", POSITIONS, subject=day)
    assert sent.started == [f"report@when:{day}"]
    result = sim.ask(lambda hf: hf.run(f"report@when:{day}", report).result(1))
    assert result == f"report of {day}: 3 positions in 2 currencies"
    assert sim.emit("positions.delivered", POSITIONS, subject=day).late == [f"report@when:{day}"]
    assert len(sim.calls(send)) == 1


def test_the_hour_may_be_the_last_part(sim: Sim) -> None:
    day = before_eight(sim)
    sim.emit("rates.published", RATES, subject=day)
    sim.emit("positions.delivered", POSITIONS, subject=day)
    assert sim.calls(send) == []
    sim.advance(hours=1)
    assert len(sim.calls(send)) == 1


def test_people_get_an_alert_if_something_is_missing(sim: Sim) -> None:
    day = before_eight(sim)
    sim.emit("rates.published", RATES, subject=day)
    sim.advance(hours=3)
    done = sim.ask(lambda hf: hf.triggers.occasion(f"report@when:{day}"))
    assert (done.state, done.note) == ("expired", "missing: positions")
    alerts = sim.ask(lambda hf: hf.store.alerts.open_alerts(9))
    assert f"occasion report@when:{day} was not complete in time" in alerts[0].message


def test_rates_that_are_no_rates_are_refused(sim: Sim) -> None:
    with pytest.raises(InvalidInput, match="does not fit the trigger report: rates"):
        sim.emit("rates.published", {"eur": "much"}, subject="2026-11-16")
