"""Nightly pipeline: exchange rates of every banking day, by a schedule with a holiday calendar, and a backfill.

    holdfast up examples/rates.py
    holdfast schedules preview rates
    holdfast schedules backfill rates --from 2026-04-01 --to 2026-04-10 --dry-run

What it shows:
- `every(…)` beside the workflow: weekdays at 03:00 in Oslo, apart from bank holidays;
- the day comes from `occasion()`, so a backfill loads the days that it is for, and not today's;
- up to five nights that were missed, because nothing ran, are made up for, one after the other;
- loading a day twice writes it once.

Files go to work/rates.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from zoneinfo import ZoneInfo

from holdfast import Stop, step, workflow
from holdfast.schedules import Calendar, every, occasion

OSLO = ZoneInfo("Europe/Oslo")
BANK_HOLIDAYS = Calendar(
    "norway",
    days=[
        "2026-04-02", "2026-04-03", "2026-04-06", "2026-05-01", "2026-05-14", "2026-05-25", "2026-12-25",
        "2027-01-01", "2027-03-25", "2027-03-26", "2027-03-29", "2027-05-06", "2027-05-17",
    ],
    until="2027-12-31",
)  # fmt: skip


@dataclass(frozen=True)
class Rates:
    day: date
    eur: float
    file: str


@step
def fetch(day: date) -> float:
    """Ask the bank for the rate of a day. This one makes it up from the day."""
    return 11.0 + (day.toordinal() % 100) / 100


@step
def write(day: date, eur: float, folder: str) -> str:
    """Write one file for each day. Writing it again writes the same."""
    path = Path(folder, f"{day}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"day": day.isoformat(), "eur": eur}))
    return str(path)


@workflow
async def load_rates(folder: str = "work/rates") -> Rates:
    here = occasion()
    if here is None:
        raise Stop("start it by its schedule: holdfast schedules run rates")
    day = here.at.astimezone(OSLO).date()
    eur = await fetch(day)
    return Rates(day, eur, await write(day, eur, folder))


every(
    "0 3 * * 1-5",
    tz="Europe/Oslo",
    skip=BANK_HOLIDAYS,
    jitter=60,
    overlap="buffer_all",
    missed=5,
    window=7 * 86_400,
    pause_after=3,
    name="rates",
)(load_rates)
