"""Children with ids that the code chooses. An id of another run is a Conflict, or the run is joined without being
owned."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from holdfast import Conflict, Holdfast, RunFailed, keep, step, workflow
from holdfast.config import Config
from holdfast.errors import DefinitionError, RunCancelled, RunStuck, RunUndone
from holdfast.model import RunState
from holdfast.store.store import Store
from tests.roles.conftest import until
from tests.roles.crash import point, through

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
    log.append(f"book {what}")
    return what


@book.undo(retry=1)
async def unbook(done: str | None, what: str) -> None:
    if what in broken:
        raise ValueError("the undo is broken")
    log.append(f"unbook {what}")


@step(retry=1)
async def wait_at(gate: str) -> str:
    log.append(f"at {gate}")
    await gates.setdefault(gate, asyncio.Event()).wait()
    return gate


@step(retry=1)
async def mark(what: str) -> None:
    await point(what)


@workflow
async def night(day: str) -> str:
    await book(day)
    if day.startswith("slow"):
        await wait_at(day)
    if day.startswith("bad"):
        raise ValueError(f"no {day}")
    return f"night {day}"


@workflow
async def plain(id: str, day: str) -> str:
    return await night.using(id=id)(day)


@workflow
async def joining(id: str, day: str) -> str:
    return "joined " + await night.using(id=id, existing="join")(day)


@workflow
async def catching(id: str, day: str) -> str:
    try:
        return await night.using(id=id)(day)
    except Conflict as taken:
        return f"caught: {taken}"


@workflow
async def twice(day: str, *, joins: bool) -> list[str]:
    again = night.using(id=f"n-{day}", existing="join") if joins else night.using(id=f"n-{day}")
    found = await asyncio.gather(night.using(id=f"n-{day}")(day), again(day), return_exceptions=True)
    return [type(one).__name__ if isinstance(one, BaseException) else one for one in found]


@workflow
async def joins_itself(id: str) -> str:
    return await joins_itself.using(id=id, existing="join")(id)


@workflow
async def joins_parent(id: str, depth: int) -> str:
    if depth:
        return await joins_parent(id, depth - 1)
    return await joins_parent.using(id=id, existing="join")(id, 2)


@workflow
async def fails_beside(id: str, day: str) -> None:
    joined = asyncio.create_task(night.using(id=id, existing="join")(day))
    await wait_at("beside")
    joined.cancel()
    raise ValueError("enough")


@workflow
async def undoes_beside(id: str, day: str) -> None:
    await book("beside")
    joined = asyncio.create_task(night.using(id=id, existing="join")(day))
    await wait_at("beside")
    raise ValueError(f"enough of {joined}")


async def until_joined(hf: Holdfast, run_id: str) -> None:
    async with asyncio.timeout(60):
        while not await hf.store.reads.joins(run_id):  # noqa: ASYNC110  a row in a store has no event
            await asyncio.sleep(0.01)


async def healthy(store: Store) -> None:
    assert [fact for fact in await store.reads.doctor() if fact[2]] == []


async def test_a_child_under_anothers_id_is_a_conflict(hf: Holdfast) -> None:
    """The parent fails with it at once, the other run stays as it is, and the doctor finds nothing."""
    other = await hf.start(night.using(id="n-1"), "slow-1")
    await until(lambda: "at slow-1" in log)
    run = await hf.start(plain.using(id="p"), "n-1", "slow-1")
    with pytest.raises(
        RunFailed, match=r"Conflict: run 'n-1' exists and is not a child of this run.*existing=\"join\""
    ):
        await run.result(60)
    await healthy(hf.store)
    gates["slow-1"].set()
    assert await other.result(60) == "night slow-1"
    assert log == ["book slow-1", "at slow-1"]


async def test_a_conflict_is_caught_in_the_workflow(hf: Holdfast) -> None:
    """It is raised as `holdfast.Conflict`, also when the other run has ended."""
    await (await hf.start(night.using(id="n-2"), "x")).result(60)
    run = await hf.start(catching.using(id="c"), "n-2", "x")
    assert (await run.result(60)).startswith("caught: run 'n-2' exists")
    assert log == ["book x"]


async def test_an_id_that_a_parent_asks_for_twice(hf: Holdfast) -> None:
    """Two steps of one parent cannot have one child. The second can wait for it."""
    assert await (await hf.start(twice, "y", joins=False)).result(60) == ["night y", "Conflict"]
    assert await (await hf.start(twice, "z", joins=True)).result(60) == ["night z", "night z"]
    assert sorted(log) == ["book y", "book z"]


async def test_a_child_that_joins_starts_what_is_not_there(hf: Holdfast) -> None:
    """Then the run is its own child, with its failure and its undo."""
    run = await hf.start(joining.using(id="j"), "n-3", "x")
    assert await run.result(60) == "joined night x"
    assert [row.id for row in await hf.store.reads.children("j")] == ["n-3"]
    failing = await hf.start(joining.using(id="jf"), "n-4", "bad")
    with pytest.raises(RunFailed, match="no bad"):
        await failing.result(60)
    await healthy(hf.store)


async def test_a_run_is_joined_while_it_runs(hf: Holdfast) -> None:
    """Many wait for one run, none owns it, and each gets its result. `why` names it."""
    other = await hf.start(night.using(id="n-5"), "slow-5")
    await until(lambda: "at slow-5" in log)
    runs = [await hf.start(joining.using(id=f"j{i}"), "n-5", "slow-5") for i in range(3)]
    await until_joined(hf, "j2")
    said = await runs[2].why()
    assert "run n-5" in said
    assert "`holdfast why n-5`" in said
    await healthy(hf.store)
    gates["slow-5"].set()
    assert [await run.result(60) for run in runs] == ["joined night slow-5"] * 3
    assert await other.result(60) == "night slow-5"
    assert log.count("book slow-5") == 1
    assert await hf.store.reads.joins("j0") == {}
    assert await hf.store.reads.children("j0") == []


async def test_a_run_that_has_ended_is_joined(hf: Holdfast) -> None:
    """The step gets the run's outcome, whatever it was."""
    await (await hf.start(night.using(id="n-6"), "x")).result(60)
    assert await (await hf.start(joining, "n-6", "x")).result(60) == "joined night x"
    with pytest.raises(RunUndone):
        await (await hf.start(night.using(id="n-7"), "bad")).result(60)
    with pytest.raises(RunFailed, match="no bad"):
        await (await hf.start(joining, "n-7", "bad")).result(60)
    held = await hf.start(night.using(id="n-8"), "slow-8")
    await held.cancel()
    with pytest.raises(RunCancelled):
        await held.result(60)
    with pytest.raises(RunFailed, match="cancel"):
        await (await hf.start(joining, "n-8", "slow-8")).result(60)


async def test_what_was_never_begun_can_be_joined_and_cancelled(store_url: str) -> None:
    """A run that is cancelled before it did anything has no recorded error. Runs that joined it get the error that it
    was cancelled."""
    config = Config(poll_s=0.05, heart=False)
    async with Holdfast(store_url, roles=(), config=config) as outside:
        first = await outside.start(night.using(id="n-9"), "x")
        assert await first.cancel() is RunState.CANCELLED
    async with Holdfast(store_url, config=config) as hf:
        with pytest.raises(RunFailed, match="run n-9 was cancelled"):
            await (await hf.start(joining, "n-9", "x")).result(60)


async def test_another_input_cannot_be_joined(hf: Holdfast) -> None:
    """The same id for something else is a Conflict, as it is for `hf.start`."""
    await (await hf.start(night.using(id="n-10"), "x")).result(60)
    with pytest.raises(RunFailed, match="another workflow or input"):
        await (await hf.start(joining, "n-10", "y")).result(60)


async def test_nobody_waits_for_itself(hf: Holdfast) -> None:
    """A run that joins itself, or a run that waits for it, would wait for ever: this is a Conflict."""
    with pytest.raises(RunFailed, match="waits for this run"):
        await (await hf.start(joins_itself.using(id="me"), "me")).result(60)
    with pytest.raises(RunFailed, match="waits for this run"):
        await (await hf.start(joins_parent.using(id="top"), "top", 2)).result(60)


@pytest.mark.parametrize("flow", [fails_beside, undoes_beside])
@pytest.mark.parametrize("way", ["fails", "is cancelled"])
async def test_a_joined_run_is_not_cancelled_or_undone(hf: Holdfast, flow: Any, way: str) -> None:
    """Whatever happens to the run that joined it, it goes on; and the run that ends does not wait for it."""
    other = await hf.start(night.using(id="n-11"), "slow-11")
    await until(lambda: "at slow-11" in log)
    run = await hf.start(flow.using(id="f"), "n-11", "slow-11")
    await until_joined(hf, "f")
    await until(lambda: "at beside" in log)
    if way == "fails":
        gates["beside"].set()
    else:
        await run.cancel()
    with pytest.raises(RunFailed):
        await run.result(60)
    assert await other.state() is RunState.RUNNING
    assert await hf.store.reads.signals("n-11") == []
    gates["slow-11"].set()
    assert await other.result(60) == "night slow-11"
    assert "unbook slow-11" not in log
    await healthy(hf.store)


async def test_cancelling_a_parent_leaves_a_run_that_only_has_the_same_id(hf: Holdfast) -> None:
    """A parent whose child's id was taken is cancelled. The run that has the id belongs to another, and stays as it
    is."""

    other = await hf.start(plain.using(id="owner"), "n-12", "slow-12")
    await until(lambda: "at slow-12" in log)
    stranger = await hf.start(holds_on.using(id="stranger"), "n-12", "slow-12")
    await until(lambda: "at stranger" in log)
    await stranger.cancel()
    with pytest.raises(RunCancelled):
        await stranger.result(60)
    assert await hf.store.reads.signals("n-12") == []
    gates["slow-12"].set()
    assert await other.result(60) == "night slow-12"
    assert log.count("unbook slow-12") == 0


@workflow
async def holds_on(id: str, day: str) -> None:
    try:
        await night.using(id=id)(day)
    except Conflict:
        await wait_at("stranger")


async def test_a_sleeping_waiter_is_answered(store_url: str) -> None:
    """The run that joined may be in no scheduler's memory when the other ends in another process. A scheduler looks for
    it."""
    config = Config(poll_s=0.05, park_after_s=0.1, sweep_s=0.05, heart=False)
    async with Holdfast(store_url, config=config) as hf:
        other = await hf.start(night.using(id="n-13"), "slow-13")
        await until(lambda: "at slow-13" in log)
        run = await hf.start(joining.using(id="sleeper"), "n-13", "slow-13")
        scheduler = hf.node.scheduler
        assert scheduler is not None
        await until(lambda: "sleeper" not in scheduler.runs and bool(log))
        await until_joined(hf, "sleeper")
        gates["slow-13"].set()
        assert await run.result(60) == "joined night slow-13"
        assert await other.result(60) == "night slow-13"


async def test_a_joined_run_is_pruned_after_those_who_wait_have_its_outcome(hf: Holdfast) -> None:
    """Until then it stays. What a waiting run leaves behind is pruned with that run."""
    other = await hf.start(night.using(id="n-14"), "slow-14")
    await until(lambda: "at slow-14" in log)
    run = await hf.start(fails_beside.using(id="f"), "n-14", "slow-14")
    await until_joined(hf, "f")
    await run.cancel()
    with pytest.raises(RunFailed):
        await run.result(60)
    later = await hf.store.now() + 60

    async def prune(state: RunState) -> int:
        pruned = await hf.store.retention.prune(
            None, actor="t", state=state, before=later, after=(0.0, ""), runs_max=10, rows_max=1000
        )
        return pruned.runs

    assert await prune(RunState.CANCELLED) == 1
    assert await hf.store.reads.joins("f") == {}
    gates["slow-14"].set()
    await other.result(60)
    assert await prune(RunState.SUCCEEDED) == 1
    await healthy(hf.store)


def test_what_existing_may_be() -> None:
    """A wrong value, or a join without an id, is refused where it is written; so is a text that cannot be a child's
    id."""
    wrong: Any = "replace"
    with pytest.raises(DefinitionError, match="join"):
        night.using(id="x", existing=wrong)
    with pytest.raises(DefinitionError, match="which run to join"):
        night.using(existing="join")
    for bad in ("", " a", "a::b", "x" * 201, "a\nb", "$a"):
        with pytest.raises(DefinitionError, match="cannot be a run's id"):
            night.using(id=bad)


async def test_a_start_joins_anyway(hf: Holdfast) -> None:
    """`hf.start` with the same id and input gives the same run, with and without `existing`."""
    first = await hf.start(night.using(id="n-15"), "x")
    again = await hf.start(night.using(id="n-15", existing="join"), "x")
    assert await first.result(60) == await again.result(60) == "night x"
    with pytest.raises(Conflict):
        await hf.start(night.using(id="n-15", existing="join"), "y")


@workflow
async def marked(id: str, day: str) -> str:
    await mark("before")
    found = await night.using(id=id, existing="join")(day)
    await mark("after")
    return found


@workflow
async def family(day: str) -> str:
    """A child with a child."""
    await book(f"{day} first")
    return await night.using(id=f"n-{day}")(day)


@workflow
async def books_nothing() -> str:
    return "nothing to undo"


@workflow
async def undone(how: str) -> None:
    await family.using(id="kept")("kept")
    keep()
    await books_nothing.using(id="idle")()
    await family.using(id="kid")("kid")
    await through_only.using(id="through")()
    if how == "waits":
        await wait_at("end")
    raise ValueError("enough")


@workflow
async def through_only() -> str:
    """A workflow that does nothing but start a child."""
    return await night.using(id="below")("below")


async def states(hf: Holdfast, *ids: str) -> list[str]:
    return [str(await hf.run(one).state()) for one in ids]


async def until_state(hf: Holdfast, run_id: str, state: RunState) -> None:
    async with asyncio.timeout(30):
        while (run := await hf.store.reads.run(run_id)) is None or run.state is not state:  # noqa: ASYNC110  a row has no event
            await asyncio.sleep(0.01)


BELOW = ("kid", "n-kid", "through", "below")
ABOVE = ("kept", "n-kept", "idle")


@pytest.mark.parametrize("way", ["fails", "is cancelled"])
async def test_a_child_of_a_parent_that_is_undone_is_undone(hf: Holdfast, way: str) -> None:
    """Its children are undone, too. It gives no result any more, and says which run undid it. What was kept, and what
    had nothing to undo, stays."""
    run = await hf.start(undone.using(id="top"), "fails" if way == "fails" else "waits")
    if way == "is cancelled":
        await until(lambda: "at end" in log)
        assert await states(hf, *BELOW) == ["succeeded"] * 4
        await run.cancel()
    with pytest.raises(RunFailed):
        await run.result(60)
    assert await states(hf, *BELOW, *ABOVE) == ["undone"] * 4 + ["succeeded"] * 3
    assert {line for line in log if line.startswith("unbook")} == {
        "unbook kid",
        "unbook kid first",
        "unbook below",
    }
    with pytest.raises(RunUndone, match="run top, which had started it, undid it"):
        await hf.run("n-kid").result(60)
    assert "was undone later, because run top" in await hf.run("kid").why()
    assert await hf.run("idle").result(60) == "nothing to undo"
    await healthy(hf.store)


@pytest.mark.parametrize("act", ["skip", "force"])
async def test_a_child_whose_undo_gives_up_is_stuck_itself(hf: Holdfast, act: str) -> None:
    """Its parents wait for it. When its undos are skipped by hand, it is undone. When somebody stops its undoing, it has
    failed, and the runs above wait for a person, one after the other."""
    broken.add("below")
    run, below = await hf.start(undone.using(id="top"), "fails"), hf.run("below")
    await until_state(hf, "below", RunState.STUCK)
    assert await states(hf, "top", *BELOW) == ["undoing", "succeeded", "succeeded", "undoing", "stuck"]
    assert "until its child run through, which is undoing what it did, is undone" in await run.why()
    if act == "skip":
        await below.skip()
    else:
        await below.cancel(force=True)
        for one in (hf.run("through"), run):
            with pytest.raises(RunStuck, match="somebody stopped its undoing"):
                await one.result(60)
            await one.cancel(force=True)
    with pytest.raises(RunFailed, match="enough"):
        await run.result(60)
    assert await states(hf, *BELOW) == ["undone"] * 2 + (["undone"] * 2 if act == "skip" else ["failed"] * 2)


CRASHING = Config(poll_s=0.05, sweep_s=0.02, beat_s=0.05, heart=False)
numbers = itertools.count()


async def test_a_crash_anywhere_while_children_are_undone(store_url: str) -> None:
    """Whichever write the process dies at, the children end `undone` if and only if they were undone."""
    crash_at, points = None, 0
    while crash_at is None or crash_at <= points:
        log.clear()
        name = f"c{next(numbers)}"

        async def begin(hf: Holdfast, name: str = name) -> None:
            await hf.start(crashed.using(id=name), name)

        passed, state = await through(store_url, CRASHING, begin, crash_at, name)
        where = passed.passed[-1] if crash_at else "nowhere"
        async with Holdfast(store_url, roles=()) as hf:
            assert (state, await states(hf, f"kid-{name}", f"n-{name}")) == ("undone", ["undone"] * 2), where
        assert {line for line in log if line.startswith("un")} == {f"unbook {name}", f"unbook {name} first"}
        if crash_at is None:
            points = len(passed.passed)
        crash_at = 1 if crash_at is None else crash_at + 1


@workflow
async def crashed(name: str) -> None:
    await family.using(id=f"kid-{name}")(name)
    raise ValueError("enough")


async def test_a_crash_anywhere_around_a_join(store_url: str) -> None:
    """Whichever write the process dies at, the run that joined another gets its result."""
    crash_at, points = None, 0
    while crash_at is None or crash_at <= points:
        log.clear()
        name = f"c{next(numbers)}"

        async def begin(hf: Holdfast, name: str = name) -> None:
            await hf.start(night.using(id=f"n-{name}"), name)
            await hf.start(marked.using(id=name), f"n-{name}", name)

        passed, state = await through(store_url, CRASHING, begin, crash_at, name)
        where = passed.passed[-1] if crash_at else "nowhere"
        assert state == "succeeded", where
        if crash_at is None:
            points = len(passed.passed)
        crash_at = 1 if crash_at is None else crash_at + 1
