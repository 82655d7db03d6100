"""Debounced starts and starts in batches, however they come: by Python, in a transaction, by a schedule, from a workflow."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import apsw
import asyncpg
import psycopg
import pytest

from holdfast import Conflict, Holdfast, HoldfastError, RunFailed, RunState, workflow
from holdfast.codec import secret
from holdfast.errors import DefinitionError, InvalidInput
from holdfast.keyring import KEYS
from holdfast.schedules import every
from holdfast.starts import Batch, Debounce
from holdfast.testing import Sim, SimRun
from holdfast.wire.cloudevents import CloudEvent
from tests.roles.conftest import FAST

QUIET_S = 0.4


@workflow(debounce=Debounce("doc:{id}", quiet=QUIET_S, at_most=60))
async def index(id: str, text: str) -> str:
    return f"{id}: {text}"


@workflow(batch=Batch("site:{site}", size=3, wait=60))
async def crawl(site: str, pages: list[int]) -> list[int]:
    return [page * 2 for page in pages]


@workflow(batch=Batch("all", size=100, wait=QUIET_S))
async def soon(pages: list[int]) -> list[int]:
    return pages


@workflow(on="doc.changed", debounce=Debounce("doc:{doc.id}", quiet=QUIET_S, at_most=60))
async def changed(doc: dict[str, str]) -> str:
    return f"{doc['id']}: {doc['text']}"


@workflow(on="page.seen", batch=Batch("all", size=3, wait=60))
async def seen(pages: list[int]) -> list[int]:
    return pages


@workflow
async def empty_starter() -> str:
    return await crawl.start("a", [])


@workflow
async def starter(text: str) -> str:
    return await index.start("w", text)


async def test_starts_that_come_soon_are_one_run_with_the_newest_arguments(store_url: str) -> None:
    """Each is answered with the run that takes it. Another key is another run, and what comes later is a new one."""
    async with Holdfast(store_url, config=FAST) as hf:
        runs = [await hf.start(index, "a", text) for text in ("one", "two", "three")]
        other = await hf.start(index, "b", "else")
        assert len({run.id for run in runs}) == 1
        assert other.id != runs[0].id
        assert [await run.result(60) for run in runs] == ["a: three"] * 3
        assert await other.result(60) == "b: else"
        again = await hf.start(index, "a", "four")
        assert again.id != runs[0].id
        assert await again.result(60) == "a: four"


async def test_a_batch_gets_the_items_of_all(store_url: str) -> None:
    """It begins when it has enough of them, or when its time has come."""
    async with Holdfast(store_url, config=FAST) as hf:
        runs = [await hf.start(crawl, "a", [n]) for n in (1, 2, 3)]
        assert len({run.id for run in runs}) == 1
        assert await runs[0].result(60) == [2, 4, 6]
        waiting = await hf.start(soon, [7])
        assert (await hf.start(soon, pages=[8, 9])).id == waiting.id
        assert await waiting.result(60) == [7, 8, 9]


async def test_an_id_is_taken_once(store_url: str) -> None:
    """The same id and arguments again are the same start, whichever run took it. Other arguments are a conflict."""
    async with Holdfast(store_url, config=FAST) as hf:
        first = await hf.start(crawl.using(id="x"), "a", [1])
        for _ in range(2):
            assert (await hf.start(crawl.using(id="y"), "a", [2])).id == first.id == "x"
        with pytest.raises(Conflict):
            await hf.start(crawl.using(id="y"), "a", [3])
        await hf.start(crawl, "a", [3])
        assert await first.result(60) == [2, 4, 6]
        assert (await hf.start(crawl.using(id="y"), "a", [2])).id == "x"


async def test_many_callers_at_once_lose_and_double_nothing(store_url: str) -> None:
    """Four processes' worth of callers, two keys: each item is in one run."""
    async with contextlib.AsyncExitStack() as stack:
        callers = [
            await stack.enter_async_context(Holdfast(store_url, config=FAST, roles=())) for _ in range(3)
        ]
        host = await stack.enter_async_context(Holdfast(store_url, config=FAST))
        took: dict[int, str] = {}

        async def start(n: int) -> None:
            run = await callers[n % 3].start(crawl, "ab"[n % 2], [n])
            took[n] = run.id

        await asyncio.gather(*(start(n) for n in range(36)))
        counted: Counter[int] = Counter()
        for run_id in set(took.values()):
            counted.update(page // 2 for page in await host.run(run_id, crawl).result(60))
        assert counted == Counter(range(36))


async def test_within_a_transaction(store_url: str, tmp_path: Any) -> None:
    """A start that is rolled back was never taken. One that commits is in the run."""
    async with Holdfast(store_url, config=FAST) as hf:
        first = await hf.start(crawl.using(id="x"), "a", [1])
        if store_url.startswith("sqlite"):
            connection = apsw.Connection(store_url.removeprefix("sqlite:///"))
            connection.execute("BEGIN IMMEDIATE")
            await hf.within(connection).start(crawl, "a", [50])
            connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            assert (await hf.within(connection).start(crawl, "a", [2])).id == "x"
            last = await hf.within(connection).start(crawl, "a", [3])
            debounced = await hf.within(connection).start(index, "t", "one")
            await hf.within(connection).start(index, "t", "two")
            connection.execute("COMMIT")
            connection.close()
        else:
            there = await asyncpg.connect(store_url)
            undone = there.transaction()
            await undone.start()
            await hf.within(there).start(crawl, "a", [50])
            await undone.rollback()
            async with there.transaction():
                assert (await hf.within(there).start(crawl, "a", [2])).id == "x"
                debounced = await hf.within(there).start(index, "t", "one")
            await there.close()
            async with await psycopg.AsyncConnection.connect(store_url) as other:
                await other.execute("SELECT 1")
                last = await hf.within(other).start(crawl, "a", [3])
                await hf.within(other).start(index, "t", "two")
        assert last.id == "x"
        assert await first.result(60) == [2, 4, 6]
        assert await debounced.result(60) == "t: two"


async def test_a_run_that_a_workflow_starts(store_url: str) -> None:
    """The step's result is the id of the run that takes it."""
    async with Holdfast(store_url, config=FAST) as hf:
        ids = {await (await hf.start(starter, text)).result(60) for text in ("one", "two")}
        results = [await hf.run(run_id, index).result(60) for run_id in ids]
        assert results[-1] in {"w: one", "w: two"}
        assert len(ids) in (1, 2)  # on a slow machine the first one may have begun


def doc(number: int, id: str, text: str) -> CloudEvent:
    data = json.dumps({"id": id, "text": text}).encode()
    return CloudEvent("doc.changed", "shop", f"{number}", data)


async def test_events_are_debounced(store_url: str) -> None:
    """One run has the newest of them, also of those that came together. What is sent again counts once."""
    async with Holdfast(store_url, config=FAST) as hf:
        first = await hf.emit("doc.changed", {"id": "a", "text": "one"}, source="shop", id="0")
        batch = [doc(1, "a", "two"), doc(2, "b", "else"), doc(3, "a", "three"), doc(1, "a", "two")]
        sent = await hf.desk.events.emit(hf.who, batch)
        assert [one.is_new for one in sent] == [True, True, True, False]
        (run,), (other,) = first.started, sent[1].started
        assert [one.started for one in sent] == [[run], [other], [run], [run]]
        assert await hf.run(run).result(60) == "a: three"
        assert await hf.run(other).result(60) == "b: else"
        again = await hf.emit("doc.changed", {"id": "a", "text": "one"}, source="shop", id="0")
        assert (again.new, again.started) == (False, [run])
        later = await hf.emit("doc.changed", {"id": "a", "text": "four"}, source="shop", id="4")
        assert later.started != [run]
        assert await hf.run(later.started[0]).result(60) == "a: four"
        with pytest.raises(InvalidInput, match=r"data: .* there is no `id`"):
            await hf.emit("doc.changed", {"text": "no id"})


async def test_events_are_the_items_of_a_batch(store_url: str) -> None:
    """In the order in which they came, each once, beside starts that are no events."""
    async with Holdfast(store_url, config=FAST) as hf, Holdfast(store_url, config=FAST, roles=()) as other:
        sent = await hf.desk.events.emit(
            hf.who, [CloudEvent("page.seen", "shop", name, name.encode()) for name in ("7", "5")]
        )
        again = await other.emit("page.seen", 5, source="shop", id="5")
        assert not again.new
        run = await hf.start(seen, [1, 2])
        assert {*sent[0].started, *sent[1].started, *again.started} == {run.id}
        assert await run.result(60) == [7, 5, 1, 2]
        with pytest.raises(InvalidInput, match="data"):
            await hf.emit("page.seen", "x")


async def test_many_senders_at_once_gather_each_event_once(store_url: str) -> None:
    """Two processes send the same events, in several batches at once."""
    many = 60
    async with Holdfast(store_url, config=FAST) as hf, Holdfast(store_url, config=FAST, roles=()) as other:

        async def send(by: Holdfast, first: int) -> set[str]:
            events = [
                CloudEvent("page.seen", "shop", f"{n}", f"{n}".encode()) for n in range(first, first + 10)
            ]
            return {run for one in await by.desk.events.emit(by.who, events) for run in one.started}

        sent = await asyncio.gather(
            *(send(by, first) for first in range(0, many, 5) for by in (hf, other) if first + 10 <= many)
        )
        runs = {run for those in sent for run in those}
        await hf.start(seen, [-1, -1, -1])  # the last batch is full, too
        found = [page for run in runs for page in await hf.run(run).result(60) if page >= 0]
        assert sorted(found) == list(range(many))
        assert [row for row in await hf.store.reads.doctor() if row[2]] == []


async def test_a_workflow_that_starts_an_empty_batch_hears_of_it(store_url: str) -> None:
    """The step fails, and so does the run, which does not catch it."""
    async with Holdfast(store_url, config=FAST) as hf:
        with pytest.raises(RunFailed, match="give one or more"):
            await (await hf.start(empty_starter)).result(60)


async def test_a_sealed_store_debounces_and_refuses_batches(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has of a start is sealed."""
    monkeypatch.setattr(secret, "_state", secret._State())
    monkeypatch.setenv(KEYS, "one:" + base64.b64encode(bytes(range(32))).decode())
    async with Holdfast(store_url, config=FAST) as hf:
        runs = [await hf.start(index.using(id=text), "a", text) for text in ("canary", "canary again")]
        assert (await hf.start(index.using(id="canary"), "a", "canary")).id == "canary"
        assert await runs[1].result(60) == "a: canary again"
        with pytest.raises(InvalidInput, match="a store that is sealed"):
            await hf.start(crawl, "a", [1])
        monkeypatch.delenv(KEYS)
        async with Holdfast(store_url, config=FAST, roles=()) as other:
            with pytest.raises(HoldfastError, match="sealed"):
                await other.start(index, "b", "plain")


async def test_a_schedule_starts_into_the_run_that_waits(store_url: str) -> None:
    """Its fire names the run that takes it."""
    async with Holdfast(store_url, config=FAST) as hf:
        first = await hf.start(crawl, "a", [1])
        await hf.schedules.create(every("@yearly", name="crawl", overlap="allow"), crawl, "a", [2])
        fire = await hf.schedules.run("crawl")
        assert fire.run == first.id
        (known,) = await hf.schedules.fires("crawl")
        assert known.run == first.id
        await hf.start(crawl, "a", [3])
        assert await first.result(60) == [2, 4, 6]


def test_tests_play_them(sim: Sim) -> None:
    first, second = sim.start(index, "a", "one"), sim.start(index, "a", "two")
    assert first.id == second.id
    sim.advance(1)
    assert first.result() == "a: two"
    sent = [sim.emit("doc.changed", {"id": "b", "text": text}) for text in ("one", "two")]
    assert sent[0].started == sent[1].started
    sim.advance(1)
    assert SimRun(sim, sent[0].started[0], changed).result() == "b: two"


def _declared_late() -> None:
    async def bad(site: str, pages: list[int] = []) -> None: ...  # noqa: B006

    workflow(name="bad late", on="doc.changed", batch=Batch("{site}", size=2, wait=1))(bad)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Debounce("a", quiet=0), "expected a time above 0"),
        (lambda: Debounce("a", quiet=5, at_most=1), "is less than quiet"),
        (lambda: Debounce("{a b}", quiet=5), "must be the name of a parameter"),
        (lambda: Debounce("{a..b}", quiet=5), "must be the name of a parameter"),
        (lambda: _declare(debounce=Debounce("{who.id}", quiet=5)), "names `who`, which is no parameter"),
        (lambda: _declare(batch=Batch("{site.id}", size=2, wait=1)), "`site` may differ"),
        (lambda: _declare(batch=Batch("{site}{pages.a}", size=2, wait=1)), "cannot be in the key"),
        (
            lambda: _declare(on="doc.changed", batch=Batch("{site}", size=2, wait=1)),
            "one argument",
        ),
        (_declared_late, "`pages` must be the first parameter"),
        (lambda: Debounce("{", quiet=5), "is no key"),
        (lambda: Batch("a", size=0, wait=1), "size must be from 1"),
        (lambda: Batch("a", size=True, wait=1), "Batch: size"),
        (lambda: _declare(debounce=Debounce("{who}", quiet=5)), "names `who`, which is no parameter"),
        (lambda: _declare(debounce=5), "expected a Debounce"),
        (lambda: _declare(batch=5), "expected a Batch"),
        (lambda: _declare(batch=Batch("a", size=2, wait=1)), "`site` may differ"),
        (lambda: _declare(batch=Batch("{site}{pages}", size=2, wait=1)), "cannot be in the key"),
        (lambda: _declare(batch=Batch("{site}", size=2, wait=1, items="x")), "no parameter `x`"),
        (
            lambda: _declare(batch=Batch("a", size=2, wait=1), debounce=Debounce("a", quiet=1)),
            "not both",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_is_written(make: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        make()


def _declare(**settings: Any) -> None:
    async def bad(site: str, pages: list[int]) -> None: ...

    workflow(name=f"bad {sorted(settings)}", **settings)(bad)


async def test_a_start_that_cannot_be_taken_is_refused(store_url: str) -> None:
    """With the place, and nothing is written."""
    async with Holdfast(store_url, config=FAST, roles=()) as hf:
        with pytest.raises(InvalidInput, match="give one or more"):
            await hf.start(crawl, "a", [])
        with pytest.raises(InvalidInput, match="more than 500 characters"):
            await hf.start(index, "x" * 600, "")
        with pytest.raises(DefinitionError, match="say when its runs begin"):
            await hf.start(index.using(begin_at=datetime.now(UTC)), "a", "")
        assert await hf.runs() == []


async def test_a_batch_that_is_cancelled_before_it_begins_is_retried_with_all_that_it_was_given(
    store_url: str,
) -> None:
    """So is a debounced run, and so are forks. They begin at once."""
    async with Holdfast(store_url, config=FAST) as hf:
        batch, debounced = await hf.start(crawl, "a", [1]), await hf.start(index, "d", "one")
        assert (await hf.start(crawl, "a", [2])).id == batch.id
        assert (await hf.start(index, "d", "two")).id == debounced.id
        assert await batch.cancel() == await debounced.cancel() == RunState.CANCELLED
        assert await (await batch.retry()).result(30) == [2, 4]
        assert await (await batch.fork()).result(30) == [2, 4]
        assert await (await debounced.retry()).result(30) == "d: two"


async def test_a_batch_that_was_held_keeps_what_it_was_given(store_url: str) -> None:
    """Starts that come while it is held make a batch of their own, and the key is that one's from then on."""
    async with Holdfast(store_url, config=FAST) as hf:
        held = await hf.start(soon, [1])
        assert (await hf.start(soon, [2])).id == held.id
        await held.hold()
        other = await hf.start(soon, [3])
        await held.release()
        assert await other.result(30) == [3]
        assert await held.result(30) == [1, 2]
