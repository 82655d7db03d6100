"""Starting a run inside the caller's own transaction: the run exists when that commits, and never when it does not."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import psycopg
import pytest
from psycopg import rows
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast import Holdfast
from holdfast.errors import Conflict, NoTransaction, StoreUnsupported, UnknownRun
from tests.roles import flows
from tests.roles.conftest import FAST

FOREIGN = Path(__file__).with_name("django_project.py")


async def test_a_run_starts_with_the_callers_asyncpg_transaction(pg_url: str) -> None:
    """The order row and its run commit together or not at all."""
    async with Holdfast(pg_url, config=FAST) as hf:
        connection = await asyncpg.connect(pg_url)
        await connection.execute("CREATE TABLE orders (id text)")
        rolled_back = connection.transaction()
        await rolled_back.start()
        await connection.execute("INSERT INTO orders VALUES ('lost')")
        lost = await hf.within(connection).start(flows.chain.using(id="lost"), 2)
        with pytest.raises(UnknownRun, match="is not committed, or was rolled back"):
            await lost.result(60)  # it has not begun yet, and will not
        await rolled_back.rollback()
        async with connection.transaction():
            await connection.execute("INSERT INTO orders VALUES ('kept')")
            run = await hf.within(connection).start(flows.chain.using(id="kept"), 2)
            with pytest.raises(Conflict):
                await hf.within(connection).start(flows.chain.using(id="kept"), 3)
        assert await run.result(60) == 2
        assert [info.id for info in await hf.runs()] == ["kept"]
        with pytest.raises(UnknownRun):
            await lost.result(60)
        await connection.close()


async def test_a_run_dies_with_its_savepoint(pg_url: str) -> None:
    """A part of a transaction that is rolled back takes its run with it. The rest commits with its own run."""
    async with Holdfast(pg_url, config=FAST) as hf, asyncpg.create_pool(pg_url) as pool:
        async with pool.acquire() as connection, connection.transaction():
            await hf.within(connection).start(flows.chain.using(id="kept"), 1)
            inner = connection.transaction()
            await inner.start()
            await hf.within(connection).start(flows.chain.using(id="lost"), 1)
            await inner.rollback()
        assert await hf.run("kept", flows.chain).result(60) == 1
        assert [info.id for info in await hf.runs()] == ["kept"]


@pytest.mark.parametrize("row_factory", [rows.tuple_row, rows.dict_row])
async def test_a_run_starts_with_the_callers_psycopg_transaction(pg_url: str, row_factory: Any) -> None:
    """Connections of psycopg 3 work, too, both kinds, whatever their rows look like."""
    async with Holdfast(pg_url, config=FAST) as hf:
        async with await psycopg.AsyncConnection.connect(pg_url, row_factory=row_factory) as connection:
            async with connection.transaction():
                run = await hf.within(connection).start(flows.chain.using(id="a"), 2)
            assert await run.result(60) == 2
            async with connection.transaction(force_rollback=True):
                await hf.within(connection).start(flows.chain.using(id="lost"), 2)
        with psycopg.connect(pg_url, row_factory=row_factory) as plain:
            with plain.transaction():
                run = await hf.within(plain).start(flows.chain.using(id="b"), 3)
            plain.execute("SELECT 1")
            await hf.within(plain).start(flows.chain.using(id="b"), 3)  # starting it again gives the same run
            with pytest.raises(Conflict):
                await hf.within(plain).start(flows.chain.using(id="b"), 4)
            await hf.within(plain).start(flows.chain.using(id="lost too"), 3)
            plain.rollback()
        assert await run.result(60) == 3
        assert [info.id for info in await hf.runs()] == ["b", "a"]


async def test_a_transaction_that_waits_for_ours_does_not_stop_ours(pg_url: str) -> None:
    """Two transactions of the caller start one run, on connections that block. The second waits for the first, which
    the event loop must be free to end."""
    async with Holdfast(pg_url, config=FAST) as hf:
        with psycopg.connect(pg_url) as first, psycopg.connect(pg_url) as second:
            first.execute("SELECT 1")
            second.execute("SELECT 1")
            await hf.within(first).start(flows.chain.using(id="one"), 2)
            waits = asyncio.ensure_future(hf.within(second).start(flows.chain.using(id="one"), 2))
            other = await (await hf.start(flows.chain, 1)).result(60)  # the loop goes on meanwhile
            assert (other, waits.done()) == (1, False)
            first.commit()
            assert await (await waits).result(60) == 2


async def test_a_run_starts_with_the_callers_sqlite_transaction(tmp_path: Path) -> None:
    """On SQLite the caller's own apsw connection to the same file carries the start, savepoints included."""
    file = tmp_path / "app.db"
    async with Holdfast(f"sqlite:///{file}", config=FAST) as hf:
        with closing(apsw.Connection(str(file))) as connection:
            connection.execute("CREATE TABLE orders (id text)")
            connection.execute("BEGIN")
            await hf.within(connection).start(flows.chain.using(id="lost"), 2)
            connection.execute("ROLLBACK")
            with connection:
                connection.execute("INSERT INTO orders VALUES ('kept')")
                run = await hf.within(connection).start(flows.chain.using(id="kept"), 2)
                connection.execute("SAVEPOINT part")
                await hf.within(connection).start(flows.chain.using(id="lost too"), 2)
                connection.execute("ROLLBACK TO part")
            assert await run.result(60) == 2
            assert [info.id for info in await hf.runs()] == ["kept"]


async def test_outside_a_transaction_nothing_is_started(pg_url: str, tmp_path: Path) -> None:
    """The run would exist at once or never. So it is refused, with advice how to begin a transaction."""
    async with Holdfast(pg_url, config=FAST) as hf:
        driver = await asyncpg.connect(pg_url)
        later = await psycopg.AsyncConnection.connect(pg_url, autocommit=True)
        with psycopg.connect(pg_url, autocommit=True) as plain, psycopg.connect(pg_url) as idle:
            idle.execute("SELECT 1")
            idle.commit()
            for connection in (driver, later, plain, idle):
                with pytest.raises(NoTransaction, match=r"outside a transaction.*begin one"):
                    await hf.within(connection).start(flows.chain, 1)
            idle.execute("SELECT 1")
            with pytest.raises(psycopg.Error):
                idle.execute("nonsense")
            with pytest.raises(NoTransaction):
                await hf.within(idle).start(flows.chain, 1)
        await driver.close()
        await later.close()
        assert await hf.runs() == []
    async with Holdfast(f"sqlite:///{tmp_path}/app.db", config=FAST) as hf:
        with (
            closing(apsw.Connection(str(tmp_path / "app.db"))) as mine,
            pytest.raises(NoTransaction, match=r"begin one.*BEGIN IMMEDIATE"),
        ):
            await hf.within(mine).start(flows.chain, 1)
        assert await hf.runs() == []


async def test_a_connection_to_another_database_is_refused(pg_url: str) -> None:
    """A transaction is in one database only."""
    async with Holdfast(pg_url, config=FAST) as hf:
        elsewhere = pg_url.replace(pg_url.rpartition("/")[2].partition("?")[0], "postgres")
        connection = await asyncpg.connect(elsewhere)
        async with connection.transaction():
            with pytest.raises(StoreUnsupported, match="another database"):
                await hf.within(connection).start(flows.chain, 1)
        await connection.close()
        assert await hf.runs() == []


async def test_a_connection_of_another_kind_is_refused(store_url: str) -> None:
    """The error names a connection that cannot carry the start, and nothing is started."""
    async with Holdfast(store_url, config=FAST) as hf:
        with sqlite3.connect(":memory:") as connection, pytest.raises(StoreUnsupported, match="sqlite3"):
            await hf.within(connection).start(flows.chain, 1)
        assert await hf.runs() == []


def test_two_sqlite_libraries_in_one_process_do_not_see_each_others_locks(tmp_path: Path) -> None:
    """This is why only apsw carries a start on SQLite: otherwise both may write at once, and a commit that was answered
    is gone."""
    ours = apsw.Connection(str(tmp_path / "app.db"))
    ours.pragma("journal_mode", "WAL")
    ours.execute("CREATE TABLE orders (id text)")
    with closing(ours), closing(sqlite3.connect(tmp_path / "app.db", isolation_level=None)) as theirs:
        ours.execute("BEGIN IMMEDIATE")
        ours.execute("INSERT INTO orders VALUES ('ours')")
        theirs.execute("BEGIN IMMEDIATE")
        theirs.execute("INSERT INTO orders VALUES ('theirs')")
        theirs.execute("COMMIT")
        ours.execute("COMMIT")
        assert ours.execute("SELECT id FROM orders").fetchall() == [("ours",)]


# --- SQLAlchemy ---------------------------------------------------------------------------------------------------


@pytest.fixture
async def hf(pg_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(pg_url, config=FAST) as opened:
        yield opened


@pytest.fixture
def engine(pg_url: str) -> Iterator[Engine]:
    made = create_engine(pg_url.replace("postgresql://", "postgresql+psycopg://"))
    yield made
    made.dispose()


@pytest.fixture(params=["asyncpg", "psycopg"])
async def async_engine(pg_url: str, request: pytest.FixtureRequest) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(pg_url.replace("postgresql://", f"postgresql+{request.param}://"))
    yield made
    await made.dispose()


async def test_a_run_starts_with_an_async_session(hf: Holdfast, async_engine: AsyncEngine) -> None:
    """It works with `session.begin()`, as its first or a later statement, on both drivers. The run goes with a
    rollback, and with a savepoint that is rolled back."""
    async with AsyncSession(async_engine) as session:
        async with session.begin():
            run = await hf.within(session).start(flows.chain.using(id="kept"), 2)
            savepoint = await session.begin_nested()
            await hf.within(session).start(flows.chain.using(id="lost"), 2)
            await savepoint.rollback()
        assert await run.result(60) == 2
        await session.execute(text("SELECT 1"))
        await hf.within(session).start(flows.chain.using(id="lost too"), 2)
        await session.rollback()
        with pytest.raises(NoTransaction):
            await hf.within(session).start(flows.chain.using(id="after"), 2)
    assert [info.id for info in await hf.runs()] == ["kept"]


async def test_a_run_starts_with_an_async_connection(hf: Holdfast, async_engine: AsyncEngine) -> None:
    """`engine.begin()` works, too. In autocommit mode there is no transaction, whatever SQLAlchemy calls it."""
    async with async_engine.begin() as connection:
        run = await hf.within(connection).start(flows.chain.using(id="kept"), 2)
    assert await run.result(60) == 2
    with suppress(ZeroDivisionError):
        async with async_engine.begin() as connection:
            await hf.within(connection).start(flows.chain.using(id="lost"), 2)
            raise ZeroDivisionError
    async with async_engine.connect() as connection:
        at_once = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await at_once.execute(text("SELECT 1"))
        with pytest.raises(NoTransaction):
            await hf.within(at_once).start(flows.chain.using(id="at once"), 2)
    assert [info.id for info in await hf.runs()] == ["kept"]


def test_plain_code_starts_a_run_with_its_session(pg_url: str, engine: Engine) -> None:
    """It works with sessions, scoped sessions and connections, with savepoints, rollbacks and autocommit as above."""
    with Holdfast(pg_url, config=FAST) as hf:

        def start(on: Session | scoped_session[Session] | Connection, run_id: str) -> None:
            hf.wait(hf.within(on).start(flows.chain.using(id=run_id), 2))

        with Session(engine) as session:
            with session.begin():
                start(session, "session")
                with suppress(ZeroDivisionError), session.begin_nested():
                    start(session, "lost")
                    raise ZeroDivisionError
            session.execute(text("SELECT 1"))
            start(session, "lost too")
            session.rollback()
            with pytest.raises(NoTransaction, match=r"session\.begin"):
                start(session, "after")
        scoped = scoped_session(sessionmaker(engine))
        with scoped.begin():
            start(scoped, "scoped")
        scoped.remove()
        with engine.begin() as connection:
            start(connection, "connection")
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("SELECT 1"))
            with pytest.raises(NoTransaction):
                start(connection, "at once")
        with pytest.raises(StoreUnsupported, match="the session or connection itself"):
            hf.within(engine)
        for run_id in ("session", "scoped", "connection"):
            assert hf.wait(hf.run(run_id, flows.chain).result(60)) == 2
        assert [info.id for info in hf.wait(hf.runs())] == ["connection", "scoped", "session"]


def test_sqlalchemy_on_sqlite_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """It uses another SQLite library. Nothing is started, and nothing is overwritten."""
    engine = create_engine(f"sqlite:///{tmp_path}/orders.db")
    with Holdfast(f"sqlite:///{tmp_path}/app.db", config=FAST) as hf, engine.begin() as connection:
        with pytest.raises(StoreUnsupported, match=r"after your commit.*or use PostgreSQL"):
            hf.wait(hf.within(connection).start(flows.chain, 1))
        assert hf.wait(hf.runs()) == []
    engine.dispose()


# --- Django -------------------------------------------------------------------------------------------------------


def test_django_starts_a_run_within_atomic(pg_url: str) -> None:
    """This is a real Django project: with `atomic`, nested and rolled back, and outside of it."""
    done = subprocess.run(
        [sys.executable, FOREIGN, pg_url], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["kept", "succeeded"]
