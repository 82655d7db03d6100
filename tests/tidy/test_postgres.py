"""The test server itself: every test that uses `pg_url` or `store_url` relies on these claims."""

import asyncpg
import pytest

from tests import postgres


async def test_a_test_gets_an_empty_postgres(pg_url: str) -> None:
    """`pg_url` names a database without tables. Its server does not wait for the disk, because it never has to survive
    a power cut."""
    connection = await asyncpg.connect(pg_url)
    try:
        tables = await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        assert tables == 0
        if postgres.given_server() is None:
            assert await connection.fetchval("SHOW fsync") == "off"
            assert await connection.fetchval("SHOW max_connections") == str(postgres.MAX_CONNECTIONS)
    finally:
        await connection.close()


def test_a_server_of_ones_own_is_durable_and_goes_when_its_folder_is_let_go() -> None:
    """It flushes commits to disk, as measurements need it. Leaving the block stops it and removes its folder."""
    if postgres.given_server() is not None:
        pytest.skip("the server is not ours to stop")
    with postgres.postgres_server() as server:
        assert server.folder is not None
        assert (server.folder / "data" / "postmaster.pid").exists()
        assert "fsync = off" not in (server.folder / "data" / "postgresql.conf").read_text()
    assert not server.folder.exists()


def test_both_stores_are_offered(store_url: str) -> None:
    """`store_url` gives one address per dialect."""
    assert store_url.partition(":")[0] in {"sqlite", "postgresql"}
