"""Schedules from code and by hand, with a real node on a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from holdfast import Holdfast, InvalidInput
from holdfast.errors import Conflict, DefinitionError, UnknownSchedule, WrongState
from holdfast.model import FireFate, RunState, ScheduleState
from holdfast.queues import QueueKey
from holdfast.schedules import Calendar, every
from holdfast.workflow import registry
from tests.roles.conftest import FAST
from tests.roles.schedule_flows import slow_tick, tick


@pytest.fixture(autouse=True)
def no_lines() -> Iterator[None]:
    """Each test declares its own schedules."""
    yield
    registry.schedules.clear()


@pytest.fixture
async def watcher(store_url: str) -> AsyncIterator[Holdfast]:
    """A process that hosts no role."""
    async with Holdfast(store_url, roles=()) as hf:
        yield hf


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await true():  # noqa: ASYNC110  it asks the store
            await asyncio.sleep(0.02)


async def fired(hf: Holdfast, name: str, count: int) -> list[str]:
    """Wait until so many times of a schedule were started and have ended. Return their runs, newest first."""

    async def has() -> bool:
        row = await hf.store.schedules.schedule(name)
        return row is not None and row.started >= count

    await until(has)
    runs = [fire.run for fire in await hf.schedules.fires(name, 100) if fire.run is not None]
    for run in runs:
        await hf.run(run).result(60)
    return runs


async def test_a_line_of_code_starts_runs_that_know_what_they_are_for(store_url: str) -> None:
    """Each knows its schedule, and the result of the newest run that had succeeded."""
    every("1s", name="seconds", overlap="allow")(tick, "hello")
    async with Holdfast(store_url, config=FAST) as hf:
        await fired(hf, "seconds", 1)
        newest, *_ = await fired(hf, "seconds", 3)
        assert await hf.run(newest, tick).result(60) == ["hello", "seconds", "hello"]
        shown = await hf.schedules.get("seconds")
        assert (shown.times, shown.workflow, shown.state) == ("1s", "roles.tick", ScheduleState.ACTIVE)
        assert shown.origin == "holdfast (tests.roles.test_schedules)"
        with pytest.raises(WrongState, match="the code of holdfast"):
            await hf.schedules.remove("seconds")


async def test_the_runs_of_a_schedule_are_for_whom_its_workflow_is(store_url: str) -> None:
    """Also if somebody makes the schedule, or asks for a run. The runs wait in the queue of their fair key, as others do."""
    every("1s", name="lined", overlap="allow")(tick.using(fair="acme"), "hello")
    async with Holdfast(store_url, config=FAST) as hf:
        await hf.schedules.create(every("2090-01-01", name="made"), tick.using(fair="bolt"), "hello")
        asked = await hf.schedules.run("made")
        lined = (await fired(hf, "lined", 1))[0]
        for run, fair in ((lined, "acme"), (asked.run or "", "bolt")):
            assert await hf.run(run, tick).result(60)
            row = await hf.store.reads.run(run)
            assert row is not None
            (queue,) = await hf.store.queues.number_queues([QueueKey(fair)])
            assert (row.fair, row.queue) == (fair, queue.number)
        with pytest.raises(InvalidInput, match="leave out namespace"):
            await hf.schedules.create(every("@daily", name="other"), tick.using(namespace="other"), "hello")


async def test_a_run_that_nobody_scheduled_has_no_occasion(store_url: str) -> None:
    """Also if its tags look alike: no tag of a caller begins with a dollar sign."""
    async with Holdfast(store_url, config=FAST) as hf:
        run = await hf.start(tick, "by hand")
        assert await run.result(60) == ["by hand", None, None]
    with pytest.raises(InvalidInput, match="does not begin with"):
        tick.using(tags={"$schedule": "x"})


async def test_a_deploy_takes_up_the_lines_of_the_new_code(store_url: str, watcher: Holdfast) -> None:
    """A line that is gone is removed, a new one is there, and a pause survives. An old process that restarts changes
    nothing while a new one lives."""

    async def names() -> dict[str, str]:
        return {one.name: one.times for one in await watcher.schedules.list()}

    every("1d", name="kept")(tick, "a")
    every("1d", name="dropped")(tick, "a")
    async with Holdfast(store_url, config=FAST):
        await until(lambda: _is(names, {"kept": "1d", "dropped": "1d"}))
        await watcher.schedules.pause("kept", "not now")
        registry.schedules.clear()
        every("2d", name="kept")(tick, "a")
        every("1d", name="added")(tick, "a")
        async with Holdfast(store_url, config=FAST):
            wanted = {"kept": "2d", "added": "1d"}
            await until(lambda: _is(names, wanted))
            kept = await watcher.schedules.get("kept")
            assert (kept.state, kept.note) == (ScheduleState.PAUSED, "not now")
    assert await names() == wanted, "with no live node nothing changes"


async def _is(names: Callable[[], Awaitable[dict[str, str]]], wanted: dict[str, str]) -> bool:
    return await names() == wanted


async def test_a_schedule_is_made_run_paused_and_removed_in_python(store_url: str) -> None:
    """`hf.schedules` does what the command line does."""
    async with Holdfast(store_url, config=FAST) as hf:
        made = await hf.schedules.create(every("@daily", tz="Europe/Oslo", name="report"), tick, "sales")
        assert (made.origin, made.tz) == (None, "Europe/Oslo")
        assert (
            await hf.schedules.create(every("@daily", tz="Europe/Oslo", name="report"), tick, "sales") == made
        )
        with pytest.raises(Conflict, match="another plan"):
            await hf.schedules.create(every("@hourly", name="report"), tick, "sales")
        fire = await hf.schedules.run("report", "for the audit")
        assert fire.fate is FireFate.STARTED
        assert await hf.run(fire.run or "", tick).result(60) == ["sales", "report", None]
        times = await hf.schedules.preview("report", 2)
        assert [one.at.hour for one in times] == [0, 0]
        assert (await hf.schedules.pause("report")).state is ScheduleState.PAUSED
        assert (await hf.schedules.resume("report")).state is ScheduleState.ACTIVE
        await hf.schedules.remove("report")
        with pytest.raises(UnknownSchedule):
            await hf.schedules.get("report")


async def test_a_time_that_comes_while_a_run_is_open_says_so(store_url: str) -> None:
    """Its fate names the run. `why` says what the open run was started for."""
    async with Holdfast(store_url, config=FAST) as hf:
        await hf.schedules.create(every("@daily", name="slow"), slow_tick)
        first = await hf.schedules.run("slow")
        skipped = await hf.schedules.run("slow")
        assert (skipped.fate, skipped.why) == (FireFate.SKIPPED, f"{first.run} was open")
        started = await hf.schedules.run("slow", anyway=True)
        assert started.fate is FireFate.STARTED
        assert "of schedule slow" in await hf.run(first.run or "").why()
        for run in (first.run, started.run):
            await hf.run(run or "").cancel()


async def test_a_backfill_runs_what_never_ran(store_url: str) -> None:
    """First it only says what it would do. Then each time runs, with the time it is for."""
    async with Holdfast(store_url, config=FAST) as hf:
        await hf.schedules.create(every("0 3 * * *", tz="Europe/Oslo", name="nightly"), tick, "x")
        span = ("2026-01-01", "2026-01-05")
        planned = await hf.schedules.plan_backfill("nightly", *span)
        assert [one.run for one in planned] == [f"nightly@2026-01-0{day}T02:00Z~2" for day in range(1, 5)]
        made = await hf.schedules.backfill("nightly", *span, most=2, newest_first=True)

        async def is_done() -> bool:
            (row,) = await hf.schedules.backfills("nightly")
            return str(row.state) == "done"

        await until(is_done)
        (row,) = await hf.schedules.backfills("nightly")
        assert (row.id, row.started, row.passed) == (made.id, 4, 0)
        for one in planned:
            info = await hf.run(one.run or "").info()
            assert info.state is RunState.SUCCEEDED
            assert info.tags["$backfill"] == made.id
        assert [one.run for one in await hf.schedules.plan_backfill("nightly", *span)] == [None] * 4
        again = await hf.schedules.plan_backfill("nightly", *span, again="all")
        assert [one.run for one in again] == [f"nightly@2026-01-0{day}T02:00Z~3" for day in range(1, 5)]
        with pytest.raises(InvalidInput, match="before from"):
            await hf.schedules.backfill("nightly", "2026-01-05", "2026-01-01")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (lambda: every("0 0 30 2 *"), "can fire"),
        (lambda: every("@daily", tz="Europe/Oxlo"), "no such time zone"),
        (lambda: every("@daily", overlap=cast("Any", "both")), "overlap"),
        (lambda: every("@daily", missed="never"), "missed"),
        (every, "give times"),
        (lambda: every("@daily", at="2027-01-01"), "give times"),
        (lambda: every("@daily", skip=cast("Any", ["2026-01-01"])), "expected a Calendar"),
        (lambda: every("@daily", name="a@b"), "cannot be the name"),
        (lambda: every("2020-01-01", end="2019-01-01"), "never fires"),
        (lambda: every("@daily")(cast("Any", tick.fn), "x"), "takes a workflow"),
        (lambda: every(timedelta(seconds=1.5)), "part of a second"),
        (lambda: every("@daily")(tick.using(id="mine"), "x"), "leave out id"),
        (lambda: every("@daily")(tick.using(begin_in=60), "x"), "leave out begin_in"),
        (
            lambda: every("@daily")(tick.using(due_at=datetime(2090, 1, 1, tzinfo=UTC)), "x"),
            "leave out due_at",
        ),
    ],
)
def test_bad_lines_are_refused_where_they_are_written(line: Callable[[], object], words: str) -> None:
    """The error names the file and the line."""
    with pytest.raises(DefinitionError, match=rf"test_schedules\.py, line \d+.*{words}"):
        line()


def test_arguments_that_do_not_fit_are_refused_where_they_are_written() -> None:
    """And so is a second line of the same name."""
    with pytest.raises(InvalidInput, match=r"test_schedules\.py, line \d+: .*word"):
        every("@daily")(tick, 1)  # type: ignore[arg-type]  # the claim
    every("@daily", name="one")(tick, "a")
    with pytest.raises(DefinitionError, match="give one of them"):
        every("@daily", name="one")(tick, "b")


def test_times_may_be_given_as_dates() -> None:
    """As texts, or as `datetime`, in the schedule's zone or with an offset."""
    one = every(at=["2027-01-01T00:00", datetime(2027, 1, 2, tzinfo=UTC)], tz="Asia/Tokyo", name="new-year")
    first = one.plan.after(0)
    assert first is not None
    assert one.plan.shown(first) == "2027-01-01 00:00:00+09:00"
    holidays = Calendar("norway", ["2026-12-25"], "2030-12-31")
    assert every("@daily", skip=holidays).plan.skip == holidays.stored
