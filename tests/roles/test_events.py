"""Events with a real node on a real store: what they start and wake, once for each source and id."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import apsw
import asyncpg
import psycopg
import pytest

from holdfast import Holdfast, InvalidInput
from holdfast.desk.events import EventsAsked
from holdfast.errors import DefinitionError, RunCancelled, UnknownEvent, UnknownRun
from holdfast.events import EmittedEvent, Event
from holdfast.store.event_locks import LOCKS
from holdfast.workflow.workflow import workflow
from tests.roles import event_flows as flows
from tests.roles.conftest import FAST


@pytest.fixture(autouse=True)
def no_effects() -> None:
    flows.effects.clear()


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await true():  # noqa: ASYNC110  it asks the store
            await asyncio.sleep(0.01)


async def waits(hf: Holdfast, run_id: str) -> None:
    """Wait until a run waits for an event."""

    async def has() -> bool:
        return any(row[1] == run_id for row in await hf.store.events.open_waits(("", "", 0), 1000))

    await until(has)


async def has_one() -> bool:
    """True if the run `late` has got its first event."""
    return "has [1]" in flows.effects


async def test_an_event_starts_every_workflow_that_takes_its_type(hf: Holdfast) -> None:
    sent = await hf.emit("order.created", {"id": "o1", "cents": 5}, subject="o1", source="shop", id="1")
    assert sent.new
    assert len(sent.started) == 2
    assert all(run.startswith("event~") for run in sent.started)
    results = {await hf.run(run).result(60) for run in sent.started}
    assert results == {"o1 for 5", "announced o1"}
    changed = await hf.emit("order.changed", flows.Order("o1", 6))
    assert [await hf.run(run).result(60) for run in changed.started] == ["announced o1"]


async def test_the_same_event_again_changes_nothing(hf: Holdfast) -> None:
    """Whoever sends it, and however many do at once."""
    data = {"id": "o1", "cents": 5}
    async with Holdfast(hf.url, roles=()) as other:
        sent = await asyncio.gather(
            *(
                one.emit("order.changed", data, source="shop", id="7")
                for one in (hf, other)
                for _ in range(10)
            )
        )
    assert sum(one.new for one in sent) == 1
    (started,) = {tuple(one.started) for one in sent}
    await hf.run(started[0]).result(60)
    assert flows.effects == ["announced o1"]
    assert not (await hf.emit("order.changed", data, source="shop", id="7")).new
    assert (await hf.emit("order.changed", data, source="shop", id="8")).new
    assert (await hf.emit("order.changed", data, source="other shop", id="7")).new


async def test_data_that_does_not_fit_is_refused_and_nothing_is_written(hf: Holdfast) -> None:
    with pytest.raises(
        InvalidInput, match=r"data: an event of the type 'order.created' does not fit: .*cents"
    ):
        await hf.emit("order.created", {"id": "o1", "cents": "many"}, source="shop", id="1")
    with pytest.raises(UnknownEvent):
        await hf.desk.events.get(hf.who, "shop", "1")
    assert (await hf.emit("order.created", {"id": "o1", "cents": 5}, source="shop", id="1")).new


@pytest.mark.parametrize("name", ["", "a b", "$event", "a//b", "x" * 201, "a\nb"])
async def test_what_cannot_be_a_type_is_refused(hf: Holdfast, name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be the type of an event"):
        await hf.emit(name)


async def test_an_event_that_nobody_takes_is_kept(hf: Holdfast) -> None:
    sent = await hf.emit("nobody.cares", [1, 2], source="shop", id="1", traceparent="00-1")
    assert sent == EmittedEvent("shop", "1", "nobody.cares", True, [], [])
    (seen,) = (await hf.desk.events.list(hf.who, EventsAsked())).items
    assert (seen.row.type, seen.row.data, seen.row.attributes) == (
        "nobody.cares",
        b"[1,2]",
        '{"traceparent":"00-1"}',
    )


async def test_an_event_wakes_a_run_that_waits(hf: Holdfast) -> None:
    run = await hf.start(flows.collect.using(id="r1"), "order-42")
    await waits(hf, "r1")
    assert (await hf.emit("payment.received", {"cents": 1}, subject="order-41")).woke == []
    assert (await hf.emit("payment.received", {"cents": 2}, subject="order-42")).woke == ["r1"]
    assert await run.result(60) == 2


async def test_an_event_just_before_the_wait_is_not_missed(hf: Holdfast) -> None:
    """Also the first that is ever waited for by this path. One from before the run began does not count."""
    await hf.emit("payment.received", {"cents": 1}, subject="order-42")
    async with Holdfast(hf.url, roles=()) as caller:
        await hf.node.stop(0)
        run = await caller.start(flows.collect.using(id="r1"), "order-42")
        await caller.emit("payment.received", {"cents": 2}, subject="order-42")
        async with Holdfast(hf.url, config=FAST):
            assert await run.result(60) == 2


async def test_a_wait_by_a_path_in_the_data(hf: Holdfast) -> None:
    run = await hf.start(flows.collect_by_path, 42)
    await hf.emit("payment.received", {"cents": 3, "order": {"id": 42}})
    assert await run.result(60) == 3


async def test_each_wait_takes_one_event_in_their_order(hf: Holdfast) -> None:
    run = await hf.start(flows.several.using(id="r1"), "order-42", 4)
    for cents in range(4):
        await hf.emit("payment.received", {"cents": cents}, subject="order-42", source="bank", id=f"e{cents}")
        await hf.emit("payment.received", {"cents": cents}, subject="order-42", source="bank", id=f"e{cents}")
    assert await run.result(60) == [0, 1, 2, 3]
    run = await hf.start(flows.both.using(id="r2"), "order-43")
    for cents in (5, 6):
        await hf.emit("payment.received", {"cents": cents}, subject="order-43")
    assert await run.result(60) == [5, 6]


async def test_a_run_that_continues_as_new_gets_each_event_once(hf: Holdfast) -> None:
    """Also those that came between two of its waits, and none of them again."""
    run = await hf.start(flows.count_on.using(id="r1"), "order-42", [])
    for cents in range(4):
        await hf.emit("payment.received", {"cents": cents}, subject="order-42")
    assert await run.result(60) == [0, 1, 2, 3]


async def test_a_retry_goes_on_with_the_events_that_its_run_had_not_got(hf: Holdfast) -> None:
    """Those that came while the first run was open count, also if it was not waiting, and those that came after its end."""
    run = await hf.start(flows.late.using(id="r1"), "order-42")
    await waits(hf, "r1")
    for cents in (1, 2):
        await hf.emit("payment.received", {"cents": cents}, subject="order-42")
    await until(has_one)
    await run.cancel()
    with pytest.raises(RunCancelled):
        await run.result(60)
    await hf.emit("payment.received", {"cents": 3}, subject="order-42")
    again = await run.retry()
    await flows.go_on.send(again.id, True)
    assert await again.result(60) == [1, 2, 3]


async def test_a_fork_has_the_events_that_its_run_had_got(hf: Holdfast) -> None:
    run = await hf.start(flows.late.using(id="r1"), "order-42")
    await hf.emit("payment.received", {"cents": 1}, subject="order-42")
    await until(has_one)
    for cents in (2, 3):
        await hf.emit("payment.received", {"cents": cents}, subject="order-42")
    await flows.go_on.send("r1", True)
    assert await run.result(60) == [1, 2, 3]
    fork = await run.fork(from_="note")
    await flows.go_on.send(fork.id, True)
    await waits(hf, fork.id)
    for cents in (4, 5):
        await hf.emit("payment.received", {"cents": cents}, subject="order-42")
    assert await fork.result(60) == [1, 4, 5]


async def test_a_wait_can_time_out(hf: Holdfast) -> None:
    run = await hf.start(flows.collect.using(id="r1"), "order-42", 0.05)
    assert await run.result(60) == -1
    assert (await hf.emit("payment.received", {"cents": 2}, subject="order-42")).woke == []


async def test_data_that_a_wait_cannot_read_leaves_it_waiting(hf: Holdfast) -> None:
    run = await hf.start(flows.collect.using(id="r1"), "order-42")
    await waits(hf, "r1")
    await hf.emit("payment.received", {"dollars": 2}, subject="order-42")
    await hf.emit("payment.received", {"cents": 2}, subject="order-42")
    assert await run.result(60) == 2


async def test_events_of_another_namespace_are_other_events(store_url: str) -> None:
    async with (
        Holdfast(store_url, config=FAST, namespace=["default", "acme"]) as hf,
        Holdfast(store_url, roles=(), namespace="acme") as acme,
        Holdfast(store_url, roles=()) as default,
    ):
        del hf
        ours = await acme.start(flows.collect.using(id="r1"), "order-42")
        theirs = await default.start(flows.collect.using(id="r1"), "order-42")
        data = {"id": "o1", "cents": 5}
        for one in (acme, default):
            sent = await one.emit("order.changed", data, source="shop", id="1")
            assert sent.new
            assert await one.run(sent.started[0]).result(60) == "announced o1"
        await waits(default, "acme//r1")
        await waits(default, "r1")
        assert (await acme.emit("payment.received", {"cents": 1}, subject="order-42")).woke == ["r1"]
        assert await ours.result(60) == 1
        assert (await default.emit("payment.received", {"cents": 2}, subject="order-42")).woke == ["r1"]
        assert await theirs.result(60) == 2


async def test_an_event_inside_a_transaction_of_asyncpg(pg_store_url: str) -> None:
    async with Holdfast(pg_store_url, config=FAST) as hf:
        connection = await asyncpg.connect(pg_store_url)
        run = await hf.start(flows.collect.using(id="r1"), "order-42")
        await waits(hf, "r1")
        gone = connection.transaction()
        await gone.start()
        await hf.within(connection).emit("order.changed", {"id": "lost", "cents": 1}, id="1")
        await gone.rollback()
        async with connection.transaction():
            await hf.within(connection).emit("order.changed", {"id": "o1", "cents": 1}, id="1")
            await hf.within(connection).emit("payment.received", {"cents": 9}, subject="order-42")
            assert not (await hf.desk.events.list(hf.who, EventsAsked())).items
        assert await run.result(60) == 9
        seen = await hf.desk.events.get(hf.who, "holdfast", "1")
        assert await hf.run(seen.takers[0].run_id).result(60) == "announced o1"
        await connection.close()


def test_an_event_inside_a_transaction_of_psycopg(pg_store_url: str) -> None:
    with Holdfast(pg_store_url, config=FAST) as hf, psycopg.connect(pg_store_url) as connection:
        with connection.transaction():
            hf.wait(hf.within(connection).emit("order.changed", {"id": "o1", "cents": 1}, id="1"))
        seen = hf.wait(hf.desk.events.get(hf.who, "holdfast", "1"))
        assert hf.wait(hf.run(seen.takers[0].run_id).result(60)) == "announced o1"


async def test_an_event_inside_a_transaction_of_apsw(tmp_path: object) -> None:
    path = f"{tmp_path}/holdfast.db"
    async with Holdfast(f"sqlite:///{path}", config=FAST) as hf:
        connection = apsw.Connection(path)
        connection.execute("BEGIN IMMEDIATE")
        await hf.within(connection).emit("order.changed", {"id": "lost", "cents": 1}, id="1")
        connection.execute("ROLLBACK")
        with connection:
            await hf.within(connection).emit("order.changed", {"id": "o1", "cents": 1}, id="1")
        seen = await hf.desk.events.get(hf.who, "holdfast", "1")
        assert await hf.run(seen.takers[0].run_id).result(60) == "announced o1"
        connection.close()


async def test_the_leader_finds_what_nobody_looked_for(hf: Holdfast) -> None:
    """A scheduler that dies between its commit and its look leaves a wait for which nobody has looked."""
    assert hf.node.scheduler is not None
    hf.node.scheduler._look_soon = lambda waits: None  # type: ignore[method-assign]
    run = await hf.start(
        flows.collect.using(id="r0"), "any"
    )  # the path is known from now on, and the leader leads
    await waits(hf, "r0")
    await hf.emit("payment.received", {"cents": 1}, subject="any")
    assert await run.result(60) == 1


async def test_code_that_cannot_be_meant_is_refused() -> None:
    with pytest.raises(DefinitionError, match="let two\\(\\) take one argument"):

        @workflow(on="x")
        async def two(a: int, b: int) -> None: ...

    with pytest.raises(DefinitionError, match="cannot be the type"):

        @workflow(on="a b")
        async def spaced(a: int) -> None: ...

    with pytest.raises(DefinitionError, match="expected an attribute"):
        Event("x", int, by="data.a b")
    with pytest.raises(InvalidInput, match="expected a printable text"):
        await Event("x", int).wait("")


async def test_many_events_take_few_locks(hf: Holdfast) -> None:
    """A batch of any size takes at most so many of the server's locks."""
    run = await hf.start(flows.collect.using(id="r1"), "s1999")
    await waits(hf, "r1")
    await hf.emit("payment.received", {"cents": 0}, subject="first")
    from holdfast.wire.cloudevents import made_event

    events = [
        made_event(
            {"type": "payment.received", "source": "bank", "id": str(i), "subject": f"s{i}"}, b'{"cents":4}'
        )
        for i in range(2000)
    ]
    sent = await hf.desk.events.emit(hf.who, events)
    assert (len(sent), sent[-1].woke) == (2000, ["r1"])
    assert len(events) > LOCKS
    assert await run.result(60) == 4
    with pytest.raises(UnknownRun):
        await hf.run("s1").state()
