# ruff: noqa: ASYNC220, ASYNC240  a test may wait for a file or a process
"""A SQLite file that several users share: threads, tasks, processes, and the caller's own transaction."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import apsw
import pytest

from holdfast.environment import Environment
from holdfast.errors import Conflict, StoreUnreachable, StoreUnsupported
from holdfast.store import open_store
from holdfast.store.answers import Answer
from holdfast.store.operations import Start
from holdfast.store.store import Store
from holdfast.store.transaction import transaction_of
from tests.store.made import ENVIRONMENT, LONG_S, SERVED, A, B, broken, deaths, join, new_run, reclaim, start

T = TypeVar("T")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Store]:
    """An open store in a file, with node A."""
    store = open_store(f"sqlite:///{path}", ENVIRONMENT)
    await store.open()
    await join(store, A)
    yield store
    await store.close()


class SlowDisk(Environment):
    """Blocking calls wait until the test lets them go on."""

    def __init__(self) -> None:
        super().__init__()
        self.blocked = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

    async def blocking(self, call: Callable[[], T]) -> T:
        self.blocked.set()
        await self.go.wait()
        return await super().blocking(call)


@pytest.mark.parametrize("times", [1, 3])
async def test_cancelling_a_commit_leaves_the_store_sane(path: Path, times: int) -> None:
    """The commit runs to its end although its caller is cancelled, and the next transaction works."""
    disk = SlowDisk()
    store = open_store(f"sqlite:///{path}", disk)
    await store.open()
    disk.blocked.clear()
    disk.go.clear()
    run = new_run()
    writing = asyncio.create_task(store.batches.commit(A, [Start(run)]))
    await disk.blocked.wait()
    for _ in range(times):
        writing.cancel()
        await asyncio.sleep(0)
    assert not writing.done()
    disk.go.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await store.reads.run(run.id) is not None
    assert await store.batches.commit(A, [Start(run)]) == [Answer.DUPLICATE]
    await store.close()


async def test_reading_does_not_wait_for_a_commit(path: Path) -> None:
    """While a commit waits for the disk, others read what was committed before it."""
    disk = SlowDisk()
    store = open_store(f"sqlite:///{path}", disk)
    await store.open()
    first, second = new_run(), new_run()
    await start(store, first)
    disk.blocked.clear()
    disk.go.clear()
    writing = asyncio.create_task(store.batches.commit(A, [Start(second)]))
    await disk.blocked.wait()
    assert await store.reads.run(first.id) is not None
    assert await store.reads.run(second.id) is None
    disk.go.set()
    await writing
    assert await store.reads.run(second.id) is not None
    await store.close()


async def test_a_write_waits_for_the_transaction_of_another_process(store: Store, path: Path) -> None:
    """A busy file is tried again until it is free; the event loop goes on meanwhile."""
    rival = apsw.Connection(str(path))
    rival.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(store.batches.commit(A, [Start(new_run())]))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not writing.done()
    rival.execute("ROLLBACK")
    rival.close()
    assert await writing == [Answer.ACCEPTED]


class Impatient(Environment):
    """Waits take no time."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


async def test_a_file_that_stays_locked_is_an_error(path: Path) -> None:
    """After some seconds the error says what to look for."""
    store = open_store(f"sqlite:///{path}", Impatient())
    await store.open()
    rival = apsw.Connection(str(path))
    rival.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnreachable, match="locked by another process"):
        await store.batches.commit(A, [Start(new_run())])
    rival.execute("ROLLBACK")
    rival.close()
    assert await store.batches.commit(A, [Start(new_run())]) == [Answer.ACCEPTED]
    await store.close()


WRITES_FOR_EVER = """
import asyncio, sys
from holdfast.environment import Environment
from holdfast.store import open_store
from holdfast.store.operations import Start
from tests.store.made import join, new_run

async def main():
    store = open_store(sys.argv[1], Environment())
    await store.open()
    await join(store, sys.argv[2])
    print("ready", flush=True)
    while True:
        run = new_run()
        await store.batches.commit(sys.argv[2], [Start(run)])
        print(run.id, flush=True)

asyncio.run(main())
"""


async def test_processes_that_are_killed_lose_nothing_that_was_accepted(store: Store, path: Path) -> None:
    """Four processes write one file and are killed. Every start that was accepted is there, and all four are found
    gone."""
    names = [f"doomed-{n}" for n in range(4)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITES_FOR_EVER, f"sqlite:///{path}", name],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for name in names
    ]
    accepted: set[str] = set()
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdout is not None
        accepted |= {process.stdout.readline().strip() for _ in range(20)}
    assert await deaths(store) == {}
    for process in processes:
        process.kill()
        with process:
            assert process.stdout is not None
            accepted |= {line.strip() for line in process.stdout if line.endswith("\n")}
    for run_id in accepted:
        assert await store.reads.run(run_id) is not None
    assert sorted(await deaths(store)) == names
    assert await broken(store) == set()


async def test_a_run_starts_with_the_callers_transaction(store: Store, path: Path) -> None:
    """They are committed together or not at all. The same start again is the same run, and another input is a
    conflict."""
    mine = apsw.Connection(str(path))
    kept, dropped = new_run(), new_run()
    mine.execute("BEGIN IMMEDIATE")
    await store.batches.start_within(transaction_of(mine), dropped)
    mine.execute("ROLLBACK")
    mine.execute("BEGIN IMMEDIATE")
    await store.batches.start_within(transaction_of(mine), kept)
    assert await store.reads.run(kept.id) is None
    mine.execute("COMMIT")
    assert await store.reads.run(dropped.id) is None
    assert [one.run.id for one in await store.schedulers.claim_runs(A, SERVED, 10)] == [kept.id]
    with mine:
        await store.batches.start_within(transaction_of(mine), kept)
        with pytest.raises(Conflict):
            await store.batches.start_within(transaction_of(mine), new_run(kept.id, digest=b"x" * 16))
    mine.close()


async def test_a_stale_transaction_gets_an_error_with_advice(store: Store, path: Path) -> None:
    """A transaction that read before others wrote cannot write any more. The error says how to begin it."""
    mine = apsw.Connection(str(path))
    mine.execute("BEGIN")
    mine.execute("SELECT count(*) FROM runs").fetchall()
    await start(store)
    with pytest.raises(StoreUnreachable, match="BEGIN IMMEDIATE"):
        await store.batches.start_within(transaction_of(mine), new_run())
    mine.execute("ROLLBACK")
    mine.close()


async def test_another_library_or_file_is_refused(store: Store, tmp_path: Path) -> None:
    """Two SQLite libraries on one file in one process can corrupt it."""
    theirs = sqlite3.connect(":memory:")
    with pytest.raises(StoreUnsupported, match="overwrite each other"):
        await store.batches.start_within(transaction_of(theirs), new_run())
    theirs.close()
    elsewhere = apsw.Connection(str(tmp_path / "other.db"))
    with pytest.raises(StoreUnsupported, match="another database"):
        await store.batches.start_within(transaction_of(elsewhere), new_run())
    elsewhere.close()


async def test_one_id_is_for_one_process(store: Store, path: Path) -> None:
    """A second process that uses the same node id is refused."""
    other = open_store(f"sqlite:///{path}", ENVIRONMENT)
    await other.open()
    with pytest.raises(StoreUnreachable, match="another process runs as node"):
        await join(other, A)
    await other.close()


async def test_lock_files_go_with_their_nodes(store: Store, path: Path) -> None:
    """When a node was reclaimed or has retired, its file is gone."""
    folder = Path(f"{path}-nodes")
    doomed = open_store(f"sqlite:///{path}", ENVIRONMENT)
    await doomed.open()
    await join(doomed, B)
    await doomed.close()
    assert {file.name for file in folder.iterdir()} == {A, B}
    assert await deaths(store) == {B: "its process is gone"}
    epoch = await store.leader.lead(A, LONG_S)
    assert epoch is not None
    await reclaim(store, B, epoch, "its process is gone", 3, 100)
    await store.nodes.retire(A)
    assert list(folder.iterdir()) == []
