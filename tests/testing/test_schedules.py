"""Schedules in tests of users: virtual time plays them."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model import RunState
from holdfast.store.reads import RunFilter
from holdfast.testing.sim import Sim
from tests.testing.schedule_flows import count_stock


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
