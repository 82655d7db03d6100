"""Starting a run inside the caller's own transaction: it exists when that commits, and never when it does not."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import apsw
import asyncpg
import psycopg
import pytest

from holdfast import Holdfast
from holdfast.errors import Conflict, StoreUnsupported
from tests.roles import flows
from tests.roles.conftest import FAST


async def test_a_run_starts_with_the_callers_asyncpg_transaction(pg_url: str) -> None:
    """The order row and its run commit together or not at all."""
    async with Holdfast(pg_url, config=FAST) as hf:
        connection = await asyncpg.connect(pg_url)
        await connection.execute("CREATE TABLE orders (id text)")
        rolled_back = connection.transaction()
        await rolled_back.start()
        await connection.execute("INSERT INTO orders VALUES ('lost')")
        await hf.within(connection).start(flows.chain.using(id="lost"), 2)
        await rolled_back.rollback()
        async with connection.transaction():
            await connection.execute("INSERT INTO orders VALUES ('kept')")
            run = await hf.within(connection).start(flows.chain.using(id="kept"), 2)
        assert await run.result(10) == 2
        assert [row.id for row in await hf.runs()] == ["kept"]
        with pytest.raises(Conflict):
            await hf.within(connection).start(flows.chain.using(id="kept"), 3)
        await connection.close()


async def test_a_run_starts_with_the_callers_psycopg_transaction(pg_url: str) -> None:
    """psycopg 3 connections work too, both kinds."""
    async with Holdfast(pg_url, config=FAST) as hf:
        async with await psycopg.AsyncConnection.connect(pg_url) as connection:
            run = await hf.within(connection).start(flows.chain.using(id="a"), 2)
        assert await run.result(10) == 2
        with psycopg.connect(pg_url) as plain:
            run = await hf.within(plain).start(flows.chain.using(id="b"), 3)
        assert await run.result(10) == 3


async def test_a_run_starts_with_the_callers_sqlite_transaction(tmp_path: Path) -> None:
    """On SQLite the caller's own apsw connection to the same file carries the start."""
    file = tmp_path / "app.db"
    async with Holdfast(f"sqlite:///{file}", config=FAST) as hf:
        connection = apsw.Connection(str(file))
        connection.execute("CREATE TABLE orders (id text)")
        connection.execute("BEGIN")
        await hf.within(connection).start(flows.chain.using(id="lost"), 2)
        connection.execute("ROLLBACK")
        with connection:
            connection.execute("INSERT INTO orders VALUES ('kept')")
            run = await hf.within(connection).start(flows.chain.using(id="kept"), 2)
        assert await run.result(10) == 2
        assert [row.id for row in await hf.runs()] == ["kept"]
        connection.close()


async def test_a_connection_of_another_kind_is_refused(store_url: str) -> None:
    """A connection that cannot carry the start is named, and nothing is started."""
    async with Holdfast(store_url, config=FAST) as hf:
        with sqlite3.connect(":memory:") as connection, pytest.raises(StoreUnsupported, match="sqlite3"):
            await hf.within(connection).start(flows.chain, 1)
        assert await hf.runs() == []


def test_plain_code_starts_and_waits(store_url: str) -> None:
    """`with Holdfast(…)` serves programs that have no event loop."""
    with Holdfast(store_url, config=FAST) as hf:
        assert hf.start_sync(flows.chain, 3).wait(10) == 3
