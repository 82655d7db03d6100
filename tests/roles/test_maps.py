"""`map` over more items than a page: each page is a child run, and only a few of them are in memory."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from holdfast import Holdfast, RunFailed, Stop, step, workflow
from holdfast.config import Config
from holdfast.errors import RunCancelled
from holdfast.model import RunState
from holdfast.testing import Sim
from tests.roles.conftest import until
from tests.roles.crash import Points, now, point, through

log: list[str] = []
saved: list[int] = []
mood: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def clean() -> None:
    log.clear()
    saved.clear()
    mood.clear()
    now[0] = Points()


@step(retry=1)
async def double(n: int) -> int:
    await point(f"double {n}")
    if n in mood.get("bad", ()):
        raise ValueError(f"no {n}")
    log.append(f"double {n}")
    return 2 * n


@double.undo(retry=1)
async def halve(done: int | None, n: int) -> None:
    log.append(f"halve {n}")


@step(retry=1)
async def save(found: list[int]) -> None:
    if "full" in mood:
        raise ValueError("the disk is full")
    saved.extend(found)


@step
async def numbers_of(chapter: int) -> list[int]:
    return list(range(chapter * 4, chapter * 4 + 4))


def numbers(count: int) -> Iterator[int]:
    for n in range(count):
        if n == mood.get("raises"):
            raise LookupError(f"nothing after {n}")
        yield n + mood.get("shift", 0)


async def chapters(count: int) -> AsyncIterator[int]:
    for chapter in range(count):
        for n in await numbers_of(chapter):
            yield n


@workflow
async def doubles(count: int, limit: int = 8, tolerate: Any = 0, end: str = "") -> list[str]:
    found = await double.map(numbers(count), limit=limit, tolerate=tolerate, page=5)
    if end == "fails":
        raise Stop("that is enough")
    return [str(one) for one in found]


@workflow
async def poured(count: int, tolerate: Any = 0) -> tuple[int, int]:
    tally = await double.map(chapters(count), into=save, page=5, tolerate=tolerate)
    return tally.done, tally.failed


@workflow
async def one(n: int) -> int:
    return await double(n)


@workflow
async def children(count: int) -> list[int]:
    return await one.map(iter(range(count)), page=4)


@workflow
async def endless() -> list[int]:
    return await double.map(itertools.count(), page=3, limit=2)


@workflow
async def wrong(what: str) -> Any:
    items: Any = {"item": iter(["a"] * 7), "nothing": 7, "pairs": iter([(1, 2)] * 7)}.get(what, range(7))
    more: Any = {
        "limit": {"limit": 0},
        "page": {"page": 0},
        "share": {"tolerate": 1.5},
        "sink": {"into": len},
    }
    return await double.map(items, **({"page": 5} | more.get(what, {})))


async def test_pages_keep_the_order(hf: Holdfast) -> None:
    """A list is returned in the order of the items. Each page is a child run; up to a page there are none."""
    run = await hf.start(doubles.using(id="d"), 23)
    assert await run.result(60) == [str(2 * n) for n in range(23)]
    pages = [row.id for row in await hf.store.reads.children("d")]
    assert sorted(pages) == ["d/double.page", *(f"d/double.page#{n}" for n in range(2, 6))]
    steps = await hf.store.reads.steps("d")
    assert [step.input for step in steps] == [None] * 5, "the items are in the pages alone"
    info = await run.info()
    assert info.progress is not None
    assert info.progress.note == "23 done"
    small = await hf.start(doubles.using(id="small"), 5)
    assert await small.result(60) == ["0", "2", "4", "6", "8"]
    assert [step.key for step in await hf.store.reads.steps("small")] == [
        "double",
        *(f"double#{n}" for n in range(2, 6)),
    ]
    assert [fact for fact in await hf.store.reads.doctor() if fact[2]] == []


async def test_results_go_into_a_step(hf: Holdfast) -> None:
    """An async iterator may await steps. The results come to the step in batches, each exactly once."""
    assert await (await hf.start(poured, 5)).result(60) == (20, 0)
    assert sorted(saved) == [2 * n for n in range(20)]


async def test_a_map_over_children_has_pages(hf: Holdfast) -> None:
    """A page of a `workflow.map` has child runs of its own."""
    run = await hf.start(children.using(id="c"), 10)
    assert await run.result(60) == [2 * n for n in range(10)]
    assert [row.id for row in await hf.store.reads.children("c/one.page#3")] == [
        "c/one.page#3/one",
        "c/one.page#3/one#2",
    ]


@pytest.mark.parametrize(("tolerate", "fits"), [(2, True), (1, False), (0.1, True), (0.09, False)])
async def test_failures_are_tolerated_over_all_pages(hf: Holdfast, tolerate: float, fits: bool) -> None:
    """By number or by share, whatever page they are in. The exceptions have their places, and progress counts them."""
    mood["bad"] = {3, 17}
    run = await hf.start(doubles, 20, tolerate=tolerate)
    if fits:
        assert (await run.result(60))[2:5] == ["4", "no 3", "8"]
        progress = (await run.info()).progress
        assert progress is not None
        assert progress.note == "18 done, 2 failed"
    else:
        with pytest.raises(RunFailed, match="ValueError: no"):
            await run.result(60)


async def test_a_failed_run_undoes_its_pages(hf: Holdfast) -> None:
    """Every call is undone once, and the pages end `undone`."""
    run = await hf.start(doubles.using(id="f"), 12, end="fails")
    with pytest.raises(RunFailed, match="that is enough"):
        await run.result(60)
    assert sorted(line for line in log if line.startswith("halve")) == sorted(f"halve {n}" for n in range(12))
    assert {row.state for row in await hf.store.reads.children("f")} == {RunState.UNDONE}


async def test_a_retry_repeats_what_failed(hf: Holdfast) -> None:
    """The page that failed is retried, and the pages that succeeded are kept or done again like any child."""
    mood["bad"] = {7}
    run = await hf.start(doubles.using(id="r"), 12)
    with pytest.raises(RunFailed, match="no 7"):
        await run.result(60)
    mood.clear()
    assert await (await hf.run("r", doubles).retry()).result(60) == [str(2 * n) for n in range(12)]


async def test_an_endless_iterator_goes_on_until_it_is_cancelled(hf: Holdfast) -> None:
    """Only a few pages are there at a time, and a cancel reaches them."""
    run = await hf.start(endless.using(id="e"))
    await until(lambda: len(log) > 40)
    open_pages = [row for row in await hf.store.reads.children("e") if row.finished_at is None]
    assert len(open_pages) <= 4
    await run.cancel()
    with pytest.raises(RunCancelled):
        await run.result(60)
    done, undone = (
        {line.split()[1] for line in log if line.startswith(word)} for word in ("double", "halve")
    )
    assert done <= undone


async def test_an_iterator_that_raises_fails_the_run(hf: Holdfast) -> None:
    """With its own exception; what was done is undone."""
    mood["raises"] = 13
    with pytest.raises(RunFailed, match="LookupError: nothing after 13"):
        await (await hf.start(doubles, 20)).result(60)
    assert sum(line.startswith("halve") for line in log) == sum(line.startswith("double") for line in log)


async def test_a_step_that_cannot_take_the_results_fails_the_map(hf: Holdfast) -> None:
    """It has its attempts like any step; then the page fails, and with it the map."""
    mood["full"] = True
    with pytest.raises(RunFailed, match="the disk is full"):
        await (await hf.start(poured, 5)).result(60)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("item", r"item 0: double\(\).*n"),
        ("nothing", "expected something to iterate over"),
        ("pairs", "item 0: "),
        ("limit", "limit must be at least 1"),
        ("page", "page must be at least 1"),
        ("share", "a share is below 1"),
        ("sink", "put @step on it"),
    ],
)
async def test_what_cannot_be_meant_is_refused(hf: Holdfast, what: str, says: str) -> None:
    """The error says what is wrong, and which item."""
    with pytest.raises(RunFailed, match=says):
        await (await hf.start(wrong, what)).result(60)


async def test_an_iterator_that_gives_other_items_is_a_drift(store_url: str) -> None:
    """When the run is replayed, each page is compared with what it was. A difference holds the run."""
    async with Holdfast(store_url) as hf:
        run = await hf.start(doubles.using(id="x"), 40, 4)
        await until(lambda: len(log) > 12)
    mood["shift"] = 1
    async with Holdfast(store_url) as hf:
        async with asyncio.timeout(60):
            while await hf.run("x").state() is not RunState.HELD:  # noqa: ASYNC110  a row in a store has no event
                await asyncio.sleep(0.02)
        assert "double.page" in await hf.run("x").why()
    assert run.id == "x"


CRASHING = Config(poll_s=0.05, sweep_s=0.02, beat_s=0.05, heart=False)
runs = itertools.count()


async def test_a_crash_at_every_sixth_write(store_url: str) -> None:
    """Whichever write the process dies at, every item has one result, in its place."""
    crash_at, points = 1, 7
    while crash_at <= points:
        name = f"c{next(runs)}"

        async def begin(hf: Holdfast, name: str = name) -> None:
            await hf.start(doubles.using(id=name), 12)

        passed, state = await through(store_url, CRASHING, begin, crash_at, name)
        async with Holdfast(store_url, roles=()) as hf:
            assert state == "succeeded", passed.passed[-1]
            assert await hf.run(name, doubles).result(60) == [str(2 * n) for n in range(12)]
        points = max(points, len(passed.passed) + 1) if crash_at < 40 else points
        crash_at += 6


def test_pages_in_the_simulation(sim: Sim) -> None:
    """`sim` and `crash_everywhere` play pages."""
    assert sim.start(poured, 2).result() == (8, 0)
    report = sim.using(
        idempotent=[numbers_of, double, save, halve], final=[save, numbers_of], interpreters=0
    ).crash_everywhere(poured, 2)
    assert not report.findings, report
