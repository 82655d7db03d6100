"""Composed triggers: a report begins when a file, the rates and the hour have come.

    holdfast up examples/morning.py
    holdfast emit positions.delivered --subject 2026-11-16 --data '{"path": "positions.csv", "rows": 3}'
    holdfast emit rates.published --subject 2026-11-16 --data '{"eur": 11.6, "usd": 10.9}'
    holdfast triggers

What it shows:
- `when(all_of(…))`: the parts may come in any order, from anybody, and as often as they like. Each day has one report;
- the time of a day belongs to that day's occasion, and so do the events that have the day as their subject;
- the types of the fields are those of the events' data: what does not fit is refused where it is sent;
- if something is still missing two hours after the first part came, people get an alert.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast import step, workflow
from holdfast.events import all_of, when
from holdfast.schedules import every, occasion


@dataclass(frozen=True)
class Positions:
    path: str
    rows: int


@dataclass(frozen=True)
class Morning:
    """What has arrived, by the names of the parts."""

    eight: datetime
    positions: Positions
    rates: dict[str, float]


@step
def valued(positions: Positions, rates: dict[str, float]) -> str:
    """Value the positions by the rates."""
    return f"{positions.rows} positions in {len(rates)} currencies"


@step
def send(day: str, text: str) -> str:
    return f"report of {day}: {text}"


@workflow
async def report(morning: Morning) -> str:
    """Value the positions of the day, and send the report."""
    here = occasion()
    day = "today" if here is None or here.value is None else here.value
    return await send(day, await valued(morning.positions, morning.rates))


when(
    all_of(
        eight=every("0 8 * * 1-5", tz="Europe/Oslo"),
        positions="positions.delivered",
        rates="rates.published",
    ),
    by="subject",
    within=timedelta(hours=2),
    otherwise="alert",
)(report)
