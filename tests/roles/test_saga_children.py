"""Sagas reach into children: what an awaited child did is undone when the saga around it fails."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from holdfast import Holdfast, RunFailed, Stop, keep, saga, step, undo_with, workflow
from holdfast.config import Config
from holdfast.errors import RunStuck, RunUndone
from holdfast.model import RunState
from tests.roles.conftest import until
from tests.roles.crash import point, through
from tests.roles.test_children import healthy, states, until_state
from tests.store.conftest import run_sql

log: list[str] = []
gates: dict[str, asyncio.Event] = {}
broken: set[str] = set()


@pytest.fixture(autouse=True)
def clean() -> None:
    log.clear()
    gates.clear()
    broken.clear()


@step(retry=1)
async def book(what: str) -> str:
    await point(f"book {what}")
    if what.startswith("no "):
        raise Stop(f"{what} today")
    log.append(what)
    return what


@book.undo(retry=1)
async def unbook(done: str | None, what: str) -> None:
    if what in broken:
        raise ValueError("the undo is broken")
    if what in gates:
        log.append(f"at {what}")
        await gates[what].wait()
    log.append(f"un {what}")


@step(retry=1)
async def tidy(what: str) -> None:
    log.append(f"tidy {what}")


@workflow
async def hotel(what: str) -> str:
    await book(f"{what} room")
    await book(f"{what} bed")
    return what


@workflow
async def island(what: str) -> str:
    """A child with a child, with something that it keeps, and with an undo by hand in its last turn."""
    await book(f"{what} kept")
    keep()
    await book(f"{what} boat")
    await hotel(what)
    undo_with(tidy, what)
    return what


@workflow
async def night(what: str) -> str:
    await book(f"{what} night")
    return what


@workflow
async def trip(name: str) -> str:
    await book("passport")
    try:
        async with saga():
            await book("taxi")
            await island(name)
            await night.start(name)
            await book("no ferry")
    except Stop:
        await book("train")
        return "by train"
    return "by ferry"


def undone() -> list[str]:
    return [line for line in log if line.startswith(("un ", "tidy "))]


ISLAND = ["tidy isle", "un isle bed", "un isle room", "un isle boat"]


async def test_what_a_child_did_is_undone_in_its_place(hf: Holdfast) -> None:
    """The child undoes its steps, those of its children, and what it added by hand, newest first. Then what came before it
    in the saga is undone, and the code goes on. What the child kept stays, and so does a run that was only started."""
    run = await hf.start(trip.using(id="t"), "isle")
    assert await run.result(30) == "by train"
    await until(lambda: "isle night" in log)
    assert undone() == [*ISLAND, "un taxi"]
    assert log.index("train") > log.index("un taxi")
    assert await states(hf, "t/island", "t/island/hotel") == ["undone"] * 2
    assert await hf.run("t/night").result(30) == "isle"
    with pytest.raises(RunUndone, match="run t, which had started it, undid it: Stop: no ferry today"):
        await hf.run("t/island").result(10)
    assert "because run t, which had started it" in await hf.run("t/island").why()
    keys = [row.key for row in await hf.store.reads.steps("t", limit=100)]
    assert [key for key in keys if key.startswith("undo:")] == ["undo:island", "undo:book#2"]
    await healthy(hf.store)


CRASHING = Config(poll_s=0.05, sweep_s=0.02, beat_s=0.05, heart=False)
numbers = itertools.count()
PARTS = 4
"""The points are divided among so many tests, so that none of them takes too long."""


@pytest.mark.parametrize("part", range(PARTS))
async def test_a_crash_anywhere(store_url: str, part: int) -> None:
    """Whichever write the process dies at, everything in the saga is undone once, in order, and the run goes on after
    that."""
    crash_at: int | None = None
    points = 0
    while crash_at is None or crash_at <= points:
        log.clear()
        name = f"s{next(numbers)}"

        async def begin(hf: Holdfast, name: str = name) -> None:
            await hf.start(short_trip.using(id=name), name)

        passed, state = await through(store_url, CRASHING, begin, crash_at, name)
        where = passed.passed[-1] if crash_at else "nowhere"
        assert state == "succeeded", where
        async with Holdfast(store_url, roles=()) as hf:
            assert await states(hf, f"{name}/outer", f"{name}/outer/night") == ["undone"] * 2, where
        seen = list(
            dict.fromkeys(log)
        )  # a process that died may have executed a step whose end it did not record
        assert [line for line in seen if line.startswith("un ")] == [f"un {name} night", "un a", "un taxi"], (
            where
        )
        assert seen[-1] == "train", where
        if crash_at is None:
            points = len(passed.passed)
            assert log == seen
        crash_at = part + 1 if crash_at is None else crash_at + PARTS


@workflow
async def outer(name: str) -> None:
    await book("a")
    await night(name)


@workflow
async def short_trip(name: str) -> str:
    try:
        async with saga():
            await book("taxi")
            await outer(name)
            raise Stop("no ferry")
    except Stop:
        await book("train")
    return "by train"


@workflow
async def maps(items: int) -> str:
    try:
        async with saga():
            await book("taxi")
            await book.map([f"{n:02}" for n in range(items)], page=3)
            await hotel.map([f"h{n}" for n in range(items)], page=3)
            await book("no ferry")
    except Stop:
        return "at home"
    return "away"


async def test_the_pages_of_a_map_are_undone(hf: Holdfast) -> None:
    """Each page undoes itself, and so does each child that it made. All of the later map comes before the earlier one."""
    run = await hf.start(maps.using(id="m"), 7)
    assert await run.result(60) == "at home"
    rooms = [line for line in undone() if line[3] == "h"]
    plain = [line for line in undone() if line[3] == "0"]
    assert sorted(rooms) == sorted(f"un h{n} {what}" for n in range(7) for what in ("room", "bed"))
    assert sorted(plain) == [f"un {n:02}" for n in range(7)]
    assert undone() == [*rooms, *plain, "un taxi"]
    for n in range(7):
        assert undone().index(f"un h{n} bed") < undone().index(f"un h{n} room")
    await healthy(hf.store)


@pytest.mark.parametrize("act", ["retry", "skip"])
async def test_an_undo_in_a_child_that_gives_up_waits_for_a_person(hf: Holdfast, act: str) -> None:
    """The child is stuck. The saga waits for it, and says so. When a person has moved the child on, the run goes on."""
    broken.add("isle room")
    run, child = await hf.start(trip.using(id="t"), "isle"), hf.run("t/island/hotel")
    await until_state(hf, child.id, RunState.STUCK)
    assert await states(hf, "t", "t/island") == ["running", "undoing"]
    why = await run.why()
    assert (
        "until its child run t/island, which is undoing what it did, is undone: `holdfast why t/island`"
        in why
    )
    assert "What a saga did is being undone." in why
    assert "until its child run t/island/hotel, which is stuck, is undone" in await hf.run("t/island").why()
    broken.clear()
    await (child.retry() if act == "retry" else child.skip())
    assert await run.result(30) == "by train"
    assert ("un isle room" in log) == (act == "retry")
    assert undone()[-1] == "un taxi"


async def test_stopping_the_undo_of_a_child_leaves_the_run_to_a_person(hf: Holdfast) -> None:
    """The saga could not undo its part. So the run undoes itself as far as possible, and is stuck. Trying again does not
    help; skipping the child does."""
    broken.add("isle boat")
    run, child = await hf.start(trip.using(id="t"), "isle"), hf.run("t/island")
    await until_state(hf, child.id, RunState.STUCK)
    await child.cancel(force=True)
    with pytest.raises(RunStuck, match="somebody stopped its undoing"):
        await run.result(30)
    assert "the child run of step island could not be undone" in await run.why()
    await run.retry()
    with pytest.raises(RunStuck, match="somebody stopped its undoing"):
        await run.result(30)
    await run.skip("island")
    with pytest.raises(RunUndone, match="no ferry today"):
        await run.result(30)
    assert undone() == [*ISLAND[:-1], "un taxi", "un passport"]


async def test_a_held_child_is_undone_when_it_is_released(hf: Holdfast) -> None:
    """The run waits for that."""
    gates["isle bed"] = asyncio.Event()
    run, child = await hf.start(trip.using(id="t"), "isle"), hf.run("t/island/hotel")
    await until(lambda: "at isle bed" in log)
    await child.hold()
    gates["isle bed"].set()
    assert "until its child run t/island/hotel, which is held, is undone" in await hf.run("t/island").why()
    await child.release()
    assert await run.result(30) == "by train"
    assert list(dict.fromkeys(undone())) == [*ISLAND, "un taxi"]


async def test_a_run_that_is_cancelled_meanwhile_undoes_the_child_once(hf: Holdfast) -> None:
    """The whole run is undone, and waits for the child's undo that is under way."""
    gates["isle bed"] = asyncio.Event()
    run = await hf.start(trip.using(id="t"), "isle")
    await until(lambda: "at isle bed" in log)
    await run.cancel()
    await until_state(hf, "t", RunState.UNDOING)
    assert "until its child run t/island, which is undoing what it did, is undone" in await run.why()
    gates["isle bed"].set()
    with pytest.raises(RunFailed):
        await run.result(30)
    assert undone() == [*ISLAND, "un taxi", "un passport"]
    assert await states(hf, "t", "t/island", "t/island/hotel") == ["cancelled", "undone", "undone"]


@workflow
async def saga_in_child(name: str) -> None:
    await trip(name)
    raise Stop("enough")


async def test_a_parent_that_is_undone_does_not_undo_the_child_of_a_saga_again(hf: Holdfast) -> None:
    """The saga undid it. What the run did afterwards is undone with the parent."""
    run = await hf.start(saga_in_child.using(id="p"), "isle")
    with pytest.raises(RunUndone, match="enough"):
        await run.result(30)
    assert undone() == [*ISLAND, "un taxi", "un train", "un passport"]
    assert await states(hf, "p/trip", "p/trip/island") == ["undone"] * 2


async def test_a_child_that_is_not_in_the_store_any_more_leaves_the_run_to_a_person(hf: Holdfast) -> None:
    """Nobody knows what it did, so it does not count as undone."""
    run = await hf.start(gone.using(id="g"), "isle")
    await until(lambda: "at the gate" in log)
    run_sql(hf.url, "DELETE FROM runs WHERE id = 'g/hotel'")
    gates["gate"].set()
    with pytest.raises(RunStuck, match="not in the store any more"):
        await run.result(30)


@step(retry=1)
async def wait_at(gate: str) -> None:
    gates[gate] = asyncio.Event()
    log.append(f"at the {gate}")
    await gates[gate].wait()


@workflow
async def gone(name: str) -> None:
    async with saga():
        await hotel(name)
        await wait_at("gate")
        raise Stop("no ferry")


@workflow
async def gives_up(name: str) -> str:
    try:
        async with saga():
            await book("taxi")
            async with asyncio.timeout(1.0):
                await slow(name)
    except TimeoutError:
        await book("train")
        return "by train"
    return "by ferry"


@workflow
async def slow(name: str) -> None:
    await book(name)
    await asyncio.sleep(60)


async def test_a_child_that_is_given_up_is_cancelled_and_awaited(hf: Holdfast) -> None:
    """It undoes itself. Then what came before it is undone, and the code goes on."""
    run = await hf.start(gives_up.using(id="u"), "isle")
    assert await run.result(30) == "by train"
    assert log == ["taxi", "isle", "un isle", "un taxi", "train"]
    assert await states(hf, "u/slow") == ["cancelled"]


@workflow
async def trip_then(name: str) -> str:
    try:
        async with saga():
            await hotel(name)
            await book("no ferry")
    except Stop:
        pass
    await book("ok" if "mended" in gates else "no train")
    return "mended"


async def test_a_retry_or_a_fork_knows_what_the_saga_undid(hf: Holdfast) -> None:
    """Neither does it again, and neither undoes it again."""
    run = await hf.start(trip_then.using(id="r"), "isle")
    with pytest.raises(RunFailed, match="no train"):
        await run.result(30)
    before = ["isle room", "isle bed", "un isle bed", "un isle room"]
    assert log == before
    gates["mended"] = asyncio.Event()
    again = await run.retry()
    assert await again.result(30) == "mended"
    forked = await run.fork(from_="book#2")
    assert await forked.result(30) == "mended"
    assert log == [*before, "ok", "ok"]
    assert await states(hf, "r/hotel") == ["undone"]
    await healthy(hf.store)
