"""Schedules in tests of users: virtual time plays them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.errors import UnknownSchedule
from holdfast.model import AlertKind, RunState
from holdfast.store.reads import RunFilter
from holdfast.testing.sim import Sim
from tests.testing.schedule_flows import count_stock, promised


def test_a_virtual_week_plays_a_daily_schedule() -> None:
    """Each time starts one run, which knows its time and the result before it. A holiday is left out."""
    with Sim() as sim:
        begun = sim.now
        sim.advance(days=7)
        fires = sim.ask(lambda hf: hf.schedules.fires("nightly", 50))
        assert [fire.fate for fire in fires] == ["started"] * len(fires)
        assert 5 <= len(fires) <= 7
        days = {fire.at.strftime("%m-%d") for fire in fires}
        assert not days & {"01-01", "01-02"} or begun.year != 2026
        assert all(begun < fire.at <= begun + timedelta(days=7) for fire in fires)
        runs = sim.ask(lambda hf: hf.store.reads.runs(RunFilter(limit=50)))
        assert {run.state for run in runs} == {RunState.SUCCEEDED}
        assert len(runs) == len(fires)
        assert len(sim.calls(count_stock)) == len(fires)
        newest = (runs[0].output or b"").decode()
        assert newest == f'"{fires[0].at:%m-%d} after {fires[1].at:%m-%d}"'


def test_a_paused_schedule_is_not_played() -> None:
    """What passed was missed, and one row says so."""
    with Sim() as sim:
        sim.advance(seconds=60)
        sim.ask(lambda hf: hf.schedules.pause("nightly"))
        sim.advance(days=3)
        sim.ask(lambda hf: hf.schedules.resume("nightly"))
        (fire,) = sim.ask(lambda hf: hf.schedules.fires("nightly"))
        assert (fire.fate, fire.times) == ("missed", 3)


def test_virtual_time_plays_promises() -> None:
    """A run that is open at its due time is warned of then, and the alert is gone after it has ended. Its page says that it was
    late."""
    with Sim() as sim:
        run = sim.start(promised, 3.0)
        sim.advance(hours=30)
        assert sim.ask(lambda hf: hf.store.alerts.open_alerts_of(AlertKind.RUN_LATE, 0, 9)) == []
        sim.advance(days=1)
        (alert,) = sim.ask(lambda hf: hf.store.alerts.open_alerts_of(AlertKind.RUN_LATE, 0, 9))
        row = sim.ask(lambda hf: hf.run(run.id).info())
        assert row.due_at is not None
        assert abs(alert.at - row.due_at.timestamp()) < 1
        sim.advance(days=2)
        assert run.state is RunState.SUCCEEDED
        assert sim.ask(lambda hf: hf.store.alerts.open_alerts_of(AlertKind.RUN_LATE, 0, 9)) == []
        assert "late." in run.why()


def test_a_schedule_shows_its_next_times_and_what_became_of_others() -> None:
    """From the first moment, and by its name. An unknown name is refused."""
    with Sim() as sim:
        nightly = sim.schedule("nightly")
        kept = [one.at for one in nightly.preview(6) if not one.note]
        assert {at.strftime("%H:%M") for at in kept} == {"03:00"}
        sim.advance(days=5)
        assert {fire.at for fire in nightly.fires()} == {at for at in kept if at < sim.now}
        assert nightly.run().fate == "started"
        with pytest.raises(UnknownSchedule, match="weekly"):
            sim.schedule("weekly")
