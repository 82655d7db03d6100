"""Composed triggers with real nodes: one run for each occasion, whoever sends, dies or is deployed meanwhile."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime

import asyncpg
import pytest

from holdfast import Holdfast, InvalidInput
from holdfast.errors import UnknownOccasion, WrongState
from tests.roles import when_flows as flows
from tests.roles.conftest import FAST


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await true():  # noqa: ASYNC110  it asks the store
            await asyncio.sleep(0.02)


async def test_a_run_starts_when_everything_has_arrived(hf: Holdfast) -> None:
    await hf.emit("file.arrived", "a", subject="d1")
    await hf.emit("rates.published", {"eur": 11.5}, subject="d1")
    (waiting,) = await hf.triggers.occasions("digest")
    assert (waiting.id, waiting.missing) == ("digest@when:d1", ["files (1 of 2)"])
    assert [one.part for one in waiting.arrived] == ["files", "rates"]
    sent = await hf.emit("file.arrived", "b", subject="d1")
    assert sent.started == ["digest@when:d1"]
    run = hf.run("digest@when:d1", flows.report)
    assert await run.result(60) == "digest d1: 11.5 ['a', 'b']"
    assert await hf.triggers.occasions("digest") == []
    done = await hf.triggers.occasion("digest@when:d1")
    assert (done.state, done.missing, done.note) == ("started", [], "")
    with pytest.raises(UnknownOccasion, match="holdfast triggers"):
        await hf.triggers.occasion("digest@when:d2")


async def test_an_operator_starts_or_drops_what_waits(hf: Holdfast) -> None:
    """A part that the workflow's type has no default for cannot be left out. One of which some came can."""
    await hf.emit("rates.published", {"eur": 11.5}, subject="d1")
    with pytest.raises(InvalidInput, match="files: the workflow cannot begin without it"):
        await hf.triggers.start("digest@when:d1")
    await hf.emit("file.arrived", "a", subject="d1")
    done = await hf.triggers.start("digest@when:d1", "the second one is lost")
    assert (done.state, done.missing) == ("started", [])
    assert done.note.startswith("without files (1 of 2), by ")
    assert await hf.run("digest@when:d1", flows.report).result(60) == "digest d1: 11.5 ['a']"
    await hf.emit("file.arrived", "a", subject="d2")
    dropped = await hf.triggers.drop("digest@when:d2", "a holiday")
    assert (dropped.state, dropped.note.endswith(": a holiday")) == ("expired", True)
    assert (await hf.emit("file.arrived", "b", subject="d2")).late == ["digest@when:d2"]
    for act in (hf.triggers.start, hf.triggers.drop):
        with pytest.raises(WrongState, match="has ended already"):
            await act("digest@when:d2")
        with pytest.raises(UnknownOccasion):
            await act("digest@when:d3")


async def test_any_of_starts_by_the_first(hf: Holdfast) -> None:
    """By a path in the data. What comes afterwards is late."""
    sent = await hf.emit("phone.rang", {"customer": 7})
    assert sent.started == ["first@when:7"]
    assert await hf.run("first@when:7", flows.first).result(60) == ["phone.rang"]
    assert (await hf.emit("mail.came", {"customer": 7})).late == ["first@when:7"]
    assert (await hf.emit("mail.came", {"customer": 8})).started == ["first@when:8"]
    nowhere = await hf.emit("mail.came", {"who": 9})
    assert (nowhere.started, nowhere.collected, nowhere.late) == ([], [], [])


async def test_data_that_does_not_fit_its_part_is_refused(hf: Holdfast) -> None:
    """Where it is sent: whoever brings the last part has nothing to do with it."""
    with pytest.raises(InvalidInput, match=r"does not fit the trigger digest: rates: .*eur"):
        await hf.emit("rates.published", {"usd": 1}, subject="d1")
    with pytest.raises(InvalidInput, match=r"does not fit the trigger digest: files"):
        await hf.emit("file.arrived", 7, subject="d1")
    assert await hf.triggers.occasions("digest") == []


async def test_a_time_arrives_by_itself(hf: Holdfast) -> None:
    """The leader brings it, and starts the run if it was the last part."""
    (run,) = (await hf.emit("tick.wanted", {"year": f"{datetime.now(UTC):%Y}"})).collected

    async def is_started() -> bool:
        return (await hf.triggers.occasion(run)).state == "started"

    await until(is_started)
    assert await hf.run(run, flows.ticks).result(60) == ["tick", "tick.wanted"]
    (trigger,) = [one for one in await hf.triggers.list() if one.name == "ticks"]
    assert trigger.needs == "all of (tick.wanted, tick=every 1s UTC)"
    assert trigger.next_at is not None


async def test_occasions_of_another_namespace_are_others(store_url: str) -> None:
    async with Holdfast(store_url, config=FAST, namespace="acme") as acme:
        await acme.emit("file.arrived", "a", subject="d1")
        (waiting,) = await acme.triggers.occasions("digest")
        assert waiting.id == "digest@when:d1"
        assert [one.name for one in await acme.triggers.list()] == ["digest", "first", "ticks"]
        async with Holdfast(store_url, config=FAST, roles=()) as outside:
            assert await outside.triggers.occasions("digest") == []
            assert await outside.triggers.list() == []
            with pytest.raises(UnknownOccasion):
                await outside.triggers.occasion("digest@when:d1")
        await acme.emit("file.arrived", "b", subject="d1")
        sent = await acme.emit("rates.published", {"eur": 2}, subject="d1")
        assert sent.started == ["digest@when:d1"]
        assert (await acme.run("digest@when:d1", flows.report).result(60)).startswith("digest d1")


async def test_a_part_inside_a_transaction_of_the_caller(pg_store_url: str) -> None:
    """It arrives when the caller commits, and never if it does not. The last part starts the run there, too."""
    async with Holdfast(pg_store_url, config=FAST) as hf:
        connection = await asyncpg.connect(pg_store_url)
        try:
            transaction = connection.transaction()
            await transaction.start()
            await hf.within(connection).emit("file.arrived", "lost", subject="d1")
            await transaction.rollback()
            assert await hf.triggers.occasions("digest") == []
            for kind, data in (("file.arrived", "a"), ("file.arrived", "b"), ("rates.published", {"eur": 3})):
                async with connection.transaction():
                    await hf.within(connection).emit(kind, data, subject="d1")
        finally:
            await connection.close()
        assert await hf.run("digest@when:d1", flows.report).result(60) == "digest d1: 3.0 ['a', 'b']"


# --- several processes ------------------------------------------------------------------------------------------------


class Sender:
    """A process that sends events."""

    def __init__(self, url: str, type: str, many: int) -> None:
        words = (sys.executable, "-m", "tests.roles.when_flows", url, type, str(many))
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.line() == "up"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def senders() -> Iterator[list[Sender]]:
    found: list[Sender] = []
    yield found
    for one in found:
        one.close()


async def test_two_processes_that_send_at_once_start_each_run_once(
    hf: Holdfast, senders: list[Sender]
) -> None:
    many = 20
    senders.append(await asyncio.to_thread(Sender, hf.url, "rates.published", many))
    senders.append(await asyncio.to_thread(Sender, hf.url, "file.arrived", many))
    for one in senders:
        one.go()
    for one in senders:
        assert await asyncio.to_thread(one.process.wait, 60) == 0
    for i in range(many):
        assert (await hf.run(f"digest@when:d{i}", flows.report).result(60)).startswith(f"digest d{i}: 1.5")
    assert await hf.triggers.occasions("digest") == []


async def test_a_sender_that_is_killed_between_two_parts_loses_nothing(
    hf: Holdfast, senders: list[Sender]
) -> None:
    """What it sent is there, and what it sends again when it is back counts once."""
    many = 10
    first = await asyncio.to_thread(Sender, hf.url, "file.arrived", many)
    senders.append(first)
    first.go()
    await asyncio.to_thread(first.line)
    first.process.kill()
    await asyncio.to_thread(first.process.wait, 60)
    opened = await hf.triggers.occasions("digest")
    assert opened
    assert all(one.missing[0] == "rates" for one in opened)
    for kind in ("file.arrived", "rates.published"):
        again = await asyncio.to_thread(Sender, hf.url, kind, many)
        senders.append(again)
        again.go()
        assert await asyncio.to_thread(again.process.wait, 60) == 0
    for i in range(many):
        await hf.run(f"digest@when:d{i}", flows.report).result(60)
    assert len(await hf.triggers.occasions("digest", state="started")) == many


async def test_parts_come_while_no_node_is_up(store_url: str) -> None:
    """What code has declared holds while it is down: the run is there, and waits for it."""
    async with Holdfast(store_url, config=FAST):
        pass
    async with Holdfast(store_url, config=FAST, roles=()) as caller:
        await caller.emit("rates.published", {"eur": 1}, subject="d1")
        await caller.emit("file.arrived", "a", subject="d1")
        assert (await caller.emit("file.arrived", "b", subject="d1")).started == ["digest@when:d1"]
        assert (await caller.run("digest@when:d1").info()).state == "pending"
    async with Holdfast(store_url, config=FAST) as hf:
        assert await hf.run("digest@when:d1", flows.report).result(60) == "digest d1: 1.0 ['a', 'b']"
