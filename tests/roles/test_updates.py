"""Updates: calls into a run that get an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast import Conflict, Holdfast, InvalidInput, Refused, RunFailed, UpdateFailed
from holdfast.errors import (
    DefinitionError,
    UnknownRun,
    UnknownUpdate,
    UnknownValue,
    UpdateTimeout,
    WrongState,
)
from holdfast.model import RunState, SignalRow, UpdateAnswer
from holdfast.run import Run
from tests.roles import update_flows as flows
from tests.roles.conftest import FAST, until
from tests.roles.update_flows import Address, Confirmation, change, done, effects, gates, other


@pytest.fixture(autouse=True)
def clean() -> None:
    effects.clear()
    gates.clear()


@pytest.fixture
async def caller(hf: Holdfast, store_url: str) -> AsyncIterator[Holdfast]:
    """Another Holdfast on the same store, without roles. Calls go through it, because it was opened last."""
    async with Holdfast(store_url, roles=(), config=FAST) as holdfast:
        yield holdfast


async def leave_memory(hf: Holdfast, run: Run[str]) -> None:
    scheduler = hf.node.scheduler
    assert scheduler is not None
    await until(lambda: run.id not in scheduler.runs)


async def until_stuck(run: Run[Any]) -> None:
    async with asyncio.timeout(60):
        while await run.state() is not RunState.STUCK:  # noqa: ASYNC110  the store gives no event
            await asyncio.sleep(0.01)


async def answers(hf: Holdfast, run_id: str) -> list[str | None]:
    return [row.answer for row in await hf.store.reads.signals(run_id) if row.update is not None]


async def test_a_call_is_served_beside_the_workflow_and_answered(hf: Holdfast) -> None:
    """The function runs beside the workflow, may await steps, and what it returns is the answer."""
    run = await hf.start(flows.ships.using(id="a"))
    assert await change.call("a", Address("Quay 1"), timeout=10) == Confirmation("Quay 1 (a)")
    assert await change.call("a", Address("Quay 2"), timeout=10) == Confirmation("Quay 2 (a)")
    await done.send("a", 1)
    assert await run.result(60) == "old Quay 1 Quay 2"


async def test_another_process_gets_the_answer(hf: Holdfast, caller: Holdfast) -> None:
    """A process without roles calls a run that another process owns, or that is in nobody's memory."""
    run = await hf.start(flows.ships.using(id="a"))
    assert await change.call("a", Address("Quay 1"), timeout=10) == Confirmation("Quay 1 (a)")
    await leave_memory(hf, run)
    assert await change.call("a", Address("Quay 2"), timeout=10) == Confirmation("Quay 2 (a)")
    await leave_memory(hf, run)
    await done.send("a", 1)
    assert await run.result(60) == "old Quay 1 Quay 2"
    assert effects["relabel Quay 1"] == effects["relabel Quay 2"] == 1


async def test_one_key_has_one_effect_and_one_answer(hf: Holdfast) -> None:
    """The same key again, at once or later, even after the run has ended, gets the same answer and does nothing."""
    run = await hf.start(flows.ships.using(id="a"))
    calls = (change.call("a", Address("Quay 1"), key="k", timeout=10) for _ in range(3))
    assert set(map(str, await asyncio.gather(*calls))) == {str(Confirmation("Quay 1 (a)"))}
    await leave_memory(hf, run)
    assert await change.call("a", Address("Quay 1"), key="k", timeout=10) == Confirmation("Quay 1 (a)")
    await done.send("a", 1)
    assert await run.result(60) == "old Quay 1"
    assert await change.call("a", Address("Quay 1"), key="k", timeout=10) == Confirmation("Quay 1 (a)")
    assert effects["relabel Quay 1"] == 1
    with pytest.raises(Conflict, match="another value under the key 'k'"):
        await change.call("a", Address("Quay 2"), key="k", timeout=10)


@pytest.mark.parametrize(
    ("street", "reason"), [("old", "that is the address already"), ("late", "it is too late for that")]
)
async def test_a_refusal_changes_nothing(hf: Holdfast, street: str, reason: str) -> None:
    """`check` refuses by raising anything, the function by raising Refused first. The run goes on as if nobody had
    called, also when it is replayed, and the same key is refused again."""
    run = await hf.start(flows.ships.using(id="a"))
    before = [step.key for step in await run.steps()]
    for _ in range(2):
        with pytest.raises(Refused, match=f"^{reason}$"):
            await change.call("a", Address(street), key="k", timeout=10)
    assert [step.key for step in await run.steps()] == before
    await leave_memory(hf, run)
    assert (await change.call("a", Address("Quay 1"), timeout=10)).label == "Quay 1 (a)"
    await leave_memory(hf, run)
    await done.send("a", 1)
    assert await run.result(60) == "old Quay 1"
    assert await answers(hf, "a") == [UpdateAnswer.REFUSED, UpdateAnswer.RETURNED]


async def test_an_error_is_the_answer_of_the_call_and_not_of_the_run(hf: Holdfast) -> None:
    """What the function raises, also a step's failure, reaches the caller with its cause. The run goes on."""
    run = await hf.start(flows.ships.using(id="a"))
    for _ in range(2):
        with pytest.raises(UpdateFailed, match="LookupError: no such street") as failed:
            await change.call("a", Address("nowhere"), key="k", timeout=30)
        assert isinstance(failed.value.__cause__, LookupError)
        assert (failed.value.run_id, failed.value.error_type) == ("a", "builtins.LookupError")
    await done.send("a", 1)
    assert await run.result(60) == "old"


async def test_a_call_may_come_before_the_scope(hf: Holdfast) -> None:
    """It waits for the scope. A scope whose code waits for nothing but a call keeps the run open, in memory or not."""
    run = await hf.start(flows.opens_late.using(id="a"))
    first = asyncio.create_task(other.call("a", 1, timeout=20))
    await until(lambda: hf.node.scheduler is not None and "a" not in hf.node.scheduler.runs)
    assert "nothing in the run serves 'other' now" in await run.why()
    await done.send("a", 1)
    assert await first == 2
    assert "serving the update 'other'" in await run.why()
    assert "holdfast update a other --data 0" in await run.why()
    await until(lambda: hf.node.scheduler is not None and "a" not in hf.node.scheduler.runs)
    assert await run.state() is RunState.RUNNING
    assert await other.call("a", 2, timeout=10) == 3
    assert await run.result(60) == [1, 2]


async def test_calls_are_served_one_after_the_other(hf: Holdfast) -> None:
    """While one call is served, the next waits for its turn. Leaving the scope waits for the calls that began."""
    gates["one"] = asyncio.Event()
    run = await hf.start(flows.in_turn.using(id="a"))
    calls = [asyncio.create_task(change.call("a", Address("one"), timeout=20))]
    await until(lambda: effects["relabel one"] == 1)
    calls.append(asyncio.create_task(change.call("a", Address("two"), timeout=20)))
    await until_delivered(hf, "a", 2)
    await done.send("a", 1)
    await until_delivered(hf, "a", 3)
    gates["one"].set()
    assert await run.result(60) == ["begin one", "end one"]
    assert await calls[0] == Confirmation("one")
    with pytest.raises(UpdateFailed, match="before anything served this update"):
        await calls[1]


async def until_delivered(hf: Holdfast, run_id: str, count: int) -> None:
    await until_signals(hf, run_id, lambda rows: sum(row.delivered_seq is not None for row in rows) >= count)


async def until_signals(hf: Holdfast, run_id: str, true: Callable[[list[SignalRow]], bool]) -> None:
    """Wait until a condition of the run's signals is true."""
    async with asyncio.timeout(60):
        while not true(await hf.store.reads.signals(run_id)):  # noqa: ASYNC110  the store gives no event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_call_that_hangs_does_not_hang_the_run(hf: Holdfast, leaves: bool) -> None:
    """The run leaves the scope after the grace, or at once if the code raised. The call gets an error."""
    run = await hf.start(flows.hangs.using(id="a"), leaves)
    call = asyncio.create_task(other.call("a", 1, timeout=20))
    await until(lambda: effects["hangs"] == 1)
    await done.send("a", 1)
    with pytest.raises(UpdateFailed, match="left the scope"):
        await call
    if leaves:
        assert await run.result(60) == "out"
    else:
        with pytest.raises(RunFailed, match="out"):
            await run.result(60)


async def test_an_ended_run_says_so(hf: Holdfast) -> None:
    """A run that has ended takes no call; an unknown run is unknown."""
    run = await hf.start(flows.ships.using(id="a"))
    await done.send("a", 1)
    await run.result(60)
    with pytest.raises(WrongState, match="has ended and serves no updates"):
        await change.call("a", Address("x"), timeout=10)
    with pytest.raises(UnknownRun):
        await change.call("nobody", Address("x"), timeout=10)


@pytest.mark.parametrize("way", ["fail", "cancel"])
async def test_a_run_that_ends_answers_its_open_calls(hf: Holdfast, caller: Holdfast, way: str) -> None:
    """A call that was being served, and one that nothing served, get an error as soon as the run fails or is cancelled,
    before its undos are done."""
    gates["one"] = asyncio.Event()
    run = await hf.start(flows.ships.using(id="a"), True)
    await change.call("a", Address("zero"), timeout=10)
    calls: list[asyncio.Task[Any]] = [asyncio.create_task(change.call("a", Address("one"), timeout=20))]
    await until(lambda: effects["relabel one"] == 1)
    calls.append(asyncio.create_task(other.call("a", 1, timeout=20)))
    await until_delivered(hf, "a", 3)
    await (done.send("a", 1) if way == "fail" else run.cancel())
    for call in calls:
        with pytest.raises(UpdateFailed):
            await call
    with pytest.raises(RunFailed):
        await run.result(60)
    assert await answers(hf, "a") == [UpdateAnswer.RETURNED, UpdateAnswer.RAISED, UpdateAnswer.UNSERVED]
    assert effects["tear off zero"] == 1
    assert [broken for *_, broken in await hf.store.reads.doctor() if broken] == []


async def test_a_call_to_a_run_that_was_never_claimed_fails_when_it_is_cancelled(
    hf: Holdfast, store_url: str
) -> None:
    """Nothing delivers the call. The caller sees that the run has ended."""
    await hf.close()
    async with Holdfast(store_url, roles=(), config=FAST) as only:
        run = await only.start(flows.ships.using(id="a"))
        call = asyncio.create_task(change.call("a", Address("one"), timeout=20))
        await until_signals(only, "a", bool)
        assert await run.cancel() is RunState.CANCELLED
        with pytest.raises(UpdateFailed, match=r"has ended \(cancelled\)"):
            await call
    await hf.open()


async def test_a_run_that_is_stuck_while_it_undoes_itself_says_so(hf: Holdfast, caller: Holdfast) -> None:
    """It will never serve again. Whoever calls it is not kept waiting, and when an operator has mended it, the call has
    an answer in the store, too."""
    run = await hf.start(flows.cannot_undo.using(id="a"))
    assert await other.call("a", -3, timeout=10) == 3
    await done.send("a", 1)
    await until_stuck(run)
    with pytest.raises(UpdateFailed, match="run 'a' is stuck while it undoes itself, and serves no updates"):
        await other.call("a", 4, key="late", timeout=60)
    await run.skip(note="pulled out by hand")
    with pytest.raises(RunFailed):
        await run.result(60)
    assert await answers(hf, "a") == [UpdateAnswer.RETURNED, UpdateAnswer.UNSERVED]
    with pytest.raises(UpdateFailed, match="serves no updates any more"):
        await other.call("a", 4, key="late", timeout=10)


async def test_a_function_that_cancels_itself_is_named_so(hf: Holdfast) -> None:
    """Nobody left the scope, and the answer does not say so."""
    run = await hf.start(flows.cancels_itself.using(id="a"))
    with pytest.raises(UpdateFailed, match=r"was cancelled before it ended$"):
        await other.call("a", 1, timeout=10)
    await done.send("a", 1)
    assert await run.result(60) == "out"


async def test_an_empty_key_is_refused(hf: Holdfast) -> None:
    """It would be no key, and the same event again would count again."""
    await hf.start(flows.ships.using(id="a"))
    with pytest.raises(InvalidInput, match="key is empty: give the id of what happened, or leave it out"):
        await change.call("a", Address("Quay 1"), key="", timeout=10)
    with pytest.raises(InvalidInput, match="key is empty"):
        await done.send("a", 1, key="")
    with pytest.raises(InvalidInput, match="the key of an update is empty"):
        await hf.send_update("a", "change_address", b"{}", "")
    assert await hf.store.reads.signals("a") == []


async def test_a_held_run_answers_once_it_is_released(hf: Holdfast) -> None:
    """In time there is no answer. The error says that the run is held and under which key the call is recorded."""
    run = await hf.start(flows.ships.using(id="a"))
    await run.hold("for a moment")
    with pytest.raises(UpdateTimeout, match=r"recorded under the key 'k'.* is held; .*`holdfast release a`"):
        await change.call("a", Address("Quay 1"), key="k", timeout=0.3)
    await run.release()
    assert await change.call("a", Address("Quay 1"), key="k", timeout=10) == Confirmation("Quay 1 (a)")
    assert effects["relabel Quay 1"] == 1


async def test_continue_as_new_keeps_answers_and_carries_calls_over(hf: Holdfast) -> None:
    """A call that no generation has begun goes to the next. An answer of an earlier generation is still that of its
    key."""
    run = await hf.start(flows.goes_round.using(id="a"), 1)
    await run.hold()
    calls = [asyncio.create_task(other.call("a", i, key=str(i), timeout=20)) for i in (1, 2, 3)]
    await until_signals(hf, "a", lambda rows: len(rows) == 3)
    await run.release()  # the second call begins when the first has ended, and the third does not
    assert sorted(await asyncio.gather(*calls)) == [10, 20, 30]
    assert await run.result(60) == 0
    assert await asyncio.gather(*(other.call("a", i, key=str(i), timeout=20) for i in (1, 2, 3))) == [
        10,
        20,
        30,
    ]
    assert [effects[f"relabel {i}"] for i in (1, 2, 3)] == [1, 1, 1]


async def test_a_retry_keeps_what_was_answered(hf: Holdfast) -> None:
    """The retry of a run replays the calls that its code got, and answers their keys as before. What nothing served is
    gone."""
    run = await hf.start(flows.ships.using(id="a"), True)
    await change.call("a", Address("Quay 1"), key="k", timeout=10)
    lost = asyncio.create_task(other.call("a", 1, key="lost", timeout=20))
    await until_delivered(hf, "a", 2)
    await done.send("a", 1)
    with pytest.raises(UpdateFailed):
        await lost
    with pytest.raises(RunFailed):
        await run.result(60)
    again = await run.retry()
    assert await change.call(again.id, Address("Quay 1"), key="k", timeout=10) == Confirmation("Quay 1 (a)")
    with pytest.raises(RunFailed, match="the ship sank"):
        await again.result(60)
    assert [row.key for row in await hf.store.reads.signals(again.id) if row.update is not None] == ["k"]


async def test_a_wrong_call_is_refused_where_it_is_made(hf: Holdfast, caller: Holdfast) -> None:
    """A name that no update of the application has, and a value that does not fit, are refused from any process, with
    the command that would be right. Nothing is written."""
    await hf.start(flows.ships.using(id="a"))
    with pytest.raises(
        UnknownUpdate, match=r"takes no update 'change_adress'.*`holdfast update a change_address --data"
    ):
        await caller.call_update("a", "change_adress", b"{}", None, 5)
    with pytest.raises(
        InvalidInput, match=r"update 'change_address' to run 'a'.*`holdfast update a change_address"
    ):
        await caller.call_update("a", "change_address", b'{"street": 5}', None, 5)
    with pytest.raises(InvalidInput):
        await change.call("a", Address(5), timeout=5)  # type: ignore[arg-type]
    assert await answers(hf, "a") == []


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"fn": lambda: 1}, "a function that answers and takes one value"),
        ({"fn": lambda one, two: 1}, "a function that answers and takes one value"),
        ({"fn": abs, "check": lambda: None}, "a function as check= and takes one value"),
        ({"fn": 3}, "a function that answers, not 3"),
        ({"fn": abs, "limit": 0}, "limit must be 1 or more"),
    ],
)
def test_what_cannot_serve_is_refused_where_it_is_written(how: dict[str, Any], words: str) -> None:
    """Otherwise every call would be refused, for a reason that its caller can do nothing about."""
    with pytest.raises(DefinitionError, match=words):
        other.serve(**how)


def test_what_takes_one_value_may_serve() -> None:
    """A step, a method, a function with defaults, and what does not say what it takes."""
    fit: list[Any] = [flows.relabel, [].append, lambda one, two=2: one, int]
    for fn in fit:
        other.serve(fn)


async def test_two_scopes_of_one_update_are_refused(hf: Holdfast) -> None:
    """Nobody could say which one serves a call."""
    with pytest.raises(RunFailed, match="serves the update 'other' already"):
        await (await hf.start(flows.serves_twice)).result(60)


async def test_a_published_value_is_read_in_its_type(hf: Holdfast) -> None:
    """A missing key and another type are errors that name the run and the key."""
    run = await hf.start(flows.ships.using(id="a"))
    with pytest.raises(UnknownValue, match="'a' has not published 'address'"):
        await run.published("address", Address)
    await change.call("a", Address("Quay 1", 2), timeout=10)
    assert await run.published("address", Address) == Address("Quay 1", 2)
    with pytest.raises(InvalidInput, match="'address', which run 'a' has published"):
        await run.published("address", int)


def test_plain_code_calls_too(store_url: str) -> None:
    """`hf.wait(change.call(…))` is the same call."""
    with Holdfast(store_url, config=FAST) as hf:
        hf.wait(hf.start(flows.ships.using(id="a")))
        assert hf.wait(change.call("a", Address("Quay 1"), timeout=10)) == Confirmation("Quay 1 (a)")
