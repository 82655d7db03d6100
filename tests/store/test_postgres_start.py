"""A server that is starting up is waited for, and one that goes on starting up is named."""

from urllib.parse import urlsplit

import asyncpg
import msgspec
import psycopg
import pytest

from holdfast.config import DEFAULT
from holdfast.environment import Environment
from holdfast.errors import StoreUnreachable
from holdfast.store.postgres.connections import connect
from holdfast.store.postgres.database import PostgresDatabase, _unreachable
from tests.store.refusing_server import RefusingServer, opened

STARTING = ("57P03", "the database system is starting up")


async def test_a_server_that_is_starting_up_is_waited_for(pg_url: str) -> None:
    """A process that starts together with its database, or while that restarts, works a moment later."""
    there = urlsplit(pg_url)
    async with opened(RefusingServer(*STARTING, 3, there.hostname or "", there.port or 0)) as server:
        url = there._replace(netloc=f"postgres@127.0.0.1:{server.port}").geturl()
        store = PostgresDatabase(url, Environment(), DEFAULT)
        await store.open()
        assert server.refused == 3
        await store.close()


async def test_a_server_that_does_not_get_ready_is_named() -> None:
    """The error comes after `start_s`, and says what the server said."""
    config = msgspec.structs.replace(DEFAULT, start_s=0.3)
    async with opened(RefusingServer(*STARTING)) as server:
        store = PostgresDatabase(server.url, Environment(), config)
        with pytest.raises(StoreUnreachable, match="starting up"):
            await store.open()
        assert server.refused > 1


def test_a_connection_that_was_cut_is_named_in_plain_words() -> None:
    """The driver's own words for it say nothing to an operator. What a host answered is passed on."""
    for cut in (
        asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress"),
        asyncpg.InterfaceError("cannot call Transaction.__aexit__(): the underlying connection is closed"),
    ):
        assert "database: the connection was cut in the middle of a statement:" in str(_unreachable(cut))
    only_reads = asyncpg.TargetServerAttributeNotMatched("None of the hosts match the target attribute")
    assert "None of the hosts match" in str(_unreachable(only_reads))


async def test_a_single_server_that_takes_no_writes_is_connected_to(pg_url: str) -> None:
    """There is no other one to try. What can be read is read, and a write says why it was refused."""
    with psycopg.connect(pg_url, autocommit=True) as session:
        session.execute(
            f'ALTER DATABASE "{session.info.dbname}" SET default_transaction_read_only = on'.encode()
        )
    try:
        connection = await connect(pg_url, DEFAULT)
        assert await connection.fetchval("SHOW transaction_read_only") == "on"
        await connection.close()
    finally:
        with psycopg.connect(
            pg_url, autocommit=True, options="-c default_transaction_read_only=off"
        ) as session:
            session.execute(
                f'ALTER DATABASE "{session.info.dbname}" RESET default_transaction_read_only'.encode()
            )
