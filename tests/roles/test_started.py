"""Runs that the code of another run starts with `start`: they belong to nobody."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from holdfast import Conflict, Holdfast, RunFailed, WorkflowError, continue_as_new, step, workflow
from holdfast.config import Config
from holdfast.errors import RunCancelled
from holdfast.model import RunState
from holdfast.testing import Sim
from tests.roles.conftest import until
from tests.roles.crash import Points, now, point, through

log: list[str] = []
gates: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def clean() -> None:
    log.clear()
    gates.clear()
    now[0] = Points()


@step(retry=1)
async def book(what: str) -> str:
    log.append(f"book {what}")
    await point(f"book {what}")
    return what


@book.undo(retry=1)
async def unbook(done: str | None, what: str) -> None:
    log.append(f"unbook {what}")


@step(retry=1)
async def wait_at(gate: str) -> str:
    log.append(f"at {gate}")
    await gates.setdefault(gate, asyncio.Event()).wait()
    return gate


@workflow
async def night(day: str) -> str:
    await book(day)
    if day.startswith("slow"):
        await wait_at(day)
    return f"night {day}"


@workflow
async def evening(days: list[str], end: str = "well") -> list[str]:
    """Starts a night for each day, and ends as it is asked to."""
    started = [await night.start(day) for day in days]
    await book("supper")
    if end == "waits":
        await wait_at("evening")
    if end == "fails":
        raise ValueError("no evening")
    return started


@workflow
async def named(id: str, day: str, *, joins: bool = False) -> str:
    one = night.using(id=id, existing="join") if joins else night.using(id=id)
    try:
        return await one.start(day)
    except Conflict as taken:
        return f"conflict: {taken}"


@workflow
async def anew(left: int) -> str:
    started = await night.start(f"day-{left}")
    if left:
        continue_as_new(left - 1)
    return started


@step
async def starts_in_a_step() -> str:
    return await night.start("x")


@workflow
async def wrong_place() -> str:
    return await starts_in_a_step()


@workflow
async def once(day: str) -> str:
    started = await night.start(day)
    await book("after")
    return started


@workflow
async def week(days: list[str], limit: int = 2, tolerate: int = 0) -> list[str]:
    found = await part.map(days, limit=limit, tolerate=tolerate)
    return [one if isinstance(one, str) else repr(one) for one in found]


@workflow
async def part(day: str) -> str:
    await book(day)
    if day.startswith("bad"):
        raise ValueError(day)
    return day.upper()


@workflow
async def one_id(days: list[str]) -> list[str]:
    return await part.using(id="the-only").map(days)


async def healthy(hf: Holdfast) -> None:
    assert [fact for fact in await hf.store.reads.doctor() if fact[2]] == []


async def test_a_started_run_is_nobodys_child(hf: Holdfast) -> None:
    """The step returns its id at once. The run has no parent, and each of the two names the other."""
    run = await hf.start(evening.using(id="e"), ["slow-1", "2"])
    assert await run.result(60) == ["e/night", "e/night#2"]
    row = await hf.store.reads.run("e/night")
    assert row is not None
    assert (row.parent_id, row.started_by) == (None, "e")
    assert [one.id for one in await hf.store.reads.started_runs("e")] == ["e/night", "e/night#2"]
    assert await hf.store.reads.children("e") == []
    assert (await hf.run("e/night").info()).started_by == "e"
    await healthy(hf)
    await until(lambda: "at slow-1" in log)
    gates["slow-1"].set()
    assert await hf.run("e/night", night).result(60) == "night slow-1"


async def test_a_started_run_is_neither_cancelled_nor_undone(hf: Holdfast) -> None:
    """Whatever happens to the run that started it."""
    failing = await hf.start(evening.using(id="f"), ["slow-1"], "fails")
    with pytest.raises(RunFailed, match="no evening"):
        await failing.result(60)
    cancelled = await hf.start(evening.using(id="c"), ["slow-2"], "waits")
    await until(lambda: {"at evening", "at slow-1", "at slow-2"} <= set(log))
    await cancelled.cancel()
    with pytest.raises(RunCancelled):
        await cancelled.result(60)
    for run_id, day in (("f/night", "slow-1"), ("c/night", "slow-2")):
        assert await hf.run(run_id).state() is RunState.RUNNING
        gates[day].set()
        assert await hf.run(run_id, night).result(60) == f"night {day}"
    assert [line for line in log if line.startswith("unbook")] == ["unbook supper"] * 2
    await healthy(hf)


async def test_an_id_that_another_run_has(hf: Holdfast) -> None:
    """It is a Conflict. With `existing="join"` the step returns the id, if the workflow and the input are the same."""
    await (await hf.start(night.using(id="n"), "x")).result(60)
    assert (await (await hf.start(named, "n", "x")).result(60)).startswith(
        "conflict: run 'n' exists, and this"
    )
    assert await (await hf.start(named, "n", "x", joins=True)).result(60) == "n"
    assert "another workflow or input" in await (await hf.start(named, "n", "y", joins=True)).result(60)
    assert await (await hf.start(named.using(id="own"), "own-n", "z", joins=True)).result(60) == "own-n"
    assert [run.id for run in await hf.store.reads.started_runs("own")] == ["own-n"]
    await healthy(hf)


async def test_each_generation_starts_its_own(hf: Holdfast) -> None:
    """A run that continues as new leaves the runs that it started to themselves."""
    run = await hf.start(anew.using(id="a"), 2)
    assert await run.result(60) == "a/@3/night"
    assert [one.id for one in await hf.store.reads.started_runs("a")] == [
        "a/night",
        "a/@2/night",
        "a/@3/night",
    ]


async def test_a_retry_does_not_start_it_again(hf: Holdfast) -> None:
    """What was started is recorded in the same commit, so a retry of the run that started it gets the same id."""
    with pytest.raises(RunFailed):
        await (await hf.start(evening.using(id="r"), ["1"], "fails")).result(60)
    again = await hf.run("r", evening).retry()
    with pytest.raises(RunFailed):
        await again.result(60)
    assert await hf.store.reads.started_runs(again.id) == []
    assert log.count("book 1") == 1


async def test_map_starts_a_child_for_each_item(hf: Holdfast) -> None:
    """The results come in the order of the items, and tolerated failures in their places."""
    run = await hf.start(week.using(id="w"), ["a", "bad", "c"], tolerate=1)
    assert await run.result(60) == ["A", "ValueError('bad')", "C"]
    children = [row.id for row in await hf.store.reads.children("w")]
    assert sorted(children) == ["w/part", "w/part#2", "w/part#3"]


async def test_map_over_children_fails_and_undoes(hf: Holdfast) -> None:
    """A failure that is not tolerated cancels the rest, and the run undoes what its children did."""
    with pytest.raises(RunFailed, match="ValueError: bad"):
        await (await hf.start(week, ["a", "bad", "c", "d"], 1)).result(60)
    assert log == ["book a", "book bad", "unbook bad", "unbook a"]


async def test_map_refuses_what_cannot_be_meant(hf: Holdfast) -> None:
    """A limit below 1, and one id for all items."""
    with pytest.raises(RunFailed, match="limit must be at least 1"):
        await (await hf.start(week, ["a"], 0)).result(60)
    with pytest.raises(RunFailed, match="leave out `id`"):
        await (await hf.start(one_id, ["a"])).result(60)


async def test_start_works_in_a_workflow_only() -> None:
    """Anywhere else the error says what to write instead."""
    with pytest.raises(WorkflowError, match=r"`await hf\.start\(night, …\)`"):
        await night.start("x")


async def test_start_in_a_step_is_refused(hf: Holdfast) -> None:
    """A step is no workflow: it may run twice, and would start two runs."""
    with pytest.raises(RunFailed, match="works in a workflow only"):
        await (await hf.start(wrong_place)).result(60)


CRASHING = Config(poll_s=0.05, sweep_s=0.02, beat_s=0.05, heart=False)
numbers = itertools.count()


async def test_exactly_one_run_is_started_whatever_crashes(store_url: str) -> None:
    """The process dies before and after every write. There is one run for the key each time."""
    crash_at, points = None, 0
    while crash_at is None or crash_at <= points:
        name = f"s{next(numbers)}"

        async def begin(hf: Holdfast, name: str = name) -> None:
            await hf.start(once.using(id=name), name)

        passed, state = await through(store_url, CRASHING, begin, crash_at, name)
        where = passed.passed[-1] if crash_at else "nowhere"
        async with Holdfast(store_url, roles=()) as hf:
            started = [run.id for run in await hf.store.reads.started_runs(name)]
            assert (state, started) == ("succeeded", [f"{name}/night"]), where
            assert await hf.run(name, once).result(60) == f"{name}/night", where
        if crash_at is None:
            points = len(passed.passed)
        crash_at = 1 if crash_at is None else crash_at + 1


def test_a_start_in_the_simulation(sim: Sim) -> None:
    """`sim` plays it, and so does `crash_everywhere`: a started run's effects are not undone with the other run."""
    run = sim.start(evening, ["1"])
    assert run.result() == [f"{run.id}/night"]
    report = sim.using(idempotent=[book, unbook], final=[book]).crash_everywhere(evening, ["1", "2"])
    assert not report.findings, report
