"""Nightly pipeline: each banking day is loaded once, by its schedule or by a backfill."""

from __future__ import annotations

import asyncio
import json
from datetime import date
from pathlib import Path

from examples import rates
from holdfast import Holdfast
from holdfast.schedules import every
from holdfast.testing.sim import Sim


def test_two_weeks_with_easter_load_the_banking_days(tmp_path: Path) -> None:
    """Virtual time plays the schedule, and the runs know their day."""
    assert rates.BANK_HOLIDAYS.stored.has(date(2026, 4, 3))
    with Sim() as sim:
        sim.advance(days=14)
        fires = sim.ask(lambda hf: hf.schedules.fires("rates", 50))
        days = [fire.at.astimezone(rates.OSLO).date() for fire in reversed(fires)]
        assert len(days) in {9, 10}
        assert all(day.weekday() < 5 and not rates.BANK_HOLIDAYS.stored.has(day) for day in days)
        newest = sim.ask(lambda hf: hf.run(fires[0].run or "", rates.load_rates).result(1))
        assert newest.day == days[-1]
        assert sim.calls(rates.write)[-1].args[0] == newest.day


async def test_a_backfill_loads_the_days_before_the_schedule(store_url: str, tmp_path: Path) -> None:
    """Easter is left out: it is in the calendar."""
    async with Holdfast(store_url) as hf:
        plan = every("0 3 * * 1-5", tz="Europe/Oslo", skip=rates.BANK_HOLIDAYS, name="old-rates")
        await hf.schedules.create(plan, rates.load_rates, str(tmp_path))
        begun = await hf.schedules.backfill("old-rates", "2026-04-01", "2026-04-09", most=2)
        async with asyncio.timeout(60):
            while (await hf.schedules.backfills("old-rates"))[0].ended_at is None:  # noqa: ASYNC110  the store knows
                await asyncio.sleep(0.05)
        assert (await hf.schedules.backfills("old-rates"))[0].id == begun.id
    loaded = {
        path.stem: json.loads(path.read_text())["day"]
        for path in tmp_path.glob("*.json")  # noqa: ASYNC240  a few small files
    }
    assert sorted(loaded) == ["2026-04-01", "2026-04-07", "2026-04-08"]
    assert all(name == day for name, day in loaded.items())
