"""A virtual year of schedules, with two leaders that die around fires: each time one fate, each start one run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest

from holdfast.config import DEFAULT
from holdfast.environment import Environment
from holdfast.model import FireFate, NewSchedule
from holdfast.store import open_store
from holdfast.store.schedules import SeenSchedule
from holdfast.store.store import Store
from holdfast.supervisor.schedules import ScheduleKeeper, decision_of
from holdfast.times import Plan
from holdfast.times.plan import read_plan
from tests.store.conftest import run_sql

DAY, HOUR = 86_400.0, 3600.0
BEGIN = 1_767_225_600.0
"""2026-01-01 in UTC."""
ZONES = ("UTC", "Europe/Oslo", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca")
TIMES = (
    "@hourly",
    "0 3 * * *",
    "30 2 * * *",
    "*/30 2 * * *",
    "0 */6 * * *",
    "0 9 * * 1-5",
    "6h",
    "0 0 L * *",
    "30 0 * * 0",
)


OFTEN = ("* * * * *", "30s", "*/5 * * * *", "45s", "7 * * * *", "90s", "0 */2 * * *")
"""Times of a single day."""


class SetClock(Environment):
    """A clock that the test moves."""

    at = BEGIN

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at - BEGIN


def plans(dice: Random, times: Sequence[str]) -> Iterator[tuple[str, Plan]]:
    for number in range(20):
        plan = Plan(
            times[number % len(times)],
            zone=dice.choice(ZONES),
            overlap=dice.choice(("skip", "buffer_one", "buffer_all", "allow")),
            missed=dice.choice(("once", "skip")),
            jitter_s=dice.choice((0.0, 0.0, 600.0)),
        )
        yield f"s{number}", plan


class Leaders:
    """Two leaders, of which one believes to lead for longer than it does."""

    def __init__(self, store: Store, dice: Random) -> None:
        self._store, self._dice = store, dice
        self._number, self.restarts = 0, 0
        self.epoch = 0
        self.scheduling = ScheduleKeeper(store, DEFAULT)

    async def restart(self) -> None:
        """The leader dies, and another one takes over."""
        await self._store.leader.resign(f"leader-{self._number}")
        self._number += 1
        self.restarts += 1
        led = await self._store.leader.lead(f"leader-{self._number}", 400 * DAY)
        assert led is not None
        self.epoch, self.scheduling = led, ScheduleKeeper(self._store, DEFAULT)

    async def die_between_look_and_write(self, names: list[str], now: float) -> None:
        """The old leader has looked; the new one decides; then the old one writes."""
        seen: list[SeenSchedule] = await self._store.schedules.seen(names)
        late, old = [decision_of(one, now) for one in seen], self.epoch
        await self.restart()
        if self._dice.random() < 0.5:
            await self.scheduling.fire(self.epoch)
        assert await self._store.schedules.fire(old, late) == 0, "a deposed leader started something"


async def play(
    folder: Path,
    days: float,
    restarts: int,
    seed: int,
    *,
    begin: float = BEGIN,
    texts: Sequence[str] = TIMES,
    every_s: float = math.inf,
) -> int:
    """Play schedules for so many days. Leaders die at some of the times, and once every `every_s`. Return how many died."""
    dice, clock = Random(seed), SetClock()
    clock.at = begin
    url = f"sqlite:///{folder / 'year.db'}"
    store = open_store(url, clock)
    await store.open()
    made = dict(plans(dice, texts))
    for name, plan in made.items():
        text = msgspec.json.encode(plan).decode()
        await store.schedules.create_schedule(NewSchedule(name, "app.w", "1", b"{}", b"d", text), "test")
    leaders = Leaders(store, dice)
    await leaders.restart()
    end = begin + days * DAY
    share = restarts / (days * 40)
    death = begin + every_s
    while clock.at < end:
        looks = await store.schedules.schedule_looks("", 500)
        is_time = clock.at >= death
        if looks.names and (is_time or dice.random() < share):
            await leaders.die_between_look_and_write(looks.names, clock.at)
        elif is_time:
            await leaders.restart()
        death += every_s if is_time else 0.0
        await leaders.scheduling.fire(leaders.epoch)
        if dice.random() < 0.05:
            run_sql(
                url,
                f"UPDATE runs SET state = 'succeeded', finished_at = {clock.at} WHERE finished_at IS NULL",
            )
        looks = await store.schedules.schedule_looks("", 500)
        step = 0.0 if looks.names or looks.next_at is None else min(looks.next_at, death) - clock.at
        clock.at += max(step, 0.001)
        if dice.random() < 0.001 and every_s == math.inf:
            clock.at += dice.choice((0.5, 30.0, 72.0)) * HOUR  # nobody led for a while
    wrong = 0
    for name, plan in made.items():
        row = await store.schedules.schedule(name)
        assert row is not None
        fires = await store.schedules.fires(name, limit=100_000)
        decided: list[float] = []
        for fire in sorted(fires, key=lambda one: one.at):
            times = list(read_plan(row.plan).between(fire.at - 1, fire.last_at))
            assert len(times) == fire.times
            decided += times
        wrong += decided != list(plan.between(row.created_at, row.cursor))
        started = [fire.run_id for fire in fires if fire.fate is FireFate.STARTED]
        ids = [one or "" for one in started]
        assert len(set(ids)) == len(ids)
        for first in range(0, len(ids), 500):
            assert await store.schedules.taken_ids(ids[first : first + 500]) == set(ids[first : first + 500])
    assert wrong == 0
    assert leaders.restarts >= restarts / 2
    await store.close()
    return leaders.restarts


async def test_ten_virtual_days_with_two_leaders_have_one_fate_for_each_time(tmp_path: Path) -> None:
    """Twenty schedules in five zones; leaders die between look and write. Clocks are set forward on the fifth day."""
    assert await play(tmp_path, 10, 20, 1, begin=BEGIN + 83 * DAY) >= 10


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_virtual_year_with_500_restarts_has_one_fate_for_each_time(tmp_path: Path) -> None:
    """Also over all changes of the clocks in these zones."""
    assert await play(tmp_path, 365, 500, 7) >= 250


@pytest.mark.parametrize("hours", [1, pytest.param(24, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
async def test_a_day_with_a_restart_every_30_s_has_one_fate_for_each_time(tmp_path: Path, hours: int) -> None:
    """The old leader has often looked already, and writes too late."""
    assert await play(tmp_path, hours / 24, 0, 3, texts=OFTEN, every_s=30.0) >= 120 * hours
