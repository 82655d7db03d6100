"""A pooler that does not give each node its own sessions is refused, with what to do, before anything is written
through it."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from holdfast.config import DEFAULT
from holdfast.environment import Environment
from holdfast.errors import StoreUnsupported
from holdfast.store.postgres.database import PostgresDatabase

REFUSAL = b"SERROR\0C08P01\0Munsupported startup parameter: jit\0\0"


@pytest.fixture
async def pooler_url() -> AsyncIterator[str]:
    """A server that answers as pgbouncer does to a connection with settings, unless it is configured to ignore them."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while size := int.from_bytes(await reader.read(4)):
            asked = await reader.readexactly(size - 4)
            if asked[:4] == (80877103).to_bytes(4):  # may we speak TLS?
                writer.write(b"N")
                continue
            writer.write(b"E" + (len(REFUSAL) + 4).to_bytes(4) + REFUSAL)
            break
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"


async def test_a_pooler_that_takes_no_settings_is_refused(pooler_url: str) -> None:
    """Such a pooler moves sessions between clients, and bells with them."""
    store = PostgresDatabase(pooler_url, Environment(), DEFAULT)
    with pytest.raises(StoreUnsupported, match="names a connection pooler: unsupported startup parameter"):
        await store.open()


async def test_a_session_that_is_changed_underneath_is_refused(pg_url: str) -> None:
    """If a pooler ignores the settings, a prepared statement is missing later. The error names the pooler then."""
    store = PostgresDatabase(pg_url, Environment(), DEFAULT)
    await store.open()

    async def hand_round(connection: asyncpg.Connection) -> None:
        await connection.fetchval("SELECT 1 + 1")
        await connection.execute("DEALLOCATE ALL")
        await connection.fetchval("SELECT 1 + 1")

    with pytest.raises(StoreUnsupported, match="name the PostgreSQL server itself"):
        await store.on_pool(hand_round)
    await store.close()
