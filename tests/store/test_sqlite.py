# ruff: noqa: ASYNC240  a test may wait for a file or a process
"""A SQLite file: where it is, whom it belongs to, and what can be wrong with it."""

import asyncio
import os
import re
import shutil
import sqlite3
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.config import DEFAULT
from holdfast.errors import SchemaMismatch, StoreError, StoreFull, StoreUnreachable, StoreUnsupported
from holdfast.model import RunState
from holdfast.store import open_store
from holdfast.store.answers import Answer
from holdfast.store.operations import Hop, Start
from holdfast.store.reads import RunFilter
from holdfast.store.sqlite import connections, schema
from holdfast.store.sqlite.address import path_of
from holdfast.store.sqlite.database import SqliteDatabase
from holdfast.store.store import Store
from tests.store.made import (
    ENVIRONMENT,
    A,
    begin,
    broken,
    call,
    closing,
    deaths,
    join,
    new_run,
    running_call,
    start,
    step,
    succeeded,
)


def connections_of(store: Store) -> connections.Connections:
    """Return the connections of a store on SQLite."""
    assert isinstance(store.database, SqliteDatabase)
    return store.database.connections


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


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///holdfast.db", "holdfast.db"),
        ("sqlite:///data/holdfast.db", "data/holdfast.db"),
        ("sqlite:////var/lib/holdfast.db", "/var/lib/holdfast.db"),
        ("sqlite:///a%20b.db", "a b.db"),
        ("sqlite://:memory:", ":memory:"),
        ("sqlite:///:memory:", ":memory:"),
    ],
)
def test_a_url_names_a_file(url: str, path: str) -> None:
    """A path after three slashes is relative, and after four it is absolute."""
    assert path_of(url) == path


@pytest.mark.parametrize(
    "url", ["sqlite:", "sqlite://", "sqlite:///", "sqlite://host/file.db", "sqlite:///folder/"]
)
def test_a_url_without_a_file_is_refused(url: str) -> None:
    """The message shows how to write it."""
    with pytest.raises(StoreUnsupported, match=r"sqlite:///file\.db"):
        open_store(url, ENVIRONMENT)


async def test_files_are_for_their_owner_alone(store: Store, path: Path) -> None:
    """Others have no rights on the database, its log and the folder of the nodes."""
    await start(store)
    files = [path, Path(f"{path}-wal"), Path(f"{path}-shm"), Path(f"{path}-nodes"), Path(f"{path}-nodes") / A]
    assert [stat.S_IMODE(file.stat().st_mode) & 0o077 for file in files] == [0] * 5


async def test_a_file_is_durable_and_says_that_it_is_ours(store: Store, path: Path) -> None:
    """It has a write-ahead log, every commit is flushed, and it has an application id."""
    connection = apsw.Connection(str(path))
    assert connection.pragma("journal_mode") == "wal"
    assert connection.pragma("application_id") == schema.APPLICATION_ID
    assert connection.pragma("user_version") == len(schema.known())
    connection.close()
    async with connections_of(store).transaction() as writer:
        assert writer.pragma("synchronous") == 2


async def test_apsw_keeps_as_many_statements_as_it_is_asked_for(store: Store) -> None:
    """It would silently keep fewer than it is asked for, if that were more than it can."""
    assert connections_of(store).writer.cache_stats()["size"] == connections.STATEMENTS_KEPT


async def test_what_was_accepted_is_there_after_opening_again(path: Path) -> None:
    """A store that was closed and opened again has the same rows."""
    first = open_store(f"sqlite:///{path}", ENVIRONMENT)
    await first.open()
    run_id = await start(first)
    await first.close()
    assert not Path(f"{path}-wal").exists()
    second = open_store(f"sqlite:///{path}", ENVIRONMENT)
    await second.open()
    assert await second.reads.run(run_id) is not None
    await second.close()


async def test_a_database_in_memory_does_everything() -> None:
    """It uses the same code on one connection. The simulations run on such a store."""
    store = open_store("sqlite://:memory:", ENVIRONMENT)
    await store.open()
    await join(store, A)
    runs = await asyncio.gather(
        *(begin(store, running_call(1)) for _ in range(20)), store.reads.run("no-such-run")
    )
    for run_id in runs[:-1]:
        assert run_id is not None
        hop = Hop(str(run_id), 1, outcomes=[succeeded(1, 1, 1)], close=closing())
        assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]
    assert await store.reads.runs_by_state() == {"succeeded": 20}
    assert await broken(store) == set()
    assert await deaths(store) == {}
    close = await store.nodes.listen(lambda bell: None)
    await close()
    await store.close()


async def refusal(url: str) -> StoreError:
    store = open_store(url, ENVIRONMENT)
    with pytest.raises(StoreError) as caught:
        await store.open()
    await store.close()
    assert "\n" not in str(caught.value)
    return caught.value


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """The error says that the folder must be created."""
    error = await refusal(f"sqlite:///{tmp_path}/nowhere/holdfast.db")
    assert isinstance(error, StoreUnreachable)
    assert "nowhere does not exist: create it" in str(error)


async def test_a_file_that_is_no_database_is_left_alone(path: Path) -> None:
    """A file that is not a SQLite file is refused, and not a byte of it is changed."""
    path.write_bytes(b"these are my notes, not a database\n" * 100)
    before = path.read_bytes()
    error = await refusal(f"sqlite:///{path}")
    assert isinstance(error, StoreUnsupported)
    assert "is not a SQLite database" in str(error)
    assert path.read_bytes() == before


async def test_another_programs_database_is_left_alone(path: Path) -> None:
    """A SQLite file with the tables of another program is refused by open and by migrate, and not a byte of it is
    changed."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    before = path.read_bytes()
    assert isinstance(await refusal(f"sqlite:///{path}"), SchemaMismatch)
    store = open_store(f"sqlite:///{path}", ENVIRONMENT)
    with pytest.raises(SchemaMismatch, match="another program"):
        await store.migrate()
    assert path.read_bytes() == before


async def test_an_older_file_asks_to_be_migrated(store: Store, path: Path) -> None:
    """An existing file is upgraded only when asked."""
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM migrations")
    connection.close()
    error = await refusal(f"sqlite:///{path}")
    assert isinstance(error, SchemaMismatch)
    assert "holdfast migrate" in str(error)


async def test_a_folder_is_no_database(tmp_path: Path) -> None:
    """The error says that it cannot be opened."""
    assert isinstance(await refusal(f"sqlite:///{tmp_path}"), StoreUnreachable)


async def test_using_a_store_that_is_not_open_says_so(path: Path) -> None:
    """It raises an error, and neither crashes nor hangs."""
    store = open_store(f"sqlite:///{path}", ENVIRONMENT)
    with pytest.raises(StoreUnreachable, match="not open"):
        await store.reads.run("any")
    with pytest.raises(StoreUnreachable, match="not open"):
        await store.batches.commit(A, [Start(new_run())])


def small_disk(store: Store) -> Any:
    """Keep the file from growing, as a full disk would."""
    writer = connections_of(store).writer
    writer.pragma("max_page_count", writer.pragma("page_count"))
    return writer


async def test_a_full_disk_loses_nothing(store: Store) -> None:
    """A commit that finds no room has its own error, everything before it stays, and commits work again when there is
    room."""
    run_id = await begin(store, running_call(1))
    writer = small_disk(store)
    hop = Hop(run_id, 1, outcomes=[succeeded(1, 1, 1, b"x" * 100_000)])
    with pytest.raises(StoreFull, match="is full: make room"):
        await store.batches.commit(A, [hop])
    assert (await step(store, run_id)).output is None
    writer.pragma("max_page_count", 1_000_000)
    assert await store.batches.commit(A, [hop]) == [Answer.ACCEPTED]


async def test_a_full_disk_has_its_own_error_outside_the_writer(store: Store) -> None:
    """A direct call of the store raises StoreFull."""
    run_id = await begin(store)
    small_disk(store)
    with pytest.raises(StoreFull, match="is full"):
        await store.operators.hold(run_id, "ann", "x" * 100_000)
    run = await store.reads.run(run_id)
    assert run is not None
    assert run.state is RunState.RUNNING


async def test_a_read_only_file_is_named(store: Store) -> None:
    """The error says that the file is read-only, and what to do."""
    run_id = await begin(store)
    writer = connections_of(store).writer
    writer.pragma("query_only", 1)
    with pytest.raises(StoreFull, match="read-only: make the file"):
        await store.operators.hold(run_id, "ann", "")


async def test_a_bad_row_is_answered_alone(store: Store) -> None:
    """An operation that the database refuses fails with the reason, and no other operation fails."""
    run_id = await begin(store, running_call(1))
    bad = Hop(run_id, 1, issued=[call(2, kind="errand")])
    with pytest.raises(StoreError, match="CHECK constraint failed"):
        await store.batches.commit(A, [bad])
    assert [one.n for one in await store.reads.steps(run_id)] == [1]


def test_the_store_keeps_its_contract() -> None:
    """The type checker agrees that this is a Store."""
    store = open_store("sqlite://:memory:", ENVIRONMENT, DEFAULT)
    assert store.url == "sqlite://:memory:"


async def test_the_log_does_not_grow_for_ever(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write-ahead log is moved into the file while commits go on, and then begins anew."""
    monkeypatch.setattr(connections, "CHECKPOINT_PAGES", 50)
    log, sizes = path.with_name(path.name + "-wal"), []
    for number in range(600):
        await store.batches.commit(A, [Start(new_run(f"run-{number}"))])
        sizes.append(log.stat().st_size)
    written = 600 * 3 * connections.PAGE_BYTES  # at least the row, and its entries in two indexes
    assert max(sizes) < written / 3
    assert len(await store.reads.runs(RunFilter(limit=1_000))) == 600


async def test_what_is_moved_out_of_the_log_is_still_there(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moving the log loses nothing. Another process that opens the file afterwards finds every commit."""
    monkeypatch.setattr(connections, "CHECKPOINT_PAGES", 20)
    for number in range(100):
        await store.batches.commit(A, [Start(new_run(f"run-{number}"))])
    other = apsw.Connection(str(path))
    assert other.execute("SELECT count(*) FROM runs").get == 100
    assert other.execute("PRAGMA integrity_check").get == "ok"
    other.close()


async def test_a_link_that_leads_nowhere_is_refused(path: Path, tmp_path: Path) -> None:
    """SQLite would create its target, readable for everybody."""
    path.symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(StoreUnreachable, match=r"it is a link to .*elsewhere\.db, which does not exist"):
        await open_store(f"sqlite:///{path}", ENVIRONMENT).open()
    assert not (tmp_path / "elsewhere.db").exists()


async def test_a_link_to_a_database_is_followed(path: Path, tmp_path: Path) -> None:
    """A link to an existing database is a name like any other."""
    (tmp_path / "link.db").symlink_to(path)
    for name in ("holdfast.db", "link.db"):
        store = open_store(f"sqlite:///{tmp_path / name}", ENVIRONMENT)
        await store.open()
        await store.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_file_of_another_user_that_everybody_may_write_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can write the file decides which steps run, with which input."""
    store = open_store(f"sqlite:///{path}", ENVIRONMENT)
    await store.open()
    await store.close()
    path.chmod(0o666)
    monkeypatch.setattr("os.geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(StoreUnsupported, match="belongs to another user and everybody may write it"):
        await store.open()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("end", connections.BESIDE)
async def test_what_another_user_put_beside_the_file_is_refused(path: Path, end: str, exists: bool) -> None:
    """Where everybody may create files. SQLite would read their log into the database. In other folders, those who may
    create files are trusted."""
    store = open_store(f"sqlite:///{path}", ENVIRONMENT)
    if exists:
        await store.open()
        await store.close()
    beside = Path(f"{path}{end}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir() if end == "-nodes" else beside.touch()
    os.chown(beside, 65534, -1)
    path.parent.chmod(0o1777)
    with pytest.raises(StoreUnsupported, match=f"{re.escape(str(beside))} belongs to another user"):
        await store.open()
    assert path.exists() is exists
    path.parent.chmod(0o2770)
    await store.open()
    await store.close()


async def test_a_file_of_ours_that_everybody_may_write_gives_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be on purpose, so this is only a warning."""
    store = open_store(f"sqlite:///{path}", ENVIRONMENT)
    await store.open()
    await store.close()
    path.chmod(0o666)
    await store.open()
    await store.close()
    assert "`chmod 600" in caplog.text


async def test_a_new_file_that_another_process_sets_up_is_waited_for(path: Path) -> None:
    """The first processes of a new file may come at the same moment. None of them finds it locked."""
    first = apsw.Connection(str(path))
    first.execute("BEGIN IMMEDIATE")
    second = connections.Connections(str(path), ENVIRONMENT)
    opening = asyncio.create_task(asyncio.to_thread(second.open_now))
    done, _ = await asyncio.wait([opening], timeout=0.3)
    first.execute("ROLLBACK")
    first.close()
    await opening
    assert not done, "it waited"
    await second.close()
