"""A fork keeps what another run recorded before a point, executes the rest itself, and undoes only what it did itself.

What happens outside is a ledger: how often each effect was requested, by `here.key`, as a remote service would count
it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from holdfast import (
    Holdfast,
    Retry,
    Run,
    RunFailed,
    Signal,
    ask,
    continue_as_new,
    here,
    now,
    patched,
    publish,
    random,
    saga,
    step,
    undo_with,
    uuid4,
    workflow,
)
from holdfast.config import Config
from holdfast.errors import Conflict, InvalidInput, RunUndone, UnknownRun, UnknownWorkflow, WrongState
from holdfast.model import RunState
from holdfast.testing.sim import Sim
from holdfast.workflow import registry
from tests.roles.conftest import FAST
from tests.roles.crash import point, through

ledger: dict[str, list[str]] = {}
undone: list[str] = []
broken: set[str] = set()
deployed: set[str] = set()
"""The markers that the code has."""


@pytest.fixture(autouse=True)
def clean() -> None:
    for one in (ledger, undone, broken, deployed):
        one.clear()


@pytest.fixture
async def hf(store_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(store_url, config=FAST) as holdfast:
        yield holdfast


def keys(what: str) -> list[str]:
    return ledger.get(what, [])


class Quote(msgspec.Struct):
    cents: int


@step(retry=1)
async def quote(item: str) -> Quote:
    ledger.setdefault("quote", []).append(here.key)
    return Quote(100)


@step(retry=1)
async def charge(cents: int) -> str:
    ledger.setdefault(f"charge {cents}", []).append(here.key)
    return f"charged {cents}"


@charge.undo
async def refund(charged: str | None, cents: int) -> None:
    undone.append(f"charge {cents} {here.key}")


@step(retry=1)
async def do(what: str) -> str:
    ledger.setdefault(what, []).append(here.key)
    if what in broken:
        raise ValueError(f"{what} is broken")
    return what


@step
async def take_away(what: str) -> None:
    undone.append(what)


@workflow
async def order(item: str) -> str:
    price = await quote(item)
    charged = await charge(price.cents)
    return f"{charged}, {await do('ship')}"


async def ended(hf: Holdfast, flow: Any, run_id: str, *args: Any) -> RunState:
    run = await hf.start(flow.using(id=run_id), *args)
    try:
        await run.result(timeout=60)
    except RunFailed:
        pass
    return await run.state()


async def asked(run: Run[Any], key: str, *, begun: bool = False) -> None:
    """Wait until the code has asked for this step, and its first attempt has begun if that is wanted."""
    async with asyncio.timeout(60):
        while not any(one.key == key and (one.attempt or not begun) for one in await run.steps()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_fork_executes_a_step_again_and_all_after_it(hf: Holdfast) -> None:
    """What came before is kept. The new steps have `here.key`s of their own. The other run is as it was, and the fork
    names it."""
    assert await ended(hf, order, "o", "book") is RunState.SUCCEEDED
    before = await hf.run("o").rows()
    fork = await hf.run("o", order).fork(from_="charge")
    assert fork.id == "o-fork-1"
    assert await fork.result(timeout=60) == "charged 100, ship"
    assert len(keys("quote")) == 1
    assert keys("charge 100") == ["o::charge", "o-fork-1::charge"]
    assert keys("ship") == ["o::do", "o-fork-1::do"]
    assert await hf.run("o").rows() == before
    assert (await fork.info()).forked_from == "o"
    assert "It was forked from o." in await fork.why()
    assert [(one.verb, one.note) for one in await hf.store.reads.journal("o-fork-1")] == [
        ("fork", "of o from charge")
    ]
    assert (await (await hf.run("o").fork(from_="do")).info()).id == "o-fork-2"
    assert (await (await fork.fork(id="mine")).info()).id == "mine"


async def test_another_input_begins_at_the_beginning(hf: Holdfast) -> None:
    """Nothing is kept: it is a run like any other, with other arguments. With `from_`, what came before stays, and is not
    compared with what the code now asks for."""
    assert await ended(hf, order, "o", "book") is RunState.SUCCEEDED
    anew = await hf.run("o", order).fork(input={"item": "pen"})
    await anew.result(timeout=60)
    assert (await anew.info()).input == {"item": "pen"}
    assert keys("quote") == ["o::quote", "o-fork-1::quote"]
    later = await hf.run("o", order).fork(from_="do", input={"item": "pen"})
    assert await later.result(timeout=60) == "charged 100, ship"
    assert len(keys("quote")) == 2
    assert keys("ship")[-1] == "o-fork-2::do"


async def test_a_result_that_is_set_changes_what_comes_after(hf: Holdfast) -> None:
    """What came after the step is executed anew, with what it now returned."""
    assert await ended(hf, order, "o", "book") is RunState.SUCCEEDED
    fork = await hf.run("o", order).fork(set={"quote": Quote(900)})
    assert await fork.result(timeout=60) == "charged 900, ship"
    assert len(keys("quote")) == 1
    assert keys("charge 900") == ["o-fork-1::charge"]
    # A step that comes later returns what is set when the code asks for it; and so does one in a fork from the start.
    fork = await hf.run("o", order).fork(set={"quote": Quote(5), "do": "by hand"})
    assert await fork.result(timeout=60) == "charged 5, by hand"
    fork = await hf.run("o", order).fork(input={"item": "pen"}, set={"charge": "free"})
    assert await fork.result(timeout=60) == "free, ship"
    assert len(keys("quote")) == 2
    # With `from_`, what is between is kept, too.
    fork = await hf.run("o", order).fork(from_="do", set={"quote": Quote(7)})
    assert await fork.result(timeout=60) == "charged 100, ship"


async def test_a_failed_step_can_be_set(hf: Holdfast) -> None:
    """The run goes on as if it had succeeded. What was undone counts as done, and the answer names it."""
    broken.add("ship")
    assert await ended(hf, order, "o", "book") is RunState.UNDONE
    made = await hf.run("o").forked(None, None, {"do": "by hand"}, None)
    assert made.undone == ["charge"]
    assert await hf.run(made.id).result(timeout=60) == "charged 100, by hand"
    assert len(undone) == 1


async def test_the_retry_of_a_fork_does_what_failed_with_keys_of_its_own(hf: Holdfast) -> None:
    """The other run has its own effect under its own key, and undoes that itself."""
    broken.add("ship")
    assert await ended(hf, order, "o", "book") is RunState.UNDONE
    fork = await hf.run("o", order).fork(id="mine")
    with pytest.raises(RunFailed):
        await fork.result(timeout=60)
    assert keys("ship") == ["o::do"]  # the failure is kept
    broken.clear()
    again = await fork.retry()
    assert await again.result(timeout=60) == "charged 100, ship"
    assert keys("ship") == ["o::do", "mine~2::do"]


@step(retry=Retry(attempts=9, delay=3600))
async def fetch(what: str) -> str:
    raise ValueError("nothing is there yet")


@workflow
async def fetched(what: str) -> str:
    return await fetch(what)


@workflow
async def both_at_once(kind: str) -> list[str]:
    second = fetch("second") if kind == "step" else fetched("second")
    return list(await asyncio.gather(do("first"), second))


@pytest.mark.parametrize("kind", ["step", "child"])
async def test_the_retry_of_a_fork_gets_a_result_that_the_fork_gave_up(hf: Holdfast, kind: str) -> None:
    """The fork failed before its code got the result that was set. Its retry, which does not fail there, gets it."""
    broken.add("first")
    assert await ended(hf, both_at_once, "o", kind) is RunState.FAILED
    key = "fetch" if kind == "step" else "fetched"
    fork = await hf.run("o", both_at_once).fork(id="mine", set={key: "set"})
    with pytest.raises(RunFailed):
        await fork.result(timeout=60)
    broken.clear()
    assert await (await fork.retry()).result(timeout=20) == ["first", "set"]


@step(retry=1)
async def pay(cents: int) -> str:
    ledger.setdefault("pay", []).append(here.key)
    if "pay" in broken:
        raise ValueError("pay is broken")
    return f"paid {cents}"


@pay.undo
async def pay_back(paid: str | None, cents: int) -> None:
    undone.append(here.key)


@workflow
async def purchase(item: str) -> str:
    await do("first")
    async with saga():
        await pay(1)
        return await do("ship")


async def test_the_retry_of_a_fork_undoes_what_it_did_in_the_place_of_what_failed(hf: Holdfast) -> None:
    """The retry gives the number of the step that failed to one of its own. That step is not the other run's: a saga
    undoes it, and the next retry knows its key."""
    broken.add("pay")
    assert await ended(hf, purchase, "o", "book") is RunState.FAILED
    fork = await hf.run("o", purchase).fork(id="mine")
    with pytest.raises(RunFailed):
        await fork.result(timeout=60)
    undone.clear()
    broken.symmetric_difference_update({"pay", "ship"})
    again = await fork.retry()
    with pytest.raises(RunFailed):
        await again.result(timeout=60)
    assert undone == ["mine~2::undo:pay"]
    broken.clear()
    assert await (await again.retry()).result(timeout=60) == "ship"
    assert keys("pay") == ["o::pay", "mine~2::pay", "mine~3::pay"]


async def test_the_deadline_of_a_retry_of_a_retry_of_a_fork_comes(hf: Holdfast) -> None:
    """The timer of the first retry has the number of a step that the fork kept. The second retry has a timer of its own."""
    broken.add("ship")
    assert await ended(hf, order.using(timeout=60), "o", "book") is RunState.UNDONE
    run = await hf.run("o", order).fork(id="mine")
    for _ in range(2):
        with pytest.raises(RunFailed):
            await run.result(timeout=60)
        run = await run.retry()
    with pytest.raises(RunFailed):
        await run.result(timeout=60)
    rows = await run.rows()
    assert [one.ready_at for one in rows.steps if one.name == "deadline"] == [rows.run.deadline]


async def test_a_fork_of_a_fork_executes_a_step_whose_result_was_set(hf: Holdfast) -> None:
    """The first fork knows results of steps before its code asks for them. That does not keep the second one from
    executing such a step."""
    assert await ended(hf, order, "o", "book") is RunState.SUCCEEDED
    first = await hf.run("o", order).fork(set={"quote": {"cents": 5}, "do": "by hand"}, id="first")
    assert await first.result(timeout=60) == "charged 5, by hand"
    second = await first.fork(from_="do", id="second")
    assert await second.result(timeout=60) == "charged 5, ship"
    assert keys("ship") == ["o::do", "second::do"]


async def test_a_fork_never_undoes_what_it_did_not_do(hf: Holdfast) -> None:
    """Not even a retry of the fork does. What the fork did itself is undone."""
    assert await ended(hf, order, "o", "book") is RunState.SUCCEEDED
    broken.add("ship")
    fork = await hf.run("o").fork(from_="do")
    with pytest.raises(RunFailed) as failed:
        await fork.result(timeout=60)
    assert not isinstance(failed.value, RunUndone)
    assert undone == []
    with pytest.raises(RunFailed):
        await (await fork.retry()).result(timeout=60)
    assert undone == []
    with pytest.raises(RunUndone):
        await (await hf.run("o").fork(from_="charge")).result(timeout=60)
    assert undone == ["charge 100 o-fork-2::undo:charge"]


@workflow
async def careful(what: str) -> str:
    async with saga():
        await charge(1)
        await do("first")
        undo_with(take_away, "by hand in the saga")
        await do(what)
    undo_with(take_away, "by hand")
    await charge(2)
    return await do("end")


async def test_sagas_and_undos_added_by_hand_are_kept_too(hf: Holdfast) -> None:
    """What the code asked for before the point is not undone by a saga, nor is what it registered then."""
    assert await ended(hf, careful, "c", "last") is RunState.SUCCEEDED
    broken.add("last")
    fork = await hf.run("c").fork(from_="do#2")
    with pytest.raises(RunFailed):
        await fork.result(timeout=60)
    assert undone == []
    with pytest.raises(RunFailed):
        await (await fork.retry()).result(timeout=60)
    assert undone == []
    broken.add("end")
    broken.discard("last")
    with pytest.raises(RunFailed):
        await (await hf.run("c").fork(from_="do#3")).result(timeout=60)
    assert undone == []
    with pytest.raises(RunUndone):
        await (await hf.run("c").fork(from_="charge#2")).result(timeout=60)
    assert [one.split()[0:2] for one in undone] == [["charge", "2"]]


@workflow
async def mends(what: str) -> str:
    try:
        async with saga():
            await charge(1)
            await do(what)
    except ValueError:
        return await do("instead")
    return "well"


async def test_what_a_saga_has_undone_counts_as_undone(hf: Holdfast) -> None:
    """A fork from after the saga goes the same way, and undoes nothing again."""
    broken.add("thing")
    assert await ended(hf, mends, "m", "thing") is RunState.SUCCEEDED
    assert len(undone) == 1
    fork = await hf.run("m").fork(from_="do#2")
    assert await fork.result(timeout=60) == "instead"
    assert len(undone) == 1
    assert keys("thing") == ["m::do"]


@workflow
async def small(n: int) -> int:
    return len(await charge(n)) + n


@workflow
async def family() -> str:
    one = await small(1)
    two = await small(2)
    return f"{one} {two} {await do('end')}"


async def test_children_stay_with_the_run_that_had_them(hf: Holdfast) -> None:
    """The fork uses their results, starts those after the point as its own, and undoes only these."""
    assert await ended(hf, family, "f") is RunState.SUCCEEDED
    broken.add("end")
    with pytest.raises(RunUndone):
        await (await hf.run("f").fork(from_="small#2")).result(timeout=60)
    assert [one.split()[1] for one in undone] == ["2"]
    assert {run.id: run.parent_id for run in await hf.runs(workflow=small)} == {
        "f/small": "f",
        "f/small#2": "f",
        "f-fork-1/small#2": "f-fork-1",
    }
    assert await hf.run("f/small#2").state() is RunState.SUCCEEDED


paid = Signal("paid", int)
heard = Signal("heard", str)


@workflow
async def listens() -> int:
    cents = await paid.wait()
    await do("between")
    return cents + await paid.wait()


@workflow
async def speaks(to: str) -> str:
    await heard.send(to, "once")
    await do("then")
    await heard.send(to, "twice")
    return "said"


@workflow
async def hears() -> list[str]:
    return [await heard.wait() for _ in range(3)]


async def test_signals_before_the_point_are_taken_over(hf: Holdfast) -> None:
    """Later ones are not. What the fork sends after the point is sent, though the other run sent the same."""
    run = await hf.start(listens.using(id="l"))
    await paid.send("l", 1)
    await paid.send("l", 2)
    assert await run.result(timeout=60) == 3
    fork = await run.fork(from_="do")
    await asked(fork, "paid#2")
    await paid.send(fork.id, 40)
    assert await fork.result(timeout=60) == 41
    listener = await hf.start(hears.using(id="h"))
    assert await ended(hf, speaks, "s", "h") is RunState.SUCCEEDED
    assert await (await hf.run("s").fork(from_="do")).result(timeout=60) == "said"
    assert await listener.result(timeout=60) == ["once", "twice", "twice"]


@workflow
async def dices() -> list[str]:
    first = [str(uuid4()), str(random().random()), str(now())]
    publish("first", first)
    await do("middle")
    publish("second", True)
    await do("end")
    return first


async def test_dice_clock_and_what_is_published_replay_the_same(hf: Holdfast) -> None:
    """The kept part sees the same random numbers and times. What the code published before the point is shown."""
    run = await hf.start(dices.using(id="d"))
    first = await run.result(timeout=60)
    broken.add("end")
    fork = await run.fork(from_="do#2")
    with pytest.raises(RunFailed):
        await fork.result(timeout=60)
    assert await fork.published() == {"first": first, "second": True}
    broken.clear()
    broken.add("middle")
    fork = await run.fork(from_="do")
    with pytest.raises(RunFailed):
        await fork.result(timeout=60)
    assert await fork.published() == {"first": first}


@workflow
async def both() -> list[str]:
    return list(await asyncio.gather(do("a"), do("b"), do("c")))


async def test_what_was_asked_for_before_is_not_repeated(hf: Holdfast) -> None:
    """A step beside the point that the code asked for earlier, and that succeeded, does not depend on the point."""
    assert await ended(hf, both, "b") is RunState.SUCCEEDED
    fork = await hf.run("b").fork(from_="do#2")
    assert await fork.result(timeout=60) == ["a", "b", "c"]
    assert [len(keys(what)) for what in "abc"] == [1, 2, 2]
    fork = await hf.run("b").fork(set={"do": "x"})
    assert await fork.result(timeout=60) == ["x", "b", "c"]
    assert [len(keys(what)) for what in "abc"] == [1, 2, 2]


@workflow
async def alone(what: str) -> str:
    return await do(what)


@workflow
async def asks_and_starts() -> list[str]:
    done, answer, _ = await asyncio.gather(do("a"), ask("team:finance", "Pay it?", str), alone.start("b"))
    return [done, answer]


async def test_people_who_answered_beside_the_point_are_not_asked_again(hf: Holdfast) -> None:
    """And a run that the other run started beside the point is not started again."""
    run = await hf.start(asks_and_starts.using(id="a"))
    await asked(run, "ask")
    (question,) = await hf.asks.list()
    await hf.asks.answer(question.id, "yes", by="person:anna")
    assert await run.result(timeout=60) == ["a", "yes"]
    fork = await run.fork(set={"do": "x"})
    assert await fork.result(timeout=20) == ["x", "yes"]
    assert [one.id for one in await hf.runs(workflow=alone)] == ["a/alone"]


@step(retry=Retry(attempts=9, delay=3600))
async def stalls() -> int:
    raise ConnectionError("not now")


@workflow
async def stalled(n: int) -> int:
    await do("first")
    return n + await stalls()


@pytest.mark.parametrize("state", ["running", "held", "cancelled"])
async def test_a_run_in_any_state_can_be_forked(hf: Holdfast, state: str) -> None:
    """A step that has not ended gets a result; the other run stays as it is."""
    run = await hf.start(stalled.using(id="s"), 1)
    await asked(run, "stalls", begun=True)
    if state == "held":
        await run.hold()
    elif state == "cancelled":
        await run.cancel()
        with pytest.raises(RunFailed):
            await run.result(timeout=60)
    fork = await run.fork(set={"stalls": 41})
    assert await fork.result(timeout=60) == 42
    assert len(keys("first")) == 1
    assert await run.state() == state


@workflow
async def rounds(n: int) -> str:
    await do(f"round {n}")
    if n < 2:
        continue_as_new(n + 1)
    return await do("end")


async def test_a_fork_of_a_later_generation(hf: Holdfast) -> None:
    """It goes on in that generation; with another input it begins at the first one."""
    assert await ended(hf, rounds, "r", 0) is RunState.SUCCEEDED
    fork = await hf.run("r").fork(from_="@3/do#2")
    assert await fork.result(timeout=60) == "end"
    assert (await fork.info()).generation == 3
    assert len(keys("round 2")) == 1
    fork = await hf.run("r").fork(input={"n": 1})
    assert await fork.result(timeout=60) == "end"
    assert ((await fork.info()).generation, len(keys("round 1"))) == (2, 2)


async def test_what_cannot_be_forked_is_refused_and_nothing_changes(hf: Holdfast) -> None:
    """Each error says what is the case and what to do next."""
    broken.add("ship")
    assert await ended(hf, order, "o", "book") is RunState.UNDONE
    run = hf.run("o", order)
    for error, words, request in (
        (UnknownRun, "has no step 'sail': `holdfast show o` lists them", {"from_": "sail"}),
        (UnknownRun, "has no step 'sail'", {"set": {"sail": 1}}),
        (WrongState, "is an undo: fork from a step of the workflow", {"from_": "undo:charge"}),
        (WrongState, "is an undo: it has no result", {"set": {"undo:charge": None}}),
        (InvalidInput, "the result of step 'quote'", {"set": {"quote": {"cents": "many"}}}),
        (InvalidInput, "item", {"input": {"item": 7}}),
        (InvalidInput, "unknown", {"input": {"items": "x"}}),
        (InvalidInput, "cannot be a run's id", {"id": "a::b"}),
        (Conflict, "run 'o' exists", {"id": "o"}),
        (InvalidInput, "give results by the keys", {"set": [1]}),
    ):
        with pytest.raises(error, match=words):
            await run.fork(**request)
    with pytest.raises(UnknownRun):
        await hf.run("nobody").fork()
    assert [one.id for one in await hf.runs()] == ["o"]
    long = "x" * 199
    assert await ended(hf, order, long, "book") is RunState.UNDONE
    with pytest.raises(InvalidInput, match="give the fork an id"):
        await hf.run(long).fork()


async def test_a_fork_needs_its_code(store_url: str) -> None:
    """If no process has declared the workflow, nothing is started."""

    @workflow(name="tests.never_declared")
    async def never() -> None: ...

    async with Holdfast(store_url, roles=()) as caller:
        await caller.start(never.using(id="x"))
        del registry.workflows["tests.never_declared", never.version]
        with pytest.raises(UnknownWorkflow, match="the code of run 'x' is gone"):
            await caller.run("x").fork()
        assert [one.id for one in await caller.runs()] == ["x"]


CRASHING = Config(poll_s=0.05, sweep_s=0.02, beat_s=0.05, heart=False)
fresh = itertools.count()


@step(retry=Retry(attempts=1, losses=5))
async def act(what: str) -> str:
    await point(f"before {what}")
    ledger.setdefault(what, []).append(here.key)
    await point(f"after {what}")
    return what


@act.undo
async def undo_act(done: str | None, what: str) -> None:
    undone.append(f"{what} {here.key}")


@workflow
async def crashing(what: str) -> str:
    one = await act(f"{what} one")
    await act(f"{one} two")
    return await do("end")


async def test_a_fork_survives_a_crash_between_any_two_commits(store_url: str) -> None:
    """Whoever goes on with it keeps what is kept, and undoes what it did itself, once, and nothing else."""
    crash_at, points = None, 0
    async with Holdfast(store_url, config=CRASHING) as hf:
        assert await ended(hf, crashing, "o", "well") is RunState.SUCCEEDED
    while crash_at is None or crash_at <= points:
        name = f"f{next(fresh)}"
        ledger.clear()
        undone.clear()
        broken.add("end")

        async def begin(hf: Holdfast, name: str = name) -> None:
            with suppress(Conflict):  # the process that crashed had forked it
                await hf.run("o").fork(from_="act#2", set={"act": "edited"}, id=name)

        passed, state = await through(store_url, CRASHING, begin, crash_at, name)
        where = passed.passed[-1] if crash_at else "nowhere"
        assert state == "undone", where
        assert set(ledger) == {"edited two", "end"}, where
        assert {key for found in ledger.values() for key in found} == {f"{name}::act#2", f"{name}::do"}, where
        assert set(undone) == {f"edited two {name}::undo:act#2"}, where
        if crash_at is None:
            points = len(passed.passed)
            assert points > 4
        crash_at = 1 if crash_at is None else crash_at + 1


@step(retry=1)
async def wait_for_ever() -> int:
    await asyncio.sleep(600)
    return 1


@workflow
async def patient() -> int:
    undo_with(note_undo, "by hand")
    return await wait_for_ever()


@step
async def note_undo(what: str) -> None:
    undone.append(what)


async def test_doctor_finds_nothing_wrong_with_a_fork_of_a_run_that_goes_on(hf: Holdfast) -> None:
    """The fork keeps an undo that was added by hand, which it never calls, and gets the result of a step that still
    runs in the other run. Both are rows that have ended, and `doctor` takes them for that."""
    run = await hf.start(patient.using(id="waits"))
    await asked(run, "wait_for_ever", begun=True)
    fork = await run.fork(set={"wait_for_ever": 7})
    assert await fork.result(timeout=20) == 7
    assert [fact for fact in await hf.store.reads.doctor() if fact[2]] == []
    await run.cancel()


@workflow
async def marked() -> list[str]:
    done = [await do("first")]
    if "way" in deployed and patched("way"):
        done.append(await do("new"))
    else:
        await charge(1)
    await do("between")
    done.append(await do("last"))
    return done


async def test_a_fork_is_the_first_at_a_marker_after_a_result_that_is_set(hf: Holdfast) -> None:
    """What the code does with that result is the fork's own doing. So it goes the new way, also if the other run had code
    without the marker, and its retry goes the same way."""
    assert await ended(hf, marked, "old") is RunState.SUCCEEDED
    deployed.add("way")
    assert await ended(hf, marked, "new") is RunState.SUCCEEDED
    for name in ("old", "new"):
        fork = await hf.run(name, marked).fork(set={"do": "set"}, id=f"{name} fork")
        assert await fork.result(timeout=60) == ["set", "new", "last"], name
    broken.add("last")
    fork = await hf.run("old", marked).fork(set={"do": "set"}, id="breaks")
    with pytest.raises(RunFailed):
        await fork.result(timeout=60)
    broken.clear()
    assert await (await fork.retry()).result(timeout=60) == ["set", "new", "last"]


@pytest.mark.parametrize("way", ["new", "old"])
async def test_a_fork_goes_the_ways_that_lead_to_a_result_that_is_set(hf: Holdfast, way: str) -> None:
    """The keys of these results are those of the other run's ways. Whether its code asked for the marker or did not have it,
    a fork that did otherwise would never ask for them."""
    if way == "new":
        deployed.add("way")
    assert await ended(hf, marked, "m") is RunState.SUCCEEDED
    deployed.add("way")
    last = {"new": "do#4", "old": "do#3"}[way]
    expected = {"new": ["set", "new", "by hand"], "old": ["set", "by hand"]}[way]
    fork = await hf.run("m", marked).fork(set={"do": "set", last: "by hand"}, id="both")
    assert await fork.result(timeout=60) == expected
    again = await fork.fork(id="again", from_="do#2" if way == "new" else "charge")
    assert await again.result(timeout=60) == expected
    anew = await hf.run("m", marked).fork(input={}, set={last: "by hand"}, id="anew")
    assert await anew.result(timeout=60) == ["first", *expected[1:]]
    broken.add("between")
    fork = await hf.run("m", marked).fork(set={"do": "set", last: "by hand"}, id="breaks")
    with pytest.raises(RunFailed):
        await fork.result(timeout=60)
    broken.clear()
    assert await (await fork.retry()).result(timeout=60) == expected


@pytest.mark.parametrize("way", ["new", "old"])
async def test_a_fork_from_a_marker_decides_it_anew(hf: Holdfast, way: str) -> None:
    """The fork is the first run that arrives there, so it goes the new way, whichever way the other run went."""
    if way == "new":
        deployed.add("way")
    broken.add("last")
    assert await ended(hf, marked, "m") is {"new": RunState.FAILED, "old": RunState.UNDONE}[way]
    broken.clear()
    deployed.add("way")
    other = await hf.run("m", marked).retry()
    expected = {"new": ["first", "new", "last"], "old": ["first", "last"]}
    assert await other.result(timeout=60) == expected[way]
    fork = await other.fork(from_="patched:way")
    assert await fork.result(timeout=60) == expected["new"]


@workflow
async def kin(what: str) -> str:
    return await do(what)


@workflow
async def mixed() -> list[str]:
    done = [await do("0")]
    try:
        async with saga():
            done += [await kin("1"), await pay(2), await do("2")]
            done += [await kin("3"), await pay(4), await do("4")]
            done += await do.map(["5", "6"])
            await do("end")
    except ValueError:
        done.append("undone")
    return done


AS_SET = {"do": "set", "kin#2": "kin", "pay#2": "free", "do#5": "item"}
"""Results of a step before a saga, and of a child, a step and an item of a map in it."""
DONE = ["set", "1", "paid 2", "2", "kin", "free", "4", "5", "item"]


def test_results_are_set_in_sagas_of_children_and_in_maps(sim: Sim) -> None:
    """Each counts when the code asks for it, and what is between is executed once. No saga undoes them. A retry of the fork
    keeps them, and a fork of the fork keeps what came before its point."""
    run = sim.start(mixed)
    run.result()
    ledger.clear()
    broken.add("end")
    fork = sim.fork(run, set=AS_SET)
    assert fork.result() == [*DONE, "undone"]
    assert sorted(ledger) == ["1", "2", "4", "5", "end", "pay"]
    assert len(keys("pay")) == len(undone) == 1
    broken.clear()
    ledger.clear()
    assert sim.fork(fork, from_="do#6").result() == DONE
    assert sorted(ledger) == ["end"]
    again = sim.fork(run, set=AS_SET)
    ledger.clear()
    assert sim.fork(again, set={"kin#2": "kin again"}).result() == [*DONE[:4], "kin again", *DONE[5:]]
    assert "1" not in ledger
    assert "2" not in ledger
    assert "pay" not in ledger


@workflow
async def rests() -> str:
    done = await do("first")
    await asyncio.sleep(3600)
    return done


def test_a_timer_after_a_result_that_is_set_counts_from_the_fork(sim: Sim) -> None:
    """The result is old, and the code gets it now."""
    run = sim.start(rests)
    sim.advance(days=2)
    assert run.result() == "first"
    fork = sim.fork(run, set={"do": "set"})
    sim.advance(minutes=50)
    assert fork.state is RunState.RUNNING
    sim.advance(minutes=20)
    assert fork.result() == "set"


@workflow
async def listens_twice() -> list[int]:
    first = await paid.wait()
    await do("between")
    return [first, await paid.wait(), await paid.wait()]


async def test_signals_that_are_set_are_taken_by_their_waits_alone(hf: Holdfast) -> None:
    """Signals that are sent to the fork go to the other waits, also if they come before the code waits for them."""
    run = await hf.start(listens_twice.using(id="l"))
    for cents in (1, 2, 3):
        await paid.send("l", cents)
    assert await run.result(timeout=60) == [1, 2, 3]
    fork = await run.fork(set={"paid": 10, "paid#2": 20})
    await asked(fork, "paid#3")
    await paid.send(fork.id, 30)
    assert await fork.result(timeout=60) == [10, 20, 30]


@workflow
async def hears_later() -> list[Any]:
    await heard.wait()
    done: list[Any] = [await do("first"), await do("second")]
    return [*done, await paid.wait(), await do("third")]


async def test_a_signal_that_came_early_is_set_where_the_code_waited_for_it(hf: Holdfast) -> None:
    """What the code had done before it waited is not executed again."""
    run = await hf.start(hears_later.using(id="l"))
    await paid.send("l", 1)
    await heard.send("l", "now")
    assert await run.result(timeout=60) == ["first", "second", 1, "third"]
    fork = await run.fork(set={"paid": 10})
    assert await fork.result(timeout=60) == ["first", "second", 10, "third"]
    assert [len(keys(what)) for what in ("first", "second", "third")] == [1, 1, 2]
    again = await run.fork(from_="paid")
    assert await again.result(timeout=60) == ["first", "second", 1, "third"]
    assert [len(keys(what)) for what in ("first", "second", "third")] == [1, 1, 3]


@workflow
async def long() -> str:
    return "-".join([await do("one"), await do("two"), await do("three"), await do("four"), await do("five")])


async def test_a_fork_of_a_fork_keeps_what_came_before_a_result_that_was_set(hf: Holdfast) -> None:
    """The first fork knew the result before its code asked for it. Its place is where the code asked."""
    assert await ended(hf, long, "o") is RunState.SUCCEEDED
    first = await hf.run("o", long).fork(set={"do": "1", "do#4": "4"}, id="first")
    assert await first.result(timeout=60) == "1-two-three-4-five"
    ledger.clear()
    second = await first.fork(set={"do#4": "vier"}, id="second")
    assert await second.result(timeout=60) == "1-two-three-vier-five"
    assert ledger == {"five": ["second::do#5"]}
    ledger.clear()
    third = await first.fork(from_="do#4", id="third")
    assert await third.result(timeout=60) == "1-two-three-four-five"
    assert ledger == {"four": ["third::do#4"], "five": ["third::do#5"]}
