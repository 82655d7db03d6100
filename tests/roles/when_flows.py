"""A workflow that several events and a time start together."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import msgspec

from holdfast import Holdfast, workflow
from holdfast.events import all_of, any_of, several, when
from holdfast.schedules import every, occasion


class Rates(msgspec.Struct):
    eur: float


class Arrived(msgspec.Struct):
    rates: Rates
    files: list[str]


@workflow(name="when.digest")
async def report(arrived: Arrived) -> str:
    here = occasion()
    assert here is not None
    return f"{here.schedule} {here.value}: {arrived.rates.eur} {arrived.files}"


when(all_of(rates="rates.published", files=several("file.arrived", 2)), within=timedelta(hours=2))(report)


@workflow(name="when.first")
async def first(arrived: dict[str, Any]) -> list[str]:
    return sorted(arrived)


when(any_of("phone.rang", "mail.came"), by="data.customer", within=60, otherwise="skip")(first)


@workflow(name="when.ticks")
async def ticks(arrived: dict[str, Any]) -> list[str]:
    return sorted(arrived)


when(
    all_of("tick.wanted", tick=every("1s")),
    by="data.year",
    time_as="%Y",
    within=timedelta(hours=2),
    otherwise="run",
)(ticks)


async def send(url: str, type: str, many: int) -> None:
    """Send events of a type, one for each of so many occasions, from a process of its own."""
    async with Holdfast(url, roles=()) as hf:
        print("up", flush=True)
        sys.stdin.readline()
        for i in range(many):
            data: Any = {"eur": 1.5} if type == "rates.published" else f"{type} {i}"
            for number in range(1 if type == "rates.published" else 2):
                await hf.emit(type, data, subject=f"d{i}", source=type, id=f"{i}.{number}")
            print(i, flush=True)


if __name__ == "__main__":
    import asyncio

    asyncio.run(send(sys.argv[1], sys.argv[2], int(sys.argv[3])))
