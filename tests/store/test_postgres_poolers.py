"""A pooler that does not give each node its own sessions is refused, with what to do, before anything is written
through it."""

import asyncpg
import pytest

from holdfast.config import DEFAULT
from holdfast.environment import Environment
from holdfast.errors import StoreUnsupported
from holdfast.store.postgres.database import PostgresDatabase
from tests.store.refusing_server import RefusingServer, opened


async def test_a_pooler_that_takes_no_settings_is_refused() -> None:
    """Such a pooler moves sessions between clients, and bells with them. It answers so unless it is configured to ignore
    settings."""
    async with opened(RefusingServer("08P01", "unsupported startup parameter: jit")) as pooler:
        store = PostgresDatabase(pooler.url, Environment(), DEFAULT)
        with pytest.raises(
            StoreUnsupported, match="names a connection pooler: unsupported startup parameter"
        ):
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
