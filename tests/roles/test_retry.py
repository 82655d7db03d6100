"""A retried run keeps everything that was recorded, and executes again only what ended it and what was undone.

What happens outside is a ledger: how often each effect was requested, by `here.key`, as a remote service would count
it.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import (
    Holdfast,
    Retry,
    RunFailed,
    Signal,
    Stop,
    continue_as_new,
    here,
    keep,
    now,
    publish,
    saga,
    step,
    uuid4,
    workflow,
)
from holdfast.config import Config
from holdfast.errors import RunCancelled, RunUndone, WrongState
from holdfast.model import RunState
from holdfast.run import Run
from tests.roles.conftest import FAST, until
from tests.roles.crash import point, through
from tests.roles.test_children import until_state

ledger: dict[str, list[str]] = {}
"""What was done, and with which keys, in order."""
undone: list[str] = []
broken: set[str] = set()
"""The effects that fail."""
gates: dict[str, asyncio.Event] = {}
fresh = itertools.count()


@pytest.fixture(autouse=True)
def clean() -> None:
    for one in (ledger, undone, broken, gates):
        one.clear()


@pytest.fixture
async def hf(store_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(store_url, config=FAST) as holdfast:
        yield holdfast


def keys(what: str) -> list[str]:
    return ledger.get(what, [])


@step(retry=1)
async def do(what: str) -> str:
    ledger.setdefault(what, []).append(here.key)
    if what in broken:
        raise ValueError(f"{what} is broken")
    return what


@step(retry=1)
async def book(what: str) -> str:
    ledger.setdefault(what, []).append(here.key)
    if what in broken:
        raise ValueError(f"{what} is broken")
    return what


@book.undo(retry=1)
async def unbook(done: str | None, what: str) -> None:
    if f"undo {what}" in broken:
        raise ValueError("the undo is broken")
    undone.append(f"{what} {here.undoes}")


@step(retry=1)
async def hang(what: str) -> str:
    ledger.setdefault(what, []).append(here.key)
    await gates.setdefault(what, asyncio.Event()).wait()
    return what


@step(retry=1)
async def until_done(what: str) -> None:
    """Wait for another effect. It is a step, so a run that is replayed later does not see the ledger as it is then."""
    while what not in ledger:  # noqa: ASYNC110  a ledger has no event
        await asyncio.sleep(0.02)


async def fails(run: Run[Any], match: str | None = None) -> None:
    with pytest.raises(RunFailed, match=match):
        await run.result(60)


async def until_is(run: Run[Any], state: RunState) -> None:
    async with asyncio.timeout(60):
        while await run.state() is not state:  # noqa: ASYNC110  a row in a store has no event
            await asyncio.sleep(0.02)


async def healthy(hf: Holdfast) -> None:
    assert [fact for fact in await hf.store.reads.doctor() if fact[2]] == []


# --- what is kept -----------------------------------------------------------------------------------------------------


@workflow
async def handles_one() -> list[str]:
    found = []
    try:
        found.append(await do("optional"))
    except ValueError:
        found.append("without")
    found.append(await do("charge"))
    found.append(await do("ship"))
    return found


async def test_a_handled_failure_is_kept_and_nothing_that_succeeded_is_repeated(hf: Holdfast) -> None:
    """Only the step that ended the run is executed again, with the key it had."""
    broken.update({"optional", "ship"})
    run = await hf.start(handles_one.using(id="h"))
    await fails(run, "ship is broken")
    assert "step do#3" in await run.why()
    broken.clear()
    again = await run.retry()
    assert await again.result(60) == ["without", "charge", "ship"]
    assert keys("optional") == ["h::do"]
    assert keys("charge") == ["h::do#2"]
    assert keys("ship") == ["h::do#3", "h::do#3"]
    await healthy(hf)


async def test_a_chain_of_retries_keeps_one_key(hf: Holdfast) -> None:
    """This holds however often it is retried. Each retry is a retry of the newest run, and has the next number."""
    broken.add("ship")
    run = await hf.start(handles_one.using(id="c"))
    for number in (2, 3, 4):
        await fails(run)
        run = await run.retry()
        assert run.id == f"c~{number}"
    await fails(run)
    broken.clear()
    assert await (await run.retry()).result(60) == ["optional", "charge", "ship"]
    assert (keys("ship"), keys("charge")) == (["c::do#3"] * 5, ["c::do#2"])


async def test_retrying_twice_gives_the_same_run(hf: Holdfast, store_url: str) -> None:
    """This holds also at the same time, from several programs. A run whose retry was retried names the newest."""
    broken.add("ship")
    run = await hf.start(handles_one.using(id="t"))
    await fails(run)
    async with Holdfast(store_url, roles=()) as other:
        found: list[Run[Any]] = await asyncio.gather(
            *(one.run("t").retry() for one in (hf, other, hf, other))
        )
    assert {one.id for one in found} == {"t~2"}
    await fails(found[0])
    assert (await run.retry()).id == "t~2"
    assert keys("ship") == ["t::do#3"] * 2
    third = await found[0].retry()
    await fails(third)
    with pytest.raises(WrongState, match=r"the newest is 't~3'"):
        await run.retry()
    assert [row.id for row in await hf.runs()] == ["t~3", "t~2", "t"]


async def test_an_id_that_looks_like_a_retry_is_none(hf: Holdfast) -> None:
    """`a~2` may be the id of any run. What is a retry of what is recorded, and not read from ids."""
    broken.add("ship")
    for name in ("a", "a~2"):
        await fails(await hf.start(handles_one.using(id=name)))
    assert (await hf.run("a~2").retry()).id == "a~2~2"
    first: Run[Any] = await hf.run("a").retry()
    assert first.id == "a~3"
    await fails(first)
    assert (await first.retry()).id == "a~4"


@workflow
async def branches(how: str) -> list[str]:
    async def branch(name: str) -> str:
        first = await do(f"{name} 1")
        return first + await do(f"{name} 2")

    if how == "group":
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(branch(name)) for name in ("left", "right")]
        return [task.result() for task in tasks]
    if how == "tolerate":
        found = await do.map([f"{name} 1" for name in ("left", "right", "third")], tolerate=1)
        return [str(one) for one in found]
    return list(await asyncio.gather(*(branch(name) for name in ("left", "right"))))


@pytest.mark.parametrize("how", ["gather", "group", "tolerate"])
async def test_of_parallel_steps_only_what_failed_is_repeated(hf: Holdfast, how: str) -> None:
    """Whatever succeeded beside it, delivered or not, is not done again with another key."""
    broken.update({"right 1", "left 1"} if how == "tolerate" else {"right 2"})
    run = await hf.start(branches.using(id="b"), how)
    await fails(run)
    broken.clear()
    await (await run.retry()).result(60)
    assert {len(set(found)) for found in ledger.values()} == {1}, ledger
    twice = {what for what, found in ledger.items() if len(found) > 1}
    # In a map, what had not ended when one failure too many came was given up.
    maybe = {"third 1"} if how == "tolerate" else set()
    assert twice - maybe == ({"right 1"} if how == "tolerate" else {"right 2"})


class TranslatedError(Exception):
    pass


@workflow
async def translates(how: str) -> str:
    try:
        return await do("inner")
    except ValueError as error:
        if how == "from":
            raise TranslatedError("translated") from error
        if how == "none":
            raise TranslatedError("translated") from None
        if how == "fallback":
            return await do("fallback")
        raise TranslatedError("translated")  # noqa: B904  the implicit context is the point


@pytest.mark.parametrize(
    ("how", "ended"), [("from", "inner"), ("none", "inner"), ("context", "inner"), ("fallback", "fallback")]
)
async def test_a_translated_exception_ends_in_the_step_it_came_from(
    hf: Holdfast, how: str, ended: str
) -> None:
    """A fallback that fails is what ended the run, and not the step that it was the fallback for."""
    broken.update({"inner", "fallback"})
    run = await hf.start(translates.using(id="x"), how)
    await fails(run)
    broken.clear()
    assert await (await run.retry()).result(60) == ended
    assert {what: len(found) for what, found in ledger.items()} == {"inner": 1, ended: 2}


@workflow
async def own_error() -> str:
    await do("first")
    if "own" in broken:
        raise RuntimeError("the code is wrong")
    return await do("second")


async def test_an_error_of_the_code_itself_reopens_nothing(hf: Holdfast) -> None:
    """The same outcomes lead to the same end, as `why` says. With the code mended, the run goes on."""
    broken.add("own")
    run = await hf.start(own_error.using(id="o"))
    await fails(run, "the code is wrong")
    assert "fails in the same way unless" in await run.why()
    again = await run.retry()
    await fails(again, "the code is wrong")
    broken.clear()
    assert await (await again.retry()).result(60) == "second"
    assert (keys("first"), keys("second")) == (["o::do"], ["o~3::do#2"])


@workflow
async def takes_time(how: str) -> str:
    started = now()
    await do("before")
    await do(f"after {(now() - started).total_seconds():.6f}")
    await do(str(uuid4()))
    if how == "wait_for":
        return await asyncio.wait_for(hang("slow"), 0.3)
    async with asyncio.timeout(0.3 if how == "timeout" else 60):
        return await hang("slow")


@pytest.mark.parametrize("how", ["timeout", "wait_for", "cancel", "deadline"])
async def test_what_was_given_up_is_tried_again_with_time_of_its_own(hf: Holdfast, how: str) -> None:
    """This holds after a timeout, a cancel or the deadline. The step that ran has the key it had, and its time begins
    anew. Clock and random numbers are those of the run before, so that what was recorded still fits."""
    flow = takes_time.using(id="w", timeout=2.0) if how == "deadline" else takes_time.using(id="w")
    run = await hf.start(flow, how)
    await until(lambda: "slow" in ledger)
    if how == "cancel":
        await run.cancel()
    await fails(run)
    if how in {"timeout", "wait_for"}:
        assert await run.why() == (
            "It failed after timeout ran out: TimeoutError. `holdfast retry w` keeps what was recorded, begins "
            "timeout anew, and goes on."
        )
    again = await run.retry()
    await until(lambda: len(keys("slow")) == 2)
    gates["slow"].set()
    assert await again.result(60) == "slow", await again.why()
    assert keys("slow") == ["w::hang"] * 2
    assert {len(found) for what, found in ledger.items() if what != "slow"} == {1}
    assert len(ledger) == 4


paid = Signal("paid", int)


@workflow
async def hears() -> list[int]:
    first = await paid.wait()
    publish("first", first)
    await do("between")
    return [first, await paid.wait(), await paid.wait()]


async def test_signals_are_kept_whether_they_were_read_or_not(hf: Holdfast) -> None:
    """What was consumed stays consumed, and the new run gets what was not. Published values, tags and priority stay."""
    broken.add("between")
    gates["g"] = asyncio.Event()
    run = await hf.start(hears.using(id="s", tags={"a": "b"}, priority=3))
    await paid.send("s", 1, key="1")
    await paid.send("s", 2, key="2")
    await fails(run)
    broken.clear()
    again = await run.retry()
    await paid.send(again.id, 3, key="3")
    assert await again.result(60) == [1, 2, 3]
    old, new = await run.info(), await again.info()
    assert (new.tags, new.priority, new.namespace, new.published) == (
        old.tags, old.priority, "default", old.published,
    )  # fmt: skip
    assert len(keys("between")) == 2


@workflow
async def generations(turn: int = 1) -> str:
    await do(f"turn {turn}")
    if turn < 3:
        continue_as_new(turn + 1)
    return await do("last")


async def test_a_later_generation_is_retried_where_it_is(hf: Holdfast) -> None:
    """Earlier generations are not begun again."""
    broken.add("last")
    run = await hf.start(generations.using(id="g"))
    await fails(run)
    broken.clear()
    again = await run.retry()
    assert await again.result(60) == "last"
    assert {what: len(found) for what, found in ledger.items()} == {
        "turn 1": 1,
        "turn 2": 1,
        "turn 3": 1,
        "last": 2,
    }
    assert len(set(keys("last"))) == 1
    assert (await again.info()).generation == 3


# --- undo -------------------------------------------------------------------------------------------------------------


@workflow
async def trip(how: str = "") -> str:
    await book("kept")
    keep()
    await book("flight")
    await do("note")
    async with saga():
        await book("hotel")
    try:
        async with saga():
            await book("island")
            await do("ferry")
    except ValueError:
        await do("no ferry")
    return await do("end")


async def test_what_was_undone_is_done_again_under_a_new_key(hf: Holdfast) -> None:
    """What was kept, had no undo, or was undone by a saga that the code handled, is not done again."""
    broken.update({"end", "ferry"})
    run = await hf.start(trip.using(id="u"))
    with pytest.raises(RunUndone):
        await run.result(60)
    before = {what: list(found) for what, found in ledger.items()}
    assert sorted(undone) == ["flight u::book#2", "hotel u::book#3", "island u::book#4"]
    broken.remove("end")
    again = await run.retry()
    assert await again.result(60) == "end"
    more = {what: found[len(before[what]) :] for what, found in ledger.items() if found != before[what]}
    assert more == {"flight": ["u~2::book#2"], "hotel": ["u~2::book#3"], "end": ["u::do#4"]}
    assert len(undone) == 3
    await healthy(hf)


async def test_a_retry_that_fails_undoes_what_it_took_over(hf: Holdfast) -> None:
    """It is undone by the key with which it was done, whichever run did it. What was kept stays kept along the
    chain."""
    broken.update({"end", "undo flight"})
    run = await hf.start(trip.using(id="v"))
    with pytest.raises(RunFailed):
        await run.result(60)
    assert await run.state() is RunState.STUCK
    await run.cancel(force=True)
    await fails(run)
    broken.remove("undo flight")
    again = await run.retry()
    with pytest.raises(RunUndone):
        await again.result(60)
    assert "flight v::book#2" in undone, "it was never undone: it is still that run's effect"
    assert keys("flight") == ["v::book#2"]
    third = await again.retry()
    broken.clear()
    assert await third.result(60) == "end"
    assert keys("flight") == ["v::book#2", "v~3::book#2"]
    assert keys("kept") == ["v::book"]
    assert not any(line.startswith("kept") for line in undone)


async def test_what_was_skipped_by_hand_counts_as_undone(hf: Holdfast) -> None:
    """It is done again with a new key. `why` says what ended the run, and not which undo was skipped."""
    broken.update({"end", "undo flight"})
    run = await hf.start(trip.using(id="k"))
    with pytest.raises(RunFailed):
        await run.result(60)
    await run.skip("book#2", "by phone")
    await fails(run)
    said = await run.why()
    assert "step do#3" in said
    assert "end is broken" in said
    broken.clear()
    assert await (await run.retry()).result(60) == "end"
    assert keys("flight") == ["k::book#2", "k~2::book#2"]


@step(retry=Retry(attempts=1), timeout=0.2)
async def unsure(what: str) -> str:
    ledger.setdefault(what, []).append(here.key)
    if what in broken:
        await asyncio.sleep(60)
    return what


@workflow
async def times_out() -> str:
    await book("before")
    keep()
    return await unsure("slow")


async def test_what_may_have_had_its_effect_keeps_its_key(hf: Holdfast) -> None:
    """A step without an undo timed out. The remote service recognizes it by its key when it is tried again."""
    broken.add("slow")
    run = await hf.start(times_out.using(id="q"))
    await fails(run)
    broken.clear()
    assert await (await run.retry()).result(60) == "slow"
    assert (keys("slow"), keys("before")) == (["q::unsure"] * 2, ["q::book"])


# --- children ---------------------------------------------------------------------------------------------------------


@workflow
async def leg(what: str) -> str:
    first = await book(f"{what} first")
    return first + await do(f"{what} second")


@workflow
async def deep(what: str) -> str:
    await do(f"{what} above")
    return await leg(what)


@workflow
async def journey(how: str) -> list[str]:
    ids = [leg.using(id=f"leg-{i}") for i in range(3)] if how == "ids" else [leg] * 3
    if how == "deep":
        return [await deep("a"), await do("end")]
    found = list(await asyncio.gather(*(flow(str(i)) for i, flow in enumerate(ids))))
    return [*found, await do("end")]


async def test_succeeded_children_are_kept_and_belong_to_the_new_run(hf: Holdfast) -> None:
    """None is run again. They are undone with the run that took them over."""
    broken.add("end")
    run = await hf.start(journey.using(id="j"), "ids")
    with pytest.raises(RunUndone):
        await run.result(60)
    assert len(undone) == 3
    broken.clear()
    again = await run.retry()
    assert len(await again.result(60)) == 4
    assert {len(found) for what, found in ledger.items() if what.endswith("first")} == {2}
    assert {len(found) for what, found in ledger.items() if what.endswith("second")} == {1}
    assert [row.retry_of for row in await hf.store.reads.children(again.id)] == [f"leg-{i}" for i in range(3)]


@workflow
async def keeps_children() -> str:
    await leg.using(id="whole")("whole")
    await do("end")
    await book("late")
    return await do("very end")


async def test_a_child_whose_undoing_was_stopped_is_retried_with_what_it_did(hf: Holdfast) -> None:
    """It does nothing again. Its retry belongs to the new run: if that one fails, what the child did is undone with it."""
    broken.update({"end", "undo whole first"})
    run, child = await hf.start(keeps_children.using(id="p")), hf.run("whole")
    await until_state(hf, "whole", RunState.STUCK)
    await child.cancel(force=True)
    await until_state(hf, "p", RunState.STUCK)
    await run.cancel(force=True)
    await fails(run)
    assert [row.state for row in await hf.store.reads.children("p")] == [RunState.FAILED]
    broken.clear()
    broken.add("very end")
    again = await run.retry()
    with pytest.raises(RunUndone):
        await again.result(60)
    assert [(row.id, row.state) for row in await hf.store.reads.children("p~2")] == [
        ("whole~2", RunState.UNDONE)
    ]
    assert undone == ["late p~2::book", "whole first whole::book"]
    assert keys("whole first") == ["whole::book"]
    broken.clear()
    assert await (await again.retry()).result(60) == "very end"
    assert keys("whole first") == ["whole::book", "whole~3::book"]
    assert keys("whole second") == ["whole::do"]
    await healthy(hf)


@workflow
async def plain_leg(what: str) -> str:
    return await do(what)


@workflow
async def keeps_plain_child() -> str:
    await plain_leg.using(id="plain")("plain")
    return await do("end")


async def test_a_child_without_anything_to_undo_is_taken_over(hf: Holdfast) -> None:
    """It stays succeeded, and belongs to the new run from then on."""
    broken.add("end")
    run = await hf.start(keeps_plain_child.using(id="p"))
    await fails(run)
    assert [row.state for row in await hf.store.reads.children("p")] == [RunState.SUCCEEDED]
    broken.clear()
    again = await run.retry()
    assert await again.result(60) == "end"
    assert await hf.store.reads.children("p") == []
    assert [row.id for row in await hf.store.reads.children("p~2")] == ["plain"]
    assert keys("plain") == ["plain::do"]
    await healthy(hf)


@pytest.mark.parametrize("how", ["ids", "derived", "deep"])
async def test_a_child_that_failed_is_retried_with_its_own_history(hf: Holdfast, how: str) -> None:
    """This holds also for a child's child. Those beside it that succeeded and were not undone are not run again."""
    broken.add("a second" if how == "deep" else "1 second")
    run = await hf.start(journey.using(id="f"), how)
    await fails(run)
    broken.clear()
    again = await run.retry()
    await again.result(60)
    for what, found in ledger.items():
        if what.endswith(("second", "above", "end")):
            assert len(set(found)) == 1, (what, found)
            assert len(found) == 1 + (what in ("1 second", "a second")), (what, found)
    rows = {row.id: row for row in await hf.runs()}
    if how == "ids":
        assert rows["leg-1~2"].parent_id == "f~2"
    elif how == "derived":
        assert rows["f~2/leg#2"].retry_of == "f/leg#2"
    else:
        assert rows["f~2/deep/leg"].retry_of == "f/deep/leg"
        assert rows["f~2/deep"].retry_of == "f/deep"
    await healthy(hf)


@workflow
async def fast_and_slow() -> list[str]:
    return list(await asyncio.gather(leg("slow"), do("fast")))


async def test_a_child_that_was_cancelled_with_its_parent_goes_on(hf: Holdfast) -> None:
    """It had undone itself. What it undid is done again, and the rest stays."""
    broken.add("fast")
    run = await hf.start(fast_and_slow.using(id="r"))
    await fails(run)
    broken.clear()
    assert await (await run.retry()).result(60) == ["slow firstslow second", "fast"]
    assert len(set(keys("slow second"))) <= 1
    assert len(keys("fast")) == 2


async def test_a_child_is_retried_by_its_parent(hf: Holdfast) -> None:
    """A person can retry it only when its parent succeeded without it. Then it is a run without a parent."""
    broken.add("1 second")
    run = await hf.start(journey.using(id="m"), "ids")
    await fails(run)
    with pytest.raises(WrongState, match=r"child of 'm', which was undone: `holdfast retry m`"):
        await hf.run("leg-1").retry()
    handled = await hf.start(handles_child.using(id="handled"))
    assert await handled.result(60) == "without"
    broken.clear()
    alone: Run[str] = await hf.run("handled/leg").retry()
    assert await alone.result(60) == "1 first1 second"
    assert (await alone.info()).parent_id is None
    assert keys("1 second")[-1] == keys("1 second")[-2] == "handled/leg::do"


@workflow
async def handles_child() -> str:
    try:
        return await leg("1")
    except ValueError:
        return "without"


async def test_a_run_with_a_child_that_has_not_ended_waits_for_it(hf: Holdfast) -> None:
    """Nothing can go on from what is still being undone."""
    broken.update({"undo stuck first"})
    run = await hf.start(leaves_child.using(id="l"))
    await fails(run)
    await until_is(hf.run("left"), RunState.STUCK)
    with pytest.raises(WrongState, match="left"):
        await run.retry()
    await hf.run("left").skip(note="by hand")
    await fails(hf.run("left"))
    assert (await run.retry()).id == "l~2"


@workflow
async def leaves_child() -> None:
    task = asyncio.create_task(waits.using(id="left")())
    await until_done("stuck first")
    keep()
    raise Stop(f"enough of {task.get_name()}")


@workflow
async def waits() -> None:
    await book("stuck first")
    await hang("never")


async def test_another_input_is_another_child(hf: Holdfast) -> None:
    """A child that is started with another input does not go on from the old one."""
    broken.add("a")
    run = await hf.start(asks_differently.using(id="d"))
    await fails(run)
    broken.clear()
    broken.add("differently")
    assert await (await run.retry()).result(60) == "b"
    assert (len(keys("a")), len(keys("b"))) == (1, 1)


@workflow
async def asks_differently() -> str:
    return await plain("b" if "differently" in broken else "a")


@workflow
async def plain(what: str) -> str:
    return await do(what)


async def test_a_drifted_input_holds_the_retry(hf: Holdfast) -> None:
    """What was done again gave another result, and what was kept had been asked for with the old one. A person
    decides."""
    broken.add("end")
    run = await hf.start(numbers_flow.using(id="n"))
    with pytest.raises(RunUndone):
        await run.result(60)
    again = await run.retry()
    await until_is(again, RunState.HELD)
    assert "code has changed" in await again.why()
    assert len([what for what in ledger if what.startswith("mail")]) == 1


@step(retry=1)
async def number() -> int:
    return next(fresh)


@number.undo
async def unnumber(done: int | None) -> None:
    undone.append("number")


@workflow
async def numbers_flow() -> str:
    found = await number()
    await do(f"mail {found}")
    return await do("end")


# --- when processes die -----------------------------------------------------------------------------------------------

CRASHING = Config(poll_s=0.05, sweep_s=0.02, beat_s=0.05, heart=False)


@step(retry=Retry(attempts=1, losses=5))
async def act(what: str) -> str:
    await point(f"before {what}")
    ledger.setdefault(what, []).append(here.key)
    await point(f"after {what}")
    if what.rpartition(" ")[2] in broken:
        raise ValueError(f"{what} is broken")
    return what


@workflow
async def part(name: str) -> str:
    await act(f"{name} one")
    return await act(f"{name} two")


@workflow
async def whole(name: str) -> str:
    try:
        await act(f"{name} handled")
    except ValueError:
        pass
    await act(f"{name} charge")
    await part(name)
    return await act(f"{name} end")


@pytest.mark.parametrize("ends", ["end", "two"])
async def test_a_crash_anywhere_in_a_retry_repeats_nothing(store_url: str, ends: str) -> None:
    """Whichever write or effect the process dies at, each effect has one key through both runs, and what was recorded
    before the retry is not requested again."""
    crash_at, points = None, 0
    while crash_at is None or crash_at <= points:
        name = f"r{next(fresh)}"
        ledger.clear()
        broken.update({"handled", ends})
        async with Holdfast(store_url, config=CRASHING) as hf:
            await fails(await hf.start(whole.using(id=name), name))
        before = Counter({what: len(found) for what, found in ledger.items()})
        broken.remove(ends)

        async def begin(hf: Holdfast, name: str = name) -> None:
            assert (await hf.run(name).retry()).id == f"{name}~2"

        passed, state = await through(store_url, CRASHING, begin, crash_at, f"{name}~2")
        where = passed.passed[-1] if crash_at else "nowhere"
        assert state == "succeeded", where
        again = {f"{name} {ends}", f"{name} end"}
        for what, found in ledger.items():
            assert len(set(found)) == 1, (where, what, found)
            if what not in again:
                assert len(found) == before[what], (where, what)
        if crash_at is None:
            points = len(passed.passed)
            assert points > 4
        crash_at = 1 if crash_at is None else crash_at + 1


async def test_processes_that_retry_at_once_get_one_run(store_url: str) -> None:
    """Each retries in its own process."""
    broken.add("ship")
    async with Holdfast(store_url, config=FAST) as hf:
        await fails(await hf.start(handles_one.using(id="z")))
    program = (
        "import asyncio, sys\n"
        "from holdfast import Holdfast\n"
        "async def main():\n"
        "    async with Holdfast(sys.argv[1], roles=()) as hf:\n"
        "        print((await hf.run('z').retry()).id)\n"
        "asyncio.run(main())\n"
    )
    made = await asyncio.gather(
        *(
            asyncio.create_subprocess_exec(
                sys.executable, "-c", program, store_url, stdout=asyncio.subprocess.PIPE
            )
            for _ in range(4)
        )
    )
    said = [(await one.communicate())[0].decode().strip() for one in made]
    assert said == ["z~2"] * 4


async def test_a_retry_can_be_cancelled_and_retried(hf: Holdfast) -> None:
    """This holds also before it did anything. Nothing is lost on the way."""
    broken.add("ship")
    run = await hf.start(handles_one.using(id="y"))
    await fails(run)
    again = await run.retry()
    await again.cancel()
    with pytest.raises((RunCancelled, RunFailed)):
        await again.result(60)
    broken.clear()
    assert await (await again.retry()).result(60) == ["optional", "charge", "ship"]
    assert set(keys("ship")) == {"y::do#3"}
    assert keys("charge") == ["y::do#2"]


@workflow
async def with_a_child(what: str) -> str:
    await below(what)
    return await do("last")


@workflow
async def below(what: str) -> str:
    return await do(what)


async def test_why_says_that_something_was_undone_only_if_it_was(hf: Holdfast) -> None:
    """A run that has children looks for what they did. Here nothing has an undo."""
    broken.add("last")
    run = await hf.start(with_a_child, "first")
    with pytest.raises(RunFailed):
        await run.result(60)
    assert await run.state() is RunState.FAILED
    assert "undone" not in await run.why()


@workflow
async def voyage(how: str) -> str:
    await book("port")
    async with saga():
        await book("hotel")
        if how == "code" and "code" in broken:
            raise RuntimeError("the code is broken")
        if how == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(do("ferry"))
                group.create_task(book("car"))
        elif how == "child":
            await night("ship")
            await do("ferry")
        elif how == "other":
            try:
                await do("ferry")
            except ValueError as error:
                raise RuntimeError("no ferry") from error
        else:
            await do("ferry")
    return await do("end")


@workflow
async def night(what: str) -> str:
    return await book(what)


@pytest.mark.parametrize("how", ["step", "code", "group", "child", "other"])
async def test_what_a_saga_undid_because_the_run_failed_is_done_again(hf: Holdfast, how: str) -> None:
    """The exception left the saga and ended the run. Its retry does again what the saga undid, under a new key: it does not
    succeed with something that is not there."""
    broken.update({"ferry", "code"})
    run = await hf.start(voyage.using(id="w"), how)
    with pytest.raises(RunFailed):
        await run.result(60)
    assert "hotel w::book#2" in undone
    broken.clear()
    again = await run.retry()
    assert await again.result(60) == "end"
    assert keys("hotel") == ["w::book#2", "w~2::book#2"]
    booked = {what: found[-1] for what, found in ledger.items()}
    there = {f"{what} {key}" for what, key in booked.items()}
    assert there.isdisjoint(undone), "nothing that the run relies on is undone"
    await healthy(hf)


@workflow
async def patient(how: str) -> str:
    try:
        async with saga():
            await book("hotel")
            await do("ferry")
    except ValueError:
        await do("no ferry")
    if "code" in broken:
        raise RuntimeError("the code is broken")
    return await do("end")


async def test_what_a_saga_undid_and_the_code_handled_stays_undone(hf: Holdfast) -> None:
    """The code went another way, and failed by itself later."""
    broken.update({"ferry", "code"})
    run = await hf.start(patient.using(id="x"), "")
    with pytest.raises(RunFailed):
        await run.result(60)
    broken.clear()
    again = await run.retry()
    assert await again.result(60) == "end"
    assert (keys("hotel"), undone) == (["x::book"], ["hotel x::book"])
    await healthy(hf)
